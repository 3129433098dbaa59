/* Softmax and its logarithm over the last dimension. */
#ifndef EK_SOFTMAX_H
#define EK_SOFTMAX_H
#include "ek_fixed_point.h"
#include "ek_quantize.h"

typedef struct {
    float beta;
} ek_softmax_t;

typedef float ek_softmax_sum_t; /* of elements of any type */

#define EK_SOFTMAX(NAME, T)                                                         \
    EK_KERNEL void NAME(const T *x, T *y, int rows, int n, const ek_softmax_t *p) { \
        for (int r = 0; r < rows; r++, x += n, y += n) {                            \
            float max = x[0], sum = 0.0f;                                           \
            for (int i = 1; i < n; i++) max = EK_MAX(max, x[i]);                    \
            for (int i = 0; i < n; i++) {                                           \
                const float e = expf((x[i] - max) * p->beta);                       \
                y[i] = (T)e, sum += e;                                              \
            }                                                                       \
            for (int i = 0; i < n; i++) y[i] = (T)(y[i] / sum);                     \
        }                                                                           \
    }
EK_SOFTMAX(ek_softmax_f32, float)
#if defined(EK_ELEMENT_F16)
EK_SOFTMAX(ek_softmax_f16, ek_half)
#endif

EK_KERNEL void ek_log_softmax_f32(const float *x, float *y, int rows, int n) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        float max = x[0], sum = 0.0f;
        for (int i = 1; i < n; i++) max = EK_MAX(max, x[i]);
        for (int i = 0; i < n; i++) sum += expf(x[i] - max);
        const float log_sum = logf(sum);
        for (int i = 0; i < n; i++) y[i] = x[i] - max - log_sum;
    }
}

/* x * 2^bits, saturating */
EK_KERNEL int32_t ek_shift_left(int32_t x, int bits) {
    int64_t v = (int64_t)x * (1LL << bits);
    return (int32_t)EK_CLAMP(v, (int64_t)INT32_MIN, (int64_t)INT32_MAX);
}

/* 1 / (1 + a) for a in [0, 1), both with 31 fractional bits: three Newton steps from 48/17 - 32/17
 * * d. */
EK_KERNEL int32_t ek_reciprocal_of_one_plus(int32_t a) {
    const int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + ek_high_mul(half, -1010580540);
    for (int i = 0; i < 3; i++)
        x += ek_shift_left(ek_high_mul(x, (1 << 29) - ek_high_mul(half, x)), 2);
    return ek_shift_left(x, 1);
}

/* exps[d] = exp(-scale * d) with 31 fractional bits; sums have 12 integer bits. */
EK_KERNEL void ek_softmax_s8(const int8_t *x, int8_t *y, int rows, int n, const int32_t *exps) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        int max = x[0], headroom = 0;
        uint64_t total = 0;
        for (int i = 1; i < n; i++) max = EK_MAX(max, x[i]);
        for (int i = 0; i < n; i++) total += (uint32_t)ek_divide_by_pot(exps[max - x[i]], 12);
        uint32_t sum =
            (uint32_t)EK_MIN(total, (uint64_t)INT32_MAX); /* of 4096 equal elements and more */
        for (; sum < 1u << 31; sum <<= 1) headroom++;     /* the maximum alone gives 2^19 */
        const int32_t scale = ek_reciprocal_of_one_plus((int32_t)(sum - (1u << 31)));
        const int shift = 12 - headroom + 31 - 8;
        for (int i = 0; i < n; i++) {
            int64_t v = ek_high_mul(scale, exps[max - x[i]]);
            v = ((v + (1LL << (shift - 1))) >> shift) - 128;
            y[i] = (int8_t)EK_CLAMP(v, -128, 127);
        }
    }
}

EK_KERNEL int ek_leading_zeros(int32_t x) {
    int n = 32;
    for (; x > 0; x >>= 1) n--;
    return n;
}

/* ln(a) with 5 integer bits, for a >= 1 with 12: see gemmlowp.py. */
EK_KERNEL int32_t ek_log_of_at_least_one(int32_t a) {
    const int32_t root_half = 1518500250, fourth_root_half = 1805811301;
    const int zeros = ek_leading_zeros(a);
    const int lower_zeros = ek_leading_zeros(ek_high_mul(a, root_half)) - 1;
    const int32_t scaled = ek_shift_left(ek_high_mul(ek_shift_left(a, zeros - 1), root_half), 1);
    const int32_t shifted = ek_shift_left(a, lower_zeros), r = EK_MIN(scaled, shifted);
    const int32_t upper = (12 - zeros) * (1 << 25) + (1 << 23);
    const int32_t lower = (12 - lower_zeros) * (1 << 25) - (1 << 23);
    const int32_t n = EK_MAX(upper, lower);
    const int32_t middle = (int32_t)(((int64_t)r + fourth_root_half + 1) / 2);
    const int32_t q = 2 * (r - fourth_root_half), square = ek_high_mul(q, q);
    const int32_t numerator = ek_high_mul(q, r) + ek_high_mul(ek_high_mul(q, square), 117049297);
    const int32_t factor = 1057819769 + q + ek_high_mul(square, 127690142);
    const int32_t denominator = ek_high_mul(middle, factor) + ek_high_mul(q, 638450708);
    const int32_t log_r =
        ek_high_mul(ek_divide_by_pot(numerator, 6), ek_reciprocal_of_one_plus(denominator));
    return ek_shift_left(ek_high_mul(n, 1488522236) + log_r, 1);
}

/* exponents[d] = -scale * d with 5 integer bits, exps[d] = exp(-scale * d) with none; sums have 12.
 * A step of the output is 1/16, and 127 stands for 0. */
EK_KERNEL void ek_log_softmax_s8(const int8_t *x, int8_t *y, int rows, int n,
                                 const int32_t *exponents, const int32_t *exps) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        int max = x[0];
        int64_t total = 0;
        for (int i = 1; i < n; i++) max = EK_MAX(max, x[i]);
        for (int i = 0; i < n; i++) total += ek_divide_by_pot(exps[max - x[i]], 12);
        const int32_t log_sum = ek_log_of_at_least_one((int32_t)EK_MIN(total, (int64_t)INT32_MAX));
        for (int i = 0; i < n; i++) {
            const int64_t log = (int64_t)exponents[max - x[i]] - log_sum;
            const int32_t v = ek_divide_by_pot((int32_t)EK_MAX(log, (int64_t)INT32_MIN), 22) + 127;
            y[i] = (int8_t)EK_CLAMP(v, -128, 127);
        }
    }
}

/* exps[d] = exp(-scale * d) with 30 fractional bits; the quotient is rounded to any scale. */
EK_KERNEL void ek_softmax_even_s8(const int8_t *x, int8_t *y, int rows, int n, const int32_t *exps,
                                  const ek_affine_t *q) {
    for (int r = 0; r < rows; r++, x += n, y += n) {
        int max = x[0];
        int64_t sum = 0;
        for (int i = 1; i < n; i++) max = EK_MAX(max, x[i]);
        for (int i = 0; i < n; i++) sum += exps[max - x[i]];
        const double reciprocal = 1.0 / (double)sum;
        for (int i = 0; i < n; i++) {
            const float quotient = (float)(exps[max - x[i]] * reciprocal);
            y[i] = (int8_t)(ek_round_even(quotient / q->scale, INT8_MIN - q->zero,
                                          INT8_MAX - q->zero) +
                            q->zero);
        }
    }
}

#endif
