/* Functions of bytes by tables, and conversions between bytes and floats (ek_quantize.h), by
 * vectors. */
#ifndef EK_UNARY_SIMD_H
#define EK_UNARY_SIMD_H
#include "ek_simd.h"
#include "ek_unary.h"

/* y = STATEMENT(v) for a part of n elements of types X and Y, STEP at once. The end is a vector of
 * its own, in buffers, so that the loop has no branch and there is one of it. */
#define EK_MAP(X, Y, STEP, STATEMENT)                                             \
    const ek_share_t share = ek_share(n, 64, part, parts);                        \
    X few_x[STEP] = {0};                                                          \
    Y few_y[STEP];                                                                \
    x += share.from, y += share.from;                                             \
    for (n = share.to - share.from; n > 0;) {                                     \
        const int few = n < (STEP) ? n : 0;                                       \
        Y *end = y;                                                               \
        if (few) {                                                                \
            ek_copy_few(few_x, x, few *(int)sizeof(X));                           \
            x = few_x, y = few_y, n = (STEP);                                     \
        }                                                                         \
        for (; n >= (STEP); n -= (STEP), x += (STEP), y += (STEP)) { STATEMENT; } \
        if (few) ek_copy_few(end, few_y, few *(int)sizeof(Y));                    \
    }

/* table[x + 128]; the bytes may stand for integers of either sign. */
EK_SHARED void ek_lut_s8_simd(const void *in, void *out, int n, const int8_t *table, int part,
                              int parts) {
    const int8_t *x = in;
    int8_t *y = out;
    ek_table_t t;
    ek_table_load(&t, table);
    EK_MAP(int8_t, int8_t, EK_VB, ek_vb_store(y, ek_table_at(&t, ek_vb_load(x))))
}

/* Tables that are no more than (x ^ flip) + add, saturated and clamped. */
typedef struct {
    int flip, add, low, high;
} ek_offset_s8_t;

EK_SHARED void ek_offset_s8_simd(const void *in, void *out, int n, const ek_offset_s8_t *p,
                                 int part, int parts) {
    const int8_t *x = in;
    int8_t *y = out;
    const ek_vb flip = ek_vb_set(p->flip), add = ek_vb_set(p->add), low = ek_vb_set(p->low),
                high = ek_vb_set(p->high);
    EK_MAP(int8_t, int8_t, EK_VB, const ek_vb moved = ek_vb_add(ek_vb_load(x) ^ flip, add);
           ek_vb_store(y, ek_vb_min(ek_vb_max(moved, low), high)))
}

/* real = scale * (q - zero); flip: -128 where the integers are unsigned. The product of a float and
 * of a whole number below 2^9 is exact in double, so that it is rounded once, as here. */
typedef struct {
    float scale;
    int zero, flip;
} ek_affine_s8_t;

EK_SHARED void ek_dequantize_simd(const void *in, float *y, int n, const ek_affine_s8_t *p,
                                  int part, int parts) {
    const int8_t *x = in;
    const ek_vb flip = ek_vb_set(p->flip);
    const ek_vi zero = ek_vi_set(p->zero + p->flip);
    EK_MAP(int8_t, float, EK_VB, ek_vi v[4]; ek_vb_widen(ek_vb_load(x) ^ flip, v);
           for (int i = 0; i < 4; i++) ek_vf_store(y + i * EK_VL, ek_vf_of(v[i] - zero) * p->scale))
}

/* x / scale, correctly rounded, of |x| <= 512 * scale: the reciprocal's product, corrected twice by
 * its exact remainder (Markstein, IBM J. Res. Dev. 34, 1990). Below the normal numbers the last
 * place may differ. */
EK_KERNEL ek_vf ek_vf_quotient(ek_vf x, ek_vf scale, ek_vf reciprocal) {
    ek_vf q = x * reciprocal;
    q = ek_vf_fma(ek_vf_fnma(q, scale, x), reciprocal, q);
    return ek_vf_fma(ek_vf_fnma(q, scale, x), reciprocal, q);
}

/* What is 512 steps from zero saturates, wherever the zero point lies; what is not a number becomes
 * the zero point. */
EK_SHARED void ek_quantize_simd(const float *x, void *out, int n, const ek_affine_s8_t *p, int part,
                                int parts) {
    int8_t *y = out;
    const ek_vb flip = ek_vb_set(p->flip);
    const ek_vi zero = ek_vi_set(p->zero + p->flip);
    const ek_vf scale = ek_vf_set(p->scale), reciprocal = ek_vf_set(1 / p->scale),
                bound = ek_vf_set(512 * p->scale);
    EK_MAP(
        float, int8_t, EK_VB, ek_vi v[4]; for (int i = 0; i < 4; i++) {
            const ek_vf near = ek_vf_min(ek_vf_max(ek_vf_load(x + i * EK_VL), -bound), bound);
            v[i] = ek_vf_round(ek_vf_quotient(near, scale, reciprocal)) + zero;
        } ek_vb_store(y, ek_vb_narrow(v) ^ flip))
}

#endif
