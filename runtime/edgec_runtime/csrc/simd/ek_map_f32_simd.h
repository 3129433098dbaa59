/* Loops of one expression over vectors. Elements of all types are computed as floats. */
#ifndef EK_MAP_F32_SIMD_H
#define EK_MAP_F32_SIMD_H
#include "ek_simd_math.h"
#include "ek_unary_simd.h"

/* y = EXPR of the vector v. Two vectors a turn hide the latency of long expressions. */
#define EK_MAP_F32(NAME, EXPR)                                                                 \
    EK_KERNEL ek_vf NAME##_of(ek_vf v, const ek_coefficients_t *k) {                           \
        (void)k;                                                                               \
        return EXPR;                                                                           \
    }                                                                                          \
    EK_SHARED void NAME(const float *x, float *y, int n, const ek_coefficients_t *k, int part, \
                        int parts) {                                                           \
        EK_MAP(EK_ELEMENT_F32, EK_ELEMENT_F32, 2 * EK_VL, const ek_vf u = ek_vf_load(x);       \
               const ek_vf v = ek_vf_load(x + EK_VL); ek_vf_store(y, NAME##_of(u, k));         \
               ek_vf_store(y + EK_VL, NAME##_of(v, k)))                                        \
    }

#endif
