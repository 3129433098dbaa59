/* Linux's usbfs for a process that has none, to be preloaded: sysfs and device nodes are
 * those below the folder EDGEC_USBFS, and a node's device is the stick that is served by
 * USB/IP at the Unix socket which the node names.
 *
 * Numbers and structures are those of include/uapi/linux/usbdevice_fs.h, behaviour that of
 * drivers/usb/core/devio.c; messages: Documentation/usb/usbip_protocol.rst. A handle is
 * used by one thread at a time.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <linux/usbdevice_fs.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plug_messages.h"

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

enum { HANDLES = 64, LIMIT = 16 << 20, PIECE = 256 << 10 };

/* A transfer; without a user's structure it is a control transfer that is waited for. */
struct urb {
    struct urb *next;
    struct usbdevfs_urb *user;
    uint32_t number, unlink;
    int status, actual, length, ended;
    unsigned char *data;
};

struct handle {
    int fd, socket, busy, gone;
    uint32_t number;
    long bytes;
    struct urb *pending, *ended;
};

static struct handle handles[HANDLES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static struct handle *handle_of(int fd)
{
    for (int i = 0; i < HANDLES; i++)
        if (handles[i].socket > 0 && handles[i].fd == fd) return &handles[i];
    return NULL;
}

static const char *moved(const char *path, char *room, size_t size)
{
    const char *root = getenv("EDGEC_USBFS");
    if (!root || !path) return path;
    if (strncmp(path, "/dev/bus/usb", 12) && strncmp(path, "/sys/bus/usb", 12)) return path;
    snprintf(room, size, "%s%s", root, path);
    return room;
}

/* ---- messages */

/* Imports the device with this number on its bus from the stick that a node names; returns
 * the socket, 0 if another client has it, or -1. */
static int imported(int node, uint32_t wanted)
{
    unsigned char request[40] = {1, 0x11, 0x80, 3}, head[8], facts[312];
    strcpy((char *)request + 8, "1-1");
    char path[108] = "";
    if (pread(node, path, sizeof path - 1, 0) < 0) return -1;
    int s = connected(path);
    if (s < 0) return -1;
    if (all_sent(s, request, sizeof request) && all_received(s, head, sizeof head)) {
        uint32_t status = number_at(head + 4);
        if (status == 0 && all_received(s, facts, sizeof facts) &&
            number_at(facts + 292) == wanted)
            return s;
        REAL(close)(s);
        return status == 2 ? 0 : -1;
    }
    REAL(close)(s);
    return -1;
}

/* ---- transfers */

static void finished(struct handle *h, struct urb *u, int status)
{
    u->status = status;
    u->ended = 1;
    if (!u->user) return;
    h->bytes -= u->length;
    struct urb **end = &h->ended;
    while (*end) end = &(*end)->next;
    u->next = NULL;
    *end = u;
}

static struct urb *taken(struct handle *h, uint32_t number, int unlink)
{
    for (struct urb **at = &h->pending; *at; at = &(*at)->next)
        if ((unlink ? (*at)->unlink : (*at)->number) == number) {
            struct urb *u = *at;
            *at = u->next;
            return u;
        }
    return NULL;
}

static void lost(struct handle *h)
{
    h->gone = 1;
    while (h->pending) {
        struct urb *u = h->pending;
        h->pending = u->next;
        finished(h, u, -ESHUTDOWN);
    }
}

/* Takes one reply, for which it waits some ms; returns 1 if one came, else 0, or -1 if a signal
 * ended the wait. */
static int replied(struct handle *h, int ms)
{
    struct pollfd p = {.fd = h->socket, .events = POLLIN};
    unsigned char reply[48];
    if (h->gone) return 0;
    int n = REAL(poll)(&p, 1, ms);
    if (n <= 0) return n < 0 && errno == EINTR ? -1 : 0;
    if (!all_received(h->socket, reply, sizeof reply)) {
        lost(h);
        return 1;
    }
    uint32_t command = number_at(reply), number = number_at(reply + 4);
    int32_t status = (int32_t)number_at(reply + 20);
    struct urb *u = taken(h, number, command == 4);
    if (!u) return 1; /* an unlink that came too late */
    if (command == 3) {
        u->actual = (int)number_at(reply + 24);
        if (u->data && u->actual && !all_received(h->socket, u->data, (size_t)u->actual)) {
            u->next = h->pending, h->pending = u;
            lost(h);
            return 1;
        }
    }
    finished(h, u, command == 4 ? -ENOENT : status);
    return 1;
}

static int begun(struct handle *h, struct urb *u, unsigned char endpoint,
                 const unsigned char *setup, const void *data)
{
    unsigned char message[48] = {0};
    int inwards = endpoint >> 7;
    if (h->gone) return -ENODEV;
    u->number = ++h->number;
    if (inwards) u->data = malloc((size_t)u->length + 1);
    put(message, 1), put(message + 4, u->number), put(message + 8, 1);
    put(message + 12, (uint32_t)inwards), put(message + 16, endpoint & 15u);
    put(message + 24, (uint32_t)u->length);
    if (setup) memcpy(message + 40, setup, 8);
    u->next = h->pending, h->pending = u;
    if (!both_sent(h->socket, message, sizeof message, data, inwards ? 0 : (size_t)u->length)) {
        taken(h, u->number, 0);
        lost(h);
        return -ENODEV;
    }
    return 0;
}

static void unlinked(struct handle *h, struct urb *u)
{
    unsigned char message[48] = {0};
    if (u->unlink) return;
    u->unlink = ++h->number;
    put(message, 2), put(message + 4, u->unlink), put(message + 8, 1), put(message + 20, u->number);
    if (!all_sent(h->socket, message, sizeof message)) lost(h);
}

static long ms_since(const struct timespec *start)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (t.tv_sec - start->tv_sec) * 1000 + (t.tv_nsec - start->tv_nsec) / 1000000;
}

static int control(struct handle *h, const struct usbdevfs_ctrltransfer *c)
{
    unsigned char setup[8] = {c->bRequestType, c->bRequest, (uint8_t)c->wValue,
                              (uint8_t)(c->wValue >> 8), (uint8_t)c->wIndex,
                              (uint8_t)(c->wIndex >> 8), (uint8_t)c->wLength,
                              (uint8_t)(c->wLength >> 8)};
    struct urb u = {.length = c->wLength};
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    int r = begun(h, &u, c->bRequestType & 0x80, setup, c->data);
    while (!r && !u.ended) {
        long left = (long)c->timeout - ms_since(&start);
        if (left <= 0 && !u.unlink) unlinked(h, &u);
        replied(h, left > 0 ? (int)left : 1000);
    }
    if (!r) r = u.status == -ENOENT ? -ETIMEDOUT : u.status ? u.status : u.actual;
    if (r > 0 && u.data) memcpy(c->data, u.data, (size_t)r);
    free(u.data);
    return r;
}

static int submitted(struct handle *h, struct usbdevfs_urb *user)
{
    const char *set = getenv("EDGEC_USBFS_CAPABILITIES");
    int gathers = (set ? atoi(set) : 8) & USBDEVFS_CAP_BULK_SCATTER_GATHER;
    if (h->busy) return -EBUSY;
    if (h->bytes + user->buffer_length > LIMIT) return -ENOMEM;
    if (!gathers && user->buffer_length > PIECE) return -ENOMEM;
    struct urb *u = calloc(1, sizeof *u);
    u->user = user, u->length = user->buffer_length;
    int r = begun(h, u, user->endpoint, NULL, user->buffer);
    if (r) free(u->data), free(u);
    else h->bytes += u->length;
    return r;
}

static int reaped(struct handle *h, void **where)
{
    while (replied(h, 0) > 0) {}
    struct urb *u = h->ended;
    if (!u) return h->gone ? -ENODEV : -EAGAIN;
    h->ended = u->next;
    u->user->status = u->status;
    u->user->actual_length = u->actual;
    if (u->data && u->actual > 0 && u->actual <= u->length)
        memcpy(u->user->buffer, u->data, (size_t)u->actual);
    *where = u->user;
    free(u->data), free(u);
    return 0;
}

static int reset(struct handle *h)
{
    struct usbdevfs_ctrltransfer c = {0x23, 3, 4, 1, 0, 1000, NULL};
    int r = control(h, &c);
    /* One that starts anew closes the connection. */
    for (int i = 0; i < 10 && !r && !h->gone; i++) replied(h, 2);
    return h->gone ? -ENODEV : r;
}

static int answered(struct handle *h, unsigned long request, void *argument)
{
    const char *set = getenv("EDGEC_USBFS_CAPABILITIES");
    switch (request) {
    case USBDEVFS_CONTROL:
        return control(h, argument);
    case USBDEVFS_SUBMITURB:
        return submitted(h, argument);
    case USBDEVFS_DISCARDURB:
        for (struct urb *u = h->pending; u; u = u->next)
            if (u->user == argument) {
                unlinked(h, u);
                return 0;
            }
        return -EINVAL;
    case USBDEVFS_REAPURBNDELAY:
        return reaped(h, argument);
    case USBDEVFS_CLAIMINTERFACE:
        return h->gone ? -ENODEV : h->busy ? -EBUSY : *(unsigned *)argument ? -ENOENT : 0;
    case USBDEVFS_RELEASEINTERFACE:
        return 0;
    case USBDEVFS_RESET:
        return reset(h);
    case USBDEVFS_CLEAR_HALT: {
        struct usbdevfs_ctrltransfer c = {2, 1, 0, (uint16_t) * (unsigned *)argument, 0, 1000, NULL};
        return control(h, &c);
    }
    case USBDEVFS_GET_CAPABILITIES:
        *(uint32_t *)argument = set ? (uint32_t)atoi(set) : USBDEVFS_CAP_BULK_SCATTER_GATHER;
        return 0;
    default:
        return -ENOTTY;
    }
}

/* ---- what the process calls */

static int opened(const char *path, int fd)
{
    const char *root = getenv("EDGEC_USBFS"), *number = strrchr(path, '/');
    if (fd < 0 || !root || strncmp(path, root, strlen(root)) || !strstr(path, "/dev/bus/usb/"))
        return fd;
    int s = imported(fd, (uint32_t)atoi(number + 1));
    if (s < 0) {
        REAL(close)(fd);
        errno = ENODEV;
        return -1;
    }
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < HANDLES; i++)
        if (handles[i].socket <= 0) {
            handles[i] = (struct handle){.fd = fd, .socket = s ? s : dup(fd), .busy = !s};
            break;
        }
    pthread_mutex_unlock(&mutex);
    return fd;
}

#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...)                           \
    {                                                                    \
        char room[4096];                                                 \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0;\
        va_end(more);                                                    \
        path = moved(path, room, sizeof room);                           \
        return opened(path, REAL(name)(path, flags, mode));              \
    }
OPEN(open)
OPEN(open64)

DIR *opendir(const char *path)
{
    char room[4096];
    return REAL(opendir)(moved(path, room, sizeof room));
}

int access(const char *path, int mode)
{
    char room[4096];
    return REAL(access)(moved(path, room, sizeof room), mode);
}

int close(int fd)
{
    pthread_mutex_lock(&mutex);
    struct handle *h = handle_of(fd);
    if (h) {
        REAL(close)(h->socket);
        lost(h);
        while (h->ended) {
            struct urb *u = h->ended;
            h->ended = u->next;
            free(u->data), free(u);
        }
        h->socket = 0;
    }
    pthread_mutex_unlock(&mutex);
    return REAL(close)(fd);
}

int ioctl(int fd, unsigned long request, ...)
{
    va_list more;
    va_start(more, request);
    void *argument = va_arg(more, void *);
    va_end(more);
    struct handle *h = handle_of(fd);
    if (!h) return REAL(ioctl)(fd, request, argument);
    int r = answered(h, request, argument);
    if (r >= 0) return r;
    errno = -r;
    return -1;
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    struct handle *h = count == 1 ? handle_of(fds->fd) : NULL;
    struct timespec start;
    if (!h) return REAL(poll)(fds, count, timeout);
    clock_gettime(CLOCK_MONOTONIC, &start);
    while (!h->ended && !h->gone) {
        long left = timeout < 0 ? 1000 : timeout - ms_since(&start);
        if (left <= 0) return 0;
        if (replied(h, (int)left) < 0) return errno = EINTR, -1;
    }
    fds->revents = (short)((h->ended ? POLLOUT : 0) | (h->gone ? POLLHUP | POLLERR : 0));
    return 1;
}
