/* Sliding-window maximum and average of NHWC images. */
#ifndef EK_POOL_H
#define EK_POOL_H
#include "ek_fixed_point.h"

typedef struct {
    int n, ih, iw, c, oh, ow; /* image and result */
    int kh, kw, sh, sw;       /* window and stride */
    int pt, pl;               /* padding at the top and left; the rest follows from the sizes */
    int count_pads, round_up; /* averages: padding counts; ties upwards; may be left out */
    int pad;       /* int8 averages: what counted padding is, the zero point; may be left out */
    float scale;   /* even averages: of an element, whose zero point is `pad`; may be left out */
    int32_t shift; /* even averages: what was added to the elements in the file; may be left out */
    float factor;  /* even averages: the multiplier of a sum in steps of 1; may be left out */
    float low, high; /* the clamp of the activation, exact for int8 too */
} ek_pool_t;

/* For every output position and block of channels: acc[0..lanes) = INIT, UPDATE over the window,
 * then y = STORE. `inside` is the number of elements of the window inside the image, `count` the
 * divisor of its mean. */
#define EK_POOL(NAME, T, ACC, INIT, UPDATE, STORE)                                               \
    EK_KERNEL void NAME(const T *x, T *y, const ek_pool_t *p) {                                  \
        for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->ih * p->iw * p->c)                     \
            for (int oy = 0; oy < p->oh; oy++)                                                   \
                for (int ox = 0; ox < p->ow; ox++, y += p->c) {                                  \
                    const int y0 = oy * p->sh - p->pt, x0 = ox * p->sw - p->pl;                  \
                    const int ya = EK_MAX(y0, 0), yb = EK_MIN(y0 + p->kh, p->ih);                \
                    const int xa = EK_MAX(x0, 0), xb = EK_MIN(x0 + p->kw, p->iw);                \
                    const int inside = (yb - ya) * (xb - xa),                                    \
                              count = p->count_pads ? p->kh * p->kw : inside;                    \
                    for (int o = 0; o < p->c; o += EK_LANES) {                                   \
                        const int lanes = EK_MIN(EK_LANES, p->c - o);                            \
                        ACC acc[EK_LANES];                                                       \
                        for (int l = 0; l < EK_LANES; l++) acc[l] = (INIT);                      \
                        (void)count;                                                             \
                        for (int iy = ya; iy < yb; iy++)                                         \
                            for (int ix = xa; ix < xb; ix++) {                                   \
                                const T *px = x + ((ptrdiff_t)iy * p->iw + ix) * p->c + o;       \
                                for (int l = 0; l < lanes; l++) UPDATE(acc[l], px[l]);           \
                            }                                                                    \
                        for (int l = 0; l < lanes; l++) y[o + l] = (T)(STORE(acc[l], count, p)); \
                    }                                                                            \
                }                                                                                \
    }

/* sum / count to the nearest */
EK_KERNEL int32_t ek_pool_mean(int32_t sum, int count, int up) {
    if (sum >= 0) return (sum + count / 2) / count;
    if (!up) return (sum - count / 2) / count;
    return -((-sum + (count - 1) / 2) / count);
}

/* sum / count as onnxruntime has it, of reals; ties to even in the file's integers. The Edge TPU
 * has a factor, and ties to even before the zero point is added. */
EK_KERNEL int32_t ek_pool_even(float sum, int count, const ek_pool_t *p) {
    if (p->factor != 0)
        return ek_round_even(sum * p->factor, (int32_t)p->low - p->pad, (int32_t)p->high - p->pad) +
               p->pad;
    const float v = sum / (float)count / p->scale + (float)(p->pad + p->shift);
    return ek_round_even(v, (int32_t)p->low + p->shift, (int32_t)p->high + p->shift) - p->shift;
}

#define EK_POOL_ADD(a, v) a += v
#define EK_POOL_ADD_REAL(a, v) a += (float)((v) - p->pad) * p->scale
#define EK_POOL_MAX(a, v) a = EK_MAX(a, v)
#define EK_POOL_MAXIMUM(a, v) a = EK_MAXIMUM(a, v)
#define EK_POOL_CLAMP_F32(a, n, p) EK_CLAMP(a, p->low, p->high)
#define EK_POOL_CLAMP_F16(a, n, p) EK_CLAMP(a, (ek_half)p->low, (ek_half)p->high)
#define EK_POOL_CLAMP_S8(a, n, p) EK_CLAMP(a, (int32_t)p->low, (int32_t)p->high)
#define EK_POOL_MEAN_F32(a, n, p) EK_CLAMP(a / (float)n, p->low, p->high)
/* Faster than a division, and off by about the last bit of a float, which a half does not have. */
#define EK_POOL_MEAN_F16(a, n, p) EK_CLAMP(a * (1 / (float)n), p->low, p->high)
#define EK_POOL_EVEN(a, n, p) ek_pool_even(a, n, p)
#define EK_POOL_MEAN_S8(a, n, p) EK_POOL_CLAMP_S8(ek_pool_mean(a, n, p->round_up), n, p)

EK_POOL(ek_max_pool2d_f32, float, float, -INFINITY, EK_POOL_MAXIMUM, EK_POOL_CLAMP_F32)
#if defined(EK_ELEMENT_F16)
EK_POOL(ek_max_pool2d_f16, ek_half, ek_half, -INFINITY, EK_POOL_MAXIMUM, EK_POOL_CLAMP_F16)
EK_POOL(ek_average_pool2d_f16, ek_half, float, 0.0f, EK_POOL_ADD, EK_POOL_MEAN_F16)
#endif
EK_POOL(ek_max_pool2d_s8, int8_t, int8_t, INT8_MIN, EK_POOL_MAX, EK_POOL_CLAMP_S8)
EK_POOL(ek_average_pool2d_f32, float, float, 0.0f, EK_POOL_ADD, EK_POOL_MEAN_F32)
EK_POOL(ek_average_pool2d_s8, int8_t, int32_t, p->pad *(count - inside), EK_POOL_ADD,
        EK_POOL_MEAN_S8)
EK_POOL(ek_average_pool2d_even_s8, int8_t, float, 0.0f, EK_POOL_ADD_REAL, EK_POOL_EVEN)

#endif
