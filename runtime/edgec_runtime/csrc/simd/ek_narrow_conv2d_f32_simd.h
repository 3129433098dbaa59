/* Float convolutions to so few channels that a vector would be mostly empty: the products of all
 * columns of the kernel are channels of one convolution by a single column, and a result is the sum
 * of one of each, side by side.
 *
 * Strides across are 1. Weights: of the single column, panels of [kw][oc] channels, as
 * ek_gemm_f32_simd has them. */
#ifndef EK_NARROW_CONV2D_F32_SIMD_H
#define EK_NARROW_CONV2D_F32_SIMD_H
#include "ek_gemm_f32_simd.h"

typedef struct {
    ek_gemm_f32_t p;            /* the single column: of the image; one row; kw * oc channels */
    int oh, ow, oc, kw, dw, pl; /* the result, and the kernel's columns */
    int yx, cols;               /* floats between pixels of the result; pixels of a block */
    int products;               /* floats of a block's */
    int clamps;
    float low, high;
    ek_after_f32_fn *after; /* what follows, or null */
    ek_coefficients_t coef;
} ek_narrow_conv2d_f32_t;

/* Pixels [from, to) of a row. z: the products of pixels of the image from `first` on. */
EK_SHARED void ek_narrow_conv2d_f32_sums(const float *z, const float *bias, float *y,
                                         const ek_narrow_conv2d_f32_t *p, int first, int from,
                                         int to) {
    const ek_vf low = ek_vf_set(p->low), high = ek_vf_set(p->high);
    const ptrdiff_t pixel = p->kw * p->oc, next = p->dw * pixel + p->oc;
    EK_ROLLED for (int ox = from; ox < to; ox++) {
        const int x = ox - p->pl, k0 = x < 0 ? (-x + p->dw - 1) / p->dw : 0;
        const int k1 = x < p->p.iw ? EK_MIN(p->kw, (p->p.iw - 1 - x) / p->dw + 1) : 0;
        const float *at = z + (x - first) * pixel;
        EK_ROLLED for (int o = 0; o < p->oc; o += EK_VL) {
            ek_vf sum = ek_vf_load(bias + o);
            EK_ROLLED for (int k = k0; k < k1; k++) sum += ek_vf_load(at + k * next + o);
            if (p->clamps) sum = ek_vf_min(ek_vf_max(sum, low), high);
            ek_vf_store_n(y + (ptrdiff_t)ox * p->yx + o, sum, p->oc - o);
        }
    }
}

/* zeros: the bias of the products; bias: padded; z: scratch of this part alone, products, then what
 * they need. Threads share the rows. */
EK_SHARED void ek_narrow_conv2d_f32_simd(const float *x, const float *w, const float *zeros,
                                         const float *bias, float *y, float *z,
                                         const ek_narrow_conv2d_f32_t *p, ek_tile_f32_fn *tile,
                                         ek_tile_f32_fn *tail, int part, int parts) {
    const ek_share_t share = ek_share(p->p.n * p->oh, 1, part, parts);
    EK_ROLLED for (int row = share.from; row < share.to; row++) {
        const int image = row / p->oh, oy = row % p->oh;
        const float *px = x + (ptrdiff_t)image * p->p.ih * p->p.iw * p->p.ic;
        float *py = y + (ptrdiff_t)row * p->ow * p->yx;
        EK_ROLLED for (int from = 0, to; from < p->ow; from = to) {
            ek_gemm_f32_t q = p->p;
            to = EK_MIN(from + p->cols, p->ow);
            const int first = EK_MAX(from - p->pl, 0);
            q.n = 1, q.ow = EK_MIN(to - p->pl + (p->kw - 1) * p->dw, q.iw) - first;
            q.pl = -first, q.pt -= oy * q.sh;
            if (q.ow > 0)
                ek_gemm_f32_simd(px, w, zeros, NULL, NULL, z, z + p->products, &q, tile, tail, 0,
                                 1);
            ek_narrow_conv2d_f32_sums(z, bias, py, p, first, from, to);
        }
        if (p->after) ek_after_f32(p->after, py, p->yx, p->ow, p->oc, &p->coef);
    }
}

#endif
