/* Normalisations (ek_norm.h) by vectors: of images run by run of pixels, so that a run stays in the
 * cache for all of its channels, and of rows. Elements of all types are computed as floats. */
#ifndef EK_NORM_F32_SIMD_H
#define EK_NORM_F32_SIMD_H
#include "ek_norm_f32.h"
#include "ek_simd.h"

/* The sums over n pixels of one vector of channels: of d, the distance from centre, and of its
 * square. */
typedef struct {
    ek_vf sum, square;
} ek_norm_run_f32_t;

EK_KERNEL ek_norm_run_f32_t ek_norm_run_f32(const float *x, int n, int c, ek_vf centre,
                                            const int square) {
    ek_vf run[4], run_square[4];
    for (int j = 0; j < 4; j++) run[j] = run_square[j] = ek_vf_set(0);
#define EK_NORM_ADD_F32(J)                  \
    const ek_vf d = ek_vf_load(x) - centre; \
    run[J] = run[J] + d;                    \
    if (square) run_square[J] = ek_vf_fma(d, d, run_square[J]);
    for (; n >= 4; n -= 4)
        for (int j = 0; j < 4; j++, x += c) { EK_NORM_ADD_F32(j) }
    for (; n > 0; n--, x += c) { EK_NORM_ADD_F32(0) }
    return (ek_norm_run_f32_t){(run[0] + run[1]) + (run[2] + run[3]),
                               (run_square[0] + run_square[1]) + (run_square[2] + run_square[3])};
}

/* Channels from..to of one image: the mean of d in `sum` and (with `square`) of its square. centre:
 * null for zeros. */
EK_KERNEL void ek_norm_means_f32(const float *x, const ek_norm_float_t *centre, double *sum,
                                 double *square, ek_share_t share, const ek_instance_norm_t *p) {
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
            const ek_norm_run_f32_t run =
                ek_norm_run_f32(from, EK_MIN(EK_NORM_RUN, p->pixels - i), p->c, around, squares);
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
} ek_norm_epilogue_f32_t;

/* Channels from..to of one image in double, for what overflows in float, and what follows. */
EK_SHARED void ek_norm_wide_end_f32(const float *x, const float *scale, const float *bias,
                                    const float *added, float *y, ek_share_t share,
                                    const ek_instance_norm_t *p,
                                    const ek_norm_epilogue_f32_t *end) {
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
                                         const ek_instance_norm_t *p,
                                         const ek_norm_epilogue_f32_t *end, int part, int parts) {
    const ek_vf low = ek_vf_set(end->low), high = ek_vf_set(end->high);
    const ek_vf low_sum = ek_vf_set(end->low_sum), high_sum = ek_vf_set(end->high_sum);
    const int c = p->c, unit = p->group > 1 || c % 16 ? c : 16;
    const ek_share_t share = ek_share(c, unit, part, parts);
    double *sum = memory, *square = sum + c;
    ek_norm_float_t *centre = (ek_norm_float_t *)(square + c), *factor = centre + c,
                    *moved = factor + c;
    for (int b = 0; b < p->n && share.from < share.to;
         b++, x += (ptrdiff_t)p->pixels * c, y += (ptrdiff_t)p->pixels * c) {
        ek_norm_means_f32(x, NULL, sum, NULL, share, p);
        for (int j = share.from; j < share.to; j++) centre[j] = (float)sum[j];
        ek_norm_means_f32(x, centre, sum, square, share, p);
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
#define EK_NORM_OF_F32(X) ek_vf_min(ek_vf_max(ek_vf_fma(ek_vf_load(X) - m, k, add), low), high)
                if (added) {
                    const float *more = added + (ptrdiff_t)i * c + at;
                    for (int r = 0; r < n; r++, from += c, to += c, more += c) {
                        const ek_vf sum = EK_NORM_OF_F32(from) + ek_vf_load(more);
                        ek_vf_store(to, ek_vf_min(ek_vf_max(sum, low_sum), high_sum));
                    }
                } else {
                    for (int r = 0; r < n; r++, from += c, to += c)
                        ek_vf_store(to, EK_NORM_OF_F32(from));
                }
            }
        if (added) added += (ptrdiff_t)p->pixels * c;
    }
}

/* (x - centre) * factor + moved is a normalised row: the mean of d = x - centre, and of its square,
 * as above. */
typedef struct {
    ek_norm_float_t centre, factor, moved;
    int overflows;
} ek_layer_norm_row_f32_t;

/* The centre is the mean of the row's first k elements, so that (mean - centre)^2 is at most n / k
 * times the variance: by the inequality of Cauchy and Schwarz they alone add k (mean - centre)^2 to
 * n times the variance. The difference of the two means thus loses log2(n / k + 1) bits at most. */
EK_KERNEL ek_layer_norm_row_f32_t ek_layer_norm_row_f32(const ek_norm_float_t *x, int n,
                                                        double eps) {
    enum { WAYS = 4, RUN = EK_NORM_RUN * WAYS * EK_VL };
    const int first = EK_MIN(n / EK_VL, WAYS);
    ek_vf head = ek_vf_load(x);
    for (int j = 1; j < first; j++) head = head + ek_vf_load(x + j * EK_VL);
    /* Quotients of n alone are the same for all rows: the compiler divides once. */
    const double part = 1.0 / n;
    const ek_norm_float_t centre = ek_vf_sum(head) * (1 / (ek_norm_float_t)(first * EK_VL));
    const ek_vf around = ek_vf_set(centre);
    double sum = 0, square = 0;
    for (int from = 0; from < n; from += RUN) {
        const int to = EK_MIN(from + RUN, n);
        ek_vf run[WAYS], run_square[WAYS];
        EK_UNROLL for (int j = 0; j < WAYS; j++) run[j] = run_square[j] = ek_vf_set(0);
        int i = from;
        for (; i + WAYS * EK_VL <= to; i += WAYS * EK_VL) {
            EK_UNROLL for (int j = 0; j < WAYS; j++) {
                const ek_vf d = ek_vf_load(x + i + j * EK_VL) - around;
                run[j] = run[j] + d;
                run_square[j] = ek_vf_fma(d, d, run_square[j]);
            }
        }
        for (; i < to; i += EK_VL) {
            const ek_vf d = ek_vf_load_rest(x + i, to - i, centre) - around;
            run[0] = run[0] + d;
            run_square[0] = ek_vf_fma(d, d, run_square[0]);
        }
        sum += (double)ek_vf_sum((run[0] + run[1]) + (run[2] + run[3]));
        square +=
            (double)ek_vf_sum((run_square[0] + run_square[1]) + (run_square[2] + run_square[3]));
    }
    const double shift = sum * part, factor = ek_norm_factor(shift, square * part, eps);
    return (ek_layer_norm_row_f32_t){centre, (ek_norm_float_t)factor,
                                     (ek_norm_float_t)(-shift * factor), !isfinite(square)};
}

EK_KERNEL void ek_layer_norm_end_f32(const ek_norm_float_t *x, const ek_norm_float_t *scale,
                                     const ek_norm_float_t *bias, float *y, int n,
                                     const ek_layer_norm_row_f32_t *row) {
    const ek_vf centre = ek_vf_set(row->centre), factor = ek_vf_set(row->factor),
                moved = ek_vf_set(row->moved);
#define EK_LAYER_NORM_OF_F32(LOAD) \
    ek_vf_fma(ek_vf_fma(LOAD(x + i) - centre, factor, moved), LOAD(scale + i), LOAD(bias + i))
    int i = 0;
    for (; i + EK_VL <= n; i += EK_VL) ek_vf_store(y + i, EK_LAYER_NORM_OF_F32(ek_vf_load));
    if (i < n) {
#define EK_REST_OF_ROW_F32(P) ek_vf_load_rest(P, n - i, 0)
        ek_vf_store_n(y + i, EK_LAYER_NORM_OF_F32(EK_REST_OF_ROW_F32), n - i);
    }
}

/* Rows of at least 16. memory: 4n floats of this part alone for elements that are not floats. The
 * statistics of a row are computed before the row before is written, so that a core has work while
 * it takes the root. Threads share the rows. */
EK_SHARED void ek_layer_norm_f32_simd(const float *x, const float *scale, const float *bias,
                                      float *y, void *memory, const ek_layer_norm_t *p, int part,
                                      int parts) {
    const int n = p->n;
    const ek_share_t share = ek_share(p->rows, 1, part, parts);
    if (share.from >= share.to) return;
    const ek_norm_float_t *scales = ek_vf_row(scale, n, memory, 0),
                          *biases = ek_vf_row(bias, n, memory, 1);
    const ek_norm_float_t *now = NULL;
    ek_layer_norm_row_f32_t row = {0, 0, 0, 0};
    x += (ptrdiff_t)share.from * n, y += (ptrdiff_t)share.from * n;
    for (int r = share.from; r <= share.to; r++, x += n) {
        const ek_norm_float_t *before = now;
        const ek_layer_norm_row_f32_t row_before = row;
        if (r < share.to) {
            now = ek_vf_row(x, n, memory, 2 + r % 2);
            row = ek_layer_norm_row_f32(now, n, (double)p->eps);
        }
        if (r == share.from) continue;
        if (row_before.overflows)
            ek_layer_norm_wide_f32(x - n, scale, bias, y, n, p->eps);
        else
            ek_layer_norm_end_f32(before, scales, biases, y, n, &row_before);
        y += n;
    }
}

#endif
