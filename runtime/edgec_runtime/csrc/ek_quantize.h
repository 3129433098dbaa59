/* Between reals and integers, and between integers of different scales. */
#ifndef EK_QUANTIZE_H
#define EK_QUANTIZE_H
#include "ek_fixed_point.h"

/* real = scale * (q - zero) */
typedef struct {
    float scale;
    int32_t zero;
} ek_affine_t;

typedef struct {
    int32_t x_zero, y_zero, mul, shift;
} ek_rescale_t;

#define EK_QUANTIZE(NAME, ROUND, T, LOW, HIGH)                                          \
    EK_KERNEL void NAME(const float *x, T *y, int n, const ek_affine_t *q) {            \
        for (int i = 0; i < n; i++) {                                                   \
            float r = ROUND(x[i] / q->scale), v = (r == r ? r : 0.0f) + (float)q->zero; \
            y[i] = (T)EK_CLAMP(v, (float)(LOW), (float)(HIGH));                         \
        }                                                                               \
    }
/* Ties away from zero, as TFLite has it, and to even, as ONNX. What is not a number becomes the
 * zero point. */
EK_QUANTIZE(ek_quantize_f32_s8, roundf, int8_t, INT8_MIN, INT8_MAX)
EK_QUANTIZE(ek_quantize_f32_u8, roundf, uint8_t, 0, UINT8_MAX)
EK_QUANTIZE(ek_quantize_f32_s16, roundf, int16_t, INT16_MIN, INT16_MAX)
EK_QUANTIZE(ek_quantize_even_f32_s8, rintf, int8_t, INT8_MIN, INT8_MAX)
EK_QUANTIZE(ek_quantize_even_f32_u8, rintf, uint8_t, 0, UINT8_MAX)

#define EK_RESCALE(NAME, X, T, LOW, HIGH)                                                     \
    EK_KERNEL void NAME(const X *x, T *y, int n, const ek_rescale_t *q) {                     \
        for (int i = 0; i < n; i++) {                                                         \
            int32_t v = ek_multiply((int32_t)x[i] - q->x_zero, q->mul, q->shift) + q->y_zero; \
            y[i] = (T)EK_CLAMP(v, LOW, HIGH);                                                 \
        }                                                                                     \
    }
EK_RESCALE(ek_quantize_s8_s8, int8_t, int8_t, INT8_MIN, INT8_MAX)
EK_RESCALE(ek_quantize_u8_s8, uint8_t, int8_t, INT8_MIN, INT8_MAX)
EK_RESCALE(ek_quantize_s8_u8, int8_t, uint8_t, 0, UINT8_MAX)
EK_RESCALE(ek_quantize_u8_u8, uint8_t, uint8_t, 0, UINT8_MAX)

#define EK_DEQUANTIZE(NAME, T)                                                           \
    EK_KERNEL void NAME(const T *x, float *y, int n, const ek_affine_t *q) {             \
        for (int i = 0; i < n; i++) y[i] = (float)((double)q->scale * (x[i] - q->zero)); \
    }
EK_DEQUANTIZE(ek_dequantize_s8, int8_t)
EK_DEQUANTIZE(ek_dequantize_u8, uint8_t)
EK_DEQUANTIZE(ek_dequantize_s16, int16_t)

#endif
