/* Floats below 1.2e-38 count as 0 while a segment runs: an x86 takes some 150 cycles for a product
 * with one, and networks whose channels died are full of them. The cores of Arm boards do not mind.
 */
#ifndef EK_DENORMALS_H
#define EK_DENORMALS_H

enum { EK_FLUSHED = 0x8040 }; /* in the control register: results, and operands */

/* From here on, in this thread. Returns what was so before, for ek_denormals_as. */
static inline unsigned ek_no_denormals(void) {
#if defined(__SSE__)
    const unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | EK_FLUSHED);
    return before;
#else
    return 0;
#endif
}

static inline void ek_denormals_as(unsigned before) {
#if defined(__SSE__)
    __builtin_ia32_ldmxcsr(before);
#else
    (void)before;
#endif
}

#endif
