/* TFLite's LSTM of int8, with gates and cell of int16; edgec/ops/lstm_int8.py and gemmlowp.py are
 * the same in numpy. */
#ifndef EK_LSTM_H
#define EK_LSTM_H
#include "ek_fixed_point.h"

typedef struct {
    int steps, batch, inputs, hidden;
    const int32_t *x_mul, *h_mul, *x_shift,
        *h_shift; /* for each gate: input, forget, cell, output */
    int32_t out_mul, out_shift, out_zero, cell_bits, clip;
} ek_lstm_t;

EK_KERNEL int32_t ek_clip_16(int32_t x) { return EK_CLAMP(x, INT16_MIN, INT16_MAX); }

/* The high half of 2ab of int16, ties away from zero. */
EK_KERNEL int32_t ek_high_mul_16(int32_t a, int32_t b) {
    int32_t ab = a * b;
    return ek_clip_16((ab + (ab >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15));
}

/* exp(a) with no bits before the point, for a <= 0 with `bits` of them. */
EK_KERNEL int32_t ek_exp_16(int32_t a, int bits) {
    static const int32_t steps[] = {25520, 19875, 12055, 4435,
                                    600,   11,    0}; /* exp(-2^e) from e = -2 */
    const int fraction = 15 - bits;
    const int32_t quarter = 1 << (fraction - 2), rest = (a & (quarter - 1)) - quarter,
                  remainder = rest - a;
    const int32_t x = ek_clip_16(rest * (1 << bits)) + (1 << 12), x2 = ek_high_mul_16(x, x),
                  x3 = ek_high_mul_16(x2, x);
    const int32_t sum = ek_divide_by_pot(ek_high_mul_16(x2, x2), 2) + x3;
    const int32_t tail = ek_divide_by_pot(ek_high_mul_16(sum, 10923) + x2, 1);
    int32_t y = ek_clip_16(28918 + ek_high_mul_16(x + tail, 28918));
    if (!a) return INT16_MAX;
    for (int e = -2; e < bits; e++)
        if (remainder >> (fraction + e) & 1) y = ek_high_mul_16(y, steps[e + 2]);
    return y;
}

/* 2 / (1 + a) with two bits before the point, for a in [0, 1) with none. */
EK_KERNEL int32_t ek_reciprocal_16(int32_t a) {
    const int32_t half = (a + (1 << 15)) / 2;
    int32_t x = 23130 + ek_high_mul_16(half, -15420);
    for (int i = 0; i < 3; i++)
        x += ek_clip_16(ek_high_mul_16(x, (1 << 13) - ek_high_mul_16(half, x)) * 4);
    return x;
}

EK_KERNEL int32_t ek_logistic_16(int32_t a, int bits) {
    const int32_t y = ek_clip_16(ek_reciprocal_16(ek_exp_16(a > 0 ? -a : a, bits)) * 2);
    return !a ? 1 << 14 : a > 0 ? y : INT16_MAX - y;
}

EK_KERNEL int32_t ek_tanh_16(int32_t a, int bits) {
    const int32_t y =
        ek_clip_16((ek_reciprocal_16(ek_exp_16(a > 0 ? -a : a, bits + 1)) - (1 << 13)) * 4);
    return !a ? 0 : a > 0 ? y : -y;
}

/* Row `row` of the gates' sums. */
EK_KERNEL int32_t ek_lstm_gate(const int8_t *x, const int8_t *h, const int8_t *w, const int8_t *r,
                               const int32_t *bx, const int32_t *bh, int gate, int unit,
                               const ek_lstm_t *p) {
    const ptrdiff_t row = (ptrdiff_t)gate * p->hidden + unit;
    int32_t of_x = bx[row], of_h = bh[row];
    for (int i = 0; i < p->inputs; i++) of_x += x[i] * w[row * p->inputs + i];
    for (int i = 0; i < p->hidden; i++) of_h += h[i] * r[row * p->hidden + i];
    of_x = ek_clip_16(ek_multiply(of_x, p->x_mul[gate], p->x_shift[gate]));
    return ek_clip_16(of_x + ek_multiply(of_h, p->h_mul[gate], p->h_shift[gate]));
}

/* h0, c0: the state before; y: h after every step; h, c: the state after the last. */
EK_KERNEL void ek_lstm_s8(const int8_t *x, const int8_t *h0, const int16_t *c0, const int8_t *w,
                          const int8_t *r, const int32_t *bx, const int32_t *bh, int8_t *y,
                          int8_t *h, int16_t *c, const ek_lstm_t *p) {
    const ptrdiff_t n = (ptrdiff_t)p->batch * p->hidden;
    for (ptrdiff_t i = 0; i < n; i++) h[i] = h0[i], c[i] = c0[i];
    for (int t = 0; t < p->steps; t++, x += (ptrdiff_t)p->batch * p->inputs, y += n) {
        for (int b = 0; b < p->batch; b++) {
            const int8_t *of_x = x + (ptrdiff_t)b * p->inputs, *of_h = h + (ptrdiff_t)b * p->hidden;
            for (int u = 0; u < p->hidden; u++) {
                int32_t g[4];
                for (int k = 0; k < 4; k++) {
                    g[k] = ek_lstm_gate(of_x, of_h, w, r, bx, bh, k, u, p);
                    g[k] = k == 2 ? ek_tanh_16(g[k], 3) : ek_logistic_16(g[k], 3);
                }
                int16_t *cell = c + (ptrdiff_t)b * p->hidden + u;
                const int32_t kept = ek_clip_16(ek_divide_by_pot(g[1] * *cell, 15));
                int32_t v =
                    ek_clip_16(kept + ek_clip_16(ek_divide_by_pot(g[0] * g[2], 15 + p->cell_bits)));
                if (p->clip) v = EK_CLAMP(v, -p->clip, p->clip);
                *cell = (int16_t)v;
                v = ek_multiply(g[3] * ek_tanh_16(v, p->cell_bits), p->out_mul, p->out_shift) +
                    p->out_zero;
                y[(ptrdiff_t)b * p->hidden + u] = (int8_t)EK_CLAMP(v, -128, 127);
            }
        }
        for (ptrdiff_t i = 0; i < n; i++) h[i] = y[i];
    }
}

#endif
