/* What the processor that runs this can do, where one program has code for several (Intel's manual,
 * CPUID and XGETBV). */
#ifndef EK_CPU_H
#define EK_CPU_H
#include <cpuid.h>

/* AVX-512 F, DQ, BW, VL and VNNI, and a system that keeps their registers. */
static int ek_cpu_asked_vnni(void) {
    unsigned a, b, c, d, low, high;
    const unsigned wanted = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & wanted) != wanted || !(c >> 11 & 1))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & 0xe6) == 0xe6;
}

/* Asked once: CPUID takes long in a virtual machine. */
static inline int ek_cpu_has_vnni(void) {
    static int known; /* 1: no, 2: yes */
    if (!known) known = 1 + ek_cpu_asked_vnni();
    return known == 2;
}

#endif
