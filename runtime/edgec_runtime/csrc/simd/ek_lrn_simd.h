/* Local response normalisation of floats (ek_channel_norm.h) by vectors of channels. */
#ifndef EK_LRN_SIMD_H
#define EK_LRN_SIMD_H
#include "ek_channel_norm.h"
#include "ek_simd_math.h"

/* x / (bias + alpha * sum) ^ beta. POWER: 4 * beta where that is 2, 3 or 4, else 0. */
EK_KERNEL ek_vf ek_lrn_scaled(ek_vf x, ek_vf sum, const ek_lrn_t *p, const int POWER) {
    const ek_vf t = ek_vf_fma(sum, ek_vf_set(p->alpha), ek_vf_set(p->bias));
    if (POWER == 0) return x * ek_vf_exp(ek_vf_log_near(t) * -p->beta);
    if (POWER == 4) return x / t;
    const ek_vf half = ek_vf_sqrt(t);
    if (POWER == 2) return x / half;
    return x / (half * ek_vf_sqrt(half));
}

/* Sums of squares up to this one can be computed with in floats; rows with larger ones, or NaN, are
 * left to the plain kernel. */
#define EK_LRN_LARGEST 1e30f

/* Each channel among `before` below it and `after` above it, EK_LRN_SIDE at most: of a few channels
 * at a time, with zeros around them all. Whether all sums were small enough. */
enum { EK_LRN_FEW = 64, EK_LRN_SIDE = 16 };
EK_KERNEL bool ek_lrn_row(const float *x, float *y, const ek_lrn_t *p, const int POWER) {
    ek_vf total = ek_vf_set(0);
    for (int at = 0; at < p->c; at += EK_LRN_FEW) {
        const int n = EK_MIN(EK_LRN_FEW, p->c - at);
        const int from = EK_MAX(-p->before, -at), to = EK_MIN(n + p->after, p->c - at);
        float near[EK_LRN_SIDE + EK_LRN_FEW + EK_LRN_SIDE] = {0};
        memcpy(near + EK_LRN_SIDE + from, x + at + from, (size_t)(to - from) * sizeof(float));
        for (int i = 0; i < n; i += EK_VL) {
            const float *own = near + EK_LRN_SIDE + i;
            ek_vf sum = ek_vf_set(0);
            for (int j = -p->before; j <= p->after; j++) {
                const ek_vf v = ek_vf_load(own + j);
                sum = ek_vf_fma(v, v, sum);
            }
            total = total + sum;
            ek_vf_store_n(y + at + i, ek_lrn_scaled(ek_vf_load(own), sum, p, POWER), n - i);
        }
    }
    float lanes[EK_VL];
    ek_vf_store(lanes, total);
    for (int l = 0; l < EK_VL; l++)
        if (!(lanes[l] <= EK_LRN_LARGEST)) return false;
    return true;
}

EK_SHARED void ek_lrn_f32_simd(const float *x, float *y, const ek_lrn_t *p, int power, int part,
                               int parts) {
    const ek_share_t share = ek_share(p->rows, 1, part, parts);
    for (int r = share.from; r < share.to; r++) {
        const float *row = x + (ptrdiff_t)r * p->c;
        float *to = y + (ptrdiff_t)r * p->c;
        const bool small = power == 3   ? ek_lrn_row(row, to, p, 3)
                           : power == 2 ? ek_lrn_row(row, to, p, 2)
                           : power == 4 ? ek_lrn_row(row, to, p, 4)
                                        : ek_lrn_row(row, to, p, 0);
        if (!small) {
            ek_lrn_t one = *p;
            one.rows = 1;
            ek_lrn_f32(row, to, &one);
        }
    }
}

#endif
