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
    float a, b;
} ek_coef_t;

/* y = EXPR of the element v. */
#define EK_UNARY_T(NAME, T, EXPR)                             \
    EK_KERNEL void NAME(const T *x, T *y, int n) {            \
        for (int i = 0; i < n; i++) {                         \
            const T v = x[i];                                 \
            y[i] = (EXPR);                                    \
        }                                                     \
    }
#define EK_UNARY(NAME, EXPR) EK_UNARY_T(NAME, float, EXPR)
#define EK_UNARY_K(NAME, EXPR)                                                    \
    EK_KERNEL void NAME(const float *x, float *y, int n, const ek_coef_t *k) {    \
        for (int i = 0; i < n; i++) {                                             \
            const float v = x[i];                                                 \
            y[i] = (EXPR);                                                        \
        }                                                                         \
    }

EK_KERNEL float ek_softplus(float v) { return log1pf(expf(-fabsf(v))) + EK_MAX(v, 0.0f); }

EK_UNARY(ek_relu_f32, EK_MAX(v, 0.0f))
EK_UNARY(ek_relu6_f32, EK_CLAMP(v, 0.0f, 6.0f))
EK_UNARY(ek_relu_n1_to_1_f32, EK_CLAMP(v, -1.0f, 1.0f))
EK_UNARY(ek_logistic_f32, 1.0f / (1.0f + expf(-v)))
EK_UNARY(ek_tanh_f32, tanhf(v))
EK_UNARY(ek_hard_swish_f32, v *EK_CLAMP(v + 3.0f, 0.0f, 6.0f) / 6.0f)
EK_UNARY(ek_exp_f32, expf(v))
EK_UNARY(ek_log_f32, logf(v))
EK_UNARY(ek_sqrt_f32, sqrtf(v))
EK_UNARY(ek_rsqrt_f32, 1.0f / sqrtf(v))
EK_UNARY(ek_abs_f32, fabsf(v))
EK_UNARY(ek_neg_f32, -v)
EK_UNARY(ek_square_f32, v *v)
EK_UNARY(ek_reciprocal_f32, 1.0f / v)
EK_UNARY(ek_floor_f32, floorf(v))
EK_UNARY(ek_ceil_f32, ceilf(v))
EK_UNARY(ek_round_f32, rintf(v)) /* ties to even, the default rounding mode */
EK_UNARY(ek_sign_f32, (float)((v > 0.0f) - (v < 0.0f)))
EK_UNARY(ek_sin_f32, sinf(v))
EK_UNARY(ek_cos_f32, cosf(v))
EK_UNARY(ek_erf_f32, erff(v))
EK_UNARY(ek_softplus_f32, ek_softplus(v))
EK_UNARY(ek_softsign_f32, v / (1.0f + fabsf(v)))
EK_UNARY(ek_mish_f32, v *tanhf(ek_softplus(v)))

EK_UNARY_K(ek_clamp_f32, EK_CLAMP(v, k->a, k->b))
EK_UNARY_K(ek_leaky_relu_f32, v >= 0.0f ? v : v * k->a)
EK_UNARY_K(ek_elu_f32, v >= 0.0f ? v : k->a *expm1f(v))
EK_UNARY_K(ek_hard_sigmoid_f32, EK_CLAMP(k->a *v + k->b, 0.0f, 1.0f))
EK_UNARY_K(ek_selu_f32, k->b *(v > 0.0f ? v : k->a * expm1f(v)))
EK_UNARY(ek_gelu_f32, 0.5f * v * (1.0f + erff(v * 0.70710678f)))
EK_UNARY(ek_gelu_tanh_f32, 0.5f * v * (1.0f + tanhf(0.79788456f * (v + 0.044715f * v * v * v))))

/* Plain integers wrap as two's complement does. */
typedef struct {
    int64_t low, high;
} ek_bounds_t;

#define EK_CLAMP_INT(NAME, T)                                                              \
    EK_KERNEL void NAME(const T *x, T *y, int n, const ek_bounds_t *b) {                   \
        for (int i = 0; i < n; i++) y[i] = (T)EK_CLAMP((int64_t)x[i], b->low, b->high);    \
    }

EK_UNARY_T(ek_relu_s32, int32_t, EK_MAX(v, 0))
EK_UNARY_T(ek_relu6_s32, int32_t, EK_CLAMP(v, 0, 6))
EK_UNARY_T(ek_relu_n1_to_1_s32, int32_t, EK_CLAMP(v, -1, 1))
EK_UNARY_T(ek_abs_s32, int32_t, v < 0 ? (int32_t)(0 - (uint32_t)v) : v)
EK_UNARY_T(ek_neg_s32, int32_t, (int32_t)(0 - (uint32_t)v))
EK_UNARY_T(ek_square_s32, int32_t, (int32_t)((uint32_t)v * (uint32_t)v))
EK_UNARY_T(ek_sign_s32, int32_t, (v > 0) - (v < 0))
EK_CLAMP_INT(ek_clamp_s32, int32_t)
EK_UNARY_T(ek_relu_s64, int64_t, EK_MAX(v, 0))
EK_UNARY_T(ek_relu6_s64, int64_t, EK_CLAMP(v, 0, 6))
EK_UNARY_T(ek_relu_n1_to_1_s64, int64_t, EK_CLAMP(v, -1, 1))
EK_UNARY_T(ek_abs_s64, int64_t, v < 0 ? (int64_t)(0 - (uint64_t)v) : v)
EK_UNARY_T(ek_neg_s64, int64_t, (int64_t)(0 - (uint64_t)v))
EK_UNARY_T(ek_square_s64, int64_t, (int64_t)((uint64_t)v * (uint64_t)v))
EK_UNARY_T(ek_sign_s64, int64_t, (v > 0) - (v < 0))
EK_CLAMP_INT(ek_clamp_s64, int64_t)

#endif
