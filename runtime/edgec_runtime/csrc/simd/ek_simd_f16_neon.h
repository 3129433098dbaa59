/* The vectors of ek_simd_f16.h by Neon: 8 halves. */
#ifndef EK_SIMD_F16_NEON_H
#define EK_SIMD_F16_NEON_H

enum { EK_VL16 = 8, EK_MASKS16 = 0 };
typedef float16x8_t ek_vf16;
typedef int16x8_t ek_vi16;
typedef int ek_vmask16;

EK_KERNEL const float16_t *ek_f16_of(const ek_half *p) { return (const float16_t *)p; }
EK_KERNEL ek_vf16 ek_vf16_set(ek_half v) { return vdupq_n_f16((float16_t)v); }
EK_KERNEL ek_vf16 ek_vf16_load(const ek_half *p) { return vld1q_f16(ek_f16_of(p)); }
/* Each of EK_VL16 / 2 in two adjacent lanes. */
EK_KERNEL ek_vf16 ek_vf16_load_twice(const ek_half *p) {
    const float16x4_t half = vld1_f16(ek_f16_of(p));
    const float16x8_t both = vcombine_f16(half, half);
    return vzip1q_f16(both, both);
}
EK_KERNEL void ek_vf16_store(ek_half *p, ek_vf16 v) { vst1q_f16((float16_t *)p, v); }
EK_KERNEL ek_vmask16 ek_vmask16_of(int n) { return EK_CLAMP(n, 0, 8); }
EK_KERNEL ek_vf16 ek_vf16_load_some(const ek_half *p, ek_vmask16 some, ek_vf16 rest) {
    if (some & 8) return ek_vf16_load(p);
    ek_half all[EK_VL16];
    ek_vf16_store(all, rest);
    ek_copy_few(all, p, some * (int)sizeof(ek_half));
    return ek_vf16_load(all);
}
EK_KERNEL void ek_vf16_store_some(ek_half *p, ek_vf16 v, ek_vmask16 some) {
    if (some & 8) {
        ek_vf16_store(p, v);
        return;
    }
    if (some & 4) {
        vst1_f16((float16_t *)p, vget_low_f16(v));
        v = vextq_f16(v, v, 4), p += 4;
    }
    if (some & 2) {
        vst1q_lane_u32((uint32_t *)(void *)p, vreinterpretq_u32_f16(v), 0);
        v = vextq_f16(v, v, 2), p += 2;
    }
    if (some & 1) vst1q_lane_f16((float16_t *)p, v, 0);
}
EK_KERNEL ek_vf16 ek_vf16_fma(ek_vf16 a, ek_vf16 b, ek_vf16 c) { return vfmaq_f16(c, a, b); }
EK_KERNEL ek_vf16 ek_vf16_fnma(ek_vf16 a, ek_vf16 b, ek_vf16 c) { return vfmsq_f16(c, a, b); }
#define EK_STEP_OF_F16(at) ek_vf16_load(at)
#define EK_FOUR_OF_F16(at) vcombine_f16(vld1_f16(ek_f16_of(at)), vdup_n_f16(0))
#define EK_FMA_LANE_F16(c, b, a, at, j) vfmaq_laneq_f16(c, b, a, j)
EK_KERNEL ek_vf16 ek_vf16_rounded(ek_vf16 v) { return v; } /* what x86 rounds to a half */
EK_KERNEL ek_vf16 ek_vf16_max(ek_vf16 a, ek_vf16 b) { return vmaxq_f16(a, b); }
EK_KERNEL ek_vf16 ek_vf16_min(ek_vf16 a, ek_vf16 b) { return vminq_f16(a, b); }
EK_KERNEL ek_vf16 ek_vf16_abs(ek_vf16 a) { return vabsq_f16(a); }
EK_KERNEL ek_vi16 ek_vf16_less(ek_vf16 a, ek_vf16 b) { return (ek_vi16)vcltq_f16(a, b); }
EK_KERNEL ek_vf16 ek_vf16_select(ek_vi16 mask, ek_vf16 a, ek_vf16 b) {
    return vbslq_f16((uint16x8_t)mask, a, b);
}
/* The same with bounds of 0 and more: in the order of integers. */
EK_KERNEL ek_vf16 ek_vf16_at_least(ek_vf16 a, ek_vf16 low) {
    return vreinterpretq_f16_s16(vmaxq_s16(vreinterpretq_s16_f16(a), vreinterpretq_s16_f16(low)));
}
EK_KERNEL ek_vf16 ek_vf16_at_most(ek_vf16 a, ek_vf16 high) {
    return vreinterpretq_f16_s16(vminq_s16(vreinterpretq_s16_f16(a), vreinterpretq_s16_f16(high)));
}
EK_KERNEL ek_vf16 ek_vf16_copy(const ek_half *p) { return *(const volatile ek_vf16 *)p; }
/* a * b + the vector at c, which is loaded each time. The empty statement keeps such steps in the
 * order of the text: compilers would put those of one vector in a row, each waiting for the last.
 */
EK_KERNEL ek_vf16 ek_vf16_fma_at(ek_vf16 a, ek_vf16 b, const ek_half *c) {
    ek_vf16 sum = ek_vf16_fma(a, b, ek_vf16_copy(c));
    __asm__ volatile("" : "+w"(sum));
    return sum;
}
EK_KERNEL ek_vi16 ek_vi16_set(int v) { return vdupq_n_s16((int16_t)v); }
EK_KERNEL ek_vi16 ek_vi16_as(ek_vf16 v) { return (ek_vi16)v; }
EK_KERNEL ek_vf16 ek_vf16_as(ek_vi16 v) { return (ek_vf16)v; }
/* 2^(n - 15) from 1536 + n for n = 0…30, and 0 for n = 0: the exponent's bits. */
EK_KERNEL ek_vf16 ek_vf16_power(ek_vf16 n) { return (ek_vf16)((ek_vi16)n << 10); }
EK_KERNEL ek_vf16 ek_vf16_reciprocal(ek_vf16 a) { return ek_vf16_set(1) / a; }
EK_KERNEL float ek_vf16_sum(ek_vf16 a) { /* of floats */
    return vaddvq_f32(vcvt_f32_f16(vget_low_f16(a)) + vcvt_high_f32_f16(a));
}
EK_KERNEL ek_half ek_vf16_largest(ek_vf16 a) { return (ek_half)vmaxvq_f16(a); }
EK_KERNEL ek_vf16 ek_vf16_evens(ek_vf16 a, ek_vf16 b) { return vuzp1q_f16(a, b); }
/* Rows become columns, by pairs of halves, of pairs, and of fours. */
EK_KERNEL void ek_vf16_turn(ek_vf16 *v) {
    uint32x4_t p[EK_VL16];
    EK_UNROLL for (int i = 0; i < EK_VL16; i += 2) {
        p[i] = vreinterpretq_u32_f16(vtrn1q_f16(v[i], v[i + 1]));
        p[i + 1] = vreinterpretq_u32_f16(vtrn2q_f16(v[i], v[i + 1]));
    }
    uint64x2_t q[EK_VL16];
    EK_UNROLL for (int i = 0; i < EK_VL16; i += 4) {
        EK_UNROLL for (int j = i; j < i + 2; j++) {
            q[j] = vreinterpretq_u64_u32(vtrn1q_u32(p[j], p[j + 2]));
            q[j + 2] = vreinterpretq_u64_u32(vtrn2q_u32(p[j], p[j + 2]));
        }
    }
    EK_UNROLL for (int i = 0; i < 4; i++) {
        v[i] = vreinterpretq_f16_u64(vtrn1q_u64(q[i], q[i + 4]));
        v[i + 4] = vreinterpretq_f16_u64(vtrn2q_u64(q[i], q[i + 4]));
    }
}

EK_KERNEL ek_vf ek_vf_load_f16(const ek_half *p) { return vcvt_f32_f16(vld1_f16(ek_f16_of(p))); }
EK_KERNEL void ek_vf_store_f16(ek_half *p, ek_vf v) { vst1_f16((float16_t *)p, vcvt_f16_f32(v)); }

#endif
