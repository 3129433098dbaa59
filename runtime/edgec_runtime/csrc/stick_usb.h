/* stick_usb.h - a device on USB by Linux's usbfs: found in sysfs, opened, and its transfers.
 *
 * A transfer is a URB: it is submitted, the kernel works on it, and it is reaped when it has ended,
 * in any order (Documentation/driver-api/usb/usb.rst).  One thread uses a device.  Only
 * program_stick.h includes it. */
#ifndef STICK_USB_H
#define STICK_USB_H
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/usbdevice_fs.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

/* STALLED: a transfer has failed or does not end, the device itself is still there.  LOST: it is
 * unplugged, or does not answer any more. */
enum usb_result { USB_DONE, USB_STALLED, USB_LOST };

enum {
    USB_TIMEOUT_MS = 1000, /* of a control request, and of the end of what was discarded */
    USB_SENDERS = 128,
    USB_READERS = 32,
    USB_EVENT = USB_SENDERS + USB_READERS, /* the slots after those of packets and outputs */
    USB_INTERRUPT,
    USB_SLOTS,
    USB_IDS = 2
};

struct usb_id {
    int vendor, product;
};

/* port: as sysfs names it ("1-1.2"); it stays when the device starts anew.  node: its file for
 * usbfs. */
struct usb_device {
    char port[32], node[32];
    int id; /* which of the identifiers that were looked for */
    bool high_speed;
};

struct usb_transfer {
    bool pending;
    uint8_t header[8]; /* of a packet */
    uint32_t wanted;   /* bytes of an output */
    struct usbdevfs_urb urb;
};

struct usb {
    int fd; /* -1: not open */
    struct usb_device device;
    int pending;
    struct usb_transfer slots[USB_SLOTS];
};

static char usb_why[160]; /* the last fault */

__attribute__((format(printf, 2, 3))) static enum usb_result usb_fault(enum usb_result result,
                                                                       const char *what, ...) {
    va_list args;
    va_start(args, what);
    vsnprintf(usb_why, sizeof usb_why, what, args);
    va_end(args);
    return result;
}

/* The fault of a transfer that ended with an errno. */
static enum usb_result usb_errno(int number) {
    if (number == ENODEV || number == ESHUTDOWN || number == ENXIO || number == EBADF)
        return usb_fault(USB_LOST, "it is unplugged");
    return usb_fault(USB_STALLED, "a transfer failed: %s", strerror(number));
}

static int64_t usb_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void usb_pause(int ms) {
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) && errno == EINTR) {}
}

/* ---- devices
 * ------------------------------------------------------------
 */

/* The number in a file of a port in sysfs; -1 where there is none. */
static long usb_value(const char *port, const char *name, int base) {
    char path[128], text[32];
    if (snprintf(path, sizeof path, "/sys/bus/usb/devices/%s/%s", port, name) >= (int)sizeof path)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    char *end;
    long value = strtol(text, &end, base);
    return end == text ? -1 : value;
}

/* Writes the devices with one of these identifiers, those with the last one first, then by their
 * ports; returns their number. */
static int usb_find(const struct usb_id ids[USB_IDS], struct usb_device *found, int room) {
    DIR *folder = opendir("/sys/bus/usb/devices");
    int n = 0;
    if (!folder) return 0;
    for (struct dirent *e; n < room && (e = readdir(folder));) {
        struct usb_device d = {.id = -1};
        if (strlen(e->d_name) >= sizeof d.port) continue;
        strcpy(d.port, e->d_name);
        /* A device may vanish between any two reads. */
        long vendor = usb_value(d.port, "idVendor", 16),
             product = usb_value(d.port, "idProduct", 16), bus = usb_value(d.port, "busnum", 10),
             number = usb_value(d.port, "devnum", 10), mbps = usb_value(d.port, "speed", 10);
        for (int i = 0; i < USB_IDS; i++)
            if (vendor == ids[i].vendor && product == ids[i].product) d.id = i;
        if (d.id < 0 || bus < 0 || bus > 999 || number < 0 || number > 999) continue;
        snprintf(d.node, sizeof d.node, "/dev/bus/usb/%03d/%03d", (int)bus, (int)number);
        d.high_speed = mbps > 0 && mbps <= 480;
        int at = n++;
        for (; at && (found[at - 1].id < d.id ||
                      (found[at - 1].id == d.id && strcmp(found[at - 1].port, d.port) > 0));
             at--)
            found[at] = found[at - 1];
        found[at] = d;
    }
    closedir(folder);
    return n;
}

/* ---- an open device
 * ------------------------------------------------------------
 */

/* The kernel takes the number as unsigned; musl declares it as int. */
static int usb_ioctl(const struct usb *u, unsigned long request, void *argument) {
    return ioctl(u->fd, request, argument);
}

/* The kernel ends all its transfers. */
static void usb_close(struct usb *u) {
    if (u->fd >= 0) close(u->fd);
    u->fd = -1;
    u->pending = 0;
    for (int i = 0; i < USB_SLOTS; i++) u->slots[i].pending = false;
}

/* Opens a device for this process alone, and claims its interface 0. */
static enum usb_result usb_open(struct usb *u, const struct usb_device *d) {
    unsigned interface = 0;
    u->device = *d;
    u->fd = open(d->node, O_RDWR | O_CLOEXEC);
    if (u->fd < 0)
        return errno == EACCES || errno == EPERM
                   ? usb_fault(USB_LOST, "this user may not use it; edgec doctor names the rule of "
                                         "udev that is missing")
                   : usb_fault(USB_LOST, "it cannot be opened: %s", strerror(errno));
    /* A second process is refused here, before it sends anything to the device. */
    if (flock(u->fd, LOCK_EX | LOCK_NB) || usb_ioctl(u, USBDEVFS_CLAIMINTERFACE, &interface)) {
        bool busy = errno == EWOULDBLOCK || errno == EBUSY;
        enum usb_result r =
            busy ? usb_fault(USB_LOST, "it is in use by another program") : usb_errno(errno);
        usb_close(u);
        return r;
    }
    return USB_DONE;
}

/* A control request.  The setup is bmRequestType, bRequest, wValue and wIndex; `size` bytes of data
 * follow or come, of which there may be fewer: received, where it is not NULL. */
static enum usb_result usb_control(const struct usb *u, const uint16_t setup[4], void *data,
                                   size_t size, int *received) {
    struct usbdevfs_ctrltransfer c = {(uint8_t)setup[0], (uint8_t)setup[1], setup[2],    setup[3],
                                      (uint16_t)size,    USB_TIMEOUT_MS,    .data = data};
    int n = usb_ioctl(u, USBDEVFS_CONTROL, &c);
    if (received) *received = n > 0 ? n : 0;
    if (n < 0) return usb_errno(errno);
    return USB_DONE;
}

/* Begins a bulk transfer, or one of an interrupt endpoint. */
static enum usb_result usb_submit(struct usb *u, struct usb_transfer *t, int type, uint8_t endpoint,
                                  const void *data, uint32_t size) {
    memset(&t->urb, 0, sizeof t->urb);
    t->urb.type = (unsigned char)type;
    t->urb.endpoint = endpoint;
    t->urb.buffer = (void *)(uintptr_t)data; /* the kernel only reads what is sent */
    t->urb.buffer_length = (int)size;
    t->urb.usercontext = t;
    if (usb_ioctl(u, USBDEVFS_SUBMITURB, &t->urb)) return usb_errno(errno);
    t->pending = true;
    u->pending++;
    return USB_DONE;
}

/* Waits some ms, or not at all, for a transfer that has ended: *ended, NULL where there is none. */
static enum usb_result usb_reap(struct usb *u, int64_t ms, struct usb_transfer **ended) {
    const int64_t end = usb_ms() + ms;
    bool gone = false;
    for (;;) {
        struct usbdevfs_urb *urb = NULL;
        *ended = NULL;
        if (!usb_ioctl(u, USBDEVFS_REAPURBNDELAY, &urb)) {
            *ended = urb->usercontext;
            (*ended)->pending = false;
            u->pending--;
            return USB_DONE;
        }
        if (errno != EAGAIN && errno != EINTR) return usb_errno(errno);
        if (gone) return usb_fault(USB_LOST, "it is unplugged");
        int64_t left = end - usb_ms();
        if (ms <= 0 || left < 0) return USB_DONE;
        struct pollfd p = {.fd = u->fd, .events = POLLOUT};
        /* All transfers end with the device; the last ones may have data. */
        gone = poll(&p, 1, (int)left + 1) > 0 && p.revents & (POLLHUP | POLLERR);
    }
}

/* Ends all transfers and reaps them. */
static enum usb_result usb_cancel_all(struct usb *u) {
    for (int i = 0; i < USB_SLOTS; i++) /* An error means that it has ended already. */
        if (u->slots[i].pending) usb_ioctl(u, USBDEVFS_DISCARDURB, &u->slots[i].urb);
    const int64_t end = usb_ms() + USB_TIMEOUT_MS;
    while (u->pending) {
        struct usb_transfer *t;
        int64_t left = end - usb_ms();
        enum usb_result r = usb_reap(u, left > 1 ? left : 1, &t);
        if (r) return r;
        if (!t) return usb_fault(USB_LOST, "its transfers cannot be ended");
    }
    return USB_DONE;
}

#endif
