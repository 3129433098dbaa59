/* Depthwise int8 convolution on cores with wide vectors: the walk over windows that AVX2 and
 * AVX-512 share.
 *
 * A window is a list of pointers, one for each tap in the order of the kernel; a tap outside the
 * image is a row of zero points. A run computes channels of one window, or, where a unit of
 * channels holds whole pixels and windows move by one, those of many windows side by side. Units of
 * weights and tables are packed by edgec/schedule/kernels/dwconv2d_x86.py. */
#ifndef EK_DWCONV2D_TAPS_S8_H
#define EK_DWCONV2D_TAPS_S8_H
#include "ek_base.h"

enum { EK_DW_MAX_TAPS = 128 };

typedef struct {
    int c;                                                 /* channels */
    int n, ih, iw, oh, ow, kh, kw, sh, sw, dh, dw, pt, pl; /* as ek_conv2d_t */
    int low, high;
    int groups,
        sets; /* groups of taps that a run takes at once; weights are a sum of so many bytes */
    int flat; /* windows side by side are one row of channels */
    int step; /* bytes from unit to unit of channels; 0 where all channels are in one */
    int units, by_units; /* of channels; whether threads share them first, not the rows */
    const int8_t *zeros; /* zero points: c of them, ow * c where flat */
} ek_dwconv2d_taps_s8_t;

/* `width` results of the windows whose taps are given; reads and writes no other elements. */
typedef void ek_dw_run_s8_t(const int8_t *const *taps, const unsigned char *w, int8_t *y,
                            const ek_dwconv2d_taps_s8_t *p, int width);

/* x: image [n,ih,iw,c]; w: units; group: taps of a group. */
EK_SHARED void ek_dwconv2d_taps_s8(const int8_t *x, const unsigned char *w, int8_t *y,
                                   const ek_dwconv2d_taps_s8_t *p, ek_dw_run_s8_t *run, int group,
                                   int part, int parts) {
    const int8_t *taps[EK_DW_MAX_TAPS];
    const int rows = p->n * p->oh, reach = (p->kw - 1) * p->dw;
    const int from = (int)((int64_t)rows * part / parts),
              to = (int)((int64_t)rows * (part + 1) / parts);
    const int inside =
        p->iw + p->pl > reach ? EK_MIN(p->ow, (p->iw - 1 + p->pl - reach) / p->sw + 1) : 0;
    for (int t = p->kh * p->kw; t < p->groups * group; t++) taps[t] = p->zeros;
    for (int row = from; row < to; row++) {
        const int top = row % p->oh * p->sh - p->pt;
        const int8_t *image = x + (ptrdiff_t)(row / p->oh) * p->ih * p->iw * p->c;
        int8_t *to_row = y + (ptrdiff_t)row * p->ow * p->c;
        for (int ox = 0, count; ox < p->ow; ox += count) {
            const int left = ox * p->sw - p->pl;
            int t = 0;
            count = p->flat && left >= 0 && ox < inside ? inside - ox : 1;
            for (int ky = 0; ky < p->kh; ky++) {
                const int iy = top + ky * p->dh;
                for (int kx = 0; kx < p->kw; kx++) {
                    const int ix = left + kx * p->dw,
                              in = iy >= 0 && iy < p->ih && ix >= 0 && ix < p->iw;
                    taps[t++] = in ? image + ((ptrdiff_t)iy * p->iw + ix) * p->c : p->zeros;
                }
            }
            run(taps, w, to_row + (ptrdiff_t)ox * p->c, p, count * p->c);
        }
    }
}

/* Three rows of the image that a row of 3x3 windows sees, and the one below them, which the next
 * row of windows sees besides; a row outside the image is zero points, with a pixel step of 0. */
typedef struct {
    const int8_t *row[4];
    ptrdiff_t pixel[4];
    int8_t *y[2]; /* one result where both are the same: the second is overwritten by the first */
} ek_dw_rows_s8_t;

/* Units [from, to) of a row, or two, of windows. */
typedef void ek_dw_slide_s8_t(const ek_dw_rows_s8_t *r, const unsigned char *w,
                              const ek_dwconv2d_taps_s8_t *p, int from, int to);

/* Windows 3x3 without dilation: `at_once` rows of windows, 1 or 2, for each call of `slide`. */
EK_SHARED void ek_dwconv2d_slide_s8(const int8_t *x, const unsigned char *w, int8_t *y,
                                    const ek_dwconv2d_taps_s8_t *p, ek_dw_slide_s8_t *slide,
                                    int at_once, int part, int parts) {
    const int strips = (p->oh + at_once - 1) / at_once;
    for (int strip = 0; strip < p->n * strips; strip++) {
        const ek_range_t units =
            ek_share_of(strip, p->n * strips, p->units, p->by_units, part, parts);
        const int image = strip / strips, oy = strip % strips * at_once,
                  count = EK_MIN(at_once, p->oh - oy);
        ek_dw_rows_s8_t r;
        if (units.from >= units.to) continue;
        for (int i = 0; i < 4; i++) {
            const int iy = oy * p->sh - p->pt + i, in = iy >= 0 && iy < p->ih;
            r.row[i] = in ? x + ((ptrdiff_t)image * p->ih + iy) * p->iw * p->c : p->zeros;
            r.pixel[i] = in ? p->c : 0;
        }
        r.y[0] = y + ((ptrdiff_t)image * p->oh + oy) * p->ow * p->c;
        r.y[1] = r.y[0] + (ptrdiff_t)(count - 1) * p->ow * p->c;
        slide(&r, w, p, units.from, units.to);
    }
}

#endif
