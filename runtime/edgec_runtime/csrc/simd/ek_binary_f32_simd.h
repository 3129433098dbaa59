/* Elementwise ops of two broadcast inputs of floats (ek_binary.h) by vectors. */
#ifndef EK_BINARY_F32_SIMD_H
#define EK_BINARY_F32_SIMD_H
#include "ek_binary_simd.h"

/* Floats in rows: where both inputs are one row, the plain kernel is as fast. */
typedef struct {
    ek_broadcast_t nd;
    int repeat; /* rows of b that are one of nd */
    float low, high;
} ek_binary_f32_t;

#define EK_ROWS_F32(NAME, EXPR)                                \
    EK_ROWS(NAME, float, ek_vf, EK_VL, ek_vf, ek_binary_f32_t, \
            const ek_vf low = ek_vf_set(p->low);               \
            const ek_vf high = ek_vf_set(p->high), w = ek_vf_min(ek_vf_max(EXPR, low), high))

EK_ROWS_F32(ek_add_f32_simd, u + v)
EK_ROWS_F32(ek_sub_f32_simd, u - v)
EK_ROWS_F32(ek_mul_f32_simd, u *v)
EK_ROWS(ek_prelu_f32_simd, float, ek_vf, EK_VL, ek_vf, ek_binary_f32_t,
        const ek_vf zero = ek_vf_set(0), w = ek_vf_select(ek_vf_less(u, zero), u *v, u))

#endif
