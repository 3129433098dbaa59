/* Lets a process see less of the processor than is there: LD_PRELOAD this with CPU_LEVEL=vnni (no AMX, no half floats)
 * or CPU_LEVEL=avx2 (no AVX-512 either).  Engines choose their kernels by CPUID, and Linux can make CPUID fault
 * (arch_prctl ARCH_SET_CPUID, flag cpuid_fault of /proc/cpuinfo): the fault is answered here with bits taken out. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { SET_CPUID = 0x1012 };
static int avx2, hiding;

static void hide(uint32_t leaf, uint32_t part, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d)
{
    if (leaf == 7 && part == 0) {
        *d &= ~(1u << 22 | 1u << 23 | 1u << 24 | 1u << 25); /* AMX-BF16, AVX512-FP16, AMX-TILE, AMX-INT8 */
        if (!avx2) return;
        *b &= ~(1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 | 1u << 30 | 1u << 31); /* F to VL */
        *c &= ~(1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14); /* VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ */
        *d &= ~(1u << 2 | 1u << 3 | 1u << 8);                        /* 4VNNIW, 4FMAPS, VP2INTERSECT */
    } else if (leaf == 7 && part == 1) {
        *a &= ~(1u << 5 | 1u << 21);                          /* AVX512-BF16, AMX-FP16 */
        if (avx2) *a &= ~(1u << 4 | 1u << 23);                /* AVX-VNNI, AVX-IFMA */
        *d &= ~(1u << 4 | 1u << 5 | 1u << 8 | 1u << 10 | 1u << 19); /* AVX-VNNI-INT8.., AMX-COMPLEX, AVX10 */
    } else if (leaf == 0xd && part == 0) {
        *a &= avx2 ? 0x7u : 0xe7u; /* saved states: x87, SSE, AVX; AVX-512's three */
    } else if (leaf == 0x1d || leaf == 0x1e || leaf == 0x24) {
        *a = *b = *c = *d = 0;
    }
}

static void answer(int signal_number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const uint8_t *at = (const uint8_t *)r[REG_RIP];
    if (info->si_code != SI_KERNEL || at[0] != 0x0f || at[1] != 0xa2) { /* no CPUID: a crash like any other */
        signal(signal_number, SIG_DFL);
        hiding = 0;
        raise(signal_number);
        return;
    }
    uint32_t leaf = (uint32_t)r[REG_RAX], part = (uint32_t)r[REG_RCX], a, b, c, d;
    syscall(SYS_arch_prctl, SET_CPUID, 1);
    __cpuid_count(leaf, part, a, b, c, d);
    syscall(SYS_arch_prctl, SET_CPUID, 0);
    hide(leaf, part, &a, &b, &c, &d);
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d, r[REG_RIP] += 2;
}

/* Others' handlers of SIGSEGV, which would hide ours, are not installed. */
int sigaction(int number, const struct sigaction *new, struct sigaction *old)
{
    static int (*next)(int, const struct sigaction *, struct sigaction *);
    if (!next) next = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
    if (!hiding || number != SIGSEGV || !new) return next(number, new, old);
    if (old) memset(old, 0, sizeof *old);
    return 0;
}

__attribute__((constructor)) static void start(void)
{
    const char *level = getenv("CPU_LEVEL");
    struct sigaction how = {0};
    if (!level || !*level) return;
    avx2 = !strcmp(level, "avx2");
    how.sa_sigaction = answer;
    how.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &how, NULL);
    hiding = 1;
    if (syscall(SYS_arch_prctl, SET_CPUID, 0)) _exit(97);
}
