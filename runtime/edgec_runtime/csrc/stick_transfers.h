/* stick_transfers.h - runs programs of the Edge TPU over a stick's endpoints.
 *
 * What is sent, received and waited for begins as early as the chip allows.  With one endpoint for
 * all packets, a packet that is sent while the chip has an output to deliver can block both for
 * ever (the comments in driver/usb/usb_driver.cc of google-coral/libedgetpu), so no packet begins
 * before all outputs ahead of it have come.  stick/transfers.py is the same in Python.  Only
 * program_stick.h includes it. */
#ifndef STICK_TRANSFERS_H
#define STICK_TRANSFERS_H
#include "stick_file.h"
#include "stick_usb.h"

enum {
    STICK_PACKETS = 0x01, /* endpoints */
    STICK_OUTPUTS = 0x81,
    STICK_EVENTS = 0x82,
    STICK_INTERRUPTS = 0x83,
    STICK_WINDOW =
        4 << 20, /* most bytes on the way to the chip; usbfs lends 16 MB to all programs */
    STICK_CHUNK = 1 << 20,          /* most bytes of a transfer */
    STICK_SMALL_CHUNK = 256 << 10,  /* where the kernel or the controller cannot collect pages */
    STICK_READER_BYTES = 256 << 10, /* most bytes of a transfer from it */
    STICK_PACKET = 1024,            /* the longest packet from the chip */
    STICK_HIGH_SPEED_PACKET = 256,
    STICK_EVENT_BYTES = 16,
    STICK_DRAIN_MS = 20
};

/* The programs that run: their steps as one list, and how far each kind of step has come. */
struct stick_queue {
    struct usb *usb;
    const struct stick_file *file;
    uint8_t *memory, *room; /* room: STICK_READER_BYTES for each reader */
    uint32_t chunk, packet;
    const struct stick_step *steps[2];
    uint32_t n[2];
    uint32_t next;                   /* the step that begins next */
    bool header_sent;                /* of the packet that begins next */
    uint32_t sent;                   /* its bytes that are sent */
    uint32_t on_the_way;             /* bytes of packets that have not arrived */
    uint32_t receiving, filled;      /* the step of the output that comes next, its bytes so far */
    uint32_t outputs, wanted, asked; /* outputs that have begun, their bytes that have not come, of
                                        these those for which there are transfers */
    uint32_t awaiting, events; /* the step of the event that comes next, events that have begun */
    bool listening;
    int warnings; /* of heat */
};

static uint8_t stick_event[STICK_EVENT_BYTES], stick_interrupt[4];

static const struct stick_step *queue_step(const struct stick_queue *q, uint32_t i) {
    return i < q->n[0] ? q->steps[0] + i : q->steps[1] + (i - q->n[0]);
}

static uint32_t queue_steps(const struct stick_queue *q) { return q->n[0] + q->n[1]; }

/* The first step of a kind from the step i on. */
static uint32_t queue_find(const struct stick_queue *q, uint32_t i, uint8_t what) {
    while (queue_step(q, i)->what != what) i++;
    return i;
}

static enum usb_result go_through(const struct usb *u, const struct stick_file *f,
                                  struct stick_list list) {
    const struct stick_access *a = stick_at(f, list), *end = a + list.n;
    uint64_t last = 0;
    for (; a < end; a++) {
        const uint16_t low = (uint16_t)a->address, high = (uint16_t)(a->address >> 16);
        const uint16_t request = a->size == 4;
        const int64_t until = usb_ms() + USB_TIMEOUT_MS;
        uint64_t value = (last & ~a->mask) | a->value;
        enum usb_result r = USB_DONE;
        int n = a->size;
        if (a->what == ACCESS_WRITE)
            r = usb_control(u, (uint16_t[]){0x40, request, low, high}, &value, a->size, NULL);
        else if (a->what == ACCESS_SKIP_IF || a->what == ACCESS_SKIP_UNLESS)
            a += ((last & a->mask) == a->value) == (a->what == ACCESS_SKIP_IF) ? a->skipped : 0;
        else
            do {
                last = 0;
                r = usb_control(u, (uint16_t[]){0xC0, request, low, high}, &last, a->size, &n);
                if (!r && n != a->size)
                    r = usb_fault(USB_STALLED, "register %#x has %d bytes", (unsigned)a->address,
                                  n);
                if (!r && a->what == ACCESS_WAIT && usb_ms() > until)
                    r = usb_fault(USB_STALLED, "its register %#x stays %#llx", (unsigned)a->address,
                                  (unsigned long long)last);
            } while (!r && a->what == ACCESS_WAIT && (last & a->mask) != a->value);
        if (r) return r;
    }
    return USB_DONE;
}

/* ---- what begins
 * ------------------------------------------------------------
 */

/* A slot of [first, first + n) that is free, or NULL. */
static struct usb_transfer *free_slot(struct usb *u, int first, int n) {
    for (int i = first; i < first + n; i++)
        if (!u->slots[i].pending) return &u->slots[i];
    return NULL;
}

/* Sends what may be sent of a packet; *all: whether that is the whole. */
static enum usb_result queue_send(struct stick_queue *q, const struct stick_step *s, bool *all) {
    const uint8_t *base = s->what == STEP_SEND_FILE ? (const uint8_t *)q->file : q->memory;
    *all = false;
    if (q->outputs) return USB_DONE;
    if (!q->header_sent && q->on_the_way && q->on_the_way + s->size > STICK_WINDOW) return USB_DONE;
    while (!q->header_sent || q->sent < s->size) {
        struct usb_transfer *t = free_slot(q->usb, 0, USB_SENDERS);
        uint32_t left = s->size - q->sent, n = left < q->chunk ? left : q->chunk;
        const void *data = base + s->at + q->sent;
        if (!t) return USB_DONE;
        if (!q->header_sent) {
            const uint8_t header[8] = {(uint8_t)s->size, (uint8_t)(s->size >> 8),
                                       (uint8_t)(s->size >> 16), (uint8_t)(s->size >> 24), s->tag};
            memcpy(t->header, header, sizeof header);
            data = t->header, n = sizeof header;
        } else if (q->on_the_way && q->on_the_way + n > STICK_WINDOW)
            return USB_DONE;
        enum usb_result r = usb_submit(q->usb, t, USBDEVFS_URB_TYPE_BULK, STICK_PACKETS, data, n);
        if (r) return r;
        q->on_the_way += n;
        if (q->header_sent) q->sent += n;
        q->header_sent = true;
    }
    q->header_sent = false, q->sent = 0;
    *all = true;
    return USB_DONE;
}

/* The bytes from a position in all that is to come to its output's end: an output that ends with a
 * full packet may come without an empty one after it, so no transfer is longer than its output. */
static uint32_t until_end_of_output(const struct stick_queue *q, uint32_t position) {
    uint32_t i = queue_find(q, q->receiving, STEP_RECEIVE);
    uint32_t size = queue_step(q, i)->size - q->filled;
    while (position >= size) {
        position -= size;
        i = queue_find(q, i + 1, STEP_RECEIVE);
        size = queue_step(q, i)->size;
    }
    return size - position;
}

/* Has transfers for what is to come from the chip. */
static enum usb_result queue_listen(struct stick_queue *q) {
    struct usb *u = q->usb;
    enum usb_result r = USB_DONE;
    struct usb_transfer *t;
    while (!r && q->asked < q->wanted && (t = free_slot(u, USB_SENDERS, USB_READERS))) {
        uint32_t n = until_end_of_output(q, q->asked);
        if (n > STICK_READER_BYTES) n = STICK_READER_BYTES;
        uint32_t size = (n + q->packet - 1) / q->packet * q->packet;
        uint8_t *to = q->room + (size_t)(t - u->slots - USB_SENDERS) * STICK_READER_BYTES;
        t->wanted = n;
        q->asked += n;
        r = usb_submit(u, t, USBDEVFS_URB_TYPE_BULK, STICK_OUTPUTS, to, size);
    }
    if (!r && q->events && !q->listening) {
        q->listening = true;
        r = usb_submit(u, &u->slots[USB_EVENT], USBDEVFS_URB_TYPE_BULK, STICK_EVENTS, stick_event,
                       sizeof stick_event);
    }
    return r;
}

/* Begins the steps that may begin. */
static enum usb_result queue_advance(struct stick_queue *q) {
    bool more = true;
    for (; more && q->next < queue_steps(q); q->next += more) {
        const struct stick_step *s = queue_step(q, q->next);
        if (s->what == STEP_EVENT)
            q->events++;
        else if (s->what == STEP_RECEIVE)
            q->outputs++, q->wanted += s->size;
        else if (s->what == STEP_FENCE)
            more = !q->on_the_way && !q->outputs && !q->events;
        else {
            enum usb_result r = queue_send(q, s, &more);
            if (r) return r;
        }
    }
    return queue_listen(q);
}

/* ---- what ends
 * ------------------------------------------------------------
 */

static enum usb_result take_output(struct stick_queue *q, const struct usb_transfer *t) {
    const uint8_t *data = t->urb.buffer;
    uint32_t n = (uint32_t)t->urb.actual_length;
    q->asked -= t->wanted;
    if (n > q->wanted)
        return usb_fault(USB_STALLED, "its outputs have %u bytes more", (unsigned)(n - q->wanted));
    q->wanted -= n;
    while (n) {
        q->receiving = queue_find(q, q->receiving, STEP_RECEIVE);
        const struct stick_step *s = queue_step(q, q->receiving);
        uint32_t count = s->size - q->filled < n ? s->size - q->filled : n;
        memcpy(q->memory + s->at + q->filled, data, count);
        data += count, n -= count, q->filled += count;
        if (q->filled == s->size) q->receiving++, q->filled = 0, q->outputs--;
    }
    return USB_DONE;
}

static enum usb_result take_event(struct stick_queue *q, const struct usb_transfer *t) {
    int tag = stick_event[12] & 0xF; /* after an address of 8 bytes and a length of 4 */
    q->listening = false;
    if (t->urb.actual_length != STICK_EVENT_BYTES)
        return usb_fault(USB_STALLED, "an event has %d bytes", t->urb.actual_length);
    q->awaiting = queue_find(q, q->awaiting, STEP_EVENT);
    int expected = queue_step(q, q->awaiting++)->tag;
    if (tag != expected) return usb_fault(USB_STALLED, "event %d came and not %d", tag, expected);
    q->events--;
    return USB_DONE;
}

static enum usb_result listen_to_interrupts(struct usb *u) {
    return usb_submit(u, &u->slots[USB_INTERRUPT], USBDEVFS_URB_TYPE_INTERRUPT, STICK_INTERRUPTS,
                      stick_interrupt, sizeof stick_interrupt);
}

/* Bit 0 is a fault, bits 1 to 4 are those of the top level, of which the last warns of heat. */
static enum usb_result take_interrupt(struct stick_queue *q, const struct usb_transfer *t) {
    int bits = stick_interrupt[0];
    if (t->urb.actual_length != sizeof stick_interrupt)
        return usb_fault(USB_STALLED, "an interrupt has %d bytes", t->urb.actual_length);
    enum usb_result r = listen_to_interrupts(q->usb);
    if (!r && bits & 1) {
        r = go_through(q->usb, q->file, q->file->fault);
        return r ? r : usb_fault(USB_STALLED, "it reports a fault");
    }
    if (!r && bits & 1 << 4) {
        q->warnings++;
        r = go_through(q->usb, q->file, q->file->warning);
    }
    return r;
}

static enum usb_result queue_end(struct stick_queue *q, const struct usb_transfer *t) {
    if (t->urb.status) return usb_errno(-t->urb.status);
    if (t->urb.endpoint == STICK_OUTPUTS) return take_output(q, t);
    if (t->urb.endpoint == STICK_EVENTS) return take_event(q, t);
    if (t->urb.endpoint == STICK_INTERRUPTS) return take_interrupt(q, t);
    if (t->urb.actual_length != t->urb.buffer_length)
        return usb_fault(USB_STALLED, "it took %d of %d bytes", t->urb.actual_length,
                         t->urb.buffer_length);
    q->on_the_way -= (uint32_t)t->urb.buffer_length;
    return USB_DONE;
}

/* Runs one or two lists of steps to their end.  patience: the longest time in which no transfer of
 * the program ends, ms. */
static enum usb_result queue_run(struct stick_queue *q, const struct stick_list lists[2],
                                 int64_t patience) {
    for (int i = 0; i < 2; i++) q->steps[i] = stick_at(q->file, lists[i]), q->n[i] = lists[i].n;
    q->next = q->receiving = q->awaiting = q->sent = q->filled = 0;
    enum usb_result r = queue_advance(q);
    int64_t end = usb_ms() + patience;
    while (!r && (q->next < queue_steps(q) || q->on_the_way || q->outputs || q->events)) {
        struct usb_transfer *t;
        bool went_on = false;
        r = usb_reap(q->usb, patience, &t);
        while (!r && t) {
            went_on |= t->urb.endpoint != STICK_INTERRUPTS && t->urb.actual_length > 0;
            r = queue_end(q, t);
            if (!r) r = usb_reap(q->usb, 0, &t);
        }
        const int64_t now = usb_ms();
        if (went_on)
            end = now + patience;
        else if (!r && now >= end)
            r = usb_fault(USB_STALLED, "its program has not gone on for %lld ms",
                          (long long)patience);
        if (!r) r = queue_advance(q);
    }
    return r;
}

/* Throws away outputs and events that nobody took, of a stick without transfers. */
static enum usb_result queue_drain(struct stick_queue *q) {
    struct usb *u = q->usb;
    struct usb_transfer *t = &u->slots[USB_SENDERS];
    const int64_t end = usb_ms() + 50 * STICK_DRAIN_MS;
    enum usb_result r =
        usb_submit(u, t, USBDEVFS_URB_TYPE_BULK, STICK_OUTPUTS, q->room, 64 * q->packet);
    if (!r)
        r = usb_submit(u, &u->slots[USB_EVENT], USBDEVFS_URB_TYPE_BULK, STICK_EVENTS, stick_event,
                       sizeof stick_event);
    /* A stick with an endless output is stopped by the reset that follows. */
    while (!r && usb_ms() < end) {
        r = usb_reap(u, STICK_DRAIN_MS, &t);
        if (r || !t) break;
        unsigned endpoint = t->urb.endpoint;
        if (t->urb.status && usb_ioctl(u, USBDEVFS_CLEAR_HALT, &endpoint)) r = usb_errno(errno);
        if (!r)
            r = usb_submit(u, t, USBDEVFS_URB_TYPE_BULK, t->urb.endpoint, t->urb.buffer,
                           (uint32_t)t->urb.buffer_length);
    }
    return r ? r : usb_cancel_all(u);
}

/* Empties the endpoints, resets the chip and makes it ready. */
static enum usb_result queue_open(struct stick_queue *q, int clock) {
    const bool high_speed = q->usb->device.high_speed;
    q->packet = high_speed ? STICK_HIGH_SPEED_PACKET : STICK_PACKET;
    q->header_sent = q->listening = false;
    q->on_the_way = q->outputs = q->wanted = q->asked = q->events = 0;
    enum usb_result r = queue_drain(q);
    if (!r) r = go_through(q->usb, q->file, q->file->on[clock][high_speed]);
    return r ? r : listen_to_interrupts(q->usb);
}

#endif
