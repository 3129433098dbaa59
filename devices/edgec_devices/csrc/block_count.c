/* block_count.c - a QEMU plugin that tells what a bundle's program executes in each op of each segment.
 *
 *     qemu-aarch64 -plugin block_count.so,out=FILE[,caches=KIB:WAYS[:shared][+KIB:WAYS[:shared]...]][,every=N] ./main
 *
 * The program marks its inferences by closing descriptors that cannot exist (runtime/edgec_runtime/csrc/main.c).  What
 * runs between two marks is added to one bucket: (segment, op), op -1 for a segment's code outside of its ops, segment -1
 * for what lies between segments, and (segment, op, part) where the parts of an op that threads would share run in turn.
 * Each bucket has how often every translation block ran, how many of the blocks' ends
 * were mispredicted, and for each cache how many lines missed, apart those that a stream prefetcher had foreseen, and how
 * many changed lines it wrote to the next level or to memory to make room.
 * Everything is a function of the instruction stream alone: two runs of a program give the same.
 *
 * With `every`, a program that marks its inferences alone is counted in windows of N instructions, a block more or
 * less: they are the ops -1, 0, 1, ... of segment -1.
 *
 * Part k of an op runs on core k, all else on core 0.  Each core has the levels of cache for itself that are not `shared`.
 * The program runs the parts one after the other, the cores would run them at once.  So what parts look for in a shared
 * level is kept until the last part is over, and then looked for in turn, each part as far on its way as the others: they
 * have the level's room together, and find what another one has just brought, or has in a level of its own.  A store
 * takes the line from all other cores' own levels.
 *
 * FILE, one item a line; edgec_devices/pipeline/counts.py reads it:
 *
 *     target NAME
 *     inference                                          one timed inference begins
 *     bucket SEGMENT OP MISPREDICTED [FORESEEN MISSED WRITTEN]...    three numbers for each cache, nearest first
 *     part SEGMENT OP PART TIMES MISPREDICTED [FORESEEN MISSED WRITTEN]...     the same, of a part, and how often it was begun
 *     ran BLOCK TIMES                                    in the bucket above
 *     block BLOCK INSTRUCTIONS CODE                      at the end; CODE in hex
 *
 * For QEMU 7.2's plugin API 1, whose prototypes are restated here because Debian's qemu-user has no header for it.  One
 * guest thread: nothing is atomic.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef uint64_t plugin_id;
typedef uint32_t access_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
    const char *target_name;
    struct { int min, cur; } version;
    bool system_emulation;
    struct { int smp_vcpus, max_vcpus; } system;
} plugin_info;
enum { INLINE_ADD_U64 = 0, NO_REGISTERS = 0, READ_AND_WRITE = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, void (*)(unsigned, void *), int flags, void *);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *, uint64_t);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, void (*)(unsigned, access_info, uint64_t, void *), int flags,
                                      int which, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
unsigned qemu_plugin_mem_size_shift(access_info);
bool qemu_plugin_mem_is_store(access_info);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc, char **argv);

enum {
    MARK_WARM = -771000, MARK_BEGIN = -771001, MARK_END = -771002, MARK_SEGMENT = -771100, MAX_SEGMENTS = 4096,
    MARK_PART = -779000, MARK_OP = -780000, MAX_OPS = 200000,
    LEVELS = 3, CORES = 4, LINE_SHIFT = 6 /* 64 bytes on every board */
};

static FILE *out;
static int close_number;
static bool warm, counting;

static void *zeros(size_t n, size_t size)
{
    void *p = calloc(n, size);
    if (!p) fputs("block_count: no memory\n", stderr), exit(1);
    return p;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

struct block {
    uint64_t ran, seen;       /* times ever, and at the last mark */
    uint64_t pc;
    uint32_t number, instructions, size;
    struct block *usual_next; /* what ran after it the last time */
    struct block *in_slot;
    unsigned char code[];
};
enum { SLOTS = 1 << 14 };
static struct block *slots[SLOTS];
static struct block **blocks; /* by number */
static uint32_t n_blocks;

/* QEMU translates a block again when its cache is full: the same code at the same place stays one block. */
static struct block *block_of(uint64_t pc, uint32_t instructions, const unsigned char *code, uint32_t size)
{
    struct block **slot = &slots[(pc >> 2 ^ pc >> 16) % SLOTS], *b;
    for (b = *slot; b; b = b->in_slot)
        if (b->pc == pc && b->size == size && !memcmp(b->code, code, size)) return b;
    if (!(n_blocks & (n_blocks - 1))) {
        struct block **more = zeros(n_blocks ? 2 * n_blocks : 1, sizeof *more);
        if (n_blocks) memcpy(more, blocks, n_blocks * sizeof *more);
        free(blocks);
        blocks = more;
    }
    b = zeros(1, sizeof *b + size);
    b->pc = pc, b->number = n_blocks, b->instructions = instructions, b->size = size, b->in_slot = *slot;
    memcpy(b->code, code, size);
    blocks[n_blocks++] = b;
    return *slot = b;
}

/* ---- branch predictor: a table of the last 16 branches' history, else what followed the block last time ---------- */

enum { HISTORIES = 1 << 13, SURE = 3 };
static struct { struct block *of, *next; int trust; } histories[HISTORIES];
static struct block *before;
static uint32_t history;
static uint64_t mispredicted;
static uint64_t every, in_window; /* instructions of each window, and so far of this one; every 0: no windows */

static void next_window(void);

static void on_block(unsigned cpu, void *data)
{
    (void)cpu;
    struct block *b = data, *p = before;
    before = b;
    if (every && counting && (in_window += b->instructions) >= every) next_window();
    if (!p) return;
    uint32_t at = (p->number * 2654435761u >> 9 ^ history * 40503u) % HISTORIES;
    bool known = histories[at].of == p && histories[at].trust;
    bool right = (known ? histories[at].next : p->usual_next) == b;
    if (!right && p->usual_next) mispredicted++;
    if (histories[at].of != p) {
        if (!right) histories[at].of = p, histories[at].next = b, histories[at].trust = 1;
    } else if (histories[at].next == b) {
        if (histories[at].trust < SURE) histories[at].trust++;
    } else if (!histories[at].trust--) histories[at].next = b, histories[at].trust = 1;
    p->usual_next = b;
    history = (history << 1 | (b->pc != p->pc + p->size)) & 0xffff;
}

/* ---- caches: sets of lines, the least recently used goes; a prefetcher of each core follows 16 streams at each level -- */

/* A place of a set: 0 is empty, else twice (the line + 1), and 1 more for a line that was changed. */
static uint64_t place_of(uint64_t line) { return (line + 1) << 1; }

enum { STREAMS = 16 };
struct cache {
    uint64_t sets, ways, *lines; /* lines: sets x ways places, the last used first */
};
struct misses {
    struct { uint64_t next; int64_t step; uint64_t used; } streams[STREAMS]; /* step 0: one miss, no direction yet */
    uint64_t foreseen, missed, written;
};
static struct level {
    bool shared;
    struct cache caches[CORES]; /* the first alone where it is shared */
    struct misses misses[CORES];
} levels[LEVELS];
static int n_levels, n_own; /* the first n_own levels are not shared */
static uint64_t clock_;
static unsigned core, n_cores = 1; /* n_cores: that have run anything */
static bool in_part;

/* The place of a line in a cache; NULL if it is not there. */
static uint64_t *find(const struct cache *c, uint64_t line)
{
    uint64_t *set = c->lines + line % c->sets * c->ways;
    for (uint64_t i = 0; i < c->ways; i++)
        if ((set[i] & ~UINT64_C(1)) == place_of(line)) return set + i;
    return NULL;
}

/* Whether a line was there; it is from now on.  `gone` is the place that it took, 0 if it was there. */
static bool hit(struct cache *c, uint64_t line, uint64_t *gone)
{
    uint64_t *set = c->lines + line % c->sets * c->ways, *at = find(c, line);
    *gone = 0;
    if (at == set) return true;
    uint64_t place = at ? *at : place_of(line);
    if (!at) *gone = set[c->ways - 1];
    memmove(set + 1, set, (size_t)(at ? at - set : (ptrdiff_t)c->ways - 1) * sizeof *set);
    *set = place;
    return at;
}

static void drop(struct cache *c, uint64_t line)
{
    uint64_t *set = c->lines + line % c->sets * c->ways, *at = find(c, line);
    if (!at) return;
    memmove(at, at + 1, (size_t)(set + c->ways - 1 - at) * sizeof *set);
    set[c->ways - 1] = 0;
}

/* Whether a stream was here before this miss.  A stream begins with a second miss one or two lines from the first. */
static bool follows(struct misses *m, uint64_t line)
{
    int oldest = 0;
    for (int i = 0; i < STREAMS; i++) {
        int64_t from = (int64_t)(line - m->streams[i].next);
        if (m->streams[i].step ? !from : from && from >= -2 && from <= 2) {
            bool running = m->streams[i].step;
            if (!running) m->streams[i].step = from;
            m->streams[i].next = line + (uint64_t)m->streams[i].step;
            m->streams[i].used = ++clock_;
            return running;
        }
        if (m->streams[i].used < m->streams[oldest].used) oldest = i;
    }
    m->streams[oldest].next = line, m->streams[oldest].step = 0, m->streams[oldest].used = ++clock_;
    return false;
}

/* Whether another core has a line in a level of its own. */
static bool is_elsewhere(uint64_t line)
{
    for (struct level *l = levels; l < levels + n_own; l++)
        for (unsigned i = 0; i < n_cores; i++)
            if (i != core && find(&l->caches[i], line)) return true;
    return false;
}

/* A line that parts did not find in their own levels, or that those wrote. */
struct step {
    uint64_t line;
    bool is_written;
};

/* The steps of each core's part, in order. */
static struct way {
    struct step *steps;
    size_t n, room, done;
} ways[CORES];

static void keep(uint64_t line, bool is_written)
{
    struct way *w = &ways[core];
    if (w->n == w->room) {
        w->room = w->room ? 2 * w->room : 1 << 16;
        w->steps = realloc(w->steps, w->room * sizeof *w->steps);
        if (!w->steps) fputs("block_count: no memory\n", stderr), exit(1);
    }
    w->steps[w->n++] = (struct step){line, is_written};
}

/* A changed line goes to the first of the levels from `to` on that has it, else to memory. */
static void write_line(int to, uint64_t line)
{
    for (int i = to; i < n_levels; i++) {
        if (levels[i].shared && in_part) {
            keep(line, true);
            return;
        }
        uint64_t *at = find(&levels[i].caches[levels[i].shared ? 0 : core], line);
        if (at) {
            *at |= 1;
            return;
        }
        levels[i].misses[core].written++;
    }
}

/* Whether one of the levels [from, to) has a line for the core; all that do not, have it from now on. */
static bool look(int from, int to, uint64_t line)
{
    for (struct level *l = levels + from; l < levels + to; l++) {
        struct misses *m = &l->misses[core];
        uint64_t gone;
        const bool found = hit(&l->caches[l->shared ? 0 : core], line, &gone);
        if (gone & 1) {
            m->written++;
            write_line((int)(l - levels) + 1, (gone >> 1) - 1);
        }
        if (found) return true;
        if (l->shared && n_cores > 1 && is_elsewhere(line)) return true; /* it comes from there as fast */
        *(follows(m, line) ? &m->foreseen : &m->missed) += 1;
    }
    return false;
}

/* The core of the part that has the largest share of its way left; CORES when all are through. */
static unsigned behind(void)
{
    unsigned last = CORES;
    for (unsigned i = 0; i < CORES; i++) {
        const struct way *w = &ways[i], *least = &ways[last % CORES];
        if (w->done == w->n) continue;
        if (last == CORES || w->done * least->n < least->done * w->n) last = i;
    }
    return last;
}

static void touch(uint64_t line)
{
    if (look(0, n_own, line)) return;
    if (in_part)
        keep(line, false);
    else
        look(n_own, n_levels, line);
}

static void drop_elsewhere(uint64_t line)
{
    static uint64_t last;
    static unsigned of;
    if (n_cores == 1 || (line == last && core == of)) return; /* no other core has run since */
    last = line, of = core;
    for (struct level *l = levels; l < levels + n_own; l++)
        for (unsigned i = 0; i < n_cores; i++)
            if (i != core) drop(&l->caches[i], line);
}

static void on_access(unsigned cpu, access_info info, uint64_t address, void *data)
{
    (void)cpu, (void)data;
    if (!warm) return;
    uint64_t first = address >> LINE_SHIFT, last = (address + (1u << qemu_plugin_mem_size_shift(info)) - 1) >> LINE_SHIFT;
    for (uint64_t line = first; line <= last; line++) {
        touch(line);
        if (!qemu_plugin_mem_is_store(info)) continue;
        drop_elsewhere(line);
        *find(&levels[0].caches[core], line) |= 1;
    }
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

static struct bucket {
    int segment, op, part; /* part: -1 for what one thread does */
    uint64_t times, mispredicted, foreseen[LEVELS], missed[LEVELS], written[LEVELS];
    uint64_t *ran; /* by block, n_ran of them */
    uint32_t n_ran;
    struct bucket *next;
} *buckets, *now;

static void move_to(int segment, int op, int part)
{
    struct bucket **b = &buckets;
    while (*b && ((*b)->segment != segment || (*b)->op != op || (*b)->part != part)) b = &(*b)->next;
    if (!*b) *b = zeros(1, sizeof **b), (*b)->segment = segment, (*b)->op = op, (*b)->part = part;
    now = *b;
}

/* Adds what happened since the last mark to `now`, if it is counted. */
static void collect(void)
{
    if (counting && now->n_ran < n_blocks) {
        uint64_t *more = zeros(n_blocks, sizeof *more);
        if (now->n_ran) memcpy(more, now->ran, now->n_ran * sizeof *more);
        free(now->ran);
        now->ran = more, now->n_ran = n_blocks;
    }
    for (uint32_t i = 0; i < n_blocks; i++) {
        if (counting) now->ran[i] += blocks[i]->ran - blocks[i]->seen;
        blocks[i]->seen = blocks[i]->ran;
    }
    for (int i = 0; i < n_levels; i++) {
        struct misses *m = &levels[i].misses[core];
        if (counting) now->foreseen[i] += m->foreseen, now->missed[i] += m->missed, now->written[i] += m->written;
        m->foreseen = m->missed = m->written = 0;
    }
    if (counting) now->mispredicted += mispredicted;
    mispredicted = 0;
}

/* After the last part of an op: what the parts look for in shared levels, counted in their buckets. */
static void end_parts(void)
{
    in_part = false;
    while ((core = behind()) < CORES) {
        const struct step s = ways[core].steps[ways[core].done++];
        if (s.is_written)
            write_line(n_own, s.line);
        else
            look(n_own, n_levels, s.line);
    }
    for (core = 0; core < CORES; core++) {
        if (!ways[core].n) continue;
        ways[core].n = ways[core].done = 0;
        if (counting) move_to(now->segment, now->op, (int)core);
        collect();
    }
    core = 0;
}

static void begin_part(int part)
{
    if (part < 0)
        end_parts();
    else {
        core = (unsigned)part, in_part = true;
        if (core >= n_cores) n_cores = core + 1;
    }
    if (!counting) return;
    move_to(now->segment, now->op, part);
    now->times++;
}

static void print(const struct bucket *b)
{
    fprintf(out, b->part < 0 ? "bucket %d %d" : "part %d %d %d", b->segment, b->op, b->part);
    if (b->part >= 0) fprintf(out, " %llu", (unsigned long long)b->times);
    fprintf(out, " %llu", (unsigned long long)b->mispredicted);
    for (int i = 0; i < n_levels; i++)
        fprintf(out, " %llu %llu %llu", (unsigned long long)b->foreseen[i], (unsigned long long)b->missed[i],
                (unsigned long long)b->written[i]);
    fputc('\n', out);
    for (uint32_t i = 0; i < b->n_ran; i++)
        if (b->ran[i]) fprintf(out, "ran %u %llu\n", i, (unsigned long long)b->ran[i]);
}

/* There may be too many windows to keep them all: one bucket serves for each in turn. */
static void next_window(void)
{
    collect();
    print(now);
    free(now->ran);
    *now = (struct bucket){.segment = now->segment, .op = now->op + 1, .part = now->part, .next = now->next};
    in_window = 0;
}

static void finish(void)
{
    while (buckets) {
        struct bucket *b = buckets;
        print(b);
        buckets = b->next;
        free(b->ran);
        free(b);
    }
    counting = false;
}

static void on_syscall(plugin_id id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)cpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    int32_t mark = (int32_t)a1;
    if (number != close_number || mark > MARK_WARM || mark <= MARK_OP - MAX_OPS) return;
    warm = true;
    const bool of_part = mark <= MARK_PART && mark >= MARK_PART - CORES;
    if (mark == MARK_BEGIN || counting) collect();
    if (of_part) begin_part(MARK_PART - mark - 1);
    if (mark == MARK_BEGIN) {
        if (!counting) fputs("inference\n", out);
        counting = true, in_window = 0;
        move_to(-1, -1, -1);
    } else if (!counting) return;
    else if (mark == MARK_END) finish();
    else if (mark <= MARK_OP) move_to(now->segment, MARK_OP - mark, -1);
    else if (mark <= MARK_SEGMENT && mark > MARK_SEGMENT - MAX_SEGMENTS) move_to(MARK_SEGMENT - mark, -1, -1);
}

/* ---- translation, the end, the arguments ------------------------------------------------------------------------- */

static void on_translate(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    static unsigned char code[1 << 16];
    size_t n = qemu_plugin_tb_n_insns(tb), size = 0;
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        size_t length = qemu_plugin_insn_size(insn);
        if (size + length > sizeof code) break;
        memcpy(code + size, qemu_plugin_insn_data(insn), length);
        size += length;
        if (n_levels) qemu_plugin_register_vcpu_mem_cb(insn, on_access, NO_REGISTERS, READ_AND_WRITE, NULL);
    }
    struct block *b = block_of(qemu_plugin_tb_vaddr(tb), (uint32_t)n, code, (uint32_t)size);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &b->ran, 1);
    if (n_levels) qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, b);
}

static void on_exit_(plugin_id id, void *data)
{
    (void)id, (void)data;
    for (uint32_t i = 0; i < n_blocks; i++) {
        fprintf(out, "block %u %u ", i, blocks[i]->instructions);
        for (uint32_t k = 0; k < blocks[i]->size; k++) fprintf(out, "%02x", blocks[i]->code[k]);
        fputc('\n', out);
    }
    fclose(out);
}

static bool add_level(unsigned kib, unsigned n_ways, bool shared)
{
    if (!n_ways || ((uint64_t)kib << 10 >> LINE_SHIFT) / n_ways == 0) return false;
    struct level *l = &levels[n_levels++];
    l->shared = shared;
    if (!shared) n_own = n_levels;
    for (int i = 0; i < (shared ? 1 : CORES); i++) {
        struct cache *c = &l->caches[i];
        c->ways = n_ways, c->sets = ((uint64_t)kib << 10 >> LINE_SHIFT) / n_ways;
        c->lines = zeros(c->sets * c->ways, sizeof *c->lines);
    }
    return true;
}

/* No level behind a shared one is a core's own. */
static bool add_caches(const char *text)
{
    static const char shared[] = ":shared";
    for (;; text++) {
        unsigned kib, n_ways;
        int length = 0;
        if (n_levels == LEVELS || sscanf(text, "%u:%u%n", &kib, &n_ways, &length) != 2) return false;
        text += length;
        const bool is_shared = !strncmp(text, shared, sizeof shared - 1);
        if (is_shared) text += sizeof shared - 1;
        if (!is_shared && n_own < n_levels) return false;
        if (!add_level(kib, n_ways, is_shared)) return false;
        if (!*text) return true;
        if (*text != '+') return false;
    }
}

int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc, char **argv)
{
    bool good = !info->system_emulation;
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "out=", 4)) out = fopen(argv[i] + 4, "w");
        else if (!strncmp(argv[i], "caches=", 7)) good = add_caches(argv[i] + 7) && good;
        else if (!strncmp(argv[i], "every=", 6)) good = (every = strtoull(argv[i] + 6, NULL, 10)) && good;
        else good = false;
    if (!out || !good || (every && !n_levels)) {
        fputs("block_count: needs out=FILE, perhaps caches=KIB:WAYS+KIB:WAYS:shared, with them perhaps every=N, and "
              "user-mode emulation\n", stderr);
        return 1;
    }
    fprintf(out, "target %s\n", info->target_name);
    close_number = strcmp(info->target_name, "aarch64") ? 6 : 57; /* 32-bit arm, else the generic table */
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_atexit_cb(id, on_exit_, NULL);
    return 0;
}
