/* main.c - the program of a bundle: runs the model, writes its outputs, times every segment.
 *
 *     main [--runs N] [--input FILE...] [--output DIR] [--json]
 *
 * Input files come in the order of the model's inputs: .npy, or raw little-endian bytes of exactly the tensor's size.
 * Without any, the inputs are filled with reproducible noise (edgec_runtime/inputs.py makes the same).  No malloc.
 *
 * Inferences are marked by closing file descriptors that cannot exist.  A real machine answers EBADF and that is all; an
 * emulator that watches system calls can count what lies between the marks.
 */
#define _POSIX_C_SOURCE 200809L
#include "ek_model.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_JOB = 1,                 /* the model failed */
    EXIT_INPUT = 2,               /* the caller must change something */
    MARK_WARM = -771000,          /* once, before the warm-up inference */
    MARK_BEGIN = -771001,         /* before each timed inference */
    MARK_END = -771002,           /* after it */
    MARK_SEGMENT = -771100,       /* minus the segment's index, at its start */
    MAX_SAMPLES = 1 << 18,        /* runs x (segments + 1); 2 MB of .bss, untouched until used */
    MAX_HEADER = 4096,            /* of a .npy */
    PATH_CHARS = 4096
};

static uint64_t samples[MAX_SAMPLES]; /* [segment][run] in ns, the whole inference last */

struct options {
    int runs;
    int n_files;
    char **files; /* into argv */
    const char *output;
    bool json;
};

/* ---- messages ---------------------------------------------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 3, 4))) static void fail(int code, const char *hint, const char *what, ...)
{
    va_list args;
    fflush(stdout);
    fputs("error: ", stderr);
    va_start(args, what);
    vfprintf(stderr, what, args);
    va_end(args);
    fprintf(stderr, "\n  hint: %s\n", hint);
    exit(code);
}

static void mark(int which)
{
    (void)close(which);
}

/* "(1, 3, 4)": numpy's way of writing a shape. */
static const char *shape_text(const ek_tensor *t, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "(");
    for (int i = 0; i < t->rank && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, i + 1 < t->rank ? "%d, " : t->rank == 1 ? "%d," : "%d", t->shape[i]);
    if (n < size) snprintf(text + n, size - n, ")");
    return text;
}

/* ---- .npy -------------------------------------------------------------------------------------------------------- */

/* The text after `'key':` in a .npy header, or NULL. */
static const char *header_value(const char *header, const char *key)
{
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

static bool same_shape(const char *p, const ek_tensor *t)
{
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
static void check_header(FILE *f, const char *path, const ek_tensor *t)
{
    static char header[MAX_HEADER + 1];
    const char *broken = "write it again with numpy.save";
    char expected[128];
    unsigned char b[4];
    if (fread(b, 1, 2, f) != 2 || b[0] < 1 || b[0] > 3) fail(EXIT_INPUT, broken, "%s has a broken .npy header", path);
    size_t width = b[0] == 1 ? 2 : 4, length = 0;
    if (fread(b, 1, width, f) != width) fail(EXIT_INPUT, broken, "%s ends in its .npy header", path);
    while (width--) length = length << 8 | b[width];
    if (length > MAX_HEADER || fread(header, 1, length, f) != length)
        fail(EXIT_INPUT, broken, "%s ends in its .npy header", path);
    header[length] = 0;
    const char *descr = header_value(header, "descr"), *order = header_value(header, "fortran_order");
    size_t n = strlen(t->dtype);
    shape_text(t, expected, sizeof expected);
    if (!descr || *descr != '\'' || strncmp(descr + 1, t->dtype, n) || descr[1 + n] != '\'')
        fail(EXIT_INPUT, "convert it with array.astype", "%s has another type than input \"%s\", which wants %s: %s", path,
             t->name, t->dtype, header);
    if (!same_shape(header_value(header, "shape"), t))
        fail(EXIT_INPUT, "resize or reshape it", "%s has another shape than input \"%s\", which wants %s: %s", path,
             t->name, expected, header);
    if (!order || strncmp(order, "False", 5))
        fail(EXIT_INPUT, "save numpy.ascontiguousarray(array)", "%s is in Fortran order", path);
}

static void load_input(const char *path, const ek_tensor *t)
{
    static const char magic[] = "\x93NUMPY";
    char start[6], expected[128];
    FILE *f = fopen(path, "rb");
    if (!f) fail(EXIT_INPUT, "check the path", "cannot read %s: %s", path, strerror(errno));
    if (fread(start, 1, sizeof start, f) == sizeof start && !memcmp(start, magic, sizeof start)) check_header(f, path, t);
    else rewind(f);
    size_t got = fread(t->data, 1, t->bytes, f);
    if (ferror(f)) fail(EXIT_INPUT, "is it a file?", "cannot read %s: %s", path, strerror(errno));
    if (got != t->bytes || fgetc(f) != EOF)
        fail(EXIT_INPUT, "give a .npy file, or raw bytes of exactly that size", "%s has %s bytes than input \"%s\" %s %s: %zu",
             path, got != t->bytes ? "fewer" : "more", t->name, t->dtype, shape_text(t, expected, sizeof expected), t->bytes);
    fclose(f);
}

static void write_output(const char *dir, int index, const ek_tensor *t)
{
    static char path[PATH_CHARS];
    char header[256], shape[128];
    int n = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", t->dtype,
                     shape_text(t, shape, sizeof shape));
    while ((10 + n + 1) % 64) header[n++] = ' '; /* the data starts on a multiple of 64 */
    header[n++] = '\n';
    if (snprintf(path, sizeof path, "%s/output%d.npy", dir, index) >= (int)sizeof path)
        fail(EXIT_INPUT, "use a shorter path", "--output is too long");
    const unsigned char start[10] = { 0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(n & 255), (unsigned char)(n >> 8) };
    FILE *f = fopen(path, "wb");
    bool ok = f && fwrite(start, 1, sizeof start, f) == sizeof start && fwrite(header, 1, (size_t)n, f) == (size_t)n &&
              fwrite(t->data, 1, t->bytes, f) == t->bytes;
    if (f && fclose(f)) ok = false;
    if (!ok) fail(EXIT_INPUT, "check the folder of --output and its free space", "cannot write %s: %s", path, strerror(errno));
}

/* ---- noise ------------------------------------------------------------------------------------------------------- */

static uint32_t noise(uint32_t tensor, uint32_t i)
{
    uint32_t h = (i + 1u) * 2654435761u ^ (tensor + 1u) * 2246822519u;
    h = (h ^ h >> 15) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    return h ^ h >> 16;
}

/* float: [-1, 1).  Integers of one byte: all values.  Wider ones: 0 to 255.  bool: 0 and 1. */
static void fill_noise(const ek_tensor *t, uint32_t index)
{
    char kind = t->dtype[1];
    size_t size = (size_t)(t->dtype[2] - '0');
    unsigned char *p = t->data;
    for (size_t i = 0; i < t->bytes / size; i++, p += size) {
        uint32_t h = noise(index, (uint32_t)i);
        if (kind == 'f' && size == 4) {
            float v = (float)(h >> 8) / 8388608.0f - 1.0f;
            memcpy(p, &v, sizeof v);
        } else if (kind != 'f') {
            memset(p, 0, size);
            *p = (unsigned char)(kind == 'b' ? h >> 31 : h >> 24);
        }
    }
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* One inference.  ns: where the times of each segment and of the whole go, `stride` apart; NULL for the warm-up. */
static void infer(uint64_t *ns, size_t stride)
{
    enum { MAX_PORTS = 256 };
    static const void *in[MAX_PORTS];
    static void *out[MAX_PORTS];
    uint64_t start = now_ns(), before = start;
    for (int s = 0; s < edgec_model.n_segments; s++) {
        const ek_segment *g = &edgec_model.segments[s];
        if (g->n_inputs > MAX_PORTS || g->n_outputs > MAX_PORTS)
            fail(EXIT_JOB, "raise MAX_PORTS in main.c", "segment \"%s\" has more than %d tensors", g->name, MAX_PORTS);
        for (int i = 0; i < g->n_inputs; i++) in[i] = edgec_model.tensors[g->inputs[i]].data;
        for (int i = 0; i < g->n_outputs; i++) out[i] = edgec_model.tensors[g->outputs[i]].data;
        mark(MARK_SEGMENT - s);
        int code = g->run(NULL, in, out);
        if (code) fail(EXIT_JOB, "compile the model again; if that does not help, report it", "segment \"%s\" failed with code %d",
                       g->name, code);
        uint64_t after = now_ns();
        if (ns) ns[(size_t)s * stride] = after - before;
        before = after;
    }
    if (ns) ns[(size_t)edgec_model.n_segments * stride] = before - start;
}

static void run_all(int runs)
{
    mark(MARK_WARM);
    infer(NULL, 0);
    for (int r = 0; r < runs; r++) {
        mark(MARK_BEGIN);
        infer(samples + r, (size_t)runs);
        mark(MARK_END);
    }
}

/* ---- what was seen ----------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_row(const char *name, const char *place, uint64_t *ns, int runs)
{
    static const int percent[] = { 0, 50, 90, 95, 99, 100 };
    qsort(ns, (size_t)runs, sizeof *ns, by_value);
    printf("%-24s %-8s", name, place);
    for (size_t i = 0; i < sizeof percent / sizeof *percent; i++) {
        /* Between the two nearest samples, as numpy.percentile does and stats.py for the other devices. */
        double at = (double)(runs - 1) * percent[i] / 100;
        int low = (int)at;
        double v = (double)ns[low];
        if (low + 1 < runs) v += (at - low) * ((double)ns[low + 1] - v);
        printf(" %9.3f", v / 1e6);
    }
    printf("\n");
}

static void print_table(int runs)
{
    const int n = edgec_model.n_segments;
    printf("%s: %d runs after a warm-up, ms\n%-24s %-8s %9s %9s %9s %9s %9s %9s\n", edgec_model.name, runs, "segment", "place",
           "min", "p50", "p90", "p95", "p99", "max");
    for (int s = 0; s < n; s++)
        print_row(edgec_model.segments[s].name, edgec_model.segments[s].place, samples + (size_t)s * (size_t)runs, runs);
    print_row("total", "", samples + (size_t)n * (size_t)runs, runs);
}

static void print_string(const char *s)
{
    putchar('"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\') printf("\\%c", *s);
        else if ((unsigned char)*s < 32) printf("\\u%04x", (unsigned)*s);
        else putchar(*s);
    putchar('"');
}

static void print_samples(const char *key, const uint64_t *ns, int runs)
{
    printf("\"%s\": [", key);
    for (int r = 0; r < runs; r++) printf("%s%llu", r ? ", " : "", (unsigned long long)ns[r]);
    printf("]");
}

static void print_json(int runs)
{
    const int n = edgec_model.n_segments;
    printf("{\"name\": ");
    print_string(edgec_model.name);
    printf(", \"runs\": %d, \"unit\": \"ns\", \"segments\": [", runs);
    for (int s = 0; s < n; s++) {
        printf("%s{\"name\": ", s ? ", " : "");
        print_string(edgec_model.segments[s].name);
        printf(", \"place\": ");
        print_string(edgec_model.segments[s].place);
        printf(", ");
        print_samples("ns", samples + (size_t)s * (size_t)runs, runs);
        printf("}");
    }
    printf("], ");
    print_samples("total", samples + (size_t)n * (size_t)runs, runs);
    printf("}\n");
}

/* ---- the command line -------------------------------------------------------------------------------------------- */

static const char usage[] = "main [--runs N] [--input FILE...] [--output DIR] [--json]";

static int number(const char *text)
{
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (end == text || *end || errno || n < 1 || n > MAX_SAMPLES)
        fail(EXIT_INPUT, "give a number of timed inferences, for example --runs 50", "--runs \"%s\" is not a number from 1 to %d",
             text, MAX_SAMPLES);
    return (int)n;
}

static struct options parse(int argc, char **argv)
{
    struct options o = { .runs = 1, .files = argv + argc };
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (!strcmp(argv[i], "--json")) o.json = true;
        else if (!strcmp(argv[i], "--runs") && more) o.runs = number(argv[++i]);
        else if (!strcmp(argv[i], "--output") && more) o.output = argv[++i];
        else if (!strcmp(argv[i], "--input") && more)
            for (o.files = argv + i + 1, o.n_files = 0; i + 1 < argc && strncmp(argv[i + 1], "--", 2); i++) o.n_files++;
        else if (!strcmp(argv[i], "--help")) {
            printf("usage: %s\n", usage);
            exit(0);
        } else fail(EXIT_INPUT, usage, "%s %s", argv[i], strncmp(argv[i], "--", 2) || more ? "is not an option" : "lacks a value");
    }
    return o;
}

static void check(const struct options *o)
{
    for (int i = 0; i < edgec_model.n_tensors; i++)
        if (!edgec_model.tensors[i].data)
            fail(EXIT_JOB, "compile edgec_model with buffers", "tensor \"%s\" has no buffer in this program",
                 edgec_model.tensors[i].name);
    if (o->n_files && o->n_files != edgec_model.n_inputs)
        fail(EXIT_INPUT, "give one file per input, in the model's order", "%d input files, but the model has %d inputs", o->n_files,
             edgec_model.n_inputs);
    if (o->runs > MAX_SAMPLES / (edgec_model.n_segments + 1))
        fail(EXIT_INPUT, "use fewer runs", "--runs %d is more than this program can keep: %d", o->runs,
             MAX_SAMPLES / (edgec_model.n_segments + 1));
    if (o->output && mkdir(o->output, 0777) && errno != EEXIST)
        fail(EXIT_INPUT, "make its parent folder first", "cannot make the folder %s: %s", o->output, strerror(errno));
}

int main(int argc, char **argv)
{
    struct options o = parse(argc, argv);
    check(&o);
    for (int i = 0; i < edgec_model.n_inputs; i++) {
        const ek_tensor *t = &edgec_model.tensors[edgec_model.inputs[i]];
        if (o.n_files) load_input(o.files[i], t);
        else fill_noise(t, (uint32_t)i);
    }
    run_all(o.runs);
    if (o.output)
        for (int i = 0; i < edgec_model.n_outputs; i++)
            write_output(o.output, i, &edgec_model.tensors[edgec_model.outputs[i]]);
    if (o.json) print_json(o.runs);
    else print_table(o.runs);
    if (fflush(stdout)) fail(EXIT_JOB, "check where the output goes", "cannot write the result: %s", strerror(errno));
    return 0;
}
