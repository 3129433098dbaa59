/* int32 sums to int8 as ek_requantize has it, bit for bit, on NEON. */
#ifndef EK_REQUANT_NEON_H
#define EK_REQUANT_NEON_H
#include "../ek_base.h"
#include <arm_neon.h>

/* The same pointer, of which the compiler knows nothing: loads beside it are not merged into pairs,
 * which take Cortex-A53 three times as long as two loads. */
#define EK_APART(p)             \
    ({                          \
        const void *p_ = (p);   \
        __asm__("" : "+r"(p_)); \
        p_;                     \
    })

#ifdef __ARM_FEATURE_QRDMX
#define EK_UNZIP_NEON /* UZP2 has two pipes where SHRN has one; on older cores it takes three \
                         times as long as SHRN */
#endif

/* The upper halves. Compilers are kept from making UZP2, or a look-up of two narrowings, of what
 * they see through. */
EK_KERNEL int16x8_t ek_upper_neon(int32x4_t a, int32x4_t b) {
#ifdef EK_UNZIP_NEON
    return vuzp2q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
#else
    int16x4_t low = vshrn_n_s32(a, 16);
    __asm__("" : "+w"(low));
    int16x8_t r = vshrn_high_n_s32(low, b, 16);
    __asm__("" : "+w"(r));
    return r;
#endif
}

/* Eight sums to int8 in the upper halves of the result. Rounds twice, ties away from zero, adds
 * y_zero and saturates: of x = round(sum * multiplier / 2^31) it takes (x + 2^(s-1) - (x < 0) +
 * (y_zero << s)) >> s for 1 <= s <= 23. The table is multiplier, addend = 2^(s-1) + (y_zero << s)
 * and shift = 24 - s to the left, [8] each; the second halves of the three are at table4. saturate:
 * y_zero is -128, so that negative results saturate whatever their last bit; or EK_EVEN, to round
 * as ek_even: the table is scale (float) and y_zero. */
enum { EK_EVEN = 2 };
EK_KERNEL int16x8_t ek_half_neon(int32x4_t a, int32x4_t b, const int32_t *table,
                                 const int32_t *table4, const int saturate) {
    int32x4_t c = vld1q_s32(table + 8), d = vld1q_s32(table4 + 8);
    if (saturate == EK_EVEN) {
        const float32x4_t m = vreinterpretq_f32_s32(vld1q_s32(table)),
                          n = vreinterpretq_f32_s32(vld1q_s32(table4));
        c = vqaddq_s32(c, vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(a), m)));
        d = vqaddq_s32(d, vcvtnq_s32_f32(vmulq_f32(vcvtq_f32_s32(b), n)));
        c = vqshlq_n_s32(c, 24), d = vqshlq_n_s32(d, 24);
        return ek_upper_neon(c, d);
    }
#ifdef __ARM_FEATURE_QRDMX /* only a sum of -1 is negative where x is not, and the result is 0 \
                              there */
    if (!saturate) c = vsraq_n_s32(c, a, 31), d = vsraq_n_s32(d, b, 31);
    c = vqrdmlahq_s32(c, a, vld1q_s32(table)), d = vqrdmlahq_s32(d, b, vld1q_s32(table4));
#else
    a = vqrdmulhq_s32(a, vld1q_s32(table)), b = vqrdmulhq_s32(b, vld1q_s32(table4));
    if (!saturate) c = vsraq_n_s32(c, a, 31), d = vsraq_n_s32(d, b, 31);
    c = vqaddq_s32(c, a), d = vqaddq_s32(d, b);
#endif
    c = vqshlq_s32(c, vld1q_s32(table + 16)), d = vqshlq_s32(d, vld1q_s32(table4 + 16));
    return ek_upper_neon(c, d);
}

/* Two times eight of them to int8. */
EK_KERNEL int8x16_t ek_bytes_neon(int16x8_t a, int16x8_t b) {
#ifdef EK_UNZIP_NEON
    return vuzp2q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
#else
    int8x8_t low = vshrn_n_s16(a, 8);
    __asm__("" : "+w"(low));
    return vshrn_high_n_s16(low, b, 8);
#endif
}

/* Any shift. A shift of 0 or to the left does not round: nothing is taken from it (its sign bit is
 * clear). */
EK_KERNEL int32x4_t ek_multiply_neon(int32x4_t a, int32x4_t multiplier, int32x4_t shift) {
    a = vqrdmulhq_s32(vshlq_s32(a, vmaxq_s32(shift, vdupq_n_s32(0))), multiplier);
    const int32x4_t right = vminq_s32(shift, vdupq_n_s32(0));
    return vrshlq_s32(vsraq_n_s32(a, vandq_s32(a, right), 31), right);
}

/* The zero point added, to int8. Saturation to 16 bits first changes nothing of the result. */
EK_KERNEL int8x8_t ek_narrow_neon(int32x4_t a, int32x4_t b, int16x8_t y_zero) {
    return vqmovn_s16(vqaddq_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), y_zero));
}

/* What ek_even does to all of a tensor. */
typedef struct {
    float32x4_t low, high;
    int16x8_t zero;
} ek_even_end_neon_t;

EK_KERNEL ek_even_end_neon_t ek_even_end_neon(int y_zero, int low, int high) {
    return (ek_even_end_neon_t){vdupq_n_f32((float)(low - y_zero)),
                                vdupq_n_f32((float)(high - y_zero)), vdupq_n_s16((int16_t)y_zero)};
}

/* As ek_round_even, in the low halves. */
EK_KERNEL int16x8_t ek_even_neon(int32x4_t sum, const float *scale, const ek_even_end_neon_t *e) {
    const float32x4_t v = vmulq_f32(vcvtq_f32_s32(sum), vld1q_f32(scale));
    return vreinterpretq_s16_f32(
        vaddq_f32(vminq_f32(vmaxq_f32(v, e->low), e->high), vdupq_n_f32(12582912.0f)));
}

/* Eight sums, or fewer of them, to results as ek_even. */
EK_KERNEL void ek_eight_even_neon(int32x4_t a, int32x4_t b, const float *scale, int8_t *y,
                                  int channels, const ek_even_end_neon_t *e) {
    const int16x8_t v = vuzp1q_s16(ek_even_neon(a, scale, e), ek_even_neon(b, scale + 4, e));
    const int8x8_t result = vmovn_s16(vaddq_s16(v, e->zero));
    if (channels >= 8) {
        vst1_s8(y, result);
    } else {
        int8_t some[8];
        vst1_s8(some, result);
        memcpy(y, some, (size_t)EK_MAX(channels, 0));
    }
}

#endif
