/* int32 sums to int8 as ek_requantize has it, bit for bit, on NEON. */
#ifndef EK_REQUANT_NEON_H
#define EK_REQUANT_NEON_H
#include "../ek_base.h"
#include <arm_neon.h>

/* The same pointer, of which the compiler knows nothing: loads beside it are not merged into pairs, which take
 * Cortex-A53 three times as long as two loads. */
#define EK_APART(p) ({ const void *p_ = (p); __asm__("" : "+r"(p_)); p_; })

/* Shifts to the right alone (shift < 0): sqrdmulh is the high product; ssra takes 1 from what is negative, so that
 * srshl's rounding, ties up, becomes ties away from zero. */
EK_KERNEL int32x4_t ek_multiply_right_neon(int32x4_t a, int32x4_t multiplier, int32x4_t shift) {
    a = vqrdmulhq_s32(a, multiplier);
    return vrshlq_s32(vsraq_n_s32(a, a, 31), shift);
}

/* Any shift. A shift of 0 or to the left does not round: nothing is taken from it (its sign bit is clear). */
EK_KERNEL int32x4_t ek_multiply_neon(int32x4_t a, int32x4_t multiplier, int32x4_t shift) {
    a = vqrdmulhq_s32(vshlq_s32(a, vmaxq_s32(shift, vdupq_n_s32(0))), multiplier);
    const int32x4_t right = vminq_s32(shift, vdupq_n_s32(0));
    return vrshlq_s32(vsraq_n_s32(a, vandq_s32(a, right), 31), right);
}

/* The zero point added, to int8. Saturation to 16 bits first changes nothing of the result. */
EK_KERNEL int8x8_t ek_narrow_neon(int32x4_t a, int32x4_t b, int16x8_t y_zero) {
    return vqmovn_s16(vqaddq_s16(vcombine_s16(vqmovn_s32(a), vqmovn_s32(b)), y_zero));
}

#endif
