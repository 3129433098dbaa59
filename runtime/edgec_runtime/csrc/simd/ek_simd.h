/* Vectors of the width that the CPU has: a kernel is one text for Neon, AVX2 and AVX-512.
 *
 * ek_vf holds EK_VL floats, ek_vi as many int32. Arithmetic is written with the operators of C (+ -
 * * & | ^ << >>), which gcc and clang have for vectors; here stands what has none. ek_vf_max and
 * ek_vf_min take a bound as the second: of NaN they give NaN where it is the first. ek_vh holds
 * EK_VH int16, ek_vb EK_VB int8. Kernels are shared by the ops of a segment and take sizes at run
 * time; they end in _simd, and compute the part-th of `parts` shares of the result. No load or
 * store leaves the caller's elements. */
#ifndef EK_SIMD_H
#define EK_SIMD_H
#include "ek_base.h"

/* A sum of two scaled bytes: factors and bias of ek_vb_sum. */
typedef struct {
    int16_t a_high, a_low, b_high, b_low;
    int32_t bias, rest;
} ek_scaled_sum_t;

/* n < 256 bytes, in pieces of fixed sizes. */
EK_SHARED void ek_copy_few(void *to, const void *from, int n) {
    char *y = to;
    const char *x = from;
#define EK_PIECE(SIZE) \
    if (n & (SIZE)) memcpy(y, x, SIZE), y += (SIZE), x += (SIZE);
    EK_PIECE(128)
    EK_PIECE(64) EK_PIECE(32) EK_PIECE(16) EK_PIECE(8) EK_PIECE(4) EK_PIECE(2) EK_PIECE(1)
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include "ek_simd_avx512.h"
#elif defined(__AVX2__) && defined(__FMA__)
#include "ek_simd_avx2.h"
#elif defined(__aarch64__)
#include "ek_simd_neon.h"
#else
#error "no vectors for this CPU"
#endif

enum { EK_VH = 2 * EK_VL, EK_VB = 4 * EK_VL };
enum {
    EK_WAYS_F32 = 2
}; /* vectors whose functions are computed side by side: for so many there
      are registers */

EK_KERNEL ek_vi ek_vi_as(ek_vf v) { return (ek_vi)v; }
EK_KERNEL ek_vf ek_vf_as(ek_vi v) { return (ek_vf)v; }

/* A whole vector or, at the end of a row, n elements; the others are `rest`. */
EK_KERNEL ek_vf ek_vf_load_rest(const float *p, int n, float rest) {
    return n >= EK_VL ? ek_vf_load(p) : ek_vf_load_some(p, ek_vmask_of(n), ek_vf_set(rest));
}
EK_KERNEL ek_vf ek_vf_load_n(const float *p, int n) { return ek_vf_load_rest(p, n, 0); }
EK_KERNEL void ek_vf_store_n(float *p, ek_vf v, int n) {
    if (n >= EK_VL)
        ek_vf_store(p, v);
    else
        ek_vf_store_some(p, v, ek_vmask_of(n));
}
/* A row of n elements as floats, which becomes the at-th row of memory unless it is one already. */
EK_KERNEL const float *ek_vf_row(const float *p, int n, float *memory, int at) {
    (void)n, (void)memory, (void)at;
    return p;
}
EK_KERNEL ek_vb ek_vb_load_n(const void *p, int n) {
    if (n >= EK_VB) return ek_vb_load(p);
    int8_t all[EK_VB];
    ek_vb_store(all, ek_vb_set(0));
    ek_copy_few(all, p, n);
    return ek_vb_load(all);
}
EK_KERNEL void ek_vb_store_n(void *p, ek_vb v, int n) {
    if (n >= EK_VB) {
        ek_vb_store(p, v);
    } else {
        int8_t all[EK_VB];
        ek_vb_store(all, v);
        ek_copy_few(p, all, n);
    }
}

/* The multiplier of a scale: x * mul * 2^(left - right - 31), rounded twice as ek_multiply does.
 * Its shift is left or right, `even` all ones where it is right; |x| * 2^left < 2^30. */
typedef struct {
    ek_vi mul;
    ek_vshift left, right;
    ek_vi even;
} ek_vmul_t;

EK_KERNEL ek_vmul_t ek_vmul(int32_t mul, int shift) {
    const int left = EK_MAX(shift, 0), right = EK_MAX(-shift, 0);
    return (ek_vmul_t){ek_vi_set(mul), ek_vshift_left(left), ek_vshift_right(right),
                       ek_vi_set(right ? -1 : 0)};
}
EK_KERNEL ek_vi ek_vi_multiply(ek_vi x, const ek_vmul_t *k) {
    const ek_vi high = ek_vi_high_mul(ek_vi_shift(x, k->left), k->mul);
    return ek_vi_round_shift(high + ((high >> 31) & k->even), k->right);
}
/* where the shift is known to be right, by 1 or more */
EK_KERNEL ek_vi ek_vi_multiply_right(ek_vi x, const ek_vmul_t *k) {
    const ek_vi high = ek_vi_high_mul(x, k->mul);
    return ek_vi_round_shift(high + (high >> 31), k->right);
}

#endif
