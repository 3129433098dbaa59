/* Vectors of halves: what ek_simd.h has of floats, for the float16 kernels, which are the texts of
 * the float32 ones with other elements.
 *
 * ek_vf16 holds EK_VL16 halves. Neon computes with halves (Armv8.2, FEAT_FP16). x86 computes with
 * floats, and rounds each fused multiply-add to a half as Neon does, so that another machine shows
 * what a board's sums lose. A plain product or sum is rounded where it is stored. ek_vf_*_as loads
 * and stores floats, of elements of either type. */
#ifndef EK_SIMD_F16_H
#define EK_SIMD_F16_H
#include "ek_simd.h"

/* Elements that a tile loads of each window at once, and terms of a sum in halves that is not yet
 * added to a sum of such sums. */
enum { EK_STEP_F16 = 8, EK_TERMS_F16 = 32, EK_WAYS_F16 = 4 };
#define EK_LANES_F16(M, K) M(K, 0) M(K, 1) M(K, 2) M(K, 3) M(K, 4) M(K, 5) M(K, 6) M(K, 7)

#if defined(__aarch64__)
#include "ek_simd_f16_neon.h"
#else
#include "ek_simd_f16_x86.h"
#endif

EK_KERNEL ek_vf16 ek_vf16_load_rest(const ek_half *p, int n, ek_half rest) {
    return n >= EK_VL16 ? ek_vf16_load(p)
                        : ek_vf16_load_some(p, ek_vmask16_of(n), ek_vf16_set(rest));
}
EK_KERNEL ek_vf16 ek_vf16_load_n(const ek_half *p, int n) { return ek_vf16_load_rest(p, n, 0); }
EK_KERNEL void ek_vf16_store_n(ek_half *p, ek_vf16 v, int n) {
    if (n >= EK_VL16)
        ek_vf16_store(p, v);
    else
        ek_vf16_store_some(p, v, ek_vmask16_of(n));
}

#define EK_SIXTEEN(V) V, V, V, V, V, V, V, V, V, V, V, V, V, V, V, V /* the widest vector */
/* e^(factor x) for x <= 0, within 2^-11: 2^t for t = n + f, n whole, where 2^f - 1 is a polynomial
 * with the least error for |f| <= 1/2. 1536 + 15 has 1 in its last place: added, it leaves n + 15
 * there, the exponent of 2^n, which is 0 for n = -15. Coefficients that a sum begins with come from
 * memory (ek_vf16_copy). */
EK_KERNEL ek_vf16 ek_vf16_exp_below(ek_vf16 x, ek_half factor) {
    static const ek_half second[] = {EK_SIXTEEN(0.2421875f)}, first[] = {EK_SIXTEEN(0.6933594f)};
    const ek_vf16 magic = ek_vf16_set(1551);
    const ek_vf16 scale = ek_vf16_set((ek_half)((float)factor * 1.44269504f));
    const ek_vf16 t = ek_vf16_max(ek_vf16_rounded(x * scale), ek_vf16_set(-15));
    const ek_vf16 n = ek_vf16_rounded(t + magic), f = t - (n - magic);
    ek_vf16 p = ek_vf16_fma(f, ek_vf16_set(0.0550232f), ek_vf16_copy(second));
    p = ek_vf16_rounded(f * ek_vf16_fma(p, f, ek_vf16_copy(first)));
    const ek_vf16 power = ek_vf16_power(n);
    return ek_vf16_fma(p, power, power);
}

/* n of EK_VL halves, as floats. */
EK_KERNEL ek_vf ek_vf_load_rest_f16(const ek_half *p, int n, float rest) {
    if (n >= EK_VL) return ek_vf_load_f16(p);
    ek_half all[EK_VL];
    for (int i = 0; i < EK_VL; i++) all[i] = (ek_half)rest;
    ek_copy_few(all, p, EK_MAX(n, 0) * (int)sizeof(ek_half));
    return ek_vf_load_f16(all);
}
EK_KERNEL void ek_vf_store_n_f16(ek_half *p, ek_vf v, int n) {
    if (n >= EK_VL) {
        ek_vf_store_f16(p, v);
    } else {
        ek_half all[EK_VL];
        ek_vf_store_f16(all, v);
        ek_copy_few(p, all, n * (int)sizeof(ek_half));
    }
}
EK_KERNEL const float *ek_vf_row_f16(const ek_half *p, int n, float *memory, int at) {
    memory += (ptrdiff_t)at * n;
    int i = 0;
    for (; i + EK_VL16 <= n; i += EK_VL16) {
        EK_UNROLL for (int j = 0; j < EK_VL16; j += EK_VL)
            ek_vf_store(memory + i + j, ek_vf_load_f16(p + i + j));
    }
    for (; i < n; i++) memory[i] = (float)p[i];
    return memory;
}
#define ek_vf_row_as(p, n, memory, at)                                                           \
    _Generic((p), const ek_half *: ek_vf_row_f16, ek_half *: ek_vf_row_f16, default: ek_vf_row)( \
        p, n, memory, at)
#define ek_vf_load_as(p)                 \
    _Generic((p),                        \
        const ek_half *: ek_vf_load_f16, \
        ek_half *: ek_vf_load_f16,       \
        default: ek_vf_load)(p)
#define ek_vf_store_as(p, v) _Generic((p), ek_half *: ek_vf_store_f16, default: ek_vf_store)(p, v)
#define ek_vf_load_rest_as(p, n, rest)        \
    _Generic((p),                             \
        const ek_half *: ek_vf_load_rest_f16, \
        ek_half *: ek_vf_load_rest_f16,       \
        default: ek_vf_load_rest)(p, n, rest)
#define ek_vf_store_n_as(p, v, n) \
    _Generic((p), ek_half *: ek_vf_store_n_f16, default: ek_vf_store_n)(p, v, n)

#endif
