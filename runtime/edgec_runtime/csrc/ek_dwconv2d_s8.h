/* int8 depthwise convolution on vector units: what all instruction sets share, the walk over rows
 * and borders.
 *
 * Channels are cut into blocks of EK_DW (the last block may overlap the one before it). A block is
 * computed by one of three loops, chosen when its weights were packed: slide  windows 3x3 that
 * slide over a row with stride 1 or 2, their columns kept in registers; plain  any window, its taps
 * found through pointers; any    as plain, and fewer channels than EK_DW, depth multipliers, and
 * shifts to the left. Weights have their zero point subtracted; of a channel with one that int8
 * does not hold the loop slide takes something
 * (`lift`) from all, other loops split it over two taps at the same place.
 * x_zero * sum(w) is in the bias, and a tap outside the image points to a row of zero points. */
#ifndef EK_DWCONV2D_S8_H
#define EK_DWCONV2D_S8_H
#include "ek_base.h"

enum { EK_DW = 8 };

typedef struct {
    int n, ih, iw, ic, oh, ow, oc; /* images and results */
    int kh, kw, sh, sw, dh, dw;    /* window, stride, dilation */
    int pt, pl;                    /* padding at the top and left */
    int columns;                   /* output columns that are computed before the next block's */
    int slide, plain, any;         /* blocks by loop, in this order */
    int taps;              /* taps of the loops plain and any, with those repeated or of weight 0 */
    const int32_t *at;     /* [blocks]: first output channel */
    const int32_t *scale;  /* [blocks, 4, EK_DW]: bias, multiplier, addend, shift (of ek_half_neon);
                              loop any: bias,  multiplier, shift (of ek_multiply) */
    const int8_t *w;       /* [slide, ...]: as the loop reads them */
    const int8_t *lift;    /* [slide, EK_DW]: what is to be added to all weights of a channel, which
                              int8 (or the sums    of the loop) would not hold */
    const int8_t *w_taps;  /* [plain + any, ...] */
    const int32_t *tap;    /* [taps]: row and column in the window, 16 bits each */
    const uint8_t *spread; /* [any, EK_DW]: input channel of each output channel, from that of the
                              block's first */
    int32_t x_zero, y_zero, low, high;
} ek_dwconv2d_s8_t;

/* A run of windows 3x3 in one row of the result, or in two rows at once. Column j is ix + j * step;
 * window i has the columns i, i + 1, i + 2 with stride 1 and 2i, 2i + 1, 2i + 2 with stride 2. */
typedef struct {
    const int8_t *row[4]; /* first pixel of each row of the image, or zero points */
    ptrdiff_t pixel[4];   /* bytes from pixel to pixel: 0 for zero points */
    const int8_t *zero;   /* a pixel of zero points */
    int ix, iw, step; /* the first column, which may lie outside; columns of the image; from column
                         to column */
    int n, two;       /* windows; whether the second row is wanted */
    int8_t *y, *y2;   /* results */
    ptrdiff_t next;   /* bytes from result to result */
} ek_dw_strip_t;

/* Where the first channel of column j of row i is. */
EK_KERNEL const int8_t *ek_dw_column(const ek_dw_strip_t *s, int i, int j) {
    const int ix = s->ix + j * s->step;
    return ix >= 0 && ix < s->iw ? s->row[i] + ix * s->pixel[i] : s->zero;
}

/* Reads the lines of the strip in the order of memory, one after the other, as prefetchers like it.
 * The loops that follow read eight channels of each pixel of all rows, then the next eight. */
EK_SHARED void ek_dw_touch(const int8_t *from, ptrdiff_t bytes) {
    const volatile int8_t *x = from;
    ptrdiff_t i = 0;
    for (; i + 192 < bytes; i += 256)
        (void)x[i], (void)x[i + 64], (void)x[i + 128], (void)x[i + 192];
    EK_NO_UNROLL for (; i < bytes; i += 64)(void) x[i];
}

typedef void ek_dw_slide_t(const ek_dwconv2d_s8_t *p, const ek_dw_strip_t *s);
/* n pixels: taps[t] + i * advance is the first channel of tap t of pixel i. */
typedef void ek_dw_taps_t(const ek_dwconv2d_s8_t *p, const int8_t *const *taps, ptrdiff_t advance,
                          int8_t *y, int n);

/* The part-th of `parts` shares of `units`. */
EK_KERNEL void ek_dw_share(int units, int part, int parts, int *from, int *to) {
    *from = (int)((int64_t)units * part / parts);
    *to = (int)((int64_t)units * (part + 1) / parts);
}

/* The rows y0, and y0 + dh where `rows` is 2, of the result, for the blocks of the slide loop. */
EK_KERNEL void ek_dw_slide_rows(const int8_t *x, int8_t *y, const ek_dwconv2d_s8_t *p, int y0,
                                int rows, const int8_t *zero, ek_dw_slide_t *slide) {
    ek_dw_strip_t s;
    EK_NO_UNROLL for (int i = 0; i < rows + 2; i++) {
        const int iy = y0 * p->sh - p->pt + i * p->dh, inside = iy >= 0 && iy < p->ih;
        s.row[i] = inside ? x + (ptrdiff_t)iy * p->iw * p->ic : zero;
        s.pixel[i] = inside ? p->ic : 0;
    }
    s.two = rows == 2 && y0 + p->dh < p->oh;
    s.zero = zero, s.iw = p->iw, s.step = p->dw;
    s.next = (ptrdiff_t)p->dw * p->oc;
    EK_NO_UNROLL for (int phase = 0; phase < EK_MIN(p->dw, p->ow); phase++) {
        const int count = (p->ow - phase + p->dw - 1) / p->dw;
        EK_NO_UNROLL for (int from = 0; from < count; from += p->columns) {
            const int ox = phase + from * p->dw;
            s.ix = ox * p->sw - p->pl;
            s.n = EK_MIN(p->columns, count - from);
            s.y = y + ((ptrdiff_t)y0 * p->ow + ox) * p->oc;
            s.y2 = s.y + (ptrdiff_t)p->dh * p->ow * p->oc;
            const int first = EK_MAX(s.ix, 0),
                      past = EK_MIN(s.ix + ((s.n - 1) * p->sw + 2) * p->dw + 1, p->iw);
            EK_NO_UNROLL for (int i = 0; i < rows + 2; i++) if (s.pixel[i])
                ek_dw_touch(s.row[i] + (ptrdiff_t)first * p->ic, (ptrdiff_t)(past - first) * p->ic);
            if (p->dw == 1) {
                ek_dw_touch(s.y, (ptrdiff_t)s.n * p->oc);
                if (s.two) ek_dw_touch(s.y2, (ptrdiff_t)s.n * p->oc);
            }
            slide(p, &s);
        }
    }
}

/* Pointers to the taps of the window of output (oy, ox). */
EK_KERNEL void ek_dw_point(const int8_t *x, const ek_dwconv2d_s8_t *p, int oy, int ox,
                           const int8_t *zero, const int8_t **taps) {
    EK_NO_UNROLL for (int t = 0; t < p->taps; t++) {
        const int iy = oy * p->sh - p->pt + (p->tap[t] >> 16) * p->dh;
        const int ix = ox * p->sw - p->pl + (p->tap[t] & 0xffff) * p->dw;
        const int inside = iy >= 0 && iy < p->ih && ix >= 0 && ix < p->iw;
        taps[t] = inside ? x + ((ptrdiff_t)iy * p->iw + ix) * p->ic : zero;
    }
}

/* The row oy of the result for the blocks of the loops plain and any. */
EK_KERNEL void ek_dw_taps_row(const int8_t *x, int8_t *y, const ek_dwconv2d_s8_t *p, int oy,
                              const int8_t *zero, const int8_t **taps, ek_dw_taps_t *plain,
                              ek_dw_taps_t *any) {
    const int iy = oy * p->sh - p->pt, past = p->iw - 1 - (p->kw - 1) * p->dw + p->pl;
    int x0 = (p->pl + p->sw - 1) / p->sw, x1 = past < 0 ? 0 : EK_MIN(past / p->sw + 1, p->ow);
    if (iy < 0 || iy + (p->kh - 1) * p->dh >= p->ih) x1 = 0;
    y += (ptrdiff_t)oy * p->ow * p->oc;
    EK_NO_UNROLL for (int ox = 0, n; ox < p->ow; ox += n) {
        n = ox >= x0 && ox < x1 ? EK_MIN(p->columns, x1 - ox) : 1;
        ek_dw_point(x, p, oy, ox, zero, taps);
        if (p->plain) plain(p, taps, (ptrdiff_t)p->sw * p->ic, y + (ptrdiff_t)ox * p->oc, n);
        if (p->any) any(p, taps, (ptrdiff_t)p->sw * p->ic, y + (ptrdiff_t)ox * p->oc, n);
    }
}

/* A part of the result. scratch: its own, `taps` pointers, then a pixel of zero points. `rows`: of
 * the result that the slide loop computes at once; slide: NULL where there is none. */
EK_SHARED void ek_dw_walk(const int8_t *x, int8_t *y, const ek_dwconv2d_s8_t *p, void *scratch,
                          int part, int parts, int rows, ek_dw_slide_t *slide, ek_dw_taps_t *plain,
                          ek_dw_taps_t *any) {
    const int unit = slide ? rows * p->dh : 1, units = (p->oh + unit - 1) / unit;
    const int8_t **taps = scratch;
    int8_t *zero = (int8_t *)(taps + p->taps);
    int from, to;
    memset(zero, p->x_zero, (size_t)EK_MAX(p->ic, EK_DW));
    ek_dw_share(p->n * units, part, parts, &from, &to);
    EK_NO_UNROLL for (int u = from; u < to; u++) {
        const int8_t *image = x + (ptrdiff_t)(u / units) * p->ih * p->iw * p->ic;
        int8_t *result = y + (ptrdiff_t)(u / units) * p->oh * p->ow * p->oc;
        const int y0 = u % units * unit;
        if (slide)
            for (int i = 0; i < EK_MIN(p->dh, p->oh - y0); i++)
                ek_dw_slide_rows(image, result, p, y0 + i, rows, zero, slide);
        if (p->plain + p->any)
            EK_NO_UNROLL for (int oy = y0; oy < EK_MIN(y0 + unit, p->oh); oy++)
                ek_dw_taps_row(image, result, p, oy, zero, taps, plain, any);
    }
}

#endif
