/* Gates of one float: sigma(x), and functions that multiply x by a gate from 0 to 1. For float16
 * csrc has ek_gates_f16_simd.h. */
#ifndef EK_GATES_F32_SIMD_H
#define EK_GATES_F32_SIMD_H
#include "ek_map_f32_simd.h"

EK_MAP_F32(ek_logistic_f32_simd, ek_vf_logistic(v))
EK_MAP_F32(ek_silu_f32_simd, v *ek_vf_logistic(v))
EK_MAP_F32(ek_hard_swish_f32_simd, v *(EK_BETWEEN(v + 3.0f, 0, 6) * (1.0f / 6)))
EK_SHARED void ek_gelu_f32_simd(const float *x, float *y, int n, const ek_coefficients_t *k,
                                int part, int parts) {
    ek_gelu_terms_t terms;
    (void)k;
    ek_gelu_terms(&terms);
    EK_MAP(EK_ELEMENT_F32, EK_ELEMENT_F32, EK_GELU_VECTORS * EK_VL, ek_vf v[EK_GELU_VECTORS];
           EK_EACH_GELU(i) v[i] = ek_vf_load(x + i * EK_VL); ek_vf_gelu(v, &terms);
           EK_EACH_GELU(i) ek_vf_store(y + i * EK_VL, v[i]))
}

EK_MAP_F32(ek_gelu_tanh_f32_simd,
           ek_vf_fma(v * 0.5f,
                     ek_vf_tanh(ek_vf_fma(v *v *v, ek_vf_set(0.035677408f), v * 0.79788456f)),
                     v * 0.5f))
#endif
