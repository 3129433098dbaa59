/* Integer arithmetic of TFLite's reference kernels; edgec/ops/fixed_point.py is the same in numpy.
 * Source of the semantics: tensorflow/lite/kernels/internal/common.h and gemmlowp/fixedpoint. And
 * how onnxruntime brings sums to 8 bits: in float32, ties to even (ek_even). */
#ifndef EK_FIXED_POINT_H
#define EK_FIXED_POINT_H
#include "ek_base.h"

/* High 32 bits of 2ab, ties away from zero. */
EK_KERNEL int32_t ek_high_mul(int32_t a, int32_t b) {
    if (a == b && a == INT32_MIN) return INT32_MAX;
    int64_t ab = (int64_t)a * b;
    return (int32_t)((ab + (ab >= 0 ? (1 << 30) : 1 - (1 << 30))) / (1LL << 31));
}

/* x / 2^exponent, ties away from zero. */
EK_KERNEL int32_t ek_divide_by_pot(int32_t x, int exponent) {
    int32_t mask = (int32_t)((1LL << exponent) - 1), rest = x & mask;
    return (x >> exponent) + (rest > (mask >> 1) + (x < 0));
}

/* x * multiplier * 2^(shift - 31), rounded twice. */
EK_KERNEL int32_t ek_multiply(int32_t x, int32_t multiplier, int shift) {
    int32_t shifted = (int32_t)((uint32_t)x << (shift > 0 ? shift : 0));
    return ek_divide_by_pot(ek_high_mul(shifted, multiplier), shift > 0 ? 0 : -shift);
}

/* int32 sums to int8: one multiplier and shift for each output channel. */
typedef struct {
    int32_t x_zero, w_zero, y_zero, low, high;
    const int32_t *multiplier, *shift;
} ek_requant_t;

EK_KERNEL int8_t ek_requantize(int32_t acc, int channel, const ek_requant_t *q) {
    int32_t v = ek_multiply(acc, q->multiplier[channel], q->shift[channel]) + q->y_zero;
    return (int8_t)EK_CLAMP(v, q->low, q->high);
}

/* The same by onnxruntime's law: one float for each output channel. */
typedef struct {
    int32_t x_zero, w_zero, y_zero, low, high;
    const float *scale;
} ek_float_requant_t;

/* The nearest integer, ties to even, of what is clamped to low..high; these are small. Adding 1.5 *
 * 2^23 leaves the integer in the last bits. */
EK_KERNEL int32_t ek_round_even(float v, int32_t low, int32_t high) {
    const float r = EK_CLAMP(v, (float)low, (float)high) + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &r, sizeof bits);
    return bits - 0x4B400000;
}

EK_KERNEL int8_t ek_even(int32_t acc, float scale, int32_t y_zero, int32_t low, int32_t high) {
    return (int8_t)(ek_round_even((float)acc * scale, low - y_zero, high - y_zero) + y_zero);
}

#endif
