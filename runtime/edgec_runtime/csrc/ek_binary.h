/* Elementwise ops of two broadcast inputs. */
#ifndef EK_BINARY_H
#define EK_BINARY_H
#include "ek_fixed_point.h"

/* y = EXPR of the elements u and v. */
#define EK_BINARY(NAME, T, PARAMS, EXPR)                                                                   \
    EK_KERNEL void NAME(const T *a, const T *b, T *y, const ek_nd_t *nd, PARAMS) {                         \
        EK_FOR_ND(nd->dim, i, j, k, l, m) {                                                                \
            const T *pa = a + EK_AT_ND(nd->a, i, j, k, l, m), *pb = b + EK_AT_ND(nd->b, i, j, k, l, m);    \
            for (int o = 0; o < nd->dim[5]; o++) {                                                         \
                const T u = pa[(ptrdiff_t)o * nd->a[5]], v = pb[(ptrdiff_t)o * nd->b[5]];                  \
                *y++ = (T)(EXPR);                                                                          \
            }                                                                                              \
        }                                                                                                  \
    }

#define EK_ACT(v) EK_CLAMP(v, act->low, act->high)
EK_BINARY(ek_add_f32, float, const ek_act_f32_t *act, EK_ACT(u + v))
EK_BINARY(ek_sub_f32, float, const ek_act_f32_t *act, EK_ACT(u - v))
EK_BINARY(ek_mul_f32, float, const ek_act_f32_t *act, EK_ACT(u *v))

/* ADD and SUB: both inputs to twice the larger scale with 20 bits of headroom. */
typedef struct {
    int32_t a_zero, b_zero, y_zero, low, high, a_mul, a_shift, b_mul, b_shift, y_mul, y_shift;
} ek_add_t;

EK_KERNEL int8_t ek_add_one(int8_t u, int8_t v, int sign, const ek_add_t *q) {
    int32_t a = ek_multiply((u - q->a_zero) * (1 << 20), q->a_mul, q->a_shift);
    int32_t b = ek_multiply((v - q->b_zero) * (1 << 20), q->b_mul, q->b_shift);
    int32_t r = ek_multiply(a + sign * b, q->y_mul, q->y_shift) + q->y_zero;
    return (int8_t)EK_CLAMP(r, q->low, q->high);
}
EK_BINARY(ek_add_s8, int8_t, const ek_add_t *q, ek_add_one(u, v, 1, q))
EK_BINARY(ek_sub_s8, int8_t, const ek_add_t *q, ek_add_one(u, v, -1, q))

typedef struct {
    int32_t a_zero, b_zero, y_zero, low, high, mul, shift;
} ek_mul_t;

EK_KERNEL int8_t ek_mul_one(int8_t u, int8_t v, const ek_mul_t *q) {
    int32_t r = ek_multiply((u - q->a_zero) * (v - q->b_zero), q->mul, q->shift) + q->y_zero;
    return (int8_t)EK_CLAMP(r, q->low, q->high);
}
EK_BINARY(ek_mul_s8, int8_t, const ek_mul_t *q, ek_mul_one(u, v, q))

#endif
