/* Normalisation of each row (the channels of a pixel) by its magnitude. */
#ifndef EK_CHANNEL_NORM_H
#define EK_CHANNEL_NORM_H
#include "ek_fixed_point.h"

typedef struct {
    int rows, n;
    float eps;
    int32_t zero;
    int bits; /* of the output's factor 128 = 2^7: how many go into the operand; the rest into the
                 shift */
} ek_l2_norm_t;

EK_KERNEL void ek_l2_norm_f32(const float *x, float *y, const ek_l2_norm_t *p) {
    for (int r = 0; r < p->rows; r++, x += p->n, y += p->n) {
        float sum = 0;
        for (int i = 0; i < p->n; i++) sum += x[i] * x[i];
        const float norm = sqrtf(sum), divisor = EK_MAX(norm, p->eps);
        for (int i = 0; i < p->n; i++) y[i] = x[i] / divisor;
    }
}

EK_KERNEL int32_t ek_saturate(int64_t v) { return (int32_t)EK_CLAMP(v, INT32_MIN, INT32_MAX); }

/* Multiplier and shift of 1 / sqrt(value): five Newton steps with three integer bits, as TFLite
 * does. */
EK_KERNEL int32_t ek_inverse_sqrt(int32_t value, int *shift) {
    *shift = 0;
    if (value <= 1) return INT32_MAX;
    int right = 11, bits = 0;
    while (value >= 1 << 29) value /= 4, right++;
    while (value >> bits) bits++;
    const int pairs = (31 - bits) / 2 - 1;
    right -= pairs;
    const int32_t half = (((value << (2 * pairs)) >> 1) + 1) >> 1;
    int32_t x = 1 << 28;
    for (int i = 0; i < 5; i++) {
        const int32_t cube = ek_saturate((int64_t)ek_high_mul(ek_high_mul(x, x), x) * 64);
        x = ek_saturate(((int64_t)ek_high_mul(x, (1 << 28) + (1 << 27)) - ek_high_mul(half, cube)) *
                        8);
    }
    x = ek_high_mul(x, 1518500250); /* sqrt(2) / 2 */
    if (right < 0) return x << -right;
    *shift = -right;
    return x;
}

EK_KERNEL void ek_l2_norm_s8(const int8_t *x, int8_t *y, const ek_l2_norm_t *p) {
    for (int r = 0; r < p->rows; r++, x += p->n, y += p->n) {
        int32_t sum = 0;
        for (int i = 0; i < p->n; i++) sum += (x[i] - p->zero) * (x[i] - p->zero);
        int shift;
        const int32_t multiplier = ek_inverse_sqrt(sum, &shift);
        for (int i = 0; i < p->n; i++) {
            const int32_t v =
                ek_multiply((x[i] - p->zero) * (1 << p->bits), multiplier, shift + 7 - p->bits);
            y[i] = (int8_t)EK_CLAMP(v, -128, 127);
        }
    }
}

typedef struct {
    int rows, c, before, after; /* neighbours of a channel, below and above it */
    float alpha, beta, bias;
} ek_lrn_t;

EK_KERNEL void ek_lrn_f32(const float *x, float *y, const ek_lrn_t *p) {
    for (int r = 0; r < p->rows; r++, x += p->c, y += p->c)
        for (int i = 0; i < p->c; i++) {
            const int from = EK_MAX(0, i - p->before), to = EK_MIN(p->c, i + p->after + 1);
            double sum = 0; /* squares of large floats are none */
            for (int j = from; j < to; j++) sum += (double)x[j] * (double)x[j];
            y[i] = (float)((double)x[i] /
                           pow((double)p->bias + (double)p->alpha * sum, (double)p->beta));
        }
}

#endif
