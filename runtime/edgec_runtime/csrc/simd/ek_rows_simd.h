/* Softmax (ek_softmax.h) and means (ek_reduce.h) of floats by vectors. */
#ifndef EK_ROWS_SIMD_H
#define EK_ROWS_SIMD_H
#include "ek_reduce.h"
#include "ek_simd_math.h"
#include "ek_softmax.h"

enum { EK_SHORT = 16 }; /* elements of rows of which EK_VL are taken at once, element by element */

/* Bounded above too: where something is not a number, `most` may be less than x. */
EK_KERNEL ek_vf ek_softmax_exp(ek_vf x, ek_vf most, float beta) {
    return ek_vf_exp_near(ek_vf_min(ek_vf_max((x - most) * beta, ek_vf_set(-87)), ek_vf_set(87)));
}

EK_KERNEL void ek_softmax_short(const float *x, float *y, int rows, int n, float beta) {
    float lanes[EK_SHORT][EK_VL];
    memset(lanes, 0, sizeof lanes);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) lanes[i][r] = x[r * n + i];
    ek_vf most = ek_vf_load(lanes[0]), sum = ek_vf_set(0);
    for (int i = 1; i < n; i++) most = ek_vf_max(most, ek_vf_load(lanes[i]));
    for (int i = 0; i < n; i++) {
        const ek_vf e = ek_softmax_exp(ek_vf_load(lanes[i]), most, beta);
        sum = sum + e;
        ek_vf_store(lanes[i], e);
    }
    const ek_vf scale = ek_vf_reciprocal(sum);
    for (int i = 0; i < n; i++) ek_vf_store(lanes[i], ek_vf_load(lanes[i]) * scale);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) y[r * n + i] = lanes[i][r];
}

/* Two vectors at a time: a core that computes in order has the other one to go on with. */
EK_KERNEL void ek_softmax_long(const float *x, float *y, int n, float beta) {
    const int whole = n / EK_VL * EK_VL, pairs = n / (2 * EK_VL) * (2 * EK_VL);
    ek_vf most = ek_vf_set(-INFINITY), other = most;
    for (int i = 0; i < pairs; i += 2 * EK_VL) {
        most = ek_vf_max(most, ek_vf_load(x + i));
        other = ek_vf_max(other, ek_vf_load(x + i + EK_VL));
    }
    if (pairs < whole) most = ek_vf_max(most, ek_vf_load(x + pairs));
    if (whole < n) other = ek_vf_max(other, ek_vf_load_rest(x + whole, n - whole, -INFINITY));
    most = ek_vf_set(ek_vf_largest(ek_vf_max(most, other)));

    ek_vf sum = ek_vf_set(0), sum_other = sum;
    for (int i = 0; i < pairs; i += 2 * EK_VL) {
        const ek_vf e = ek_softmax_exp(ek_vf_load(x + i), most, beta),
                    f = ek_softmax_exp(ek_vf_load(x + i + EK_VL), most, beta);
        sum = sum + e, sum_other = sum_other + f;
        ek_vf_store(y + i, e), ek_vf_store(y + i + EK_VL, f);
    }
    if (pairs < whole) {
        const ek_vf e = ek_softmax_exp(ek_vf_load(x + pairs), most, beta);
        sum = sum + e;
        ek_vf_store(y + pairs, e);
    }
    float total = ek_vf_sum(sum + sum_other);
    if (whole < n) {
        const ek_vf rest = ek_vf_load_rest(x + whole, n - whole, 0);
        ek_vf_store_n(y + whole, ek_softmax_exp(rest, most, beta), n - whole);
        for (int i = whole; i < n; i++) total += y[i];
    }
    const float scale = 1 / total;
    for (int i = 0; i < whole; i += EK_VL) ek_vf_store(y + i, ek_vf_load(y + i) * scale);
    for (int i = whole; i < n; i++) y[i] *= scale;
}

EK_SHARED void ek_softmax_f32_simd(const float *x, float *y, int rows, int n, const ek_softmax_t *p,
                                   int part, int parts) {
    const ek_share_t share = ek_share(rows, EK_SHORT, part, parts);
    const int step = n <= EK_SHORT ? EK_VL : 1;
    for (int r = share.from; r < share.to; r += step) {
        const ptrdiff_t at = (ptrdiff_t)r * n;
        if (step > 1)
            ek_softmax_short(x + at, y + at, EK_MIN(EK_VL, share.to - r), n, p->beta);
        else
            ek_softmax_long(x + at, y + at, n, p->beta);
    }
}

/* A vector of means in double, for what overflows in float. base: the first element of each. */
EK_SHARED void ek_mean_wide_f32(const float *base, float *y, const ek_reduce_t *p) {
    for (int l = 0; l < EK_VL; l++) {
        double sum = 0;
        for (int i = 0; i < p->red[0]; i++)
            for (int j = 0; j < p->red[1]; j++)
                for (int k = 0; k < p->red[2]; k++)
                    sum += (double)
                        base[(ptrdiff_t)i * p->red_stride[0] + (ptrdiff_t)j * p->red_stride[1] +
                             (ptrdiff_t)k * p->red_stride[2] + l];
        y[l] = (float)(sum / ek_reduce_count(p));
    }
}

EK_KERNEL bool ek_vf_all_finite(ek_vf v) {
    float lanes[EK_VL];
    ek_vf_store(lanes, v);
    for (int l = 0; l < EK_VL; l++)
        if (!isfinite(lanes[l])) return false;
    return true;
}

/* Means over all but the innermost axis, of which there are at least 16 elements, one after the
 * other; the last vector overlaps the one before. Runs of 256 are added up in floats, then their
 * sums. */
EK_SHARED void ek_mean_f32_simd(const float *x, float *y, const ek_reduce_t *p, int part,
                                int parts) {
    enum { RUN = 256 };
    const int c = p->keep[2], step = p->red_stride[2], n = p->red[2];
    const ek_share_t share = ek_share(c, 16, part, parts);
    const float scale = 1 / (float)ek_reduce_count(p);
    for (int a = 0; a < p->keep[0] * p->keep[1]; a++)
        for (int o = share.from; o < share.to; o += EK_VL) {
            const int at = EK_MIN(o, c - EK_VL);
            const float *base = x + (ptrdiff_t)(a / p->keep[1]) * p->keep_stride[0] +
                                (ptrdiff_t)(a % p->keep[1]) * p->keep_stride[1] + at;
            ek_vf total = ek_vf_set(0);
            for (int i = 0; i < p->red[0] * p->red[1]; i++) {
                const float *from = base + (ptrdiff_t)(i / p->red[1]) * p->red_stride[0] +
                                    (ptrdiff_t)(i % p->red[1]) * p->red_stride[1];
                for (int k = 0; k < n;) {
                    ek_vf run[4] = {ek_vf_set(0), ek_vf_set(0), ek_vf_set(0), ek_vf_set(0)};
                    const int end = EK_MIN(n, k + RUN);
                    for (; k + 4 <= end; k += 4, from += 4 * (ptrdiff_t)step) {
                        run[0] = run[0] + ek_vf_load(from),
                        run[1] = run[1] + ek_vf_load(from + step);
                        run[2] = run[2] + ek_vf_load(from + 2 * (ptrdiff_t)step);
                        run[3] = run[3] + ek_vf_load(from + 3 * (ptrdiff_t)step);
                    }
                    for (; k < end; k++, from += step) run[0] = run[0] + ek_vf_load(from);
                    total = total + ((run[0] + run[1]) + (run[2] + run[3]));
                }
            }
            if (ek_vf_all_finite(total))
                ek_vf_store(y + (ptrdiff_t)a * c + at, total * scale);
            else
                ek_mean_wide_f32(base, y + (ptrdiff_t)a * c + at, p);
        }
}

#endif
