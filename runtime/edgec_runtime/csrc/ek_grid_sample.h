/* An NHWC image sampled at computed places. */
#ifndef EK_GRID_SAMPLE_H
#define EK_GRID_SAMPLE_H
#include "ek_base.h"

enum { EK_GRID_ZEROS, EK_GRID_BORDER, EK_GRID_REFLECTION };

typedef struct {
    int n, ih, iw, c, pixels; /* image, and places of each image */
    int taps;                 /* 1: nearest, 2: bilinear, 4: bicubic */
    int padding;              /* one of EK_GRID_* */
    int align;
} ek_grid_sample_t;

/* Folded back at the centres or the outer edges of the border pixels, as often as needed. */
EK_KERNEL float ek_grid_reflect(float v, int size, int align) {
    const float low = align ? 0 : -0.5f, high = align ? (float)(size - 1) : (float)size - 0.5f,
                span = high - low;
    if (!(span > 0)) return 0;
    if (v >= low && v <= high) return v;
    const float beyond = v < low ? low - v : v - high, turns = truncf(beyond / span),
                rest = beyond - turns * span;
    const int up = (v < low) == (fmodf(turns, 2) == 0);
    return up ? low + rest : high - rest;
}

/* Indices and weights of the taps along one axis, `v` being in -1..1. */
EK_KERNEL void ek_grid_axis(float v, int size, const ek_grid_sample_t *p, int *index,
                            float *weight) {
    const float n = (float)size;
    float place = p->align ? (v + 1) * 0.5f * (n - 1) : ((v + 1) * n - 1) * 0.5f;
    if (p->taps == 1) place = rintf(place); /* half to even */
    if (p->padding == EK_GRID_REFLECTION) place = ek_grid_reflect(place, size, p->align);
    /* what lies farther outside changes nothing, and not-a-number must not become an index */
    place = place > -4 ? EK_MIN(place, n + 3) : -4;
    const int first = (int)floorf(place) - (p->taps == 4);
    for (int i = 0; i < p->taps; i++) {
        const int at = first + i;
        const float d = fabsf(place - (float)at), a = -0.75f;
        weight[i] = p->taps < 4 ? 1 - d
                    : d <= 1    ? ((a + 2) * d - (a + 3)) * d * d + 1
                                : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
        if (p->padding == EK_GRID_ZEROS && (at < 0 || at >= size)) weight[i] = 0;
        const int kept =
            p->padding == EK_GRID_REFLECTION ? (int)ek_grid_reflect((float)at, size, p->align) : at;
        index[i] = EK_CLAMP(kept, 0, size - 1);
    }
}

EK_KERNEL void ek_grid_sample_f32(const float *x, const float *grid, float *y,
                                  const ek_grid_sample_t *p) {
    const int c = p->c, row = p->iw * c;
    for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->ih * row)
        for (int i = 0; i < p->pixels; i++, grid += 2, y += c) {
            int rows[4], columns[4];
            float wy[4], wx[4];
            ek_grid_axis(grid[0], p->iw, p, columns, wx);
            ek_grid_axis(grid[1], p->ih, p, rows, wy);
            memset(y, 0, (size_t)c * sizeof(float));
            for (int s = 0; s < p->taps; s++)
                for (int t = 0; t < p->taps; t++) {
                    const float w = wy[s] * wx[t];
                    const float *pixel = x + (ptrdiff_t)rows[s] * row + (ptrdiff_t)columns[t] * c;
                    for (int k = 0; k < c; k++) y[k] += pixel[k] * w;
                }
        }
}

#endif
