/* Sums and means (ek_reduce.h) of floats by vectors. Elements of all types are computed as floats.
 */
#ifndef EK_ROWS_F32_SIMD_H
#define EK_ROWS_F32_SIMD_H
#include "ek_reduce.h"
#include "ek_simd.h"

/* A vector of sums by `divisor` in double, for what overflows in float. base: the first element of
 * each. */
EK_SHARED void ek_sum_wide_f32(const float *base, float *y, const ek_reduce_t *p, int divisor) {
    for (int l = 0; l < EK_VL; l++) {
        double sum = 0;
        for (int i = 0; i < p->red[0]; i++)
            for (int j = 0; j < p->red[1]; j++)
                for (int k = 0; k < p->red[2]; k++)
                    sum += (double)
                        base[(ptrdiff_t)i * p->red_stride[0] + (ptrdiff_t)j * p->red_stride[1] +
                             (ptrdiff_t)k * p->red_stride[2] + l];
        y[l] = (float)(sum / divisor);
    }
}

EK_KERNEL bool ek_all_finite_f32(ek_vf v) {
    float lanes[EK_VL];
    ek_vf_store(lanes, v);
    for (int l = 0; l < EK_VL; l++)
        if (!isfinite(lanes[l])) return false;
    return true;
}

/* Sums by `divisor` over all but the innermost axis, of which there are at least 16 elements, which
 * are taken 16 at a time; the last 16 overlap those before. Runs of 256 are added up in floats,
 * then their sums. */
EK_SHARED void ek_sum_by_f32(const float *x, float *y, const ek_reduce_t *p, int divisor, int part,
                             int parts) {
    /* Vectors of channels at once, and sums of each: short ones, which lose little. */
    enum { RUN = 256, CHANNELS = 16, WIDE = CHANNELS / EK_VL, DEEP = 4 };
    const int c = p->keep[2], step = p->red_stride[2], n = p->red[2];
    const ek_share_t share = ek_share(c, CHANNELS, part, parts);
    const float scale = 1 / (float)divisor;
    for (int a = 0; a < p->keep[0] * p->keep[1]; a++)
        for (int o = share.from; o < share.to; o += CHANNELS) {
            const int at = EK_MIN(o, c - CHANNELS);
            const float *base = x + (ptrdiff_t)(a / p->keep[1]) * p->keep_stride[0] +
                                (ptrdiff_t)(a % p->keep[1]) * p->keep_stride[1] + at;
            float *to = y + (ptrdiff_t)a * c + at;
            ek_vf total[WIDE];
            for (int i = 0; i < WIDE; i++) total[i] = ek_vf_set(0);
            for (int i = 0; i < p->red[0] * p->red[1]; i++) {
                const float *from = base + (ptrdiff_t)(i / p->red[1]) * p->red_stride[0] +
                                    (ptrdiff_t)(i % p->red[1]) * p->red_stride[1];
                for (int k = 0; k < n;) {
                    ek_vf run[DEEP][WIDE];
                    for (int d = 0; d < DEEP; d++)
                        for (int v = 0; v < WIDE; v++) run[d][v] = ek_vf_set(0);
                    const int end = EK_MIN(n, k + RUN);
                    for (; k + DEEP <= end; k += DEEP, from += DEEP * (ptrdiff_t)step)
                        EK_UNROLL for (int d = 0; d < DEEP; d++)
                            EK_UNROLL for (int v = 0; v < WIDE; v++) run[d][v] =
                                run[d][v] + ek_vf_load(from + d * (ptrdiff_t)step + v * EK_VL);
                    for (; k < end; k++, from += step)
                        EK_UNROLL for (int v = 0; v < WIDE; v++) run[0][v] =
                            run[0][v] + ek_vf_load(from + v * EK_VL);
                    for (int v = 0; v < WIDE; v++)
                        total[v] = total[v] + ((run[0][v] + run[1][v]) + (run[2][v] + run[3][v]));
                }
            }
            for (int v = 0; v < WIDE; v++) {
                if (ek_all_finite_f32(total[v]))
                    ek_vf_store(to + v * EK_VL, total[v] * scale);
                else
                    ek_sum_wide_f32(base + v * EK_VL, to + v * EK_VL, p, divisor);
            }
        }
}
EK_SHARED void ek_mean_f32_simd(const float *x, float *y, const ek_reduce_t *p, int part,
                                int parts) {
    ek_sum_by_f32(x, y, p, ek_reduce_count(p), part, parts);
}
EK_SHARED void ek_sum_f32_simd(const float *x, float *y, const ek_reduce_t *p, int part,
                               int parts) {
    ek_sum_by_f32(x, y, p, 1, part, parts);
}

#endif
