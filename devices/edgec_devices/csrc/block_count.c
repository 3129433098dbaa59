/* block_count.c - a QEMU plugin that tells what a bundle's program executes in each op of each segment.
 *
 *     qemu-aarch64 -plugin block_count.so,out=FILE[,caches=KIB:WAYS[+KIB:WAYS...]] ./main
 *
 * The program marks its inferences by closing descriptors that cannot exist (runtime/edgec_runtime/csrc/main.c).  What
 * runs between two marks is added to one bucket: (segment, op), op -1 for a segment's code outside of its ops, segment -1
 * for what lies between segments, and (segment, op, part) where the parts of an op that threads would share run in turn.
 * Each bucket has how often every translation block ran, how many of the blocks' ends
 * were mispredicted, and for each cache how many lines missed, apart those that a stream prefetcher had foreseen.
 * Everything is a function of the instruction stream alone: two runs of a program give the same.
 *
 * FILE, one item a line; edgec_devices/pipeline/counts.py reads it:
 *
 *     target NAME
 *     inference                                          one timed inference begins
 *     bucket SEGMENT OP MISPREDICTED [FORESEEN MISSED]...    the pairs per cache, nearest first
 *     part SEGMENT OP PART MISPREDICTED [FORESEEN MISSED]...     the same, of a part
 *     ran BLOCK TIMES                                    in the bucket above
 *     block BLOCK INSTRUCTIONS CODE                      at the end; CODE in hex
 *
 * For QEMU 7.2's plugin API 1, whose prototypes are restated here because Debian's qemu-user has no header for it.  One
 * guest thread: nothing is atomic.
 */
#include <stdbool.h>
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

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc, char **argv);

enum {
    MARK_WARM = -771000, MARK_BEGIN = -771001, MARK_END = -771002, MARK_SEGMENT = -771100, MAX_SEGMENTS = 4096,
    MARK_PART = -779000, MAX_PARTS = 64, MARK_OP = -780000, MAX_OPS = 200000,
    LEVELS = 3, LINE_SHIFT = 6 /* 64 bytes on every board */
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

static void on_block(unsigned cpu, void *data)
{
    (void)cpu;
    struct block *b = data, *p = before;
    before = b;
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

/* ---- caches: sets of lines, the least recently used goes; a prefetcher that follows 16 streams at each level ----- */

enum { STREAMS = 16 };
struct cache {
    uint64_t sets, ways, *lines; /* lines: sets x ways, the last used first, + 1 so that 0 is empty */
    struct { uint64_t next; int64_t step; uint64_t used; } streams[STREAMS]; /* step 0: one miss, no direction yet */
    uint64_t foreseen, missed;
};
static struct cache caches[LEVELS];
static int n_caches;
static uint64_t clock_;

static bool hit(struct cache *c, uint64_t line)
{
    uint64_t *set = c->lines + line % c->sets * c->ways, want = line + 1, i = 0;
    if (*set == want) return true;
    while (i < c->ways && set[i] != want) i++;
    bool found = i < c->ways;
    memmove(set + 1, set, (size_t)(found ? i : c->ways - 1) * sizeof *set);
    *set = want;
    return found;
}

/* Whether a stream was here before this miss.  A stream begins with a second miss one or two lines from the first. */
static bool follows(struct cache *c, uint64_t line)
{
    int oldest = 0;
    for (int i = 0; i < STREAMS; i++) {
        int64_t from = (int64_t)(line - c->streams[i].next);
        if (c->streams[i].step ? !from : from && from >= -2 && from <= 2) {
            bool running = c->streams[i].step;
            if (!running) c->streams[i].step = from;
            c->streams[i].next = line + (uint64_t)c->streams[i].step;
            c->streams[i].used = ++clock_;
            return running;
        }
        if (c->streams[i].used < c->streams[oldest].used) oldest = i;
    }
    c->streams[oldest].next = line, c->streams[oldest].step = 0, c->streams[oldest].used = ++clock_;
    return false;
}

static void touch(uint64_t line)
{
    for (struct cache *c = caches; c < caches + n_caches && !hit(c, line); c++)
        *(follows(c, line) ? &c->foreseen : &c->missed) += 1;
}

static void on_access(unsigned cpu, access_info info, uint64_t address, void *data)
{
    (void)cpu, (void)data;
    if (!warm) return;
    uint64_t first = address >> LINE_SHIFT, last = (address + (1u << qemu_plugin_mem_size_shift(info)) - 1) >> LINE_SHIFT;
    touch(first);
    if (last != first) touch(last);
}

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

static struct bucket {
    int segment, op, part; /* part: -1 for what one thread does */
    uint64_t mispredicted, foreseen[LEVELS], missed[LEVELS], *ran; /* ran: by block, n_ran of them */
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
    for (int i = 0; i < n_caches; i++) {
        if (counting) now->foreseen[i] += caches[i].foreseen, now->missed[i] += caches[i].missed;
        caches[i].foreseen = caches[i].missed = 0;
    }
    if (counting) now->mispredicted += mispredicted;
    mispredicted = 0;
}

static void finish(void)
{
    fputs("inference\n", out);
    while (buckets) {
        struct bucket *b = buckets;
        fprintf(out, b->part < 0 ? "bucket %d %d" : "part %d %d %d", b->segment, b->op, b->part);
        fprintf(out, " %llu", (unsigned long long)b->mispredicted);
        for (int i = 0; i < n_caches; i++)
            fprintf(out, " %llu %llu", (unsigned long long)b->foreseen[i], (unsigned long long)b->missed[i]);
        fputc('\n', out);
        for (uint32_t i = 0; i < b->n_ran; i++)
            if (b->ran[i]) fprintf(out, "ran %u %llu\n", i, (unsigned long long)b->ran[i]);
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
    if (mark == MARK_BEGIN || counting) collect();
    if (mark == MARK_BEGIN) {
        counting = true;
        move_to(-1, -1, -1);
    } else if (!counting) return;
    else if (mark == MARK_END) finish();
    else if (mark <= MARK_OP) move_to(now->segment, MARK_OP - mark, -1);
    else if (mark <= MARK_PART && mark >= MARK_PART - MAX_PARTS) move_to(now->segment, now->op, MARK_PART - mark - 1);
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
        if (n_caches) qemu_plugin_register_vcpu_mem_cb(insn, on_access, NO_REGISTERS, READ_AND_WRITE, NULL);
    }
    struct block *b = block_of(qemu_plugin_tb_vaddr(tb), (uint32_t)n, code, (uint32_t)size);
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &b->ran, 1);
    if (n_caches) qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, b);
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

static bool add_caches(const char *text)
{
    for (; n_caches < LEVELS; text = strchr(text, '+') + 1) {
        struct cache *c = &caches[n_caches++];
        unsigned kib, ways;
        if (sscanf(text, "%u:%u", &kib, &ways) != 2 || !ways || (kib << 10 >> LINE_SHIFT) / ways == 0) return false;
        c->ways = ways, c->sets = (kib << 10 >> LINE_SHIFT) / ways;
        c->lines = zeros(c->sets * c->ways, sizeof *c->lines);
        if (!strchr(text, '+')) return true;
    }
    return false;
}

int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc, char **argv)
{
    bool good = !info->system_emulation;
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "out=", 4)) out = fopen(argv[i] + 4, "w");
        else if (!strncmp(argv[i], "caches=", 7)) good = add_caches(argv[i] + 7) && good;
        else good = false;
    if (!out || !good) {
        fputs("block_count: needs out=FILE, perhaps caches=KIB:WAYS+KIB:WAYS, and user-mode emulation\n", stderr);
        return 1;
    }
    fprintf(out, "target %s\n", info->target_name);
    close_number = strcmp(info->target_name, "aarch64") ? 6 : 57; /* 32-bit arm, else the generic table */
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    qemu_plugin_register_atexit_cb(id, on_exit_, NULL);
    return 0;
}
