/* The vectors of ek_simd.h by Neon (64-bit Arm): 4 floats. */
#ifndef EK_SIMD_NEON_H
#define EK_SIMD_NEON_H
#include <arm_neon.h>

enum { EK_VL = 4 };
typedef float32x4_t ek_vf;
typedef int32x4_t ek_vi;
typedef int32x4_t ek_vshift;

EK_KERNEL ek_vf ek_vf_set(float v) { return vdupq_n_f32(v); }
EK_KERNEL ek_vf ek_vf_load(const float *p) { return vld1q_f32(p); }
/* Each of EK_VL / 2 in two adjacent lanes. */
EK_KERNEL ek_vf ek_vf_load_twice(const float *p) {
    const float32x2_t half = vld1_f32(p);
    const float32x2x2_t twice = vzip_f32(half, half);
    return vcombine_f32(twice.val[0], twice.val[1]);
}
EK_KERNEL void ek_vf_store(float *p, ek_vf v) { vst1q_f32(p, v); }
/* The first n of a vector. */
enum { EK_MASKS = 0 };
typedef int ek_vmask;
EK_KERNEL ek_vmask ek_vmask_of(int n) { return EK_CLAMP(n, 0, 4); }
EK_KERNEL ek_vf ek_vf_load_some(const float *p, ek_vmask some, ek_vf rest) {
    if (some & 4) return ek_vf_load(p);
    if (some & 2) {
        const ek_vf two = vcombine_f32(vld1_f32(p), vget_high_f32(rest));
        return some & 1 ? vld1q_lane_f32(p + 2, two, 2) : two;
    }
    return some & 1 ? vld1q_lane_f32(p, rest, 0) : rest;
}
EK_KERNEL void ek_vf_store_some(float *p, ek_vf v, ek_vmask some) {
    if (some & 4) {
        ek_vf_store(p, v);
    } else if (some & 2) {
        vst1_f32(p, vget_low_f32(v));
        if (some & 1) vst1q_lane_f32(p + 2, v, 2);
    } else if (some & 1) {
        vst1q_lane_f32(p, v, 0);
    }
}
EK_KERNEL ek_vf ek_vf_fma(ek_vf a, ek_vf b, ek_vf c) { return vfmaq_f32(c, a, b); }  /* a * b + c */
EK_KERNEL ek_vf ek_vf_fnma(ek_vf a, ek_vf b, ek_vf c) { return vfmsq_f32(c, a, b); } /* c - a * b */
/* Elements of `at` that are loaded once, as vector a; and c + b * a[j]. */
enum { EK_STEP_F32 = 4, EK_TERMS_F32 = 0 };
#define EK_LANES_F32(M, K) M(K, 0) M(K, 1) M(K, 2) M(K, 3)
#define EK_STEP_OF_F32(at) ek_vf_load(at)
#define EK_FOUR_OF_F32(at) ek_vf_load(at)
#define EK_FMA_LANE_F32(c, b, a, at, j) vfmaq_laneq_f32(c, b, a, j)
EK_KERNEL ek_vf ek_vf_max(ek_vf a, ek_vf b) { return vmaxq_f32(a, b); }
EK_KERNEL ek_vf ek_vf_min(ek_vf a, ek_vf b) { return vminq_f32(a, b); }
/* The same with bounds of 0 and more: in the order of integers, of which the A72 compares twice as
 * many a cycle. There NaN lies beyond the numbers of its sign. */
EK_KERNEL ek_vf ek_vf_at_least(ek_vf a, ek_vf low) {
    return vreinterpretq_f32_s32(vmaxq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(low)));
}
EK_KERNEL ek_vf ek_vf_at_most(ek_vf a, ek_vf high) {
    return vreinterpretq_f32_s32(vminq_s32(vreinterpretq_s32_f32(a), vreinterpretq_s32_f32(high)));
}
/* From memory each time: a copy of a register would take a turn of the multipliers, a load does
 * not. */
EK_KERNEL ek_vf ek_vf_copy(const float *p) { return *(const volatile ek_vf *)p; }
EK_KERNEL ek_vf ek_vf_sqrt(ek_vf a) { return vsqrtq_f32(a); }
EK_KERNEL ek_vf ek_vf_abs(ek_vf a) { return vabsq_f32(a); }
EK_KERNEL ek_vi ek_vf_less(ek_vf a, ek_vf b) { return vreinterpretq_s32_u32(vcltq_f32(a, b)); }
EK_KERNEL ek_vf ek_vf_select(ek_vi mask, ek_vf a, ek_vf b) {
    return vbslq_f32(vreinterpretq_u32_s32(mask), a, b);
}
EK_KERNEL ek_vi ek_vf_round(ek_vf a) {
    return vcvtaq_s32_f32(a);
} /* ties away from zero; saturates; NaN: 0 */
EK_KERNEL ek_vf ek_vf_of(ek_vi a) { return vcvtq_f32_s32(a); }
/* 1 / a within 2 units of the last place; of an infinity 0. */
EK_KERNEL ek_vf ek_vf_reciprocal(ek_vf a) {
    ek_vf r = vrecpeq_f32(a);
    r = r * vrecpsq_f32(a, r);
    return r * vrecpsq_f32(a, r);
}
EK_KERNEL ek_vf ek_vf_sign_of(ek_vf a, ek_vf sign) {
    return vbslq_f32(vdupq_n_u32(0x80000000), sign, a);
}
/* Every second element of both, from the first on. */
EK_KERNEL ek_vf ek_vf_evens(ek_vf a, ek_vf b) { return vuzp1q_f32(a, b); }
/* Rows become columns. */
EK_KERNEL void ek_vf_turn(ek_vf *v) {
    const float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(v[0], v[1])),
                      b = vreinterpretq_f64_f32(vtrn2q_f32(v[0], v[1]));
    const float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(v[2], v[3])),
                      d = vreinterpretq_f64_f32(vtrn2q_f32(v[2], v[3]));
    v[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c)), v[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    v[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c)), v[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}
EK_KERNEL float ek_vf_sum(ek_vf a) { return vaddvq_f32(a); }
EK_KERNEL float ek_vf_largest(ek_vf a) { return vmaxvq_f32(a); }

EK_KERNEL ek_vi ek_vi_set(int32_t v) { return vdupq_n_s32(v); }
EK_KERNEL ek_vi ek_vi_load(const int32_t *p) { return vld1q_s32(p); }
EK_KERNEL void ek_vi_store(int32_t *p, ek_vi v) { vst1q_s32(p, v); }
EK_KERNEL ek_vi ek_vi_max(ek_vi a, ek_vi b) { return vmaxq_s32(a, b); }
EK_KERNEL ek_vi ek_vi_min(ek_vi a, ek_vi b) { return vminq_s32(a, b); }
EK_KERNEL ek_vi ek_vi_high_mul(ek_vi a, ek_vi b) { return vqrdmulhq_s32(a, b); }
EK_KERNEL ek_vshift ek_vshift_left(int n) { return vdupq_n_s32(n); }
EK_KERNEL ek_vshift ek_vshift_right(int n) { return vdupq_n_s32(-n); }
EK_KERNEL ek_vi ek_vi_shift(ek_vi a, ek_vshift left) { return vshlq_s32(a, left); }
EK_KERNEL ek_vi ek_vi_round_shift(ek_vi a, ek_vshift right) {
    return vrshlq_s32(a, right);
} /* ties upwards */

typedef int8x16_t ek_vb;
EK_KERNEL ek_vb ek_vb_set(int v) { return vdupq_n_s8((int8_t)v); }
EK_KERNEL ek_vb ek_vb_load(const void *p) { return vld1q_s8(p); }
EK_KERNEL void ek_vb_store(void *p, ek_vb v) { vst1q_s8(p, v); }
EK_KERNEL ek_vb ek_vb_max(ek_vb a, ek_vb b) { return vmaxq_s8(a, b); }
EK_KERNEL ek_vb ek_vb_min(ek_vb a, ek_vb b) { return vminq_s8(a, b); }
EK_KERNEL ek_vb ek_vb_add(ek_vb a, ek_vb b) { return vqaddq_s8(a, b); } /* saturates */

EK_KERNEL void ek_vb_widen(ek_vb b, ek_vi *v) { /* four vectors in order */
    const int16x8_t low = vmovl_s8(vget_low_s8(b)), high = vmovl_high_s8(b);
    v[0] = vmovl_s16(vget_low_s16(low)), v[1] = vmovl_high_s16(low);
    v[2] = vmovl_s16(vget_low_s16(high)), v[3] = vmovl_high_s16(high);
}
EK_KERNEL ek_vb ek_vb_narrow(const ek_vi *v) { /* saturates */
    const int16x8_t low = vqmovn_high_s32(vqmovn_s32(v[0]), v[1]),
                    high = vqmovn_high_s32(vqmovn_s32(v[2]), v[3]);
    return vqmovn_high_s16(vqmovn_s16(low), high);
}

/* 8 int16 */
typedef int16x8_t ek_vh;
EK_KERNEL ek_vh ek_vh_set(int v) { return vdupq_n_s16((int16_t)v); }
EK_KERNEL ek_vh ek_vh_load(const int16_t *p) { return vld1q_s16(p); }
EK_KERNEL void ek_vh_store(int16_t *p, ek_vh v) { vst1q_s16(p, v); }
EK_KERNEL ek_vh ek_vh_load_s8(const int8_t *p) { return vmovl_s8(vld1_s8(p)); }
EK_KERNEL void ek_vh_store_s8(int8_t *p, ek_vh v) { vst1_s8(p, vqmovn_s16(v)); } /* saturates */
EK_KERNEL ek_vh ek_vh_round(ek_vh a, ek_vh shift) {
    return vrshlq_s16(a, shift);
} /* ties upwards */
EK_KERNEL ek_vh ek_vh_shift_right(int n) { return vdupq_n_s16((int16_t)-n); }
EK_KERNEL ek_vi ek_vi_load_s8(const int8_t *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)))));
}
EK_KERNEL void ek_vi_store_s8(int8_t *p, ek_vi v) { /* saturates */
    const int16x4_t h = vqmovn_s32(v);
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(h, h))), 0);
    memcpy(p, &four, 4);
}
EK_KERNEL ek_vi ek_vf_truncated(ek_vf a) { return vcvtq_s32_f32(a); }

/* 16 bytes, on every CPU */
typedef int8x16_t ek_b16;
EK_KERNEL ek_b16 ek_b16_load(const void *p) { return vld1q_s8(p); }
EK_KERNEL ek_b16 ek_b16_set(int v) { return vdupq_n_s8((int8_t)v); }
EK_KERNEL ek_b16 ek_b16_xor(ek_b16 a, ek_b16 b) { return a ^ b; }
EK_KERNEL ek_b16 ek_b16_add(ek_b16 a, ek_b16 b) { return a + b; }
EK_KERNEL ek_b16 ek_b16_max(ek_b16 a, ek_b16 b) { return vmaxq_s8(a, b); }
EK_KERNEL ek_b16 ek_b16_largest(ek_b16 a) { return vdupq_n_s8(vmaxvq_s8(a)); } /* in every byte */
EK_KERNEL ek_b16 ek_b16_min_u8(ek_b16 a, ek_b16 b) {
    return vreinterpretq_s8_u8(vminq_u8(vreinterpretq_u8_s8(a), vreinterpretq_u8_s8(b)));
}
EK_KERNEL int ek_b16_least_u8(ek_b16 a) { return vminvq_u8(vreinterpretq_u8_s8(a)); }
EK_KERNEL ek_b16 ek_b16_where_equal(ek_b16 a, ek_b16 b, ek_b16 then) { /* elsewhere all ones */
    return vornq_s8(then, vreinterpretq_s8_u8(vceqq_s8(a, b)));
}

/* 256 bytes to look up: four quarters of the table. */
typedef struct {
    int8x16x4_t quarter[4];
} ek_table_t;

EK_KERNEL void ek_table_load(ek_table_t *t, const int8_t *p) {
    for (int q = 0; q < 4; q++)
        for (int i = 0; i < 4; i++) t->quarter[q].val[i] = vld1q_s8(p + 64 * q + 16 * i);
}
EK_KERNEL ek_vb ek_table_at(const ek_table_t *t, ek_vb x) { /* table[x + 128] */
    const uint8x16_t i = vreinterpretq_u8_s8(x ^ vdupq_n_s8(-128)), next = vdupq_n_u8(64);
    ek_vb y = vqtbl4q_s8(t->quarter[0], i);
    y = vqtbx4q_s8(y, t->quarter[1], i - next);
    y = vqtbx4q_s8(y, t->quarter[2], i - next - next);
    return vqtbx4q_s8(y, t->quarter[3], i - next - next - next);
}

/* a * ka + b * kb + bias, downwards to a whole number, saturated. In units of 2^-27; the low 15
 * bits of ka and kb and the low 11 of the bias are apart. */
typedef struct {
    int16x4_t k; /* high parts of ka and kb, low parts */
    int32x4_t bias, rest;
} ek_vsum_t;

EK_KERNEL ek_vsum_t ek_vsum(const ek_scaled_sum_t *p) {
    const int16_t k[4] = {p->a_high, p->b_high, p->a_low, p->b_low};
    return (ek_vsum_t){vld1_s16(k), vdupq_n_s32(p->bias), vdupq_n_s32(p->rest * 16)};
}
EK_KERNEL ek_vb ek_vb_sum(ek_vb a, ek_vb b, const ek_vsum_t *q) {
    int16x8_t half[2];
    for (int h = 0; h < 2; h++) { /* times 16, so that the result is the upper half of the sum */
        const int16x8_t u = h ? vshll_high_n_s8(a, 4) : vshll_n_s8(vget_low_s8(a), 4);
        const int16x8_t v = h ? vshll_high_n_s8(b, 4) : vshll_n_s8(vget_low_s8(b), 4);
        int32x4_t low = vmlal_lane_s16(q->rest, vget_low_s16(u), q->k, 2),
                  high = vmlal_high_lane_s16(q->rest, u, q->k, 2);
        int32x4_t s = vmlal_lane_s16(q->bias, vget_low_s16(u), q->k, 0),
                  t = vmlal_high_lane_s16(q->bias, u, q->k, 0);
        low = vmlal_lane_s16(low, vget_low_s16(v), q->k, 3),
        high = vmlal_high_lane_s16(high, v, q->k, 3);
        s = vmlal_lane_s16(s, vget_low_s16(v), q->k, 1), t = vmlal_high_lane_s16(t, v, q->k, 1);
        s = vsraq_n_s32(s, low, 15), t = vsraq_n_s32(t, high, 15);
        half[h] = vuzp2q_s16(vreinterpretq_s16_s32(s), vreinterpretq_s16_s32(t));
    }
    return vqmovn_high_s16(vqmovn_s16(half[0]), half[1]);
}

#endif
