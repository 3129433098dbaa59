/* A part of an image by landmarks: its place, the part, and landmarks of it back in the image. */
#ifndef EK_LANDMARKS_H
#define EK_LANDMARKS_H
#include "ek_base.h"

typedef struct {
    int landmarks, subset, left,
        right;         /* landmarks [landmarks,3]; the part holds `subset` of them */
    int height, width; /* of the part, in pixels */
    float scale_x, scale_y, cosine, sine; /* of the angle that left to right shall have */
} ek_landmarks_to_transform_t;

/* The matrix [4,4] from pixels of the part to the landmarks' coordinates. */
EK_KERNEL void ek_landmarks_to_transform_f32(const float *x, const int32_t *subset, float *y,
                                             const ek_landmarks_to_transform_t *p) {
    const float dx = x[3 * p->right] - x[3 * p->left],
                dy = x[3 * p->right + 1] - x[3 * p->left + 1];
    const float length = hypotf(dx, dy), u = length > 0 ? dx / length : 1,
                v = length > 0 ? dy / length : 0;
    const float c = p->cosine * u + p->sine * v, s = p->sine * u - p->cosine * v;
    float low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
    for (int i = 0; i < p->subset; i++) {
        const float *at = x + 3 * (ptrdiff_t)EK_CLAMP(subset[i], 0, p->landmarks - 1);
        const float turned[2] = {at[0] * c - at[1] * s, at[0] * s + at[1] * c};
        for (int k = 0; k < 2; k++)
            low[k] = EK_MINIMUM(low[k], turned[k]), high[k] = EK_MAXIMUM(high[k], turned[k]);
    }
    const float w = (float)p->width, h = (float)p->height, mx = (low[0] + high[0]) / 2,
                my = (low[1] + high[1]) / 2;
    const float sx = p->scale_x * (high[0] - low[0]) / w, sy = p->scale_y * (high[1] - low[1]) / h;
    for (int i = 0; i < 16; i++) y[i] = i % 5 == 0;
    y[0] = c * sx, y[1] = s * sy, y[3] = c * mx + s * my - (y[0] * (w / 2) + y[1] * (h / 2));
    y[4] = -s * sx, y[5] = c * sy, y[7] = c * my - s * mx - (y[4] * (w / 2) + y[5] * (h / 2));
}

typedef struct {
    int ih, iw, c, oh, ow;
} ek_transform_tensor_t;

/* NHWC, bilinear, 0 where a place is outside of the image. */
EK_KERNEL void ek_transform_tensor_f32(const float *x, const float *m, float *y,
                                       const ek_transform_tensor_t *p) {
    const int c = p->c, row = p->iw * c;
    for (int i = 0; i < p->oh; i++)
        for (int j = 0; j < p->ow; j++, y += c) {
            const float v = (float)i + 0.5f, u = (float)j + 0.5f;
            const float at_x = m[0] * u + m[1] * v + m[3] - 0.5f,
                        at_y = m[4] * u + m[5] * v + m[7] - 0.5f;
            if (!(at_x >= 0 && at_x <= (float)(p->iw - 1) && at_y >= 0 &&
                  at_y <= (float)(p->ih - 1))) {
                memset(y, 0, (size_t)c * sizeof(float)); /* not-a-number too */
                continue;
            }
            const int left = (int)at_x, top = (int)at_y;
            const float fx = at_x - (float)left, fy = at_y - (float)top;
            const float *a = x + (ptrdiff_t)top * row + (ptrdiff_t)left * c;
            const ptrdiff_t right = left + 1 < p->iw ? c : 0, below = top + 1 < p->ih ? row : 0;
            for (int k = 0; k < c; k++) {
                const float upper = (1 - fx) * a[k] + fx * a[k + right];
                const float lower = (1 - fx) * a[k + below] + fx * a[k + below + right];
                y[k] = (1 - fy) * upper + fy * lower;
            }
        }
}

/* [n,d], d of 2 or 3: z stays. */
EK_KERNEL void ek_transform_landmarks_f32(const float *x, const float *m, float *y, int n, int d) {
    for (int i = 0; i < n; i++, x += d, y += d) {
        const float u = x[0], v = x[1];
        y[0] = m[0] * u + m[1] * v + m[3];
        y[1] = m[4] * u + m[5] * v + m[7];
        if (d > 2) y[2] = x[2];
    }
}

#endif
