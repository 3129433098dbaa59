/* stick_file.h - edgetpu.bin beside the program: what it sends to a Coral USB Accelerator.
 * edgec/emit/edgetpu_programs.py writes it, little-endian, from the driver in Python; a program
 * believes it when its CRC-32, the sha256 of the graph and the CRC-32 of constants are right, since
 * it comes from the bundle with the program itself.  Only program_stick.h includes it. */
#ifndef STICK_FILE_H
#define STICK_FILE_H
#include <stdint.h>

enum { STICK_VERSION = 1, STICK_CLOCKS = 4 };

/* n elements, from the byte `at` of the file. */
struct stick_list {
    uint32_t at, n;
};

enum { ACCESS_READ, ACCESS_WRITE, ACCESS_WAIT, ACCESS_SKIP_IF, ACCESS_SKIP_UNLESS };

/* An access to a register of `size` bytes, or a decision by the value that was read last, which
 * leaves out the next accesses (stick/chip.py says what each does with its mask). */
struct stick_access {
    uint8_t what, size;
    uint16_t skipped;
    uint32_t address;
    uint64_t mask, value;
};

enum { STEP_SEND_FILE, STEP_SEND_MEMORY, STEP_RECEIVE, STEP_EVENT, STEP_FENCE };

/* What happens next in a run.  at: in the file or in the memory. */
struct stick_step {
    uint8_t what, tag, unused[2];
    uint32_t at, size;
};

/* Pieces of `size` bytes of a tensor, in three loops of n pieces at constant distances.  flip:
 * bytes of an element whose highest bit is inverted, 0: none is. */
struct stick_copy {
    uint16_t port, flip;
    uint32_t tensor_at, chip_at, size, n[3], tensor_stride[3], chip_stride[3];
};

/* The programs of a segment.  Models with one token, not 0, can have their parameters in the chip
 * together.  memory_at: its inputs in the memory, then its outputs, both of
 * a known inference, and inputs that are kept while the chip is checked. */
struct stick_model {
    uint64_t token;
    uint32_t segment, input_bytes, output_bytes, memory_at;
    struct stick_list main, caching;   /* steps; no caching where main brings the parameters */
    struct stick_list inputs, outputs; /* copies */
};

struct stick_file {
    char magic[8];
    uint32_t version, bytes, crc32, memory_bytes; /* crc32: of all that follows memory_bytes */
    struct stick_list models;
    struct stick_list on[STICK_CLOCKS][2]; /* accesses, for USB 3 and USB 2 */
    struct stick_list off, warning, fault;
    struct stick_list firmware_places; /* texts, each with its 0: patterns, then one file of the
                                          cache */
    struct stick_list clocks;          /* their names */
    uint32_t firmware_bytes, firmware_crc32;
    uint8_t firmware_start[12];
    uint32_t constants_crc32; /* of those of the segments for the Edge TPU */
    char graph[64];           /* sha256 of the graph */
};

_Static_assert(sizeof(struct stick_access) == 24 && sizeof(struct stick_step) == 12 &&
                   sizeof(struct stick_copy) == 52 && sizeof(struct stick_model) == 56 &&
                   sizeof(struct stick_file) == 224,
               "as they are written");

static const void *stick_at(const struct stick_file *f, struct stick_list list) {
    return (const char *)f + list.at;
}

#endif
