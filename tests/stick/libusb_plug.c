/* libusb-1.0.so.0 with the functions that libedgetpu calls, whose only device is a stick
 * that is served by USB/IP at the Unix socket EDGEC_STICK.
 *
 * Names, numbers and layouts are those of libusb 1.0's interface
 * (https://libusb.sourceforge.io/api-1.0); the messages are those of USB/IP 1.1.1
 * (Documentation/usb/usbip_protocol.rst of Linux). A thread per open device reads replies;
 * as with libusb, callbacks are called from libusb_handle_events.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include "plug_messages.h"

enum { SUCCESS = 0, IO = -1, INVALID = -2, NO_DEVICE = -4, NOT_FOUND = -5, BUSY = -6,
       TIMEOUT = -7, OVERFLOWN = -8, PIPE = -9, NO_MEMORY = -11 };
enum { COMPLETED, FAILED, TIMED_OUT, CANCELLED, STALL, GONE, TOO_MUCH };
enum { SHORT_NOT_OK = 1, FREE_BUFFER = 2, FREE_TRANSFER = 4 };
enum { BULK = 2 };

typedef struct libusb_context { int unused; } libusb_context;
typedef struct libusb_device libusb_device;
typedef struct libusb_device_handle libusb_device_handle;

struct libusb_device_descriptor {
    uint8_t length, type;
    uint16_t usb;
    uint8_t device_class, subclass, protocol, packet;
    uint16_t vendor, product, release;
    uint8_t manufacturer, name, serial, configurations;
};

struct libusb_transfer {
    libusb_device_handle *handle;
    uint8_t flags;
    unsigned char endpoint, type;
    unsigned timeout;
    int status, length, actual_length;
    void (*callback)(struct libusb_transfer *);
    void *user_data;
    unsigned char *buffer;
    int packets;
};

struct libusb_device {
    int references;
    char busid[32];
    uint8_t bus, port;
    int speed;
    struct libusb_device_descriptor descriptor;
};

/* A transfer between its submission and its end. */
struct urb {
    struct urb *next;
    uint32_t number, unlink;
    struct libusb_transfer *transfer; /* NULL: a synchronous one */
    unsigned char *buffer;
    int inwards, length, actual, status, ended, cancelled;
    struct timespec deadline; /* tv_sec 0: none */
};

struct libusb_device_handle {
    libusb_device *device;
    int socket;
    pthread_t reader;
    pthread_mutex_t mutex; /* of what follows, and of sending */
    pthread_cond_t changed;
    struct urb *pending, *ended;
    uint32_t number;
    int gone, closing;
    libusb_device_handle *next;
};

static pthread_mutex_t handles_mutex = PTHREAD_MUTEX_INITIALIZER;
static libusb_device_handle *handles;
static libusb_context only_context;

static uint16_t short_at(const unsigned char *data)
{
    return (uint16_t)(data[0] << 8 | data[1]);
}

static void now(struct timespec *t, unsigned ms)
{
    clock_gettime(CLOCK_MONOTONIC, t);
    t->tv_sec += ms / 1000, t->tv_nsec += (long)(ms % 1000) * 1000000;
    if (t->tv_nsec >= 1000000000) t->tv_sec++, t->tv_nsec -= 1000000000;
}

static int before(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec < b->tv_sec : a->tv_nsec < b->tv_nsec;
}

/* The list of devices: at most one. */

int libusb_init(libusb_context **context)
{
    if (context) *context = &only_context;
    return SUCCESS;
}

void libusb_exit(libusb_context *context) { (void)context; }

int libusb_set_option(libusb_context *context, int option, ...)
{
    (void)context, (void)option;
    return SUCCESS;
}

void libusb_set_debug(libusb_context *context, int level) { (void)context, (void)level; }

static libusb_device *described(int s)
{
    unsigned char request[8] = {1, 0x11, 0x80, 5}, head[12], facts[312];
    if (!all_sent(s, request, sizeof request) || !all_received(s, head, sizeof head)) return NULL;
    if (number_at(head + 8) < 1 || !all_received(s, facts, sizeof facts)) return NULL;
    libusb_device *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    memcpy(d->busid, facts + 256, sizeof d->busid - 1);
    d->bus = (uint8_t)number_at(facts + 288);
    const char *port = strchr(d->busid, '-');
    d->port = (uint8_t)(port ? atoi(port + 1) : 1);
    /* Linux counts low 1, full 2, high 3, super 5; libusb high 3, super 4. */
    uint32_t speed = number_at(facts + 296);
    d->speed = speed == 5 ? 4 : (int)speed;
    d->descriptor = (struct libusb_device_descriptor){
        18, 1, speed == 5 ? 0x310 : 0x210, facts[306], facts[307], facts[308],
        speed == 5 ? 9 : 64, short_at(facts + 300), short_at(facts + 302),
        short_at(facts + 304), 0, 0, 0, facts[310]};
    return d;
}

ssize_t libusb_get_device_list(libusb_context *context, libusb_device ***list)
{
    (void)context;
    *list = calloc(2, sizeof **list);
    if (!*list) return NO_MEMORY;
    int s = connected(getenv("EDGEC_STICK"));
    if (s < 0) return 0;
    (*list)[0] = described(s);
    close(s);
    if (!(*list)[0]) return 0;
    (*list)[0]->references = 1;
    return 1;
}

static void unreferenced(libusb_device *device)
{
    if (__atomic_sub_fetch(&device->references, 1, __ATOMIC_ACQ_REL) == 0) free(device);
}

void libusb_free_device_list(libusb_device **list, int unref)
{
    for (libusb_device **d = list; unref && *d; d++) unreferenced(*d);
    free(list);
}

uint8_t libusb_get_bus_number(libusb_device *device) { return device->bus; }
uint8_t libusb_get_port_number(libusb_device *device) { return device->port; }
int libusb_get_device_speed(libusb_device *device) { return device->speed; }
libusb_device *libusb_get_device(libusb_device_handle *handle) { return handle->device; }

int libusb_get_port_numbers(libusb_device *device, uint8_t *ports, int length)
{
    if (length < 1) return OVERFLOWN;
    ports[0] = device->port;
    return 1;
}

int libusb_get_device_descriptor(libusb_device *device, struct libusb_device_descriptor *out)
{
    *out = device->descriptor;
    return SUCCESS;
}

/* Transfers. */

static void ended(libusb_device_handle *h, struct urb *u, int status)
{
    u->status = status;
    u->ended = 1;
    if (u->transfer) {
        struct urb **end = &h->ended;
        while (*end) end = &(*end)->next;
        u->next = NULL;
        *end = u;
    }
    pthread_cond_broadcast(&h->changed);
}

static struct urb *taken(libusb_device_handle *h, uint32_t number, int unlink)
{
    for (struct urb **at = &h->pending; *at; at = &(*at)->next)
        if ((unlink ? (*at)->unlink : (*at)->number) == number) {
            struct urb *u = *at;
            *at = u->next;
            return u;
        }
    return NULL;
}

static int transfer_status(int32_t status)
{
    return status == 0 ? COMPLETED : status == -32 ? STALL : status == -75 ? TOO_MUCH : FAILED;
}

/* Reads one reply; returns whether the device is still there. */
static int replied(libusb_device_handle *h)
{
    unsigned char reply[48];
    if (!all_received(h->socket, reply, sizeof reply)) return 0;
    uint32_t command = number_at(reply), number = number_at(reply + 4);
    int32_t status = (int32_t)number_at(reply + 20);
    int actual = command == 3 ? (int)number_at(reply + 24) : 0, kept = 1;
    pthread_mutex_lock(&h->mutex);
    struct urb *u = taken(h, number, command == 4);
    pthread_mutex_unlock(&h->mutex);
    /* Nobody else ends this transfer now, so that its buffer stays. */
    if (u && command == 3) {
        u->actual = actual;
        if (u->inwards && actual > 0) {
            kept = actual <= u->length && all_received(h->socket, u->buffer, (size_t)actual);
        }
    }
    if (u) {
        pthread_mutex_lock(&h->mutex);
        if (command == 4) ended(h, u, u->cancelled ? CANCELLED : TIMED_OUT);
        else ended(h, u, kept ? transfer_status(status) : GONE);
        pthread_mutex_unlock(&h->mutex);
    }
    return kept;
}

static void *read_replies(void *argument)
{
    libusb_device_handle *h = argument;
    while (replied(h)) {}
    pthread_mutex_lock(&h->mutex);
    h->gone = 1;
    while (h->pending) {
        struct urb *u = h->pending;
        h->pending = u->next;
        ended(h, u, GONE);
    }
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

/* Begins a transfer; the mutex is held. */
static int begun(libusb_device_handle *h, struct urb *u, uint8_t endpoint,
                 const unsigned char *setup, unsigned timeout)
{
    unsigned char message[48] = {0};
    if (h->gone) return NO_DEVICE;
    u->number = ++h->number;
    if (timeout) now(&u->deadline, timeout);
    put(message, 1), put(message + 4, u->number), put(message + 8, 1);
    put(message + 12, (uint32_t)u->inwards), put(message + 16, endpoint & 15u);
    put(message + 24, (uint32_t)u->length);
    if (setup) memcpy(message + 40, setup, 8);
    u->next = h->pending;
    h->pending = u;
    if (!both_sent(h->socket, message, sizeof message, u->buffer,
                   u->inwards ? 0 : (size_t)u->length)) {
        taken(h, u->number, 0);
        return NO_DEVICE;
    }
    return SUCCESS;
}

/* Takes a transfer back; its end comes by the reply. The mutex is held. */
static int unlinked(libusb_device_handle *h, struct urb *u)
{
    unsigned char message[48] = {0};
    if (u->unlink) return SUCCESS;
    u->unlink = ++h->number;
    put(message, 2), put(message + 4, u->unlink), put(message + 8, 1), put(message + 20, u->number);
    return all_sent(h->socket, message, sizeof message) ? SUCCESS : NO_DEVICE;
}

static int error_of(int status)
{
    switch (status) {
    case COMPLETED: return SUCCESS;
    case TIMED_OUT: return TIMEOUT;
    case STALL: return PIPE;
    case GONE: return NO_DEVICE;
    case TOO_MUCH: return OVERFLOWN;
    default: return IO;
    }
}

static int waited(libusb_device_handle *h, struct urb *u, uint8_t endpoint,
                  const unsigned char *setup, unsigned timeout)
{
    pthread_mutex_lock(&h->mutex);
    int r = begun(h, u, endpoint, setup, timeout);
    while (!r && !u->ended) {
        if (u->deadline.tv_sec && !u->unlink) {
            if (pthread_cond_timedwait(&h->changed, &h->mutex, &u->deadline) == ETIMEDOUT)
                unlinked(h, u);
        } else {
            pthread_cond_wait(&h->changed, &h->mutex);
        }
    }
    pthread_mutex_unlock(&h->mutex);
    return r ? r : error_of(u->status);
}

int libusb_control_transfer(libusb_device_handle *h, uint8_t type, uint8_t request, uint16_t value,
                            uint16_t index, unsigned char *data, uint16_t length, unsigned timeout)
{
    unsigned char setup[8] = {type, request, (uint8_t)value, (uint8_t)(value >> 8),
                              (uint8_t)index, (uint8_t)(index >> 8), (uint8_t)length,
                              (uint8_t)(length >> 8)};
    struct urb u = {.buffer = data, .inwards = type >> 7, .length = length};
    int r = waited(h, &u, 0, setup, timeout);
    return r ? r : u.actual;
}

int libusb_bulk_transfer(libusb_device_handle *h, unsigned char endpoint, unsigned char *data,
                         int length, int *actual, unsigned timeout)
{
    struct urb u = {.buffer = data, .inwards = endpoint >> 7, .length = length};
    int r = waited(h, &u, endpoint, NULL, timeout);
    if (actual) *actual = u.actual;
    return r;
}

int libusb_interrupt_transfer(libusb_device_handle *h, unsigned char endpoint, unsigned char *data,
                              int length, int *actual, unsigned timeout)
{
    return libusb_bulk_transfer(h, endpoint, data, length, actual, timeout);
}

struct libusb_transfer *libusb_alloc_transfer(int packets)
{
    return packets ? NULL : calloc(1, sizeof(struct libusb_transfer));
}

void libusb_free_transfer(struct libusb_transfer *transfer) { free(transfer); }

int libusb_submit_transfer(struct libusb_transfer *t)
{
    struct urb *u = calloc(1, sizeof *u);
    if (!u) return NO_MEMORY;
    u->transfer = t, u->buffer = t->buffer, u->length = t->length, u->inwards = t->endpoint >> 7;
    pthread_mutex_lock(&t->handle->mutex);
    int r = begun(t->handle, u, t->endpoint, NULL, t->timeout);
    /* The one that waits may now have to wait less. */
    pthread_cond_broadcast(&t->handle->changed);
    pthread_mutex_unlock(&t->handle->mutex);
    if (r) free(u);
    return r;
}

int libusb_cancel_transfer(struct libusb_transfer *t)
{
    int r = NOT_FOUND;
    pthread_mutex_lock(&t->handle->mutex);
    for (struct urb *u = t->handle->pending; u; u = u->next)
        if (u->transfer == t) {
            u->cancelled = 1;
            r = unlinked(t->handle, u);
        }
    pthread_mutex_unlock(&t->handle->mutex);
    return r;
}

/* Takes back what is late, and returns when the next one will be; the mutex is held. */
static void check_deadlines(libusb_device_handle *h, struct timespec *next)
{
    struct timespec t;
    now(&t, 0);
    for (struct urb *u = h->pending; u; u = u->next) {
        if (!u->transfer || !u->deadline.tv_sec || u->unlink) continue;
        if (before(&u->deadline, &t)) unlinked(h, u);
        else if (before(&u->deadline, next)) *next = u->deadline;
    }
}

static void called_back(struct urb *u)
{
    struct libusb_transfer *t = u->transfer;
    t->actual_length = u->actual;
    t->status = u->status;
    if (t->status == COMPLETED && t->flags & SHORT_NOT_OK && u->actual < u->length)
        t->status = FAILED;
    int flags = t->flags;
    free(u);
    t->callback(t);
    if (flags & FREE_BUFFER) free(t->buffer);
    if (flags & FREE_TRANSFER) libusb_free_transfer(t);
}

/* Events of the handle that was opened last: a process has one stick. */
int libusb_handle_events(libusb_context *context)
{
    (void)context;
    struct timespec next;
    pthread_mutex_lock(&handles_mutex);
    libusb_device_handle *h = handles;
    if (h) pthread_mutex_lock(&h->mutex);
    pthread_mutex_unlock(&handles_mutex);
    if (!h) {
        usleep(1000);
        return SUCCESS;
    }
    now(&next, 100);
    check_deadlines(h, &next);
    if (!h->ended && !h->closing) pthread_cond_timedwait(&h->changed, &h->mutex, &next);
    struct urb *list = h->ended;
    h->ended = NULL;
    pthread_mutex_unlock(&h->mutex);
    while (list) {
        struct urb *u = list;
        list = u->next;
        called_back(u);
    }
    return SUCCESS;
}

/* Opening and closing. */

int libusb_open(libusb_device *device, libusb_device_handle **handle)
{
    unsigned char request[40] = {1, 0x11, 0x80, 3}, head[8], facts[312];
    int s = connected(getenv("EDGEC_STICK"));
    if (s < 0) return NO_DEVICE;
    memcpy(request + 8, device->busid, sizeof device->busid);
    if (!all_sent(s, request, sizeof request) || !all_received(s, head, sizeof head) ||
        number_at(head + 4) || !all_received(s, facts, sizeof facts)) {
        close(s);
        return number_at(head + 4) == 2 ? BUSY : NO_DEVICE;
    }
    libusb_device_handle *h = calloc(1, sizeof *h);
    if (!h) return NO_MEMORY;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->changed, &clock);
    h->device = device, h->socket = s;
    __atomic_add_fetch(&device->references, 1, __ATOMIC_ACQ_REL);
    pthread_create(&h->reader, NULL, read_replies, h);
    pthread_mutex_lock(&handles_mutex);
    h->next = handles, handles = h;
    pthread_mutex_unlock(&handles_mutex);
    *handle = h;
    return SUCCESS;
}

void libusb_close(libusb_device_handle *h)
{
    pthread_mutex_lock(&handles_mutex);
    for (libusb_device_handle **at = &handles; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            break;
        }
    pthread_mutex_lock(&h->mutex);
    h->closing = 1;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    pthread_mutex_unlock(&handles_mutex);
    shutdown(h->socket, SHUT_RDWR);
    pthread_join(h->reader, NULL);
    close(h->socket);
    unreferenced(h->device);
    /* The handle itself stays: the one that handles events may be about to leave it. */
}

int libusb_reset_device(libusb_device_handle *h)
{
    /* The request to a hub by which USB/IP carries a reset of the port. */
    int r = libusb_control_transfer(h, 0x23, 3, 4, 1, NULL, 0, 1000);
    return r == NO_DEVICE ? NOT_FOUND : r;
}

static int is_there(libusb_device_handle *h)
{
    pthread_mutex_lock(&h->mutex);
    int gone = h->gone;
    pthread_mutex_unlock(&h->mutex);
    return gone ? NO_DEVICE : SUCCESS;
}

int libusb_claim_interface(libusb_device_handle *h, int interface)
{
    return interface ? NOT_FOUND : is_there(h);
}

int libusb_release_interface(libusb_device_handle *h, int interface)
{
    return interface ? NOT_FOUND : is_there(h);
}

int libusb_set_configuration(libusb_device_handle *h, int configuration)
{
    return libusb_control_transfer(h, 0, 9, (uint16_t)configuration, 0, NULL, 0, 1000);
}
