/* Elementwise functions of one float (ek_unary.h) by vectors. Elements of all types are
 * computed as floats. */
#ifndef EK_UNARY_F32_SIMD_H
#define EK_UNARY_F32_SIMD_H
#include "ek_gates_f32_simd.h"
#include "ek_map_f32_simd.h"

EK_MAP_F32(ek_tanh_f32_simd, ek_vf_tanh(v))
EK_MAP_F32(ek_exp_f32_simd, ek_vf_exp(v))
EK_MAP_F32(ek_erf_f32_simd, ek_vf_erf(v))
EK_MAP_F32(ek_softplus_f32_simd, ek_vf_softplus(v))
EK_MAP_F32(ek_elu_f32_simd, ek_vf_fma(ek_vf_expm1(ek_vf_min(v, EK_ZERO) * k->b), ek_vf_set(k->a),
                                      ek_vf_max(v, EK_ZERO)))
EK_MAP_F32(ek_selu_f32_simd, ek_vf_fma(ek_vf_expm1(ek_vf_min(v, EK_ZERO)), ek_vf_set(k->a * k->b),
                                       ek_vf_max(v, EK_ZERO) * k->b))

EK_MAP_F32(ek_mish_f32_simd, ek_vf_mish(v))

#endif
