/* program_io.h - what the program of a bundle reads and writes: messages, .npy files, noise.  Only
 * main.c includes it. */
#ifndef PROGRAM_IO_H
#define PROGRAM_IO_H
#include "ek_model.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EXIT_JOB = 1,         /* the model failed */
    EXIT_INPUT = 2,       /* the caller must change something */
    EK_MAX_HEADER = 4096, /* of a .npy */
    EK_PATH_CHARS = 4096
};

/* ---- messages
 * ------------------------------------------------------------
 */

__attribute__((noreturn, format(printf, 3, 4))) static void fail(int code, const char *hint,
                                                                 const char *what, ...) {
    va_list args;
    fflush(stdout);
    fputs("error: ", stderr);
    va_start(args, what);
    vfprintf(stderr, what, args);
    va_end(args);
    fprintf(stderr, "\n  hint: %s\n", hint);
    exit(code);
}

/* "(1, 3, 4)": numpy's way of writing a shape. */
static const char *shape_text(const ek_tensor *t, char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < t->rank && n < size; i++)
        n += (size_t)snprintf(text + n, size - n,
                              i + 1 < t->rank ? "%d, "
                              : t->rank == 1  ? "%d,"
                                              : "%d",
                              t->shape[i]);
    if (n < size) snprintf(text + n, size - n, ")");
    return text;
}

/* ---- .npy
 * ------------------------------------------------------------
 */

/* The text after `'key':` in a .npy header, or NULL. */
static const char *header_value(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *p = strstr(header, quoted);
    if (!p) return NULL;
    p += strlen(quoted);
    while (isspace((unsigned char)*p)) p++;
    if (*p++ != ':') return NULL;
    while (isspace((unsigned char)*p)) p++;
    return p;
}

static bool same_shape(const char *p, const ek_tensor *t) {
    if (!p || *p++ != '(') return false;
    for (int i = 0; i < t->rank; i++) {
        char *end;
        errno = 0;
        long n = strtol(p, &end, 10);
        if (end == p || errno || n != t->shape[i]) return false;
        for (p = end; *p == ' ' || *p == ','; p++) {}
    }
    return *p == ')';
}

/* Reads the rest of a .npy header (its magic is already gone) and compares it with the tensor. */
static void check_header(FILE *f, const char *path, const ek_tensor *t) {
    static char header[EK_MAX_HEADER + 1];
    const char *broken = "write it again with numpy.save";
    char expected[128];
    unsigned char b[4];
    if (fread(b, 1, 2, f) != 2 || b[0] < 1 || b[0] > 3)
        fail(EXIT_INPUT, broken, "%s has a broken .npy header", path);
    size_t width = b[0] == 1 ? 2 : 4, length = 0;
    if (fread(b, 1, width, f) != width)
        fail(EXIT_INPUT, broken, "%s ends in its .npy header", path);
    while (width--) length = length << 8 | b[width];
    if (length > EK_MAX_HEADER || fread(header, 1, length, f) != length)
        fail(EXIT_INPUT, broken, "%s ends in its .npy header", path);
    header[length] = 0;
    const char *descr = header_value(header, "descr"),
               *order = header_value(header, "fortran_order");
    size_t n = strlen(t->dtype);
    shape_text(t, expected, sizeof expected);
    if (!descr || *descr != '\'' || strncmp(descr + 1, t->dtype, n) || descr[1 + n] != '\'')
        fail(EXIT_INPUT, "convert it with array.astype",
             "%s has another type than input \"%s\", which wants %s: %s", path, t->name, t->dtype,
             header);
    if (!same_shape(header_value(header, "shape"), t))
        fail(EXIT_INPUT, "resize or reshape it",
             "%s has another shape than input \"%s\", which wants %s: %s", path, t->name, expected,
             header);
    if (!order || strncmp(order, "False", 5))
        fail(EXIT_INPUT, "save numpy.ascontiguousarray(array)", "%s is in Fortran order", path);
}

static void load_input(const char *path, const ek_tensor *t) {
    static const char magic[] = "\x93NUMPY";
    char start[6], expected[128];
    FILE *f = fopen(path, "rb");
    if (!f) fail(EXIT_INPUT, "check the path", "cannot read %s: %s", path, strerror(errno));
    if (fread(start, 1, sizeof start, f) == sizeof start && !memcmp(start, magic, sizeof start))
        check_header(f, path, t);
    else
        rewind(f);
    size_t got = fread(t->data, 1, t->bytes, f);
    if (ferror(f)) fail(EXIT_INPUT, "is it a file?", "cannot read %s: %s", path, strerror(errno));
    if (got != t->bytes || fgetc(f) != EOF)
        fail(EXIT_INPUT, "give a .npy file, or raw bytes of exactly that size",
             "%s has %s bytes than input \"%s\" %s %s: %zu", path,
             got != t->bytes ? "fewer" : "more", t->name, t->dtype,
             shape_text(t, expected, sizeof expected), t->bytes);
    fclose(f);
}

/* As <dir>/<name><index>.npy. */
static void write_output(const char *dir, const char *name, int index, const ek_tensor *t) {
    static char path[EK_PATH_CHARS];
    char header[256], shape[128];
    int n =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                 t->dtype, shape_text(t, shape, sizeof shape));
    while ((10 + n + 1) % 64) header[n++] = ' '; /* the data starts on a multiple of 64 */
    header[n++] = '\n';
    if (snprintf(path, sizeof path, "%s/%s%d.npy", dir, name, index) >= (int)sizeof path)
        fail(EXIT_INPUT, "use a shorter path", "--output is too long");
    const unsigned char start[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(n & 255), (unsigned char)(n >> 8)};
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(start, 1, sizeof start, f) == sizeof start &&
              fwrite(header, 1, (size_t)n, f) == (size_t)n &&
              fwrite(t->data, 1, t->bytes, f) == t->bytes;
    if (f && fclose(f)) ok = false;
    if (!ok)
        fail(EXIT_INPUT, "check the folder of --output and its free space", "cannot write %s: %s",
             path, strerror(errno));
}

/* ---- noise
 * ------------------------------------------------------------
 */

static uint32_t noise(uint32_t tensor, uint32_t i) {
    uint32_t h = (i + 1u) * 2654435761u ^ (tensor + 1u) * 2246822519u;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    return h ^ h >> 16;
}

/* float, double: [-1, 1).  Half: of a magnitude in [0.5, 1), by its bits.  Integers of one byte:
 * all values.  Wider ones: 0 to 255.  bool: 0 and 1. */
static void fill_noise(const ek_tensor *t, uint32_t index) {
    char kind = t->dtype[1];
    size_t size = (size_t)(t->dtype[2] - '0');
    unsigned char *p = t->data;
    for (size_t i = 0; i < t->bytes / size; i++, p += size) {
        uint32_t h = noise(index, (uint32_t)i);
        if (kind == 'f') {
            const float v = (float)(h >> 8) / 8388608.0f - 1.0f;
            const double wide = v;
            const uint16_t half = (uint16_t)((h >> 16 & 0x8000) | 0x3800 | (h >> 20 & 0x3ff));
            memcpy(p,
                   size == 4   ? (const void *)&v
                   : size == 8 ? (const void *)&wide
                               : (const void *)&half,
                   size);
        } else {
            memset(p, 0, size);
            *p = (unsigned char)(kind == 'b' ? h >> 31 : h >> 24);
        }
    }
}

#endif
