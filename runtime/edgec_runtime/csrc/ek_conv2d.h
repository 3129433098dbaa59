/* Convolutions. Image [n,ih,iw,ic]; dense weights packed [kh,kw,ic/groups,oc], depthwise
 * [kh,kw,oc]; bias [oc]. */
#ifndef EK_CONV2D_H
#define EK_CONV2D_H
#include "ek_fixed_point.h"

typedef struct {
    int n, ih, iw, ic, oh, ow, oc; /* image and result */
    int kh, kw, sh, sw, dh, dw;    /* kernel, stride, dilation */
    int pt, pl;   /* padding at the top and left; the rest follows from the sizes */
    int group_ic; /* input channels of one group */
} ek_conv2d_t;

/* The taps of a window that lie inside the image: [*from, *to). */
EK_KERNEL void ek_taps(int origin, int size, int kernel, int dilation, int *from, int *to) {
    int first = origin >= 0 ? 0 : (-origin + dilation - 1) / dilation;
    int past = origin + (kernel - 1) * dilation < size ? kernel
                                                       : (size - origin + dilation - 1) / dilation;
    *from = EK_MIN(first, kernel);
    *to = EK_MAX(past, 0);
}

/* Dense: the sum of products into acc[0..lanes) for output channels from `o`. */
#define EK_CONV2D_BODY(NAME, X, W, ACC, LOAD_X, LOAD_W)                                          \
    EK_KERNEL void NAME(const X *x, const W *w, ACC *acc, const ek_conv2d_t *p, int y0, int x0,  \
                        int group, int o, int lanes, int32_t x_zero, int32_t w_zero) {           \
        int ky0, ky1, kx0, kx1;                                                                  \
        (void)x_zero, (void)w_zero;                                                              \
        ek_taps(y0, p->ih, p->kh, p->dh, &ky0, &ky1);                                            \
        ek_taps(x0, p->iw, p->kw, p->dw, &kx0, &kx1);                                            \
        for (int ky = ky0; ky < ky1; ky++)                                                       \
            for (int kx = kx0; kx < kx1; kx++) {                                                 \
                const X *px = x +                                                                \
                              ((ptrdiff_t)(y0 + ky * p->dh) * p->iw + x0 + kx * p->dw) * p->ic + \
                              group * p->group_ic;                                               \
                const W *pw = w + (ptrdiff_t)(ky * p->kw + kx) * p->group_ic * p->oc + o;        \
                for (int c = 0; c < p->group_ic; c++, pw += p->oc) {                             \
                    ACC v = LOAD_X(px[c]);                                                       \
                    for (int l = 0; l < lanes; l++) acc[l] += v * LOAD_W(pw[l]);                 \
                }                                                                                \
            }                                                                                    \
    }

/* Depthwise: the same for one filter per channel. */
#define EK_DWCONV2D_BODY(NAME, X, W, ACC, LOAD_X, LOAD_W)                                       \
    EK_KERNEL void NAME(const X *x, const W *w, ACC *acc, const ek_conv2d_t *p, int y0, int x0, \
                        int group, int o, int lanes, int32_t x_zero, int32_t w_zero) {          \
        int ky0, ky1, kx0, kx1, multiplier = p->oc / p->ic;                                     \
        (void)x_zero, (void)w_zero, (void)group;                                                \
        ek_taps(y0, p->ih, p->kh, p->dh, &ky0, &ky1);                                           \
        ek_taps(x0, p->iw, p->kw, p->dw, &kx0, &kx1);                                           \
        for (int ky = ky0; ky < ky1; ky++)                                                      \
            for (int kx = kx0; kx < kx1; kx++) {                                                \
                const X *px =                                                                   \
                    x + ((ptrdiff_t)(y0 + ky * p->dh) * p->iw + x0 + kx * p->dw) * p->ic;       \
                const W *pw = w + (ptrdiff_t)(ky * p->kw + kx) * p->oc + o;                     \
                for (int l = 0; l < lanes; l++)                                                 \
                    acc[l] += LOAD_X(px[(o + l) / multiplier]) * LOAD_W(pw[l]);                 \
            }                                                                                   \
    }

#define EK_X_S8(v) ((int32_t)(v) - x_zero)
#define EK_W_S8(v) ((int32_t)(v) - w_zero)
EK_CONV2D_BODY(ek_conv2d_sum_f32, float, float, float, , )
#if defined(EK_ELEMENT_F16)
EK_CONV2D_BODY(ek_conv2d_sum_f16, ek_half, ek_half, float, , )
EK_DWCONV2D_BODY(ek_dwconv2d_sum_f16, ek_half, ek_half, float, , )
#endif
EK_CONV2D_BODY(ek_conv2d_sum_s8, int8_t, int8_t, int32_t, EK_X_S8, EK_W_S8)
EK_DWCONV2D_BODY(ek_dwconv2d_sum_f32, float, float, float, , )
EK_DWCONV2D_BODY(ek_dwconv2d_sum_s8, int8_t, int8_t, int32_t, EK_X_S8, EK_W_S8)

/* All output positions; channels in blocks of EK_LANES that do not cross a group. */
#define EK_CONV2D_LOOP(SUM, ACC, GROUPS, X_ZERO, W_ZERO, STORE)                            \
    const int groups = (GROUPS), per = p->oc / groups;                                     \
    for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->ih * p->iw * p->ic)                  \
        for (int oy = 0; oy < p->oh; oy++)                                                 \
            for (int ox = 0; ox < p->ow; ox++, y += p->oc)                                 \
                for (int g = 0; g < groups; g++)                                           \
                    for (int o = g * per; o < (g + 1) * per; o += EK_LANES) {              \
                        const int left = (g + 1) * per - o, y0 = oy * p->sh - p->pt,       \
                                  x0 = ox * p->sw - p->pl;                                 \
                        ACC acc[EK_LANES] = {0};                                           \
                        if (left >= EK_LANES)                                              \
                            SUM(x, w, acc, p, y0, x0, g, o, EK_LANES, X_ZERO, W_ZERO);     \
                        else                                                               \
                            SUM(x, w, acc, p, y0, x0, g, o, left, X_ZERO, W_ZERO);         \
                        for (int l = 0; l < EK_MIN(left, EK_LANES); l++) y[o + l] = STORE; \
                    }

EK_KERNEL void ek_conv2d_f32(const float *x, const float *w, const float *bias, float *y,
                             const ek_conv2d_t *p, const ek_activation_t *act){
    EK_CONV2D_LOOP(ek_conv2d_sum_f32, float, p -> ic / p->group_ic, 0, 0,
                   EK_CLAMP(acc[l] + bias[o + l], act->low, act->high))}

#if defined(EK_ELEMENT_F16)
EK_KERNEL void ek_conv2d_f16(const ek_half *x, const ek_half *w, const ek_half *bias, ek_half *y,
                             const ek_conv2d_t *p, const ek_activation_t *act){
    EK_CONV2D_LOOP(ek_conv2d_sum_f16, float, p->ic / p->group_ic, 0, 0,
                   (ek_half)EK_CLAMP(acc[l] + bias[o + l], act->low, act->high))}

EK_KERNEL void ek_dwconv2d_f16(const ek_half *x, const ek_half *w, const ek_half *bias, ek_half *y,
                               const ek_conv2d_t *p, const ek_activation_t *act){
    EK_CONV2D_LOOP(ek_dwconv2d_sum_f16, float, 1, 0, 0,
                   (ek_half)EK_CLAMP(acc[l] + bias[o + l], act->low, act->high))}
#endif

EK_KERNEL void ek_conv2d_s8(const int8_t *x, const int8_t *w, const int32_t *bias, int8_t *y,
                            const ek_conv2d_t *p, const ek_requant_t *q){
    EK_CONV2D_LOOP(ek_conv2d_sum_s8, int32_t, p->ic / p->group_ic, q->x_zero, q->w_zero,
                   ek_requantize(acc[l] + bias[o + l], o + l, q))}

EK_KERNEL void ek_conv2d_even_s8(const int8_t *x, const int8_t *w, const int32_t *bias, int8_t *y,
                                 const ek_conv2d_t *p, const ek_float_requant_t *q){
    EK_CONV2D_LOOP(ek_conv2d_sum_s8, int32_t, p->ic / p->group_ic, q->x_zero, q->w_zero,
                   ek_even(acc[l] + bias[o + l], q->scale[o + l], q->y_zero, q->low, q->high))}

EK_KERNEL void ek_dwconv2d_f32(const float *x, const float *w, const float *bias, float *y,
                               const ek_conv2d_t *p, const ek_activation_t *act){
    EK_CONV2D_LOOP(ek_dwconv2d_sum_f32, float, 1, 0, 0,
                   EK_CLAMP(acc[l] + bias[o + l], act->low, act->high))}

EK_KERNEL void ek_dwconv2d_s8(const int8_t *x, const int8_t *w, const int32_t *bias, int8_t *y,
                              const ek_conv2d_t *p, const ek_requant_t *q){
    EK_CONV2D_LOOP(ek_dwconv2d_sum_s8, int32_t, 1, q->x_zero, q->w_zero,
                   ek_requantize(acc[l] + bias[o + l], o + l, q))}

EK_KERNEL void ek_dwconv2d_even_s8(const int8_t *x, const int8_t *w, const int32_t *bias, int8_t *y,
                                   const ek_conv2d_t *p, const ek_float_requant_t *q) {
    EK_CONV2D_LOOP(ek_dwconv2d_sum_s8, int32_t, 1, q->x_zero, q->w_zero,
                   ek_even(acc[l] + bias[o + l], q->scale[o + l], q->y_zero, q->low, q->high))
}

#endif
