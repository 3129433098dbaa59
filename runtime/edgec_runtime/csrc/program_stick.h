/* program_stick.h - runs segments on a Coral USB Accelerator, if edgetpu.bin is beside the program
 * and a stick is plugged in; otherwise the caller runs their C twins, which give the same integers.
 *
 *     EDGEC_EDGETPU_DRIVER    auto or own; with none and libedgetpu the stick is not used
 *     EDGEC_EDGETPU_CLOCK     low, medium, high (the default) or max
 *     EDGEC_EDGETPU_FIRMWARE  a file with the stick's firmware, or a libedgetpu with it
 *
 * A stalled program is stopped and run again, once; a stick that is lost is looked for between
 * inferences.  docs/stick.md says how, and stick/driver.py is the same in Python.  Only main.c
 * includes it. */
#ifndef PROGRAM_STICK_H
#define PROGRAM_STICK_H
#include "program_weights.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __linux__
#include "stick_file.h"
#include "stick_firmware.h"
#include "stick_transfers.h"
#include "stick_usb.h"

#define STICK_FILE "edgetpu.bin"

enum {
    STICK_LOADER, /* its identifiers: without firmware, and with */
    STICK_RUNNING,
    STICK_ENUMERATION_MS = 5000, /* longest time in which it is back after it got its firmware */
    STICK_SLOWER = 10,           /* later ones may pause for so many times the longest inference */
    STICK_LOOK_MS = 20,
    STICK_PAUSE_MS = 1000,         /* between two looks for a lost stick */
    STICK_LONGEST_PAUSE_MS = 30000 /* the pause doubles while the stick is there and fails */
};

static const struct usb_id stick_ids[USB_IDS] = {{0x1a6e, 0x089a}, {0x18d1, 0x9302}};

/* What is known of a model.  cached: its parameters are in the chip.  known: there are the bytes of
 * its first inference, by which the chip is checked after a fault. */
struct stick_state {
    bool cached, known;
    int64_t longest;    /* ms of an inference */
    int served, on_cpu; /* inferences on the stick, and as C */
};

static struct {
    const struct stick_file *file; /* NULL: no segment runs on a stick */
    const struct stick_model *models;
    struct stick_state *states;
    struct usb usb;
    struct stick_queue queue;
    uint64_t token;
    int clock;
    struct usb_device booting; /* the stick that has just got its firmware; no node: none */
    int64_t boots_until;       /* when it has to be back */
    int64_t patience;          /* longest pause in a first inference, ms */
    int64_t least_patience;    /* the same of later ones, where inferences are shorter */
    int64_t look_at, pause;
    int opened, lost, recovered;
} stick = {.usb.fd = -1, .patience = 6000 /* as libedgetpu has it */, .least_patience = 250};

/* ---- programs
 * ------------------------------------------------------------
 */

/* Copies between a segment's tensors and the chip's layout. */
static void stick_copy(const struct stick_model *m, struct stick_list list, uint32_t chip_at,
                       void *const *tensors, bool to_chip) {
    const struct stick_copy *c = stick_at(stick.file, list), *end = c + list.n;
    for (; c < end; c++)
        for (uint32_t i = 0; i < c->n[2]; i++)
            for (uint32_t j = 0; j < c->n[1]; j++)
                for (uint32_t k = 0; k < c->n[0]; k++) {
                    uint8_t *chip = stick.queue.memory + m->memory_at + chip_at + c->chip_at +
                                    i * c->chip_stride[2] + j * c->chip_stride[1] +
                                    k * c->chip_stride[0];
                    uint8_t *tensor = (uint8_t *)tensors[c->port] + c->tensor_at +
                                      i * c->tensor_stride[2] + j * c->tensor_stride[1] +
                                      k * c->tensor_stride[0];
                    uint8_t *to = to_chip ? chip : tensor;
                    memcpy(to, to_chip ? tensor : chip, c->size);
                    if (c->flip == 1)
                        for (uint32_t b = 0; b < c->size; b++) to[b] ^= 0x80;
                    else if (c->flip)
                        for (uint32_t b = c->flip - 1u; b < c->size; b += c->flip) to[b] ^= 0x80;
                }
}

/* One inference on the inputs in the memory, before which the chip gets the parameters that it
 * lacks. */
static enum usb_result stick_infer(int number, int64_t patience) {
    const struct stick_model *m = &stick.models[number];
    struct stick_state *s = &stick.states[number];
    struct stick_list lists[2] = {{0, 0}, m->main};
    /* Programs with another token, or with none, overwrite all parameters (driver/driver.cc in
     * google-coral/libedgetpu). */
    if (!m->token || m->token != stick.token) {
        stick.token = 0;
        for (uint32_t i = 0; i < stick.file->models.n; i++) stick.states[i].cached = false;
    }
    if (m->caching.n && !s->cached) {
        lists[0] = m->caching;
        stick.token = m->token;
        s->cached = true;
    }
    return queue_run(&stick.queue, lists, patience);
}

static enum usb_result stick_measured_inference(int number) {
    struct stick_state *s = &stick.states[number];
    const int64_t start = usb_ms();
    int64_t patience = stick.patience;
    if (s->known) {
        int64_t usual = STICK_SLOWER * s->longest;
        if (usual < stick.least_patience) usual = stick.least_patience;
        /* A program that was stopped meanwhile has measured more than the stick took. */
        if (usual < patience) patience = usual;
    }
    enum usb_result r = stick_infer(number, patience);
    const int64_t took = usb_ms() - start;
    if (!r && took > s->longest) s->longest = took;
    return r;
}

static enum usb_result stick_reset(void) {
    stick.token = 0;
    for (uint32_t i = 0; i < stick.file->models.n; i++) stick.states[i].cached = false;
    return queue_open(&stick.queue, stick.clock);
}

/* Stops a stalled program, resets the chip and checks it: the model's first inference gives what it
 * gave before, or this one the same twice.  Its inputs are in the memory again. */
static enum usb_result stick_recover(int number) {
    const struct stick_model *m = &stick.models[number];
    struct stick_state *s = &stick.states[number];
    uint8_t *now = stick.queue.memory + m->memory_at;
    uint8_t *known = now + m->input_bytes + m->output_bytes;
    uint8_t *inputs = known + m->input_bytes + m->output_bytes;
    enum usb_result r = usb_cancel_all(&stick.usb);
    if (!r) r = stick_reset();
    if (r) return r;
    stick.recovered++;
    memcpy(inputs, now, m->input_bytes);
    if (!s->known) {
        r = stick_infer(number, stick.patience);
        memcpy(known, now, m->input_bytes + m->output_bytes);
    }
    memcpy(now, known, m->input_bytes);
    if (!r) r = stick_infer(number, stick.patience);
    if (!r && memcmp(now + m->input_bytes, known + m->input_bytes, m->output_bytes))
        r = usb_fault(USB_LOST, "it computes something else after a reset");
    memcpy(now, inputs, m->input_bytes);
    return r;
}

/* ---- the stick
 * ------------------------------------------------------------
 */

/* Opens a stick that has its firmware. */
static enum usb_result stick_open(const struct usb_device *d) {
    enum usb_result r = usb_open(&stick.usb, d);
    if (r) return r;
    uint32_t abilities = 0;
    if (usb_ioctl(&stick.usb, USBDEVFS_GET_CAPABILITIES, &abilities)) r = usb_errno(errno);
    stick.queue.chunk =
        abilities & USBDEVFS_CAP_BULK_SCATTER_GATHER ? STICK_CHUNK : STICK_SMALL_CHUNK;
    if (!r) r = stick_reset();
    if (r)
        usb_close(&stick.usb);
    else
        stick.opened++;
    return r;
}

/* Looks for a stick, opens the first one that is free, or gives it its firmware, after which it
 * comes back as another device: stick.booting says which. */
static void stick_look(void) {
    struct usb_device found[8];
    const int64_t now = usb_ms();
    const bool boots = *stick.booting.node && now < stick.boots_until;
    bool failed = *stick.booting.node && !boots;
    if (failed) usb_fault(USB_LOST, "it did not come back with its firmware");
    if (!boots) *stick.booting.node = 0;
    int n = usb_find(stick_ids, found, 8);
    for (int i = 0; i < n; i++) {
        if (found[i].id == STICK_RUNNING) {
            if (!stick_open(&found[i])) {
                *stick.booting.node = 0;
                return;
            }
            failed = true;
        } else if (!boots) {
            if (!give_firmware(stick.file, &found[i])) {
                stick.booting = found[i];
                stick.boots_until = usb_ms() + STICK_ENUMERATION_MS;
                stick.look_at = usb_ms() + STICK_LOOK_MS;
                return;
            }
            failed = true;
        } else if (!strcmp(found[i].port, stick.booting.port) &&
                   strcmp(found[i].node, stick.booting.node)) {
            usb_fault(USB_LOST, "it lost its firmware with its power");
            *stick.booting.node = 0;
            failed = true;
        }
    }
    if (!n && !boots && !failed) usb_fault(USB_LOST, "no stick is plugged in");
    if (!failed)
        stick.pause = STICK_PAUSE_MS;
    else if (stick.pause < STICK_LONGEST_PAUSE_MS)
        stick.pause *= 2;
    stick.look_at = usb_ms() + (*stick.booting.node ? STICK_LOOK_MS : stick.pause);
}

/* Says once what runs the segments, and once that the stick is lost. */
static void stick_say(bool lost) {
    static bool said[2];
    if (said[lost]) return;
    said[lost] = true;
    if (stick.usb.fd >= 0)
        fprintf(stderr, "Edge TPU: the stick at the port %s\n", stick.usb.device.port);
    else
        fprintf(stderr, "Edge TPU: %s; its segments run as C until it is back\n", usb_why);
}

static void stick_give_up(void) {
    usb_close(&stick.usb);
    stick.lost++;
    stick.look_at = usb_ms() + stick.pause;
    stick_say(true);
}

/* The content of the file; NULL where there is none. */
static const struct stick_file *stick_map(const char *path, const char *graph, uint32_t constants) {
    static const char *other = "take the program and " STICK_FILE " from the same bundle";
    struct mapped m = map_file(path);
    const struct stick_file *f = (const void *)m.data;
    if (!f && access(path, F_OK)) return NULL;
    const size_t checked = offsetof(struct stick_file, models);
    if (!f || m.size < sizeof *f || memcmp(f->magic, "EDGECTPU", 8) ||
        f->version != STICK_VERSION || f->bytes != m.size ||
        crc32_of(m.data + checked, m.size - checked) != f->crc32)
        fail(EXIT_INPUT, other, "%s is damaged or of another edgec", path);
    if (memcmp(f->graph, graph, sizeof f->graph) || f->constants_crc32 != constants)
        fail(EXIT_INPUT, other, "%s is of another model", path);
    return f;
}

/* The clock that the environment names. */
static int stick_clock(const struct stick_file *f) {
    const char *wanted = getenv("EDGEC_EDGETPU_CLOCK"), *name = stick_at(f, f->clocks);
    if (!wanted || !*wanted) wanted = "high";
    for (int i = 0; i < STICK_CLOCKS; i++, name += strlen(name) + 1)
        if (!strcmp(name, wanted)) return i;
    fail(EXIT_INPUT, "set EDGEC_EDGETPU_CLOCK to low, medium, high or max",
         "the Edge TPU has no clock \"%s\"", wanted);
}

/* Memory of the runs, the models' states and the readers, whose pages are there when they are used.
 */
static bool stick_memory(const struct stick_file *f) {
    const size_t states = f->models.n * sizeof *stick.states;
    const size_t size = f->memory_bytes + states + (size_t)USB_READERS * STICK_READER_BYTES;
    uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    stick.queue.memory = p;
    stick.states = (void *)(p + f->memory_bytes);
    stick.queue.room = p + f->memory_bytes + states;
    return true;
}

/* Whether the model has segments for a stick, and it may be used.  path: the file; graph: the
 * model's; constants: their CRC-32. */
static bool stick_prepare(const char *path, const char *graph, uint32_t constants) {
    const char *driver = getenv("EDGEC_EDGETPU_DRIVER");
    if (!driver || !*driver) driver = "auto";
    if (!strcmp(driver, "none") || !strcmp(driver, "libedgetpu")) return false;
    const struct stick_file *f = stick_map(path, graph, constants);
    if (!f) return false;
    if (strcmp(driver, "auto") && strcmp(driver, "own"))
        fail(EXIT_INPUT, "set EDGEC_EDGETPU_DRIVER to auto, own, libedgetpu or none",
             "there is no driver \"%s\"", driver);
    stick.clock = stick_clock(f);
    if (!stick_memory(f)) return false;
    stick.models = stick_at(f, f->models);
    stick.queue.usb = &stick.usb;
    stick.queue.file = stick.file = f;
    return true;
}

/* Opens a stick, if there is one; it may take a second until it has its firmware. */
static void stick_connect(void) {
    stick.pause = STICK_PAUSE_MS;
    stick_look();
    while (*stick.booting.node) {
        usb_pause(STICK_LOOK_MS);
        stick_look();
    }
}

/* Opens the stick for the program that is called argv[0]. */
static void stick_start(const char *self, const ek_model *m) {
    if (!stick_prepare(beside_program(self, STICK_FILE), m->graph, m->constants_crc32)) return;
    stick_connect();
    stick_say(false);
}

/* Looks for a stick that is lost, at most once a second; between inferences. */
static void stick_between(void) {
    if (!stick.file || stick.usb.fd >= 0 || usb_ms() < stick.look_at) return;
    stick_look();
}

/* The model of a segment, -1 where there is none. */
static int stick_model(int segment) {
    for (uint32_t i = 0; stick.file && i < stick.file->models.n; i++)
        if (stick.models[i].segment == (uint32_t)segment) return (int)i;
    return -1;
}

/* Runs a segment; false where its C twin has to run instead. */
static bool stick_run(int segment, const void *const *in, void *const *out) {
    const int number = stick_model(segment);
    if (number < 0) return false;
    const struct stick_model *m = &stick.models[number];
    struct stick_state *s = &stick.states[number];
    if (stick.usb.fd < 0) {
        s->on_cpu++;
        return false;
    }
    uint8_t *now = stick.queue.memory + m->memory_at;
    stick_copy(m, m->inputs, 0, (void *const *)(uintptr_t)in, true);
    enum usb_result r = stick_measured_inference(number);
    if (r == USB_STALLED) {
        r = stick_recover(number);
        if (!r) r = stick_measured_inference(number);
    }
    if (r) {
        stick_give_up();
        s->on_cpu++;
        return false;
    }
    if (!s->known) {
        memcpy(now + m->input_bytes + m->output_bytes, now, m->input_bytes + m->output_bytes);
        s->known = true;
    }
    s->served++;
    stick.pause = STICK_PAUSE_MS;
    stick_copy(m, m->outputs, m->input_bytes, out, false);
    return true;
}

/* Whether a segment has run on the stick at each inference. */
static bool stick_served(int segment) {
    const int number = stick_model(segment);
    return number >= 0 && stick.states[number].served && !stick.states[number].on_cpu;
}

/* Switches the chip off and closes the stick. */
static void stick_stop(void) {
    if (!stick.file || stick.usb.fd < 0) return;
    if (!usb_cancel_all(&stick.usb)) go_through(&stick.usb, stick.file, stick.file->off);
    usb_close(&stick.usb);
}

#else
static void stick_start(const char *self, const ek_model *m) { (void)self, (void)m; }
static void stick_between(void) {}
static bool stick_run(int segment, const void *const *in, void *const *out) {
    return (void)segment, (void)in, (void)out, false;
}
static bool stick_served(int segment) { return (void)segment, false; }
static void stick_stop(void) {}
#endif
#endif
