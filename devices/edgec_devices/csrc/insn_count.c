/* insn_count.c - a QEMU plugin that counts the instructions a bundle's program executes in each segment.
 *
 *     qemu-aarch64 -plugin insn_count.so,out=FILE ./main
 *
 * The program marks its inferences by closing descriptors that cannot exist (runtime/edgec_runtime/csrc/main.c).  Each
 * translation block adds its length to one counter; a mark moves what was added since the last mark to a bucket.  So a
 * count is a function of the instruction stream alone, and two runs of a program give the same.
 *
 * FILE gets one line per timed inference: the instructions of segment 0, 1, ... and last of what lies between them.
 *
 * For QEMU 7.2's plugin API 1, whose prototypes are restated here because Debian's qemu-user has no header for it.  One
 * guest thread: the counter is not atomic.
 */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
typedef uint64_t plugin_id;
struct qemu_plugin_tb;
typedef struct {
    const char *target_name;
    struct { int min, cur; } version;
    _Bool system_emulation;
    struct { int smp_vcpus, max_vcpus; } system;
} plugin_info;
enum { INLINE_ADD_U64 = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc, char **argv);

enum { MARK_BEGIN = -771001, MARK_END = -771002, MARK_SEGMENT = -771100, MAX_SEGMENTS = 4096 };

static uint64_t executed, seen;      /* instructions ever, and at the last mark */
static uint64_t bucket[MAX_SEGMENTS + 1], *now;
static uint64_t between;             /* instructions of an inference that are no segment's */
static int segments, counting, close_number;
static FILE *out;

static void on_block(plugin_id id, struct qemu_plugin_tb *tb)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &executed, qemu_plugin_tb_n_insns(tb));
}

static void finish(void)
{
    for (int s = 0; s < segments; s++) fprintf(out, "%llu ", (unsigned long long)bucket[s]);
    fprintf(out, "%llu\n", (unsigned long long)between);
    fflush(out);
    counting = 0;
}

static void on_syscall(plugin_id id, unsigned cpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                       uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
    (void)id, (void)cpu, (void)a2, (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    int32_t mark = (int32_t)a1;
    if (number != close_number || mark > MARK_BEGIN) return;
    if (mark == MARK_BEGIN) {
        memset(bucket, 0, sizeof bucket);
        between = 0, segments = 0, counting = 1;
        now = &between;
    } else if (counting) {
        *now += executed - seen;
        if (mark == MARK_END) finish();
        else if (mark <= MARK_SEGMENT && mark > MARK_SEGMENT - MAX_SEGMENTS) {
            now = &bucket[MARK_SEGMENT - mark];
            if (MARK_SEGMENT - mark >= segments) segments = MARK_SEGMENT - mark + 1;
        }
    }
    seen = executed;
}

int qemu_plugin_install(plugin_id id, const plugin_info *info, int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "out=", 4)) out = fopen(argv[i] + 4, "w");
    if (!out || info->system_emulation) {
        fputs("insn_count: needs out=FILE, and user-mode emulation\n", stderr);
        return 1;
    }
    close_number = strcmp(info->target_name, "aarch64") ? 6 : 57; /* 32-bit arm, else the generic table */
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
    qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
    return 0;
}
