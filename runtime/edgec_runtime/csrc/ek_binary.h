/* Elementwise ops of two broadcast inputs. */
#ifndef EK_BINARY_H
#define EK_BINARY_H
#include "ek_fixed_point.h"

/* y = EXPR of the elements u and v. EK_BINARY takes T to Y; EK_BINARY_P has trailing parameters. */
#define EK_BINARY_BODY(T, Y, EXPR)                                                    \
    EK_FOR_ND(nd->dim, i, j, k, l, m) {                                               \
        const T *pa = a + EK_AT_ND(nd->a, i, j, k, l, m),                             \
                *pb = b + EK_AT_ND(nd->b, i, j, k, l, m);                             \
        for (int o = 0; o < nd->dim[5]; o++) {                                        \
            const T u = pa[(ptrdiff_t)o * nd->a[5]], v = pb[(ptrdiff_t)o * nd->b[5]]; \
            *y++ = (Y)(EXPR);                                                         \
        }                                                                             \
    }
#define EK_BINARY(NAME, T, Y, EXPR)                                               \
    EK_KERNEL void NAME(const T *a, const T *b, Y *y, const ek_broadcast_t *nd) { \
        EK_BINARY_BODY(T, Y, EXPR)                                                \
    }
#define EK_BINARY_P(NAME, T, PARAMS, EXPR)                                                \
    EK_KERNEL void NAME(const T *a, const T *b, T *y, const ek_broadcast_t *nd, PARAMS) { \
        EK_BINARY_BODY(T, T, EXPR)                                                        \
    }

#define EK_ACT(T, v) EK_CLAMP(v, (T)act->low, (T)act->high)
/* The plain kernels of an element type. */
#define EK_BINARY_OF(S, T)                                                   \
    EK_BINARY_P(ek_add_##S, T, const ek_activation_t *act, EK_ACT(T, u + v)) \
    EK_BINARY_P(ek_sub_##S, T, const ek_activation_t *act, EK_ACT(T, u - v)) \
    EK_BINARY_P(ek_mul_##S, T, const ek_activation_t *act, EK_ACT(T, u *v))  \
    EK_BINARY_P(ek_div_##S, T, const ek_activation_t *act, EK_ACT(T, u / v)) \
    EK_BINARY(ek_maximum_##S, T, T, EK_MAXIMUM(u, v))                        \
    EK_BINARY(ek_minimum_##S, T, T, EK_MINIMUM(u, v))                        \
    EK_BINARY(ek_squared_difference_##S, T, T, (u - v) * (u - v))            \
    EK_BINARY(ek_prelu_##S, T, T, u >= 0 ? u : u * v)
EK_BINARY_OF(f32, float)
#if defined(EK_ELEMENT_F16)
EK_BINARY_OF(f16, ek_half)
#endif
EK_BINARY(ek_pow_f32, float, float, powf(u, v))
EK_BINARY(ek_atan2_f32, float, float, atan2f(u, v))
EK_BINARY(ek_floor_div_f32, float, float, floorf(u / v))
EK_KERNEL float ek_floor_mod_one(float u, float v) {
    const float r = fmodf(u, v);
    return r == 0.0f ? copysignf(0.0f, v) : (r < 0.0f) != (v < 0.0f) ? r + v : r;
}
EK_BINARY(ek_floor_mod_f32, float, float, ek_floor_mod_one(u, v))
EK_BINARY(ek_fmod_f32, float, float, fmodf(u, v))

/* Plain integers wrap as two's complement does; a division by 0 gives 0. By -1 is apart: processors
 * trap the least one. */
#define EK_DIV(U, u, v) ((v) == 0 ? 0 : (v) == -1 ? (U)0 - (U)(u) : (U)((u) / (v)))
#define EK_FLOOR_DIV(U, u, v) (EK_DIV(U, u, v) - EK_UNEVEN(u, v))
#define EK_FLOOR_MOD(u, v) ((v) == 0 || (v) == -1 ? 0 : (u) % (v) + (EK_UNEVEN(u, v) ? (v) : 0))
#define EK_UNEVEN(u, v) ((v) != 0 && (v) != -1 && (u) % (v) != 0 && ((u) < 0) != ((v) < 0))
#define EK_BINARY_INT(NAME, T, W, EXPR) EK_BINARY(NAME, T, T, EXPR)
#define EK_BINARY_WRAP(NAME, T, W, OP) EK_BINARY(NAME, T, T, (W)u OP(W) v)
#define EK_BINARY_OF_W(NAME, T, W, M) EK_BINARY(NAME, T, T, M(W, u, v))
/* By way of double, as onnxruntime does; what the type does not have is 0. */
EK_KERNEL double ek_pow_within(double u, double v, int bits, int is_signed) {
    const double r = trunc(pow(u, v)), high = ldexp(1.0, bits - is_signed);
    return r >= (is_signed ? -high : 0.0) && r < high ? r : 0.0;
}
#define EK_BINARY_POW(NAME, T, W, SIGNED) \
    EK_BINARY(NAME, T, T, ek_pow_within((double)u, (double)v, 8 * sizeof(T), SIGNED))
#define EK_SQUARED_DIFFERENCE(W, u, v) ((W)(u) - (W)(v)) * ((W)(u) - (W)(v))
EK_OF_INTEGERS(ek_add, EK_BINARY_WRAP, +)
EK_OF_INTEGERS(ek_sub, EK_BINARY_WRAP, -)
EK_OF_INTEGERS(ek_mul, EK_BINARY_WRAP, *)
EK_OF_INTEGERS(ek_bitwise_and, EK_BINARY_INT, u &v)
EK_OF_INTEGERS(ek_bitwise_or, EK_BINARY_INT, u | v)
EK_OF_INTEGERS(ek_bitwise_xor, EK_BINARY_INT, u ^ v)
EK_OF_INTEGERS(ek_maximum, EK_BINARY_INT, EK_MAX(u, v))
EK_OF_INTEGERS(ek_minimum, EK_BINARY_INT, EK_MIN(u, v))
EK_OF_INTEGERS(ek_squared_difference, EK_BINARY_OF_W, EK_SQUARED_DIFFERENCE)
EK_OF_SIGNED(ek_pow, EK_BINARY_POW, 1)
EK_OF_UNSIGNED(ek_pow, EK_BINARY_POW, 0)
EK_OF_SIGNED(ek_div, EK_BINARY_OF_W, EK_DIV)
EK_OF_SIGNED(ek_floor_div, EK_BINARY_OF_W, EK_FLOOR_DIV)
EK_OF_SIGNED(ek_floor_mod, EK_BINARY_INT, EK_FLOOR_MOD(u, v))
EK_OF_SIGNED(ek_fmod, EK_BINARY_INT, (v) == 0 || (v) == -1 ? 0 : (u) % (v))
EK_OF_UNSIGNED(ek_div, EK_BINARY_INT, v == 0 ? 0 : u / v)
EK_OF_UNSIGNED(ek_floor_div, EK_BINARY_INT, v == 0 ? 0 : u / v)
EK_OF_UNSIGNED(ek_floor_mod, EK_BINARY_INT, v == 0 ? 0 : u % v)
EK_OF_UNSIGNED(ek_fmod, EK_BINARY_INT, v == 0 ? 0 : u % v)
/* By as many bits as the type has, or more, or by fewer than none, only the sign is left. */
EK_OF_INTEGERS(ek_shift_left, EK_BINARY_INT, (uint64_t)v < 8 * sizeof u ? (uint64_t)u << v : 0)
EK_OF_SIGNED(ek_shift_right, EK_BINARY_INT, (uint64_t)v < 8 * sizeof u ? u >> v : -(u < 0))
EK_OF_UNSIGNED(ek_shift_right, EK_BINARY_INT, (uint64_t)v < 8 * sizeof u ? u >> v : 0)

/* ADD and SUB: both inputs to twice the larger scale with 20 bits of headroom. */
typedef struct {
    int32_t a_zero, b_zero, y_zero, low, high, a_mul, a_shift, b_mul, b_shift, y_mul, y_shift;
} ek_fixed_point_sum_t;

EK_KERNEL int8_t ek_add_one(int8_t u, int8_t v, int sign, const ek_fixed_point_sum_t *q) {
    int32_t a = ek_multiply((u - q->a_zero) * (1 << 20), q->a_mul, q->a_shift);
    int32_t b = ek_multiply((v - q->b_zero) * (1 << 20), q->b_mul, q->b_shift);
    int32_t r = ek_multiply(a + sign * b, q->y_mul, q->y_shift) + q->y_zero;
    return (int8_t)EK_CLAMP(r, q->low, q->high);
}
EK_BINARY_P(ek_add_s8, int8_t, const ek_fixed_point_sum_t *q, ek_add_one(u, v, 1, q))
EK_BINARY_P(ek_sub_s8, int8_t, const ek_fixed_point_sum_t *q, ek_add_one(u, v, -1, q))

/* The law of both where sums are floats: of elements moved by `shift`, in float32 steps, each
 * product exact until it is added. onnxruntime's scale is 1, the Edge TPU's a, b and rest are
 * integers. */
typedef struct {
    float a, b, rest;
    int32_t shift;
    float scale;
    int32_t low, high;
} ek_float_sum_t;

EK_KERNEL int8_t ek_linear_one(int8_t u, int8_t v, const ek_float_sum_t *q) {
    const float inner = (float)((double)q->b * (v + q->shift) + (double)q->rest);
    const float sum = (float)((double)q->a * (u + q->shift) + (double)inner);
    const float r = sum * q->scale;
    return (int8_t)(ek_round_even(r, q->low + q->shift, q->high + q->shift) - q->shift);
}
EK_BINARY_P(ek_add_even_s8, int8_t, const ek_float_sum_t *q, ek_linear_one(u, v, q))
EK_BINARY_P(ek_sub_even_s8, int8_t, const ek_float_sum_t *q, ek_linear_one(u, v, q))

typedef struct {
    int32_t a_zero, b_zero, y_zero, low, high, mul, shift;
} ek_fixed_point_product_t;

EK_KERNEL int8_t ek_mul_one(int8_t u, int8_t v, const ek_fixed_point_product_t *q) {
    int32_t r = ek_multiply((u - q->a_zero) * (v - q->b_zero), q->mul, q->shift) + q->y_zero;
    return (int8_t)EK_CLAMP(r, q->low, q->high);
}
EK_BINARY_P(ek_mul_s8, int8_t, const ek_fixed_point_product_t *q, ek_mul_one(u, v, q))

/* In float, the zero point and `shift` added before rounding, `shift` taken from the result: that
 * of the file for onnxruntime, the zero point's negative for the Edge TPU. */
typedef struct {
    int32_t a_zero, b_zero, y_zero, low, high;
    float scale;
    int32_t shift;
} ek_float_product_t;

EK_KERNEL int8_t ek_real_mul_one(int8_t u, int8_t v, const ek_float_product_t *q) {
    const float r =
        (float)((u - q->a_zero) * (v - q->b_zero)) * q->scale + (float)(q->y_zero + q->shift);
    return (int8_t)(ek_round_even(r, q->low + q->shift, q->high + q->shift) - q->shift);
}
EK_BINARY_P(ek_mul_even_s8, int8_t, const ek_float_product_t *q, ek_real_mul_one(u, v, q))

EK_BINARY(ek_maximum_s8, int8_t, int8_t, EK_MAX(u, v))
EK_BINARY(ek_minimum_s8, int8_t, int8_t, EK_MIN(u, v))

EK_KERNEL int8_t ek_squared_difference_one(int8_t u, int8_t v, const ek_fixed_point_sum_t *q) {
    int32_t a = ek_multiply((u - q->a_zero) * (1 << 7), q->a_mul, q->a_shift);
    int32_t b = ek_multiply((v - q->b_zero) * (1 << 7), q->b_mul, q->b_shift);
    int32_t r = ek_multiply((a - b) * (a - b), q->y_mul, q->y_shift) + q->y_zero;
    return (int8_t)EK_CLAMP(r, q->low, q->high);
}
EK_BINARY_P(ek_squared_difference_s8, int8_t, const ek_fixed_point_sum_t *q,
            ek_squared_difference_one(u, v, q))

/* a_mul is that of x, y_mul that of alpha * x. */
EK_KERNEL int8_t ek_prelu_one(int8_t u, int8_t v, const ek_fixed_point_sum_t *q) {
    const int32_t x = u - q->a_zero;
    int32_t r = x >= 0 ? ek_multiply(x, q->a_mul, q->a_shift)
                       : ek_multiply(x * (v - q->b_zero), q->y_mul, q->y_shift);
    r += q->y_zero;
    return (int8_t)EK_CLAMP(r, q->low, q->high);
}
EK_BINARY_P(ek_prelu_s8, int8_t, const ek_fixed_point_sum_t *q, ek_prelu_one(u, v, q))

#endif
