/* Instance normalisation (ek_norm.h) by vectors, run by run of pixels, so that a run stays in the cache for all of its
 * channels. */
#ifndef EK_NORM_SIMD_H
#define EK_NORM_SIMD_H
#include "ek_norm.h"
#include "ek_simd.h"

/* The sums over n pixels of one vector of channels: of the elements, or of the squares of their distance from centre. */
EK_KERNEL ek_vf ek_norm_run(const float *x, int n, int c, ek_vf centre, const int square) {
    ek_vf run[4];
    for (int j = 0; j < 4; j++) run[j] = ek_vf_set(0);
#define EK_NORM_ADD(RUN)                        \
    const ek_vf d = ek_vf_load(x) - centre;     \
    if (square)                                 \
        RUN = ek_vf_fma(d, d, RUN);             \
    else                                        \
        RUN = RUN + d;
    for (; n >= 4; n -= 4)
        for (int j = 0; j < 4; j++, x += c) { EK_NORM_ADD(run[j]) }
    for (; n > 0; n--, x += c) { EK_NORM_ADD(run[0]) }
    return (run[0] + run[1]) + (run[2] + run[3]);
}

/* Channels from..to of one image: the mean of each in `mean`, or (square) of the squared distances from it in `sum`. */
EK_KERNEL void ek_norm_means(const float *x, const float *mean, double *sum, ek_share_t share, const ek_norm_t *p,
                             const int square) {
    for (int j = share.from; j < share.to; j++) sum[j] = 0;
    for (int i = 0; i < p->pixels; i += EK_NORM_RUN)
        for (int o = share.from; o < share.to; o += EK_VL) {
            const int at = EK_MIN(o, share.to - EK_VL); /* the last vector overlaps the one before */
            const float *from = x + (ptrdiff_t)i * p->c + at;
            const ek_vf centre = square ? ek_vf_load(mean + at) : ek_vf_set(0);
            float lanes[EK_VL];
            ek_vf_store(lanes, ek_norm_run(from, EK_MIN(EK_NORM_RUN, p->pixels - i), p->c, centre, square));
            for (int j = o - at; j < EK_VL; j++) sum[at + j] += (double)lanes[j];
        }
    for (int j = share.from; j < share.to; j += p->group) {
        double total = 0;
        for (int k = j; k < j + p->group; k++) total += sum[k];
        for (int k = j; k < j + p->group; k++) sum[k] = total / ((double)p->pixels * p->group);
    }
}

/* What follows: a clamp, then, where something is added, that and another clamp. */
typedef struct {
    float low, high, low_sum, high_sum;
} ek_norm_end_t;

/* At least 16 channels, and each part has so many; one of a group has its whole group. added: as y, or null. `memory`
 * holds c doubles and 2c floats. */
EK_SHARED void ek_instance_norm_f32_simd(const float *x, const float *scale, const float *bias, const float *added,
                                         float *y, void *memory, const ek_norm_t *p, const ek_norm_end_t *end, int part,
                                         int parts) {
    const ek_vf low = ek_vf_set(end->low), high = ek_vf_set(end->high);
    const ek_vf low_sum = ek_vf_set(end->low_sum), high_sum = ek_vf_set(end->high_sum);
    const int c = p->c, unit = p->group > 1 || c % 16 ? c : 16;
    const ek_share_t share = ek_share(c, unit, part, parts);
    double *sum = memory;
    float *mean = (float *)(sum + c), *factor = mean + c;
    for (int b = 0; b < p->n && share.from < share.to; b++, x += (ptrdiff_t)p->pixels * c, y += (ptrdiff_t)p->pixels * c) {
        ek_norm_means(x, NULL, sum, share, p, 0);
        for (int j = share.from; j < share.to; j++) mean[j] = (float)sum[j];
        ek_norm_means(x, mean, sum, share, p, 1);
        for (int j = share.from; j < share.to; j++) factor[j] = (float)(scale[j] / sqrt(sum[j] + p->eps));
        for (int i = 0; i < p->pixels; i += EK_NORM_RUN)
            for (int o = share.from; o < share.to; o += EK_VL) {
                const int at = EK_MIN(o, share.to - EK_VL), n = EK_MIN(EK_NORM_RUN, p->pixels - i);
                const ek_vf m = ek_vf_load(mean + at), k = ek_vf_load(factor + at), add = ek_vf_load(bias + at);
                const float *from = x + (ptrdiff_t)i * c + at;
                float *to = y + (ptrdiff_t)i * c + at;
#define EK_NORM_OF(X) ek_vf_min(ek_vf_max(ek_vf_fma(ek_vf_load(X) - m, k, add), low), high)
                if (added) {
                    const float *more = added + (ptrdiff_t)i * c + at;
                    for (int r = 0; r < n; r++, from += c, to += c, more += c) {
                        const ek_vf sum = EK_NORM_OF(from) + ek_vf_load(more);
                        ek_vf_store(to, ek_vf_min(ek_vf_max(sum, low_sum), high_sum));
                    }
                } else {
                    for (int r = 0; r < n; r++, from += c, to += c) ek_vf_store(to, EK_NORM_OF(from));
                }
            }
        if (added) added += (ptrdiff_t)p->pixels * c;
    }
}

#endif
