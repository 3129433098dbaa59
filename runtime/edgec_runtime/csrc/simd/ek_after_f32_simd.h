/* Functions of one number on what a layer has just computed, while it is in the first cache. */
#ifndef EK_AFTER_F32_SIMD_H
#define EK_AFTER_F32_SIMD_H
#include "ek_unary_f32_simd.h"

typedef void ek_after_f32_fn(const float *x, float *y, int n, const ek_coefficients_t *k, int part,
                             int parts);

/* In place, `cols` floats of each of `rows`, `yx` floats apart. */
EK_SHARED void ek_after_f32(ek_after_f32_fn *after, float *y, ptrdiff_t yx, int rows, int cols,
                            const ek_coefficients_t *k) {
    if (yx == cols) cols *= rows, rows = 1;
    EK_NO_UNROLL for (int r = 0; r < rows; r++, y += yx) after(y, y, cols, k, 0, 1);
}

#endif
