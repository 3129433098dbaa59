/* Softmax (ek_softmax.h) of floats by vectors. beta > 0. */
#ifndef EK_SOFTMAX_F32_SIMD_H
#define EK_SOFTMAX_F32_SIMD_H
#include "ek_simd_math.h"
#include "ek_softmax.h"

/* Elements of rows of which EK_VL are taken at once, element by element; and elements whose sums in
 * each lane have 32 terms at most. */
enum { EK_SHORT_F32 = 16, EK_SOFTMAX_RUN_F32 = 32 * EK_VL * EK_WAYS_F32 };

EK_KERNEL void ek_softmax_short_f32(const float *x, float *y, int rows, int n, float beta) {
    float lanes[EK_SHORT_F32][EK_VL];
    memset(lanes, 0, sizeof lanes);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) lanes[i][r] = x[r * n + i];
    ek_vf most = ek_vf_load(lanes[0]), sum = ek_vf_set(0);
    for (int i = 1; i < n; i++) most = ek_vf_max(most, ek_vf_load(lanes[i]));
    for (int i = 0; i < n; i++) {
        const ek_vf e = ek_vf_exp_below(ek_vf_load(lanes[i]) - most, beta);
        sum = sum + e;
        ek_vf_store(lanes[i], e);
    }
    const ek_vf scale = ek_vf_reciprocal(sum);
    for (int i = 0; i < n; i++) ek_vf_store(lanes[i], ek_vf_load(lanes[i]) * scale);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++) y[r * n + i] = lanes[i][r];
}

/* The largest of n, in every lane. */
EK_KERNEL ek_vf ek_softmax_most_f32(const float *x, int n) {
    ek_vf most[4];
    EK_UNROLL for (int j = 0; j < 4; j++) most[j] = ek_vf_set(-INFINITY);
    int i = 0;
    for (; i + 4 * EK_VL <= n; i += 4 * EK_VL)
        EK_UNROLL for (int j = 0; j < 4; j++) most[j] =
            ek_vf_max(most[j], ek_vf_load(x + i + j * EK_VL));
    for (; i < n; i += EK_VL)
        most[0] = ek_vf_max(most[0], ek_vf_load_rest(x + i, n - i, -INFINITY));
    most[0] = ek_vf_max(ek_vf_max(most[0], most[1]), ek_vf_max(most[2], most[3]));
    return ek_vf_set(ek_vf_largest(most[0]));
}

/* e^(beta (x - most)) of `ways` vectors, side by side, added to the sums. */
EK_KERNEL void ek_softmax_ways_f32(const float *x, float *y, ek_vf most, float beta, ek_vf *sum,
                                   const int ways) {
    EK_UNROLL for (int j = 0; j < ways; j++) {
        const ek_vf e = ek_vf_exp_below(ek_vf_load(x + j * EK_VL) - most, beta);
        sum[j] = sum[j] + e;
        ek_vf_store(y + j * EK_VL, e);
    }
}

/* The same of n elements, and their sum. Behind the last is -infinity, whose e is 0. */
EK_KERNEL ek_softmax_sum_t ek_softmax_exps_f32(const float *x, float *y, int n, ek_vf most,
                                               float beta) {
    enum { STEP = EK_WAYS_F32 * EK_VL };
    ek_vf sum[EK_WAYS_F32];
    EK_UNROLL for (int j = 0; j < EK_WAYS_F32; j++) sum[j] = ek_vf_set(0);
    int i = 0;
    for (; i + STEP <= n; i += STEP)
        ek_softmax_ways_f32(x + i, y + i, most, beta, sum, EK_WAYS_F32);
    if (EK_WAYS_F32 > 2 && i + 2 * EK_VL <= n) {
        ek_softmax_ways_f32(x + i, y + i, most, beta, sum, 2);
        i += 2 * EK_VL;
    }
    for (; i < n; i += EK_VL) {
        const ek_vf rest = ek_vf_load_rest(x + i, n - i, -INFINITY),
                    e = ek_vf_exp_below(rest - most, beta);
        sum[0] = sum[0] + e;
        ek_vf_store_n(y + i, e, n - i);
    }
    EK_UNROLL for (int j = 1; j < EK_WAYS_F32; j++) sum[0] = sum[0] + sum[j];
    return ek_vf_sum(sum[0]);
}

/* x times a factor, in place. Stores have a pointer of their own, so that no load waits for the
 * step of one that stores go on with. */
EK_KERNEL void ek_scale_row_f32(float *x, int n, float factor) {
    const ek_vf scale = ek_vf_set(factor);
    float *y = x;
    __asm__("" : "+r"(y));
    int i = 0;
    for (; i + 2 * EK_VL <= n; i += 2 * EK_VL) {
        EK_UNROLL for (int j = 0; j < 2 * EK_VL; j += EK_VL)
            ek_vf_store(y + i + j, ek_vf_load(x + i + j) * scale);
    }
    for (; i < n; i += EK_VL) ek_vf_store_n(y + i, ek_vf_load_n(x + i, n - i) * scale, n - i);
}

EK_KERNEL void ek_softmax_long_f32(const float *x, float *y, int n, float beta) {
    const ek_vf most = ek_softmax_most_f32(x, n);
    ek_softmax_sum_t total = 0;
    for (int i = 0; i < n; i += EK_SOFTMAX_RUN_F32)
        total += ek_softmax_exps_f32(x + i, y + i, EK_MIN(EK_SOFTMAX_RUN_F32, n - i), most, beta);
    ek_scale_row_f32(y, n, (float)(1 / total));
}

EK_SHARED void ek_softmax_f32_simd(const float *x, float *y, int rows, int n, const ek_softmax_t *p,
                                   int part, int parts) {
    const ek_share_t share = ek_share(rows, EK_SHORT_F32, part, parts);
    const int step = n <= EK_SHORT_F32 ? EK_VL : 1;
    for (int r = share.from; r < share.to; r += step) {
        const ptrdiff_t at = (ptrdiff_t)r * n;
        if (step > 1)
            ek_softmax_short_f32(x + at, y + at, EK_MIN(EK_VL, share.to - r), n, (float)p->beta);
        else
            ek_softmax_long_f32(x + at, y + at, n, (float)p->beta);
    }
}

#endif
