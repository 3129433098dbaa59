/* Resizing of NHWC images; tables say which rows and columns each output pixel is made of. */
#ifndef EK_RESIZE_H
#define EK_RESIZE_H
#include "ek_cast.h"
#include "ek_fixed_point.h"

/* `c` in bytes. */
typedef struct {
    int n, ih, iw, c, oh, ow;
    const int32_t *rows, *columns;
} ek_resize_nearest_t;

EK_KERNEL void ek_resize_nearest(const void *x, void *y, const ek_resize_nearest_t *p) {
    const char *image = x;
    char *to = y;
    const size_t c = (size_t)p->c, row = (size_t)p->iw * c;
    for (int b = 0; b < p->n; b++, image += (size_t)p->ih * row)
        for (int i = 0; i < p->oh; i++)
            for (int j = 0; j < p->ow; j++, to += c)
                memcpy(to, image + (size_t)p->rows[i] * row + (size_t)p->columns[j] * c, c);
}

/* Two rows, two columns, and the weights of the second ones (of 1). */
typedef struct {
    int n, ih, iw, c, oh, ow;
    const int32_t *y0, *y1;
    const float *fy;
    const int32_t *x0, *x1;
    const float *fx;
} ek_resize_bilinear_real_t;

/* The same with weights in 1/1024. */
typedef struct {
    int n, ih, iw, c, oh, ow;
    const int32_t *y0, *y1, *fy, *x0, *x1, *fx;
} ek_resize_bilinear_fixed_t;

/* The same for int8 whose reals are blended: their zero point and scale, which are the result's,
 * too. */
typedef struct {
    int n, ih, iw, c, oh, ow;
    const int32_t *y0, *y1;
    const float *fy;
    const int32_t *x0, *x1;
    const float *fx;
    int32_t zero;
    float scale;
} ek_resize_bilinear_even_t;

/* For every output pixel the four pixels p00 p10 p01 p11 and the weights of the second row and
 * column. */
#define EK_RESIZE_BILINEAR(NAME, PARAMS, T, W, STATEMENT)                               \
    EK_KERNEL void NAME(const T *x, T *y, const PARAMS *p) {                            \
        const int c = p->c, row = p->iw * c;                                            \
        for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->ih * row)                     \
            for (int i = 0; i < p->oh; i++) {                                           \
                const T *top = x + (ptrdiff_t)p->y0[i] * row,                           \
                        *bottom = x + (ptrdiff_t)p->y1[i] * row;                        \
                for (int j = 0; j < p->ow; j++, y += c) {                               \
                    const T *p00 = top + p->x0[j] * c, *p01 = top + p->x1[j] * c;       \
                    const T *p10 = bottom + p->x0[j] * c, *p11 = bottom + p->x1[j] * c; \
                    const W fy = p->fy[i], fx = p->fx[j];                               \
                    for (int k = 0; k < c; k++) STATEMENT;                              \
                }                                                                       \
            }                                                                           \
    }

/* The order of the sum is TFLite's, so that the uint8 kernel rounds as it does. */
EK_KERNEL float ek_bilinear(float v00, float v10, float v01, float v11, float fy, float fx) {
    return v00 * (1 - fy) * (1 - fx) + v10 * fy * (1 - fx) + v01 * (1 - fy) * fx + v11 * fy * fx;
}

EK_KERNEL int8_t ek_bilinear_fixed(int v00, int v10, int v01, int v11, int fy, int fx) {
    const int32_t gy = 1024 - fy, gx = 1024 - fx;
    const int32_t v = v00 * gy * gx + v10 * fy * gx + v01 * gy * fx + v11 * fy * fx;
    return (int8_t)((v + (v > 0 ? 1 << 19 : -(1 << 19))) / (1 << 20));
}

/* The same cut off towards zero, as onnxruntime resizes integers. */
EK_KERNEL int ek_bilinear_cut(int v00, int v10, int v01, int v11, int fy, int fx) {
    const int32_t gy = 1024 - fy, gx = 1024 - fx;
    return (v00 * gy * gx + v10 * fy * gx + v01 * gy * fx + v11 * fy * fx) / (1 << 20);
}

EK_KERNEL float ek_real(int8_t v, const ek_resize_bilinear_even_t *p) {
    return (float)(v - p->zero) * p->scale;
}

/* The order of onnxruntime's sum: products of weights first. */
EK_KERNEL float ek_bilinear_products(float v00, float v10, float v01, float v11, float fy,
                                     float fx) {
    const float gy = 1 - fy, gx = 1 - fx;
    return gx * gy * v00 + fx * gy * v01 + gx * fy * v10 + fx * fy * v11;
}

/* Reals to the nearest, ties to even. */
EK_KERNEL int8_t ek_bilinear_even(float v00, float v10, float v01, float v11, float fy, float fx,
                                  const ek_resize_bilinear_even_t *p) {
    const float v = ek_bilinear_products(v00, v10, v01, v11, fy, fx);
    return (int8_t)(ek_round_even(v / p->scale, INT8_MIN - p->zero, INT8_MAX - p->zero) + p->zero);
}

EK_KERNEL float ek_unsigned(int8_t v) { return (float)(v + 128); }

EK_RESIZE_BILINEAR(ek_resize_bilinear_f32, ek_resize_bilinear_real_t, float, float,
                   y[k] = ek_bilinear(p00[k], p10[k], p01[k], p11[k], fy, fx))
#if defined(EK_ELEMENT_F16)
EK_RESIZE_BILINEAR(ek_resize_bilinear_f16, ek_resize_bilinear_real_t, ek_half, float,
                   y[k] = (ek_half)ek_bilinear(p00[k], p10[k], p01[k], p11[k], fy, fx))
#endif
EK_RESIZE_BILINEAR(ek_resize_bilinear_s8, ek_resize_bilinear_fixed_t, int8_t, int32_t,
                   y[k] = ek_bilinear_fixed(p00[k], p10[k], p01[k], p11[k], fy, fx))
EK_RESIZE_BILINEAR(ek_resize_bilinear_u8, ek_resize_bilinear_real_t, int8_t, float,
                   y[k] = (int8_t)((int32_t)(ek_bilinear(ek_unsigned(p00[k]), ek_unsigned(p10[k]),
                                                         ek_unsigned(p01[k]), ek_unsigned(p11[k]),
                                                         fy, fx) +
                                             0.5f) -
                                   128))

EK_RESIZE_BILINEAR(ek_resize_bilinear_even_s8, ek_resize_bilinear_even_t, int8_t, float,
                   y[k] = ek_bilinear_even(ek_real(p00[k], p), ek_real(p10[k], p),
                                           ek_real(p01[k], p), ek_real(p11[k], p), fy, fx, p))
EK_RESIZE_BILINEAR(ek_resize_bilinear_cut_s8, ek_resize_bilinear_fixed_t, int8_t, int32_t,
                   y[k] = (int8_t)ek_bilinear_cut(p00[k], p10[k], p01[k], p11[k], fy, fx))
EK_RESIZE_BILINEAR(ek_resize_bilinear_cut_u8, ek_resize_bilinear_fixed_t, int8_t, int32_t,
                   y[k] = (int8_t)(ek_bilinear_cut(p00[k] + 128, p10[k] + 128, p01[k] + 128,
                                                   p11[k] + 128, fy, fx) -
                                   128))

/* Plain integers. A sum of weights may be above 1, so that wide ones are kept in range. */
#define EK_TYPE(T) \
    (EK_INT8 + 2 * ((sizeof(T) > 1) + (sizeof(T) > 2) + (sizeof(T) > 4)) + ((T) - 1 > 0))
#define EK_CUT(T, v) (sizeof(T) < 4 ? (T)(v) : (T)ek_float_to_integer(v, EK_TYPE(T)))
#define EK_RESIZE_INTEGERS(NAME, T, W, UNUSED)                                          \
    EK_RESIZE_BILINEAR(NAME, ek_resize_bilinear_real_t, T, float,                       \
                       y[k] =                                                           \
                           EK_CUT(T, ek_bilinear_products((float)p00[k], (float)p10[k], \
                                                          (float)p01[k], (float)p11[k], fy, fx)))
EK_OF_INTEGERS(ek_resize_integers, EK_RESIZE_INTEGERS, )
EK_RESIZE_BILINEAR(ek_resize_integers_cut_i8, ek_resize_bilinear_fixed_t, int8_t, int32_t,
                   y[k] = (int8_t)ek_bilinear_cut(p00[k], p10[k], p01[k], p11[k], fy, fx))
EK_RESIZE_BILINEAR(ek_resize_integers_cut_u8, ek_resize_bilinear_fixed_t, uint8_t, int32_t,
                   y[k] = (uint8_t)ek_bilinear_cut(p00[k], p10[k], p01[k], p11[k], fy, fx))

/* Four rows and columns with their weights for each output row and column. */
typedef struct {
    int n, ih, iw, c, oh, ow;
    const int32_t *iy;
    const float *wy;
    const int32_t *ix;
    const float *wx;
} ek_resize_cubic_t;

EK_KERNEL void ek_resize_cubic_f32(const float *x, float *y, const ek_resize_cubic_t *p) {
    const int c = p->c, row = p->iw * c;
    for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->ih * row)
        for (int i = 0; i < p->oh; i++)
            for (int j = 0; j < p->ow; j++, y += c)
                for (int k = 0; k < c; k++) {
                    float sum = 0;
                    for (int s = 4 * i; s < 4 * i + 4; s++) {
                        const float *line = x + (ptrdiff_t)p->iy[s] * row + k;
                        float part = 0;
                        for (int t = 4 * j; t < 4 * j + 4; t++)
                            part += p->wx[t] * line[p->ix[t] * c];
                        sum += p->wy[s] * part;
                    }
                    y[k] = sum;
                }
}

#endif
