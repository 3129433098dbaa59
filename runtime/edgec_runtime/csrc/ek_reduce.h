/* Reductions over axes. */
#ifndef EK_REDUCE_H
#define EK_REDUCE_H
#include "ek_fixed_point.h"

/* The axes that stay and those that go, each in up to three groups: sizes and element strides in
 * the input. */
typedef struct {
    int keep[3], keep_stride[3], red[3], red_stride[3];
    int32_t x_zero, y_zero, mul, shift; /* int8 means, by a multiplier; may be left out */
    float scale, offset;                /* int8 sums and even means: in float; may be left out */
} ek_reduce_t;

EK_KERNEL int ek_reduce_count(const ek_reduce_t *p) { return p->red[0] * p->red[1] * p->red[2]; }

/* For blocks of the innermost kept axis: acc[0..lanes) = INIT, UPDATE over the reduced axes, then y
 * = STORE. */
#define EK_REDUCE(NAME, T, ACC, INIT, UPDATE, STORE)                                               \
    EK_KERNEL void NAME(const T *x, T *y, const ek_reduce_t *p) {                                  \
        const int *ks = p->keep_stride, *rs = p->red_stride;                                       \
        for (int a = 0; a < p->keep[0]; a++)                                                       \
            for (int b = 0; b < p->keep[1]; b++)                                                   \
                for (int o = 0; o < p->keep[2]; o += EK_LANES) {                                   \
                    const int lanes = EK_MIN(EK_LANES, p->keep[2] - o);                            \
                    const T *base =                                                                \
                        x + (ptrdiff_t)a * ks[0] + (ptrdiff_t)b * ks[1] + (ptrdiff_t)o * ks[2];    \
                    ACC acc[EK_LANES];                                                             \
                    for (int l = 0; l < EK_LANES; l++) acc[l] = (INIT);                            \
                    for (int i = 0; i < p->red[0]; i++)                                            \
                        for (int j = 0; j < p->red[1]; j++)                                        \
                            for (int k = 0; k < p->red[2]; k++) {                                  \
                                const T *px = base + (ptrdiff_t)i * rs[0] + (ptrdiff_t)j * rs[1] + \
                                              (ptrdiff_t)k * rs[2];                                \
                                for (int l = 0; l < lanes; l++)                                    \
                                    UPDATE(acc[l], px[(ptrdiff_t)l * ks[2]]);                      \
                            }                                                                      \
                    for (int l = 0; l < lanes; l++) *y++ = (T)(STORE(acc[l], p));                  \
                }                                                                                  \
    }

EK_KERNEL int8_t ek_reduce_scale(int32_t sum, const ek_reduce_t *p) {
    float v = roundf((float)sum * p->scale + p->offset) + (float)p->y_zero;
    return (int8_t)EK_CLAMP(v, (float)INT8_MIN, (float)INT8_MAX);
}

EK_KERNEL int8_t ek_reduce_multiply(int32_t sum, const ek_reduce_t *p) {
    int32_t v = ek_multiply(sum - ek_reduce_count(p) * p->x_zero, p->mul, p->shift) + p->y_zero;
    return (int8_t)EK_CLAMP(v, INT8_MIN, INT8_MAX);
}

EK_KERNEL int8_t ek_reduce_even(int32_t sum, const ek_reduce_t *p) {
    return ek_even(sum - ek_reduce_count(p) * p->x_zero, p->scale, p->y_zero, INT8_MIN, INT8_MAX);
}

#define EK_REDUCE_ADD(a, v) a += v
#define EK_REDUCE_MUL(a, v) a *= v
#define EK_REDUCE_MAX(a, v) a = EK_MAX(a, v)
#define EK_REDUCE_MIN(a, v) a = EK_MIN(a, v)
#define EK_REDUCE_MAXIMUM(a, v) a = EK_MAXIMUM(a, (float)(v))
#define EK_REDUCE_MINIMUM(a, v) a = EK_MINIMUM(a, (float)(v))
#define EK_REDUCE_AS_IT_IS(a, p) a
#define EK_REDUCE_DIVIDE(a, p) a / EK_MAX(ek_reduce_count(p), 1)
#define EK_REDUCE_DIVIDE_F(a, p) a / ek_reduce_count(p)

EK_REDUCE(ek_mean_f32, float, double, 0.0, EK_REDUCE_ADD, EK_REDUCE_DIVIDE_F)
#if defined(EK_ELEMENT_F16)
EK_REDUCE(ek_mean_f16, ek_half, double, 0.0, EK_REDUCE_ADD, EK_REDUCE_DIVIDE_F)
EK_REDUCE(ek_sum_f16, ek_half, double, 0.0, EK_REDUCE_ADD, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_reduce_max_f16, ek_half, float, -INFINITY, EK_REDUCE_MAXIMUM, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_reduce_min_f16, ek_half, float, INFINITY, EK_REDUCE_MINIMUM, EK_REDUCE_AS_IT_IS)
#endif
EK_REDUCE(ek_mean_s8, int8_t, int32_t, 0, EK_REDUCE_ADD, ek_reduce_multiply)
EK_REDUCE(ek_mean_even_s8, int8_t, int32_t, 0, EK_REDUCE_ADD, ek_reduce_even)
EK_REDUCE(ek_sum_f32, float, double, 0.0, EK_REDUCE_ADD, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_sum_s8, int8_t, int32_t, 0, EK_REDUCE_ADD, ek_reduce_scale)
EK_REDUCE(ek_reduce_prod_f32, float, double, 1.0, EK_REDUCE_MUL, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_reduce_max_f32, float, float, -INFINITY, EK_REDUCE_MAXIMUM, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_reduce_max_s8, int8_t, int8_t, INT8_MIN, EK_REDUCE_MAX, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_reduce_min_f32, float, float, INFINITY, EK_REDUCE_MINIMUM, EK_REDUCE_AS_IT_IS)
EK_REDUCE(ek_reduce_min_s8, int8_t, int8_t, INT8_MAX, EK_REDUCE_MIN, EK_REDUCE_AS_IT_IS)

/* Plain integers wrap as two's complement does. */
#define EK_REDUCE_WRAP(NAME, T, W, INIT, UPDATE) \
    EK_REDUCE(NAME, T, W, INIT, UPDATE, EK_REDUCE_AS_IT_IS)
#define EK_REDUCE_MOST(NAME, T, W, UNSIGNED)                                              \
    EK_REDUCE(NAME, T, T, UNSIGNED ? 0 : (T)((W)1 << (8 * sizeof(T) - 1)), EK_REDUCE_MAX, \
              EK_REDUCE_AS_IT_IS)
#define EK_REDUCE_LEAST(NAME, T, W, UNSIGNED)                                        \
    EK_REDUCE(NAME, T, T, UNSIGNED ? (T) ~(T)0 : (T) ~((W)1 << (8 * sizeof(T) - 1)), \
              EK_REDUCE_MIN, EK_REDUCE_AS_IT_IS)
EK_OF_INTEGERS(ek_sum, EK_REDUCE_WRAP, 0, EK_REDUCE_ADD)
EK_OF_INTEGERS(ek_reduce_prod, EK_REDUCE_WRAP, 1, EK_REDUCE_MUL)
EK_OF_SIGNED(ek_reduce_max, EK_REDUCE_MOST, 0)
EK_OF_SIGNED(ek_reduce_min, EK_REDUCE_LEAST, 0)
EK_OF_UNSIGNED(ek_reduce_max, EK_REDUCE_MOST, 1)
EK_OF_UNSIGNED(ek_reduce_min, EK_REDUCE_LEAST, 1)

/* The mean of integers is cut off towards zero; the sum of 64-bit ones wraps. */
#define EK_REDUCE_DIVIDE_SIGNED(a, p) (int64_t)a / EK_MAX(ek_reduce_count(p), 1)
#define EK_REDUCE_MEAN(NAME, T, W, DIVIDE) EK_REDUCE(NAME, T, uint64_t, 0, EK_REDUCE_ADD, DIVIDE)
EK_OF_SIGNED(ek_mean, EK_REDUCE_MEAN, EK_REDUCE_DIVIDE_SIGNED)
EK_OF_UNSIGNED(ek_mean, EK_REDUCE_MEAN, EK_REDUCE_DIVIDE)

#endif
