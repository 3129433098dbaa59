/* Joining tensors: each input is `rows` blocks that lie one pitch apart in the output. */
#ifndef EK_CONCAT_H
#define EK_CONCAT_H
#include "ek_base.h"

/* Row and pitch in bytes. */
EK_KERNEL void ek_concat(const void *x, void *y, size_t rows, size_t row, size_t pitch) {
    for (size_t i = 0; i < rows; i++) memcpy((char *)y + i * pitch, (const char *)x + i * row, row);
}

/* The same, of which threads share the rows. */
EK_KERNEL void ek_concat_part(const void *x, void *y, int rows, size_t row, size_t pitch, int part,
                              int parts) {
    const ek_share_t some = ek_share(rows, 1, part, parts);
    const char *from = (const char *)x + some.from * row;
    ek_concat(from, (char *)y + some.from * pitch, (size_t)(some.to - some.from), row, pitch);
}

/* From the scale of one input to the output's, on uint8 integers, in float as TFLite's uint8 kernel
 * does. */
typedef struct {
    float scale, bias;
    int32_t zero;
} ek_concat_rescale_t;

EK_KERNEL void ek_concat_rescale(const int8_t *x, int8_t *y, int rows, int row, int pitch,
                                 const ek_concat_rescale_t *q) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < row; j++) {
            float real = roundf((float)(x[i * row + j] + 128) * q->scale + q->bias);
            int32_t v = (int32_t)EK_CLAMP(real, -512.0f, 512.0f) + q->zero;
            y[i * pitch + j] = (int8_t)(EK_CLAMP(v, 0, 255) - 128);
        }
}

#endif
