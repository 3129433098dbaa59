/* A picture warped by a mesh of triangles: each pixel of the result whose middle lies in a triangle
 * is read from the source by that triangle's affine map, between pixels.
 *
 * Places are in pixels, and the middle of the first pixel is at 0.5.  Corners in the result are
 * rounded to 1/256 pixel.  A row of a triangle goes from the first middle at or right of its left
 * edge to the last one left of its right edge, and its rows likewise from the top: triangles that
 * share an edge compute the same integers for it, so that no pixel is left out or drawn twice (the
 * "top-left rule" of rasterizers; Pineda, "A Parallel Algorithm for Polygon Rasterization", 1988).
 *
 * The vectors are a pixel's four channels, of two pixels side by side: cores without a gather load
 * neighbours at once only along a row.  The same integers as face/warping.py computes.
 */
#ifndef EK_WARP_H
#define EK_WARP_H
#include <math.h>
#include "ek_base.h"

enum { EK_WARP_PARTS = 256 /* of a pixel, for corners */, EK_WARP_MIDDLE = 128 };
enum { EK_WARP_MOST = 1 << 14 /* the largest side of a picture */ };

/* source: four bytes a pixel, red first; where `blend` is set they are multiplied by the fourth,
 * alpha, and are put over the result.  from, to: corners in the source and in the result, x and y
 * of each; gain: how bright each corner becomes, or none; triangles: three corners each.  Of
 * triangles that turn from x to y the other way round nothing is drawn.  out: three bytes a pixel,
 * rows without a gap. */
typedef struct {
    const uint8_t *source;
    int source_width, source_height;
    const float *from, *to, *gain;
    const int32_t *triangles;
    int corners, count, blend;
    uint8_t *out;
    int width, height;
} ek_warp_t;

/* Of a triangle: source x and y of pixel (0, 0) of the result in 1/2^24 pixels, their growth to the
 * right and down, and the same of the gain. */
typedef struct {
    int64_t start[3], right[3], down[3];
} ek_warp_map_t;

typedef uint8_t ek_warp_8b __attribute__((vector_size(8)));
typedef uint16_t ek_warp_8h __attribute__((vector_size(16)));
typedef uint16_t ek_warp_4h __attribute__((vector_size(8)));
typedef uint8_t ek_warp_4b __attribute__((vector_size(4)));

/* The least integer that is not below a / b, for b > 0. */
EK_KERNEL int64_t ek_warp_ceil(int64_t a, int64_t b) {
    const int64_t q = a / b;
    return q + (a > q * b);
}

/* The first column whose middle is at or right of the edge from `top` to `bottom`, at the middle of
 * a row; both ends in 1/256. */
EK_KERNEL int64_t ek_warp_column(const int64_t *top, const int64_t *bottom, int64_t row) {
    const int64_t high = bottom[1] - top[1];
    const int64_t middle = row * EK_WARP_PARTS + EK_WARP_MIDDLE - top[1];
    const int64_t x = (top[0] - EK_WARP_MIDDLE) * high + middle * (bottom[0] - top[0]);
    return ek_warp_ceil(x, high * EK_WARP_PARTS);
}

/* Four channels between four pixels; x and y in 1/256. */
EK_KERNEL ek_warp_4h ek_warp_between(const uint8_t *upper, const uint8_t *under, int x, int y) {
    ek_warp_8b a, b;
    memcpy(&a, upper, sizeof a);
    memcpy(&b, under, sizeof b);
    const ek_warp_8h both =
        (__builtin_convertvector(a, ek_warp_8h) * (uint16_t)(256 - y) +
         __builtin_convertvector(b, ek_warp_8h) * (uint16_t)y + (uint16_t)128) >>
        8;
    ek_warp_4h left, right;
    memcpy(&left, &both, sizeof left);
    memcpy(&right, (const uint8_t *)&both + sizeof left, sizeof right);
    return (left * (uint16_t)(256 - x) + right * (uint16_t)x + (uint16_t)128) >> 8;
}

/* The same at any place, in 1/2^16: outside it is the nearest pixel of the border. */
EK_KERNEL ek_warp_4h ek_warp_at(const ek_warp_t *w, int64_t x, int64_t y) {
    const int64_t most_x = (w->source_width - 1) << 16, most_y = (w->source_height - 1) << 16;
    const int32_t u = (int32_t)EK_CLAMP(x, 0, most_x), v = (int32_t)EK_CLAMP(y, 0, most_y);
    /* the last pixel has no neighbour, and wants none */
    const int column = EK_MIN(u >> 16, w->source_width - 2),
              row = EK_MIN(v >> 16, w->source_height - 2);
    const uint8_t *at = w->source + 4 * ((size_t)row * w->source_width + column);
    return ek_warp_between(at, at + 4 * (size_t)w->source_width, (u - (column << 16)) >> 8,
                           (v - (row << 16)) >> 8);
}

/* A pixel, brighter by gain (1/256), at its place. */
EK_KERNEL void ek_warp_put(ek_warp_4h pixel, int32_t gain, int blend, uint8_t *out) {
    for (int c = 0; c < 3; c++) {
        int32_t level = (pixel[c] * gain + 128) >> 8;
        if (blend) level += (out[c] * (255 - pixel[3]) + 127) / 255;
        out[c] = (uint8_t)EK_MIN(level, 255);
    }
}

/* n pixels of a row from column x on. */
EK_SHARED void ek_warp_span(const ek_warp_t *w, const ek_warp_map_t *m, int x, int y, int n) {
    int64_t at[3], step[3];
    for (int i = 0; i < 3; i++) {
        at[i] = (m->start[i] + m->right[i] * x + m->down[i] * y + 128) >> 8;
        step[i] = (m->right[i] + 128) >> 8;
    }
    uint8_t *out = w->out + 3 * ((size_t)y * w->width + x);
    if (w->blend || w->gain) {
        for (int i = 0; i < n; i++, out += 3) {
            ek_warp_put(ek_warp_at(w, at[0], at[1]), (int32_t)EK_CLAMP(at[2] >> 8, 0, 255 * 256),
                        w->blend, out);
            for (int k = 0; k < 3; k++) at[k] += step[k];
        }
        return;
    }
    /* Both ends inside are all inside: most spans need no test of each pixel. */
    const int64_t end[2] = {at[0] + step[0] * (n - 1), at[1] + step[1] * (n - 1)};
    const int64_t most_x = (w->source_width - 1) << 16, most_y = (w->source_height - 1) << 16;
    if (EK_MIN(at[0], end[0]) < 0 || EK_MIN(at[1], end[1]) < 0 || EK_MAX(at[0], end[0]) >= most_x ||
        EK_MAX(at[1], end[1]) >= most_y) {
        for (int i = 0; i < n; i++, out += 3) {
            ek_warp_put(ek_warp_at(w, at[0], at[1]), 256, 0, out);
            for (int k = 0; k < 2; k++) at[k] += step[k];
        }
        return;
    }
    const size_t row = 4 * (size_t)w->source_width;
    const int32_t du = (int32_t)step[0], dv = (int32_t)step[1];
    int32_t u = (int32_t)at[0], v = (int32_t)at[1];
    for (int i = 0; i < n; i++, out += 3, u += du, v += dv) {
        const uint8_t *p = w->source + row * (size_t)(v >> 16) + 4 * (size_t)(u >> 16);
        const ek_warp_4b pixel = __builtin_convertvector(
            ek_warp_between(p, p + row, u >> 8 & 255, v >> 8 & 255), ek_warp_4b);
        uint32_t levels;
        memcpy(&levels, &pixel, sizeof levels);
        /* not four bytes: the next pixel may be another triangle's */
        memcpy(out, &levels, 2);
        out[2] = (uint8_t)(levels >> 16);
    }
}

/* The affine map through three pairs of corners; 0 where the triangle has no area or is turned. */
EK_SHARED int ek_warp_map(const ek_warp_t *w, const int32_t *corners, int64_t (*to)[2],
                          ek_warp_map_t *m) {
    const int64_t dx1 = to[1][0] - to[0][0], dy1 = to[1][1] - to[0][1];
    const int64_t dx2 = to[2][0] - to[0][0], dy2 = to[2][1] - to[0][1];
    const int64_t area = dx1 * dy2 - dx2 * dy1;
    if (area <= 0) return 0;
    const double each = 16777216.0 * EK_WARP_PARTS / (double)area;
    for (int i = 0; i < 3; i++) {
        double value[3];
        for (int k = 0; k < 3; k++) {
            const int corner = corners[k];
            const double at = i < 2     ? (double)w->from[2 * corner + i] - 0.5
                              : w->gain ? (double)w->gain[corner]
                                        : 1.0;
            value[k] = at >= -EK_WARP_MOST && at <= EK_WARP_MOST ? at : 0;
        }
        const double d1 = value[1] - value[0], d2 = value[2] - value[0];
        const double right = (d1 * (double)dy2 - d2 * (double)dy1) * each;
        const double down = (d2 * (double)dx1 - d1 * (double)dx2) * each;
        /* a sliver's map may grow without bound, but has no pixel to show it */
        const double bound = 16777216.0 * (EK_WARP_MOST - 1);
        m->right[i] = llrint(EK_CLAMP(right, -bound, bound));
        m->down[i] = llrint(EK_CLAMP(down, -bound, bound));
        /* the middle of pixel (0, 0), seen from the first corner */
        const double x = (double)(EK_WARP_MIDDLE - to[0][0]) / EK_WARP_PARTS;
        const double y = (double)(EK_WARP_MIDDLE - to[0][1]) / EK_WARP_PARTS;
        m->start[i] =
            llrint(value[0] * 16777216.0 + (double)m->right[i] * x + (double)m->down[i] * y);
    }
    return 1;
}

/* Rows [from, until) of a triangle between its long edge and one of the two others. */
EK_SHARED void ek_warp_rows(const ek_warp_t *w, const ek_warp_map_t *m, const int64_t *const *left,
                            const int64_t *const *right, int64_t from, int64_t until) {
    const int64_t last = EK_MIN(until, w->height);
    for (int64_t y = EK_MAX(from, 0); y < last; y++) {
        const int64_t x = EK_MAX(ek_warp_column(left[0], left[1], y), 0);
        const int64_t end = EK_MIN(ek_warp_column(right[0], right[1], y), w->width);
        if (end > x) ek_warp_span(w, m, (int)x, (int)y, (int)(end - x));
    }
}

EK_SHARED void ek_warp_triangle(const ek_warp_t *w, const int32_t *corners) {
    int64_t to[3][2];
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 2; i++) {
            const float at = w->to[2 * corners[k] + i];
            if (!(at > -EK_WARP_MOST && at < EK_WARP_MOST)) return;
            to[k][i] = llrintf(at * EK_WARP_PARTS);
        }
    /* most of a mesh may lie beside the part of it that is wanted */
    for (int i = 0; i < 2; i++) {
        const int64_t end = (int64_t)(i ? w->height : w->width) * EK_WARP_PARTS;
        if (to[0][i] < 0 && to[1][i] < 0 && to[2][i] < 0) return;
        if (to[0][i] > end && to[1][i] > end && to[2][i] > end) return;
    }
    ek_warp_map_t m;
    if (!ek_warp_map(w, corners, to, &m)) return;
    const int64_t *a = to[0], *b = to[1], *c = to[2];
#define EK_WARP_ORDER(P, Q)   \
    if (P[1] > Q[1]) {        \
        const int64_t *t = P; \
        P = Q;                \
        Q = t;                \
    }
    EK_WARP_ORDER(a, b)
    EK_WARP_ORDER(b, c)
    EK_WARP_ORDER(a, b)
    int64_t row[3];
    row[0] = ek_warp_ceil(a[1] - EK_WARP_MIDDLE, EK_WARP_PARTS);
    row[1] = ek_warp_ceil(b[1] - EK_WARP_MIDDLE, EK_WARP_PARTS);
    row[2] = ek_warp_ceil(c[1] - EK_WARP_MIDDLE, EK_WARP_PARTS);
    const int64_t *const longest[2] = {a, c}, *const upper[2] = {a, b}, *const lower[2] = {b, c};
    /* on which side of the long edge the middle corner lies */
    if ((b[0] - a[0]) * (c[1] - a[1]) > (c[0] - a[0]) * (b[1] - a[1])) {
        ek_warp_rows(w, &m, longest, upper, row[0], row[1]);
        ek_warp_rows(w, &m, longest, lower, row[1], row[2]);
    } else {
        ek_warp_rows(w, &m, upper, longest, row[0], row[1]);
        ek_warp_rows(w, &m, lower, longest, row[1], row[2]);
    }
}

/* Not 0: a picture is too small or too large, or a triangle has a corner that is not there. */
EK_KERNEL int ek_warp(const ek_warp_t *w) {
    if (w->source_width < 2 || w->source_height < 2 || w->source_width > EK_WARP_MOST ||
        w->source_height > EK_WARP_MOST || w->width > EK_WARP_MOST || w->height > EK_WARP_MOST)
        return 1;
    for (int i = 0; i < 3 * w->count; i++)
        if (w->triangles[i] < 0 || w->triangles[i] >= w->corners) return 1;
    for (int i = 0; i < w->count; i++) ek_warp_triangle(w, w->triangles + 3 * (size_t)i);
    return 0;
}
#endif
