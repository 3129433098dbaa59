/* main.c - the program of a bundle: runs the model, writes its outputs, times segments and
 * operations.
 *
 *     main [--runs N] [--seconds S] [--warmup S] [--profile N] [--launched NS] [--input FILE...]
 * [--output DIR] [--json]
 *          [--weights FILE] [--threads N [--in-turn]] [--segments] [--graph SHA256]
 *
 * Input files come in the order of the model's inputs: .npy, or raw little-endian bytes of exactly
 * the tensor's size. Without any, the inputs are filled with reproducible noise
 * (edgec_runtime/model/inputs.py makes the same).  No malloc. State is not kept: it is the same at
 * each inference, what further input files say, else what the model begins with.
 * --segments: the outputs of each segment are written, too.
 * --graph: refuse to run unless this program was made of the graph with this sha256 (the manifest's
 * "graph"). The weights are mapped from weights.bin beside the program (program_weights.h), unless
 * --weights names another file.
 *
 * All times are of CLOCK_MONOTONIC, ns.  The first inference and those that follow until --warmup
 * seconds have passed are reported, but are not among the runs.  --launched says when the program
 * was started, so that loading can be told.
 * --profile times each operation of so many more inferences, with a plain one between any two.
 *
 * Segments for the Edge TPU run on a stick where edgetpu.bin is beside the program and one is
 * plugged in (program_stick.h), else as C; their operations are profiled as C.
 *
 * --threads shares the larger ops among so many, at most edgec_model.threads.  --in-turn: without
 * any thread, one part after the other, each marked; so an emulator can count what each would do.
 *
 * Inferences are marked by closing file descriptors that cannot exist.  A real machine answers
 * EBADF and that is all; an emulator that watches system calls can count what lies between the
 * marks.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#define _POSIX_C_SOURCE 200809L
#include "ek_model.h"
#include "program_io.h"
#include "program_stick.h"
#include "program_weights.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    MARK_WARM = -771000,    /* once, before the first inference */
    MARK_BEGIN = -771001,   /* before each run, and each profiled inference */
    MARK_END = -771002,     /* after it */
    MARK_SEGMENT = -771100, /* minus the segment's index, at its start */
    MARK_PART = -779000, /* minus 1 and the part of an op, before it; without the 1 after the last
                            of them */
    MARK_OP = -780000,   /* minus the operation's index in its segment, before it; the last one ends
                            the segment */
    MAX_SAMPLES = 1 << 18, /* 2 MB of .bss, untouched until used */
    MIN_RUNS = 3           /* however short --seconds is */
};

static const double YARDSTICK_S = 0.01; /* time between two yardsticks */

struct options {
    int runs, profile;
    double seconds, warmup; /* seconds: 0 where there is no limit */
    uint64_t launched;      /* 0 where it is not known */
    int n_files, threads;
    char **files; /* into argv */
    const char *output, *weights, *graph;
    bool json, in_turn, segments;
};

static void mark(int which) { (void)close(which); }

static uint64_t clock_ns(clockid_t which) {
    struct timespec t;
    clock_gettime(which, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* ---- what is measured
 * -------------------------------------------------------------------------------------------- */

/* Series of equal width, one record for each inference: when it began, how long it took, how long
 * of that it waited for a processor that others had (the first thread took so much less of the
 * processor), how long each segment or operation took. */
struct record {
    uint64_t *values;
    int width, n, room;
};
enum { AT, TOTAL, WAITED, PARTS };

static uint64_t store[MAX_SAMPLES], column[MAX_SAMPLES / PARTS]; /* column: one series */
static struct record inferences, profiled;
static uint64_t plain[MAX_SAMPLES / 64], yardsticks[MAX_SAMPLES / 64];
static int n_warmup, n_yardsticks;
static uint64_t load_ns;
static const unsigned char *weights; /* read only */
static ek_threads *threads;          /* NULL: one */

/* A fixed piece of work, bound by the multiply-add units as a convolution is: its time tells how
 * fast the core is just now, whatever the model. */
static void yardstick(void) {
    static int16_t a[2048], b[2048];
    static uint32_t sum; /* goes on from one to the next, so that none can be left out */
    static uint64_t last;
    if (n_yardsticks == MAX_SAMPLES / 64 ||
        (last && now_ns() < last + (uint64_t)(YARDSTICK_S * 1e9)))
        return;
    if (!last)
        for (int i = 0; i < 2048; i++) a[i] = (int16_t)(i * 7), b[i] = (int16_t)(i * 3 - 1000);
    uint64_t start = now_ns();
    for (int r = 0; r < 200; r++) {
        for (int i = 0; i < 2048; i++) sum += (uint32_t)(a[i] * b[i]);
        __asm__ volatile("" : "+r"(sum) : : "memory"); /* or the repetitions become one */
    }
    last = now_ns();
    yardsticks[n_yardsticks++] = last - start;
}

/* The ports of a segment's tensors. */
static const ek_segment *bind(int s, const void **in, void **out) {
    const ek_segment *g = &edgec_model.segments[s];
    if (g->n_inputs > EK_MAX_PORTS || g->n_outputs > EK_MAX_PORTS)
        fail(EXIT_JOB, "raise EK_MAX_PORTS in ek_model.h",
             "segment \"%s\" has more than %d tensors", g->name, EK_MAX_PORTS);
    for (int i = 0; i < g->n_inputs; i++) in[i] = edgec_model.tensors[g->inputs[i]].data;
    for (int i = 0; i < g->n_outputs; i++) out[i] = edgec_model.tensors[g->outputs[i]].data;
    return g;
}

static void check_code(const ek_segment *g, int code) {
    if (code)
        fail(EXIT_JOB, "compile the model again; if that does not help, report it",
             "segment \"%s\" failed with code %d", g->name, code);
}

static void infer(struct record *r) {
    static const void *in[EK_MAX_PORTS];
    static void *out[EK_MAX_PORTS];
    uint64_t *to = r->values + (size_t)r->n++ * (size_t)r->width;
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), before = now_ns();
    to[AT] = before;
    for (int s = 0; s < edgec_model.n_segments; s++) {
        const ek_segment *g = bind(s, in, out);
        mark(MARK_SEGMENT - s);
        if (!stick_run(s, in, out))
            check_code(g, threads ? g->run_on(threads, g->arena, weights, in, out, NULL, NULL)
                                  : g->run(g->arena, weights, in, out));
        uint64_t after = now_ns();
        to[PARTS + s] = after - before;
        before = after;
    }
    to[TOTAL] = before - to[AT];
    cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    to[WAITED] = to[TOTAL] > cpu ? to[TOTAL] - cpu : 0;
}

struct op_clock {
    uint64_t *to;
    uint64_t since;
};

/* Called before each operation, and after the last.  Marking is in no operation's time. */
static void between_ops(void *context, int op) {
    struct op_clock *c = context;
    uint64_t now = now_ns();
    if (op > 0) c->to[op - 1] = now - c->since;
    mark(MARK_OP - op);
    c->since = now_ns();
}

static void infer_profiled(struct record *r) {
    static const void *in[EK_MAX_PORTS];
    static void *out[EK_MAX_PORTS];
    uint64_t *to = r->values + (size_t)r->n++ * (size_t)r->width;
    struct op_clock clock = {.to = to + PARTS};
    to[AT] = now_ns();
    for (int s = 0; s < edgec_model.n_segments; s++) {
        const ek_segment *g = bind(s, in, out);
        mark(MARK_SEGMENT - s);
        check_code(g, threads ? g->run_on(threads, g->arena, weights, in, out, between_ops, &clock)
                      : g->profile ? g->profile(g->arena, weights, in, out, between_ops, &clock)
                                   : g->run(g->arena, weights, in, out));
        clock.to += g->n_ops;
    }
    to[TOTAL] = now_ns() - to[AT];
}

/* The parts of an op without any thread. */
static void share_in_turn(ek_threads *self, ek_work *work, const void *context) {
    for (int part = 0; part < self->parts; part++) {
        mark(MARK_PART - 1 - part);
        work(context, part, self->parts);
    }
    mark(MARK_PART);
}

static void start_threads(const struct options *o) {
    static _Alignas(64) unsigned char pool[EK_POOL_BYTES];
    static ek_threads in_turn = {.share = share_in_turn};
    if (o->threads > edgec_model.threads)
        fail(EXIT_INPUT, "compile the model again with as many --threads",
             "--threads %d, but this program's code is for %d", o->threads, edgec_model.threads);
    if (o->threads <= 1) return;
    in_turn.parts = o->threads;
    threads = o->in_turn ? &in_turn : edgec_model.start(pool, o->threads);
    if (!threads)
        fail(EXIT_JOB, "run it with --threads 1", "the system gives no %d threads", o->threads);
}

/* Whether to go on: `done` of `wanted`, at least `least`, since `start`. */
static bool more(const struct options *o, int done, int wanted, int least, uint64_t start) {
    return done < wanted &&
           (done < least || o->seconds <= 0 || (double)(now_ns() - start) < o->seconds * 1e9);
}

static void run_all(const struct options *o) {
    mark(MARK_WARM);
    uint64_t start = now_ns();
    do {
        stick_between();
        infer(&inferences);
    } while ((double)(now_ns() - start) < o->warmup * 1e9 && inferences.n < inferences.room / 2);
    n_warmup = inferences.n;
    start = now_ns();
    for (int i = 0; more(o, i, o->runs, MIN_RUNS, start) && inferences.n < inferences.room; i++) {
        yardstick();
        stick_between();
        mark(MARK_BEGIN);
        infer(&inferences);
        mark(MARK_END);
    }
    start = now_ns();
    for (int i = 0; more(o, i, o->profile, 1, start); i++) {
        if (o->profile > 1) { /* one alone is for an emulator, which counts all that runs */
            struct record one = {.values = column, .width = inferences.width};
            infer(&one);
            plain[i] = column[TOTAL];
        }
        mark(MARK_BEGIN);
        infer_profiled(&profiled);
        mark(MARK_END);
    }
}

/* ---- what was seen
 * -----------------------------------------------------------------------------------------------
 */

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The runs' times of a segment or of the whole. */
static void print_row(const char *name, const char *place, int series) {
    static const int percent[] = {0, 50, 90, 95, 99, 100};
    int runs = inferences.n - n_warmup;
    for (int i = 0; i < runs; i++)
        column[i] =
            inferences.values[(size_t)(n_warmup + i) * (size_t)inferences.width + (size_t)series];
    qsort(column, (size_t)runs, sizeof *column, by_value);
    printf("%-24s %-8s", name, place);
    for (size_t i = 0; i < sizeof percent / sizeof *percent; i++) {
        /* Between the two nearest samples, as numpy.percentile does and stats.py for the other
         * devices. */
        double at = (double)(runs - 1) * percent[i] / 100;
        int low = (int)at;
        double v = (double)column[low];
        if (low + 1 < runs) v += (at - low) * ((double)column[low + 1] - v);
        printf(" %9.3f", v / 1e6);
    }
    printf("\n");
}

static void print_table(void) {
    const int n = edgec_model.n_segments;
    printf("%s: %d runs after a warm-up, ms\n%-24s %-8s %9s %9s %9s %9s %9s %9s\n",
           edgec_model.name, inferences.n - n_warmup, "segment", "place", "min", "p50", "p90",
           "p95", "p99", "max");
    for (int s = 0; s < n; s++)
        print_row(edgec_model.segments[s].name, edgec_model.segments[s].place, PARTS + s);
    print_row("total", "", TOTAL);
}

static void print_string(const char *s) {
    putchar('"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            printf("\\%c", *s);
        else if ((unsigned char)*s < 32)
            printf("\\u%04x", (unsigned)*s);
        else
            putchar(*s);
    putchar('"');
}

/* `n` values, `stride` apart. */
static void print_values(const uint64_t *values, int n, int stride) {
    printf("[");
    for (int i = 0; i < n; i++)
        printf("%s%llu", i ? ", " : "", (unsigned long long)values[(size_t)i * (size_t)stride]);
    printf("]");
}

static void print_series(const char *key, const struct record *r, int series) {
    printf("\"%s\": ", key);
    print_values(r->values + series, r->n, r->width);
    printf(", ");
}

static void print_profile(void) {
    printf("\"profile\": {");
    print_series("at", &profiled, AT);
    print_series("total", &profiled, TOTAL);
    printf("\"plain\": ");
    print_values(plain, profiled.n, 1);
    printf(", \"ops\": [");
    for (int s = 0, at = PARTS; s < edgec_model.n_segments; at += edgec_model.segments[s++].n_ops) {
        printf(s ? ", [" : "[");
        for (int i = 0; edgec_model.segments[s].profile && i < edgec_model.segments[s].n_ops; i++) {
            if (i) printf(", ");
            print_values(profiled.values + at + i, profiled.n, profiled.width);
        }
        printf("]");
    }
    printf("]}, ");
}

/* The highest resident size, bytes; 0 where the system does not tell.  Not of getrusage: that
 * counts the process which became this one, too. */
static uint64_t resident(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
    if (f) fclose(f);
    return kib * 1024;
}

static void print_json(const struct options *o) {
    printf("{\"name\": ");
    print_string(edgec_model.name);
    printf(", \"unit\": \"ns\", ");
    if (o->launched) printf("\"load\": %llu, ", (unsigned long long)load_ns);
    printf("\"warmup\": %d, ", n_warmup);
    print_series("at", &inferences, AT);
    printf("\"segments\": [");
    for (int s = 0; s < edgec_model.n_segments; s++) {
        printf("%s{\"name\": ", s ? ", " : "");
        print_string(edgec_model.segments[s].name);
        printf(", \"place\": ");
        print_string(edgec_model.segments[s].place);
        printf(", ");
        print_series("ns", &inferences, PARTS + s);
        printf("\"backend\": \"%s\"}", stick_served(s) ? "delegate" : "c");
    }
    printf("], ");
    print_series("total", &inferences, TOTAL);
    print_series("waited", &inferences, WAITED);
    if (o->profile) print_profile();
    printf("\"yardstick\": ");
    print_values(yardsticks, n_yardsticks, 1);
    printf(", \"rss\": %llu}\n", (unsigned long long)resident());
}

/* ---- the command line
 * -------------------------------------------------------------------------------------------- */

static const char usage[] =
    "main [--runs N] [--seconds S] [--warmup S] [--profile N] [--launched NS] [--input FILE...] [--output DIR] [--json] "
    "[--weights FILE] [--threads N [--in-turn]] [--segments] [--graph SHA256]";

static int number(const char *option, const char *text) {
    char *end;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (end == text || *end || errno || n < 0 || n > MAX_SAMPLES)
        fail(EXIT_INPUT, "give a number of inferences, for example --runs 50",
             "%s \"%s\" is not a number from 0 to %d", option, text, MAX_SAMPLES);
    return (int)n;
}

static double seconds(const char *option, const char *text) {
    char *end;
    double s = strtod(text, &end);
    if (end == text || *end || !(s >= 0 && s <= 1e6))
        fail(EXIT_INPUT, "give seconds, for example 0.5", "%s \"%s\" is not a time", option, text);
    return s;
}

static struct options parse(int argc, char **argv) {
    struct options o = {.runs = 1, .threads = 1, .files = argv + argc};
    for (int i = 1; i < argc; i++) {
        bool next = i + 1 < argc;
        if (!strcmp(argv[i], "--json"))
            o.json = true;
        else if (!strcmp(argv[i], "--in-turn"))
            o.in_turn = true;
        else if (!strcmp(argv[i], "--segments"))
            o.segments = true;
        else if (!strcmp(argv[i], "--threads") && next)
            o.threads = number("--threads", argv[++i]);
        else if (!strcmp(argv[i], "--runs") && next)
            o.runs = number("--runs", argv[++i]);
        else if (!strcmp(argv[i], "--profile") && next)
            o.profile = number("--profile", argv[++i]);
        else if (!strcmp(argv[i], "--seconds") && next)
            o.seconds = seconds("--seconds", argv[++i]);
        else if (!strcmp(argv[i], "--warmup") && next)
            o.warmup = seconds("--warmup", argv[++i]);
        else if (!strcmp(argv[i], "--launched") && next)
            o.launched = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--output") && next)
            o.output = argv[++i];
        else if (!strcmp(argv[i], "--weights") && next)
            o.weights = argv[++i];
        else if (!strcmp(argv[i], "--graph") && next)
            o.graph = argv[++i];
        else if (!strcmp(argv[i], "--input") && next)
            for (o.files = argv + i + 1, o.n_files = 0;
                 i + 1 < argc && strncmp(argv[i + 1], "--", 2); i++)
                o.n_files++;
        else if (!strcmp(argv[i], "--help")) {
            printf("usage: %s\n", usage);
            exit(0);
        } else
            fail(EXIT_INPUT, usage, "%s %s", argv[i],
                 strncmp(argv[i], "--", 2) || next ? "is not an option" : "lacks a value");
    }
    return o;
}

/* Room for the profile, then for as many inferences as fit. */
static void lay_out(const struct options *o) {
    int ops = 0;
    for (int s = 0; s < edgec_model.n_segments; s++) ops += edgec_model.segments[s].n_ops;
    profiled = (struct record){.values = store, .width = PARTS + ops};
    inferences.width = PARTS + edgec_model.n_segments;
    long taken = (long)o->profile * profiled.width;
    if (o->profile > MAX_SAMPLES / 64 || taken > MAX_SAMPLES / 2)
        fail(EXIT_INPUT, "use fewer", "--profile %d is more than this program can keep",
             o->profile);
    inferences.values = store + taken;
    inferences.room = (int)((MAX_SAMPLES - taken) / inferences.width);
    if (o->seconds <= 0 && o->runs >= inferences.room)
        fail(EXIT_INPUT, "use fewer runs", "--runs %d is more than this program can keep: %d",
             o->runs, inferences.room - 1);
}

static void check(const struct options *o) {
    if (o->graph && strcmp(o->graph, edgec_model.graph))
        fail(EXIT_INPUT, "take program and manifest from the same bundle",
             "this program was made of another graph: %.64s", edgec_model.graph);
    for (int i = 0; i < edgec_model.n_tensors; i++)
        if (!edgec_model.tensors[i].data)
            fail(EXIT_JOB, "compile edgec_model with buffers",
                 "tensor \"%s\" has no buffer in this program", edgec_model.tensors[i].name);
    if (o->n_files && o->n_files != edgec_model.n_inputs &&
        o->n_files != edgec_model.n_inputs + edgec_model.n_state)
        fail(EXIT_INPUT, "give one file per input, in the model's order",
             "%d input files, but the model has %d inputs", o->n_files, edgec_model.n_inputs);
    if (!o->json && o->runs < 1)
        fail(EXIT_INPUT, "give --runs 1 or more", "--runs 0 leaves nothing to show");
    if (o->output && mkdir(o->output, 0777) && errno != EEXIST)
        fail(EXIT_INPUT, "make its parent folder first", "cannot make the folder %s: %s", o->output,
             strerror(errno));
}

/* output<i>.npy; with --segments also <segment>_<i>.npy. */
static void write_outputs(const struct options *o) {
    for (int i = 0; i < edgec_model.n_outputs; i++)
        write_output(o->output, "output", i, &edgec_model.tensors[edgec_model.outputs[i]]);
    for (int s = 0; o->segments && s < edgec_model.n_segments; s++) {
        static char name[EK_PATH_CHARS];
        const ek_segment *g = &edgec_model.segments[s];
        snprintf(name, sizeof name, "%s_", g->name);
        for (int i = 0; i < g->n_outputs; i++)
            write_output(o->output, name, i, &edgec_model.tensors[g->outputs[i]]);
    }
}

int main(int argc, char **argv) {
    struct options o = parse(argc, argv);
    lay_out(&o);
    check(&o);
    start_threads(&o);
    weights = map_weights(&edgec_model, o.weights, argv[0]);
    stick_start(argv[0], &edgec_model);
    load_ns = now_ns() - o.launched;
    for (int i = 0; i < edgec_model.n_inputs; i++) {
        const ek_tensor *t = &edgec_model.tensors[edgec_model.inputs[i]];
        if (o.n_files)
            load_input(o.files[i], t);
        else
            fill_noise(t, (uint32_t)i);
    }
    for (int i = 0; i < edgec_model.n_state && o.n_files > edgec_model.n_inputs; i++)
        load_input(o.files[edgec_model.n_inputs + i],
                   &edgec_model.tensors[edgec_model.state[i].input]);
    run_all(&o);
    stick_stop();
    if (o.output) write_outputs(&o);
    if (threads && !o.in_turn) edgec_model.stop(threads);
    if (o.json)
        print_json(&o);
    else
        print_table();
    if (fflush(stdout))
        fail(EXIT_JOB, "check where the output goes", "cannot write the result: %s",
             strerror(errno));
    return 0;
}
