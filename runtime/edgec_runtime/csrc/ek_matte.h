/* A small mask made into a matte of a frame's size whose edges are the frame's: the fast guided
 * filter (He and Sun, 2015) with the frame's luma as guide; and two pictures blended by it.  The
 * same as effects.py computes. */
#ifndef EK_MATTE_H
#define EK_MATTE_H
#include "ek_base.h"

/* Of each element the mean of those at most r away, within the picture.  sums: w floats. */
EK_SHARED void ek_matte_mean(const float *x, int w, int h, int r, float *sums, float *across,
                             float *out) {
    for (int y = 0; y < h; y++) {
        const float *row = x + (size_t)y * w;
        float sum = 0;
        for (int i = 0; i < EK_MIN(r, w); i++) sum += row[i];
        for (int i = 0; i < w; i++) {
            if (i + r < w) sum += row[i + r];
            if (i - r > 0) sum -= row[i - r - 1];
            across[(size_t)y * w + i] = sum / (float)(EK_MIN(i + r, w - 1) - EK_MAX(i - r, 0) + 1);
        }
    }
    memset(sums, 0, (size_t)w * sizeof(float));
    for (int y = -r; y < h; y++) {
        const int in = y + r, gone = y - r - 1;
        if (in < h)
            for (int i = 0; i < w; i++) sums[i] += across[(size_t)in * w + i];
        if (gone >= 0)
            for (int i = 0; i < w; i++) sums[i] -= across[(size_t)gone * w + i];
        if (y < 0) continue;
        const float each = 1 / (float)(EK_MIN(in, h - 1) - EK_MAX(y - r, 0) + 1);
        for (int i = 0; i < w; i++) out[(size_t)y * w + i] = sums[i] * each;
    }
}

/* mask = a * guide + b, as well as it can within r.  guide is in 0...1; all are w x h; scratch: 5
 * of that, and w. */
EK_SHARED void ek_matte_fit(const float *guide, const float *mask, int w, int h, int r, float eps,
                            float *a, float *b, float *scratch) {
    const size_t n = (size_t)w * h;
    float *mean = scratch, *level = mean + n, *square = level + n, *product = square + n,
          *across = product + n;
    float *sums = across + n;
    for (size_t i = 0; i < n; i++) square[i] = guide[i] * guide[i], product[i] = guide[i] * mask[i];
    ek_matte_mean(guide, w, h, r, sums, across, mean);
    ek_matte_mean(mask, w, h, r, sums, across, level);
    ek_matte_mean(square, w, h, r, sums, across, a);
    ek_matte_mean(product, w, h, r, sums, across, b);
    for (size_t i = 0; i < n; i++) {
        const float slope = (b[i] - mean[i] * level[i]) / (a[i] - mean[i] * mean[i] + eps);
        square[i] = slope, product[i] = level[i] - slope * mean[i];
    }
    ek_matte_mean(square, w, h, r, sums, across, a);
    ek_matte_mean(product, w, h, r, sums, across, b);
}

/* A row of w elements as one of n, between its elements. */
EK_KERNEL void ek_matte_wide(const float *row, int w, int n, float *out) {
    for (int i = 0; i < n; i++) {
        float at = ((float)i + 0.5f) * (float)w / (float)n - 0.5f;
        at = EK_CLAMP(at, 0, (float)(w - 1));
        const int low = (int)at, high = EK_MIN(low + 1, w - 1);
        out[i] = row[low] + (row[high] - row[low]) * (at - (float)low);
    }
}

/* alpha, 0...255, of a frame of n x m pixels, red first: its luma by a and b (w x h), between their
 * elements.  scratch: 4 rows of n. */
EK_SHARED void ek_matte_apply(const float *a, const float *b, int w, int h, const uint8_t *frame,
                              int64_t stride, int n, int m, float *scratch, uint8_t *alpha) {
    float *rows[4];
    int have[2] = {-1, -1};
    for (int k = 0; k < 4; k++) rows[k] = scratch + (size_t)n * k;
    for (int y = 0; y < m; y++) {
        float at = ((float)y + 0.5f) * (float)h / (float)m - 0.5f;
        at = EK_CLAMP(at, 0, (float)(h - 1));
        const int low = (int)at, need[2] = {low, EK_MIN(low + 1, h - 1)};
        for (int k = 0; k < 2; k++) /* neighbours are of different parity */
            if (have[need[k] & 1] != need[k]) {
                have[need[k] & 1] = need[k];
                ek_matte_wide(a + (size_t)need[k] * w, w, n, rows[need[k] & 1]);
                ek_matte_wide(b + (size_t)need[k] * w, w, n, rows[2 + (need[k] & 1)]);
            }
        const float t = at - (float)low;
        const float *restrict a0 = rows[need[0] & 1], *restrict a1 = rows[need[1] & 1];
        const float *restrict b0 = rows[2 + (need[0] & 1)], *restrict b1 = rows[2 + (need[1] & 1)];
        const uint8_t *restrict p = frame + y * stride;
        uint8_t *restrict out = alpha + (size_t)y * n;
        for (int x = 0; x < n; x++) {
            const int32_t luma = p[3 * x] * 77 + p[3 * x + 1] * 150 + p[3 * x + 2] * 29;
            const float slope = a0[x] + (a1[x] - a0[x]) * t, more = b0[x] + (b1[x] - b0[x]) * t;
            const float v = (slope * (float)luma * (1.0f / 65280) + more) * 255 + 0.5f;
            const int32_t level = (int32_t)EK_CLAMP(v, 0.0f, 255.0f);
            out[x] = (uint8_t)level;
        }
    }
}

/* n pixels of three bytes: front where alpha is 255, back where it is 0. */
EK_SHARED void ek_matte_blend(const uint8_t *restrict front, const uint8_t *restrict back,
                              const uint8_t *restrict alpha, int n, uint8_t *restrict out) {
    for (int i = 0; i < n; i++) {
        const int32_t a = alpha[i];
        for (int c = 0; c < 3; c++) {
            const int32_t v = front[3 * i + c] * a + back[3 * i + c] * (255 - a) + 128;
            out[3 * i + c] = (uint8_t)((v + (v >> 8)) >> 8);
        }
    }
}
#endif
