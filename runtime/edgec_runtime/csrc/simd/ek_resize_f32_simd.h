/* Bilinear resizing of floats (ek_resize.h) by vectors. */
#ifndef EK_RESIZE_F32_SIMD_H
#define EK_RESIZE_F32_SIMD_H
#include "ek_resize_simd.h"

enum { EK_ROWS_OF_ek_resize_bilinear_f32_simd = 1 };

/* Two vectors at once where they are short, so that one's latency is the other's turn. */
enum { EK_TURNS_F32 = EK_VL < 16 ? 2 : 1, EK_WIDE_F32 = EK_TURNS_F32 * EK_VL };

#define EK_TURN_F32 for (int h = 0, e = k; h < EK_TURNS_F32; h++, e += EK_VL)

EK_RESIZE_SIMD(ek_resize_bilinear_f32_simd, ek_resize_bilinear_real_t, float, float, EK_WIDE_F32,
               ek_vf v[EK_TURNS_F32], const ek_vf fy = ek_vf_set(p->fy[i]);
               const ek_vf gy = ek_vf_set(1 - p->fy[i]),
               EK_TURN_F32 v[h] = ek_vf_fma(ek_vf_load(bottom + h * EK_VL), fy,
                                            ek_vf_load(top + h * EK_VL) * gy);
               EK_TURN_F32 ek_vf_store(strip[0] + e, v[h]), const ek_vf fx = ek_vf_set(p->fx[j]);
               const ek_vf gx = ek_vf_set(1 - p->fx[j]),
               EK_TURN_F32 v[h] = ek_vf_fma(ek_vf_load(right + e), fx, ek_vf_load(left + e) * gx);
               EK_TURN_F32 ek_vf_store(put + h * EK_VL, v[h]))

#endif
