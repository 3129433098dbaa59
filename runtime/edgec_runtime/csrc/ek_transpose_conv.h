/* Transposed convolution. Image [n,ih,iw,ic]; weights packed [kh,kw,ic,oc]; bias [oc]. */
#ifndef EK_TRANSPOSE_CONV_H
#define EK_TRANSPOSE_CONV_H
#include "ek_fixed_point.h"

typedef struct {
    int n, ih, iw, ic, oh, ow, oc; /* image and result */
    int kh, kw, sh, sw;            /* kernel and stride */
    int pt, pl;                    /* rows and columns cut off at the top and left */
} ek_transpose_conv2d_t;

/* Each output gathers what the inputs would scatter: tap (ky, kx) of input (iy, ix) where iy * sh -
 * pt + ky = oy. */
#define EK_TRANSPOSE_CONV2D(NAME, X, ACC, BIAS, PARAMS, LOAD_X, LOAD_W, STORE)                   \
    EK_KERNEL void NAME(const X *x, const X *w, const BIAS *bias, X *y,                          \
                        const ek_transpose_conv2d_t *p, PARAMS) {                                \
        for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->ih * p->iw * p->ic)                    \
            for (int oy = 0; oy < p->oh; oy++)                                                   \
                for (int ox = 0; ox < p->ow; ox++, y += p->oc)                                   \
                    for (int o = 0; o < p->oc; o += EK_LANES) {                                  \
                        const int lanes = EK_MIN(EK_LANES, p->oc - o);                           \
                        ACC acc[EK_LANES] = {0};                                                 \
                        for (int ky = (oy + p->pt) % p->sh; ky < p->kh; ky += p->sh) {           \
                            const int iy = (oy + p->pt - ky) / p->sh;                            \
                            if (oy + p->pt < ky || iy >= p->ih) continue;                        \
                            for (int kx = (ox + p->pl) % p->sw; kx < p->kw; kx += p->sw) {       \
                                const int ix = (ox + p->pl - kx) / p->sw;                        \
                                if (ox + p->pl < kx || ix >= p->iw) continue;                    \
                                const X *px = x + ((ptrdiff_t)iy * p->iw + ix) * p->ic;          \
                                const X *pw =                                                    \
                                    w + (ptrdiff_t)(ky * p->kw + kx) * p->ic * p->oc + o;        \
                                for (int c = 0; c < p->ic; c++, pw += p->oc) {                   \
                                    const ACC v = LOAD_X(px[c]);                                 \
                                    for (int l = 0; l < lanes; l++) acc[l] += v * LOAD_W(pw[l]); \
                                }                                                                \
                            }                                                                    \
                        }                                                                        \
                        for (int l = 0; l < lanes; l++) y[o + l] = STORE;                        \
                    }                                                                            \
    }

#define EK_TC_X_S8(v) ((int32_t)(v) - q->x_zero)
#define EK_TC_W_S8(v) ((int32_t)(v) - q->w_zero)
EK_TRANSPOSE_CONV2D(ek_transpose_conv2d_f32, float, float, float, const ek_activation_t *act, , ,
                    EK_CLAMP(acc[l] + bias[o + l], act->low, act->high))
#if defined(EK_ELEMENT_F16)
EK_TRANSPOSE_CONV2D(ek_transpose_conv2d_f16, ek_half, float, ek_half, const ek_activation_t *act, ,
                    , (ek_half)EK_CLAMP(acc[l] + bias[o + l], act->low, act->high))
#endif
EK_TRANSPOSE_CONV2D(ek_transpose_conv2d_s8, int8_t, int32_t, int32_t, const ek_requant_t *q,
                    EK_TC_X_S8, EK_TC_W_S8, ek_requantize(acc[l] + bias[o + l], o + l, q))
EK_TRANSPOSE_CONV2D(ek_transpose_conv2d_even_s8, int8_t, int32_t, int32_t,
                    const ek_float_requant_t *q, EK_TC_X_S8, EK_TC_W_S8,
                    ek_even(acc[l] + bias[o + l], q->scale[o + l], q->y_zero, q->low, q->high))

#endif
