/* Elementwise functions of one number. On int8 each is a table that edgec computed. */
#ifndef EK_UNARY_H
#define EK_UNARY_H
#include "ek_base.h"

/* table[x + 128] */
EK_KERNEL void ek_lut_s8(const int8_t *x, int8_t *y, int n, const int8_t *table) {
    for (int i = 0; i < n; i++) y[i] = table[x[i] + 128];
}

/* Attributes of a function, in the order of its definition. */
typedef struct {
    float a;
    float b; /* may be left out */
} ek_coefficients_t;

/* y = EXPR of the element v. */
#define EK_UNARY_T(NAME, T, EXPR)                  \
    EK_KERNEL void NAME(const T *x, T *y, int n) { \
        for (int i = 0; i < n; i++) {              \
            const T v = x[i];                      \
            y[i] = (EXPR);                         \
        }                                          \
    }
/* Functions of floats, and of halves, computed in float. */
#define EK_UNARY_REAL(NAME, T, EXPR)               \
    EK_KERNEL void NAME(const T *x, T *y, int n) { \
        for (int i = 0; i < n; i++) {              \
            const float v = x[i];                  \
            y[i] = (T)(EXPR);                      \
        }                                          \
    }
#define EK_UNARY_REAL_K(NAME, T, EXPR)                                         \
    EK_KERNEL void NAME(const T *x, T *y, int n, const ek_coefficients_t *k) { \
        for (int i = 0; i < n; i++) {                                          \
            const float v = x[i];                                              \
            y[i] = (T)(EXPR);                                                  \
        }                                                                      \
    }
#if defined(EK_ELEMENT_F16)
#define EK_UNARY(NAME, EXPR)               \
    EK_UNARY_REAL(NAME##_f32, float, EXPR) \
    EK_UNARY_REAL(NAME##_f16, ek_half, EXPR)
#define EK_UNARY_K(NAME, EXPR)               \
    EK_UNARY_REAL_K(NAME##_f32, float, EXPR) \
    EK_UNARY_REAL_K(NAME##_f16, ek_half, EXPR)
#else
#define EK_UNARY(NAME, EXPR) EK_UNARY_REAL(NAME##_f32, float, EXPR)
#define EK_UNARY_K(NAME, EXPR) EK_UNARY_REAL_K(NAME##_f32, float, EXPR)
#endif

EK_KERNEL float ek_softplus(float v) { return log1pf(expf(-fabsf(v))) + EK_MAXIMUM(v, 0.0f); }

EK_UNARY(ek_relu, EK_MAXIMUM(v, 0.0f))
EK_UNARY(ek_relu6, EK_CLAMP(v, 0.0f, 6.0f))
EK_UNARY(ek_relu_n1_to_1, EK_CLAMP(v, -1.0f, 1.0f))
EK_UNARY(ek_logistic, 1.0f / (1.0f + expf(-v)))
EK_UNARY(ek_tanh, tanhf(v))
EK_UNARY(ek_hard_swish, v * (EK_CLAMP(v + 3.0f, 0.0f, 6.0f) / 6.0f))
EK_UNARY(ek_exp, expf(v))
EK_UNARY(ek_log, logf(v))
EK_UNARY(ek_sqrt, sqrtf(v))
EK_UNARY(ek_rsqrt, 1.0f / sqrtf(v))
EK_UNARY(ek_abs, fabsf(v))
EK_UNARY(ek_neg, -v)
EK_UNARY(ek_square, v * v)
EK_UNARY(ek_reciprocal, 1.0f / v)
EK_UNARY(ek_floor, floorf(v))
EK_UNARY(ek_ceil, ceilf(v))
/* Ties to even, the default rounding mode. */
EK_UNARY(ek_round, rintf(v))
EK_UNARY(ek_sign, v > 0.0f   ? 1.0f
                  : v < 0.0f ? -1.0f
                             : v)
EK_UNARY(ek_sin, sinf(v))
EK_UNARY(ek_cos, cosf(v))
EK_UNARY(ek_erf, erff(v))
EK_UNARY(ek_softplus, ek_softplus(v))
EK_UNARY(ek_softsign, v / (1.0f + fabsf(v)))
EK_UNARY(ek_mish, v * tanhf(ek_softplus(v)))

EK_UNARY_K(ek_clamp, EK_CLAMP(v, k->a, k->b))
EK_UNARY_K(ek_leaky_relu, v >= 0.0f ? v : v * k->a)
EK_UNARY_K(ek_elu, v >= 0.0f ? v : k->a * expm1f(v * k->b))
EK_UNARY_K(ek_hard_sigmoid, EK_CLAMP(k->a * v + k->b, 0.0f, 1.0f))
EK_UNARY_K(ek_selu, k->b * (v > 0.0f ? v : k->a * expm1f(v)))
EK_UNARY(ek_gelu, 0.5f * v * (1.0f + erff(v * 0.70710678f)))
EK_UNARY(ek_gelu_tanh, 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v))))

/* Plain integers wrap as two's complement does. */
typedef struct {
    int64_t low, high;
} ek_bounds_t;

typedef struct {
    uint64_t low, high;
} ek_unsigned_bounds_t;

#define EK_CLAMP_INT(NAME, T, W, BOUNDS)                                             \
    EK_KERNEL void NAME(const T *x, T *y, int n, const BOUNDS *b) {                  \
        for (int i = 0; i < n; i++) y[i] = (T)EK_CLAMP(x[i], (T)b->low, (T)b->high); \
    }
#define EK_UNARY_INT(NAME, T, W, EXPR) EK_UNARY_T(NAME, T, (T)(EXPR))
#define EK_UNARY_OF_W(NAME, T, W, M) EK_UNARY_T(NAME, T, (T)M(W, v))
#define EK_NEG(W, v) ((W)0 - (W)(v))
#define EK_ABS(W, v) ((v) < 0 ? (W)0 - (W)(v) : (W)(v))
#define EK_SQUARE(W, v) ((W)(v) * (W)(v))

EK_OF_SIGNED(ek_relu, EK_UNARY_INT, EK_MAX(v, 0))
EK_OF_SIGNED(ek_relu6, EK_UNARY_INT, EK_CLAMP(v, 0, 6))
EK_OF_SIGNED(ek_relu_n1_to_1, EK_UNARY_INT, EK_CLAMP(v, -1, 1))
EK_OF_SIGNED(ek_abs, EK_UNARY_OF_W, EK_ABS)
EK_OF_SIGNED(ek_sign, EK_UNARY_INT, (v > 0) - (v < 0))
EK_OF_SIGNED(ek_clamp, EK_CLAMP_INT, ek_bounds_t)
EK_OF_UNSIGNED(ek_relu, EK_UNARY_INT, v)
EK_OF_UNSIGNED(ek_relu6, EK_UNARY_INT, EK_MIN(v, 6))
EK_OF_UNSIGNED(ek_relu_n1_to_1, EK_UNARY_INT, EK_MIN(v, 1))
EK_OF_UNSIGNED(ek_abs, EK_UNARY_INT, v)
EK_OF_UNSIGNED(ek_sign, EK_UNARY_INT, v != 0)
EK_OF_UNSIGNED(ek_clamp, EK_CLAMP_INT, ek_unsigned_bounds_t)
EK_OF_INTEGERS(ek_neg, EK_UNARY_OF_W, EK_NEG)
EK_OF_INTEGERS(ek_square, EK_UNARY_OF_W, EK_SQUARE)
EK_OF_INTEGERS(ek_bitwise_not, EK_UNARY_INT, ~v)

EK_UNARY(ek_tan, tanf(v))
EK_UNARY(ek_asin, asinf(v))
EK_UNARY(ek_acos, acosf(v))
EK_UNARY(ek_atan, atanf(v))
EK_UNARY(ek_sinh, sinhf(v))
EK_UNARY(ek_cosh, coshf(v))
EK_UNARY(ek_asinh, asinhf(v))
EK_UNARY(ek_acosh, acoshf(v))
EK_UNARY(ek_atanh, atanhf(v))

EK_KERNEL void ek_is_nan_f32(const float *x, uint8_t *y, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] != x[i];
}

/* k: whether +inf counts, and -inf. */
EK_KERNEL void ek_is_inf_f32(const float *x, uint8_t *y, int n, const ek_coefficients_t *k) {
    for (int i = 0; i < n; i++)
        y[i] = (k->a != 0.0f && x[i] == INFINITY) || (k->b != 0.0f && x[i] == -INFINITY);
}

#endif
