/* Instance normalisation (ek_norm.h) by vectors, run by run of pixels, so that a run stays in the
 * cache for all of its channels. */
#ifndef EK_NORM_SIMD_H
#define EK_NORM_SIMD_H
#include "ek_norm.h"
#include "ek_simd.h"

/* The sums over n pixels of one vector of channels: of d, the distance from centre, and of its
 * square. */
typedef struct {
    ek_vf sum, square;
} ek_norm_run_t;

EK_KERNEL ek_norm_run_t ek_norm_run(const float *x, int n, int c, ek_vf centre, const int square) {
    ek_vf run[4], run_square[4];
    for (int j = 0; j < 4; j++) run[j] = run_square[j] = ek_vf_set(0);
#define EK_NORM_ADD(J)                      \
    const ek_vf d = ek_vf_load(x) - centre; \
    run[J] = run[J] + d;                    \
    if (square) run_square[J] = ek_vf_fma(d, d, run_square[J]);
    for (; n >= 4; n -= 4)
        for (int j = 0; j < 4; j++, x += c) { EK_NORM_ADD(j) }
    for (; n > 0; n--, x += c) { EK_NORM_ADD(0) }
    return (ek_norm_run_t){(run[0] + run[1]) + (run[2] + run[3]),
                           (run_square[0] + run_square[1]) + (run_square[2] + run_square[3])};
}

/* Channels from..to of one image: the mean of d in `sum` and (with `square`) of its square. centre:
 * null for zeros. */
EK_KERNEL void ek_norm_means(const float *x, const float *centre, double *sum, double *square,
                             ek_share_t share, const ek_norm_t *p) {
    const int squares = square != NULL;
    for (int j = share.from; j < share.to; j++) {
        sum[j] = 0;
        if (squares) square[j] = 0;
    }
    for (int i = 0; i < p->pixels; i += EK_NORM_RUN)
        for (int o = share.from; o < share.to; o += EK_VL) {
            const int at =
                EK_MIN(o, share.to - EK_VL); /* the last vector overlaps the one before */
            const float *from = x + (ptrdiff_t)i * p->c + at;
            const ek_vf around = squares ? ek_vf_load(centre + at) : ek_vf_set(0);
            const ek_norm_run_t run =
                ek_norm_run(from, EK_MIN(EK_NORM_RUN, p->pixels - i), p->c, around, squares);
            float lanes[EK_VL], lanes_square[EK_VL];
            ek_vf_store(lanes, run.sum);
            ek_vf_store(lanes_square, run.square);
            for (int j = o - at; j < EK_VL; j++) {
                sum[at + j] += (double)lanes[j];
                if (squares) square[at + j] += (double)lanes_square[j];
            }
        }
    ek_norm_group_means(sum, square, share.from, share.to, p);
}

/* What follows: a clamp, then, where something is added, that and another clamp. */
typedef struct {
    float low, high, low_sum, high_sum;
} ek_norm_end_t;

/* Channels from..to of one image in double, for what overflows in float, and what follows. */
EK_SHARED void ek_norm_wide_end_f32(const float *x, const float *scale, const float *bias,
                                    const float *added, float *y, ek_share_t share,
                                    const ek_norm_t *p, const ek_norm_end_t *end) {
    ek_norm_wide_f32(x, scale, bias, y, share.from, share.to, p);
    for (int i = 0; i < p->pixels; i++)
        for (int j = share.from; j < share.to; j++) {
            const ptrdiff_t at = (ptrdiff_t)i * p->c + j;
            y[at] = EK_CLAMP(y[at], end->low, end->high);
            if (added) y[at] = EK_CLAMP(y[at] + added[at], end->low_sum, end->high_sum);
        }
}

/* At least 16 channels, and each part has so many; one of a group has its whole group. added: as y,
 * or null. `memory` holds 2c doubles and 3c floats. */
EK_SHARED void ek_instance_norm_f32_simd(const float *x, const float *scale, const float *bias,
                                         const float *added, float *y, void *memory,
                                         const ek_norm_t *p, const ek_norm_end_t *end, int part,
                                         int parts) {
    const ek_vf low = ek_vf_set(end->low), high = ek_vf_set(end->high);
    const ek_vf low_sum = ek_vf_set(end->low_sum), high_sum = ek_vf_set(end->high_sum);
    const int c = p->c, unit = p->group > 1 || c % 16 ? c : 16;
    const ek_share_t share = ek_share(c, unit, part, parts);
    double *sum = memory, *square = sum + c;
    float *centre = (float *)(square + c), *factor = centre + c, *moved = factor + c;
    for (int b = 0; b < p->n && share.from < share.to;
         b++, x += (ptrdiff_t)p->pixels * c, y += (ptrdiff_t)p->pixels * c) {
        ek_norm_means(x, NULL, sum, NULL, share, p);
        for (int j = share.from; j < share.to; j++) centre[j] = (float)sum[j];
        ek_norm_means(x, centre, sum, square, share, p);
        if (ek_norm_overflows(square, share.from, share.to)) {
            ek_norm_wide_end_f32(x, scale, bias, added, y, share, p, end);
            if (added) added += (ptrdiff_t)p->pixels * c;
            continue;
        }
        for (int j = share.from; j < share.to; j++) {
            const double k = (double)scale[j] * ek_norm_factor(sum[j], square[j], p->eps);
            factor[j] = (float)k;
            moved[j] = (float)((double)bias[j] - sum[j] * k);
        }
        for (int i = 0; i < p->pixels; i += EK_NORM_RUN)
            for (int o = share.from; o < share.to; o += EK_VL) {
                const int at = EK_MIN(o, share.to - EK_VL), n = EK_MIN(EK_NORM_RUN, p->pixels - i);
                const ek_vf m = ek_vf_load(centre + at), k = ek_vf_load(factor + at),
                            add = ek_vf_load(moved + at);
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
                    for (int r = 0; r < n; r++, from += c, to += c)
                        ek_vf_store(to, EK_NORM_OF(from));
                }
            }
        if (added) added += (ptrdiff_t)p->pixels * c;
    }
}

#endif
