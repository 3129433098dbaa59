/* Boxes of an NHWC image brought to one size by bilinear samples. */
#ifndef EK_ROI_ALIGN_H
#define EK_ROI_ALIGN_H
#include "ek_base.h"

typedef struct {
    int n, ih, iw, c, boxes, oh, ow;
    int ratio, largest; /* samples of a bin along each axis, 0: as many as it has pixels */
    float half, scale;
} ek_roi_align_t;

/* A bin of one channel: samples that start at y0, x0 and lie dy, dx apart. */
EK_KERNEL float ek_roi_bin(const float *x, float y0, float x0, float dy, float dx, int ny, int nx,
                           const ek_roi_align_t *p) {
    float sum = 0, most = -INFINITY;
    for (int i = 0; i < ny; i++)
        for (int j = 0; j < nx; j++) {
            float v = y0 + ((float)i + 0.5f) * dy / (float)ny,
                  u = x0 + ((float)j + 0.5f) * dx / (float)nx;
            if (!(v >= -1 && v <= (float)p->ih && u >= -1 && u <= (float)p->iw)) {
                most = EK_MAX(most, 0.0f);
                continue;
            }
            v = EK_MAX(v, 0.0f), u = EK_MAX(u, 0.0f);
            const int t = EK_MIN((int)v, p->ih - 1), l = EK_MIN((int)u, p->iw - 1);
            const int b = EK_MIN(t + 1, p->ih - 1), r = EK_MIN(l + 1, p->iw - 1);
            const float fy = t >= p->ih - 1 ? 0 : v - (float)t,
                        fx = l >= p->iw - 1 ? 0 : u - (float)l;
            const ptrdiff_t row = (ptrdiff_t)p->iw * p->c;
            const float tl = (1 - fy) * (1 - fx) * x[t * row + (ptrdiff_t)l * p->c];
            const float tr = (1 - fy) * fx * x[t * row + (ptrdiff_t)r * p->c];
            const float bl = fy * (1 - fx) * x[b * row + (ptrdiff_t)l * p->c];
            const float br = fy * fx * x[b * row + (ptrdiff_t)r * p->c];
            sum += tl + tr + bl + br;
            const float top = EK_MAXIMUM(tl, tr), bottom = EK_MAXIMUM(bl, br);
            const float best = EK_MAXIMUM(top, bottom);
            most = EK_MAXIMUM(most, best);
        }
    if (ny * nx == 0) return 0;
    return p->largest ? most : sum / (float)(ny * nx);
}

EK_KERNEL int ek_roi_samples(float step, int ratio) {
    const float whole = ceilf(step);
    return ratio > 0 ? ratio : whole > 4096 ? 4096 : whole > 0 ? (int)whole : 0;
}

EK_KERNEL void ek_roi_align_f32(const float *x, const float *boxes, const int64_t *index, float *y,
                                const ek_roi_align_t *p) {
    for (int r = 0; r < p->boxes; r++, boxes += 4) {
        const int64_t own = EK_CLAMP(index[r], 0, (int64_t)p->n - 1);
        const float *image = x + (ptrdiff_t)own * p->ih * p->iw * p->c;
        const float x0 = boxes[0] * p->scale - p->half, y0 = boxes[1] * p->scale - p->half;
        float w = boxes[2] * p->scale - p->half - x0, h = boxes[3] * p->scale - p->half - y0;
        if (p->half == 0) w = EK_MAX(w, 1.0f), h = EK_MAX(h, 1.0f);
        const float dy = h / (float)p->oh, dx = w / (float)p->ow;
        const int ny = ek_roi_samples(dy, p->ratio), nx = ek_roi_samples(dx, p->ratio);
        for (int i = 0; i < p->oh; i++)
            for (int j = 0; j < p->ow; j++)
                for (int c = 0; c < p->c; c++)
                    *y++ = ek_roi_bin(image + c, y0 + dy * (float)i, x0 + dx * (float)j, dy, dx, ny,
                                      nx, p);
    }
}

#endif
