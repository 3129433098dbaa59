/* Winograd's 3x3 float convolutions of stride 1: m x m results from (m + 2) x (m + 2) products per
 * pair of channels.
 *
 * Tiles of the image are transformed, for each of their (m + 2)^2 numbers a matrix product takes
 * many tiles at once, and its sums are transformed back. A block of tiles goes through all that
 * before the next. The weights come transformed, in panels of channels: [panels][numbers of a
 * tile][channels of the image][channels of a panel].
 *
 * The points of the transforms are 0, +-q[0], +-q[1], infinity. A dilated convolution is dh * dw
 * plain ones, of every dh-th row and dw-th column: those are tiled one after the other. */
#ifndef EK_WINOGRAD_F32_SIMD_H
#define EK_WINOGRAD_F32_SIMD_H
#include "ek_after_f32_simd.h"
#include "ek_tile_f32_simd.h"

typedef struct {
    int n, ih, iw, ic, oh, ow, oc; /* image and result */
    int dh, dw, pt, pl;            /* dilation; padding at the top and left */
    int yx, yy, yn;                /* floats between pixels, rows and images of the result */
    int down, across;              /* tiles of a plain convolution */
    int apart_v,
        apart_s;  /* floats between the matrices of one block, before and after the product */
    float q[4];   /* points, and their squares */
    int m;        /* rows and columns of the results of a tile */
    int rows;     /* of a tile of the matrix product */
    int block;    /* tiles that are transformed together: whole tiles of the matrix product */
    int panels;   /* of channels whose sums are transformed back together */
    int by_panel; /* threads share: 0 blocks, 1 panels */
    int touch; /* what of a block is fetched first, as it is beyond the cache: 1 image, 2 result */
    int todo;  /* EK_DO_* */
    float low, high, low_sum, high_sum;
    ek_after_f32_fn *after; /* what follows all that, or null */
    ek_coefficients_t coef; /* of it */
} ek_winograd_f32_t;

/* One tile: where it begins in the image and in the result, and how many rows and columns of that
 * there are. */
typedef struct {
    int image, iy, ix, oy, ox, rows, cols;
} ek_winograd_f32_at_t;

EK_SHARED ek_winograd_f32_at_t ek_winograd_f32_at(const ek_winograd_f32_t *p, int i) {
    ek_winograd_f32_at_t at;
    const int x = i % p->across, row = i / p->across, y = row % p->down, plain = row / p->down;
    const int first_x = plain % p->dw, first_y = plain / p->dw % p->dh;
    at.image = plain / p->dw / p->dh;
    at.oy = first_y + y * p->m * p->dh, at.ox = first_x + x * p->m * p->dw;
    at.iy = at.oy - p->pt, at.ix = at.ox - p->pl;
    at.rows = EK_MAX(0, EK_MIN(p->m, (p->oh - at.oy + p->dh - 1) / p->dh));
    at.cols = EK_MAX(0, EK_MIN(p->m, (p->ow - at.ox + p->dw - 1) / p->dw));
    return at;
}

/* The image under a tile, with zeros around: [m + 2][m + 2][ic]. */
EK_SHARED void ek_winograd_f32_patch(const float *x, float *to, const ek_winograd_f32_t *p, int iy,
                                     int ix) {
    const int c = p->ic, last = EK_MAX(c - EK_VL, 0);
    EK_ROLLED for (int i = 0; i < p->m + 2; i++, iy += p->dh)
        EK_ROLLED for (int j = 0, at = ix; j < p->m + 2; j++, at += p->dw, to += c) {
        const float *from = x + ((ptrdiff_t)iy * p->iw + at) * c;
        const int inside = iy >= 0 && iy < p->ih && at >= 0 && at < p->iw;
        if (c < EK_VL)
            ek_vf_store_n(to, inside ? ek_vf_load_n(from, c) : ek_vf_set(0), c);
        else if (inside)
            EK_ROLLED for (int k = 0; k < c; k += EK_VL)
                ek_vf_store(to + EK_MIN(k, last), ek_vf_load(from + EK_MIN(k, last)));
        else
            EK_ROLLED for (int k = 0; k < c; k += EK_VL)
                ek_vf_store(to + EK_MIN(k, last), ek_vf_set(0));
    }
}

/* The points, their squares, and the sum and the product of these. */
typedef struct {
    ek_vf a, b, aa, bb, sum, product;
} ek_winograd_f32_points_t;

EK_KERNEL ek_winograd_f32_points_t ek_winograd_f32_points(const float *q) {
    const ek_vf aa = ek_vf_set(q[2]), bb = ek_vf_set(q[3]);
    return (ek_winograd_f32_points_t){ek_vf_set(q[0]), ek_vf_set(q[1]), aa, bb, aa + bb, aa * bb};
}

/* d[0, m + 2) of the image as numbers of a tile. */
EK_KERNEL void ek_winograd_f32_to(const ek_vf *d, ek_vf *v, const ek_winograd_f32_points_t *q,
                                  const int m) {
    if (m == 2) { /* points 0, 1, -1 */
        v[0] = d[2] - d[0], v[1] = d[1] + d[2], v[2] = d[2] - d[1], v[3] = d[3] - d[1];
    } else {
        const ek_vf even_a = ek_vf_fnma(q->bb, d[2], d[4]), odd_a = ek_vf_fnma(q->bb, d[1], d[3]);
        const ek_vf even_b = ek_vf_fnma(q->aa, d[2], d[4]), odd_b = ek_vf_fnma(q->aa, d[1], d[3]);
        v[0] = ek_vf_fma(q->product, d[0], ek_vf_fnma(q->sum, d[2], d[4]));
        v[1] = ek_vf_fma(q->a, odd_a, even_a), v[2] = ek_vf_fnma(q->a, odd_a, even_a);
        v[3] = ek_vf_fma(q->b, odd_b, even_b), v[4] = ek_vf_fnma(q->b, odd_b, even_b);
        v[5] = ek_vf_fma(q->product, d[1], ek_vf_fnma(q->sum, d[3], d[5]));
    }
}

/* The sums of a tile's numbers as m results. */
EK_KERNEL void ek_winograd_f32_from(const ek_vf *s, ek_vf *y, const ek_winograd_f32_points_t *q,
                                    const int m) {
    const ek_vf even_a = s[1] + s[2], odd_a = s[1] - s[2];
    if (m == 2) {
        y[0] = s[0] + even_a, y[1] = odd_a + s[3];
    } else {
        const ek_vf even_b = s[3] + s[4], b = q->b * (s[3] - s[4]), a = q->a * odd_a;
        y[0] = s[0] + even_a + even_b, y[1] = a + b;
        y[2] = ek_vf_fma(q->bb, even_b, q->aa * even_a),
        y[3] = ek_vf_fma(q->bb, b, ek_vf_fma(q->aa, a, s[5]));
    }
}

enum { EK_WINOGRAD_M_F32 = 4 }; /* the largest m */

/* A tile of the image, rows dy and pixels dx apart, to v[number * apart], `c` channels; `few`: less
 * than a vector. */
EK_KERNEL void ek_winograd_f32_in(const float *x, ptrdiff_t dy, ptrdiff_t dx, float *v,
                                  ptrdiff_t apart, int c, const float *q, const int m,
                                  const int few) {
    const ek_vmask some = ek_vmask_of(c);
    const ek_winograd_f32_points_t k = ek_winograd_f32_points(q);
    EK_ROLLED for (int at = 0; at < c; at += EK_VL) {
        const int o =
            few ? 0 : EK_MIN(at, c - EK_VL); /* the last vector ends with the last channel */
        ek_vf half[EK_WINOGRAD_M_F32 + 2][EK_WINOGRAD_M_F32 + 2];
        const float *px = x + o;
        float *pv = v + o;
        EK_ROLLED for (int i = 0; i < m + 2; i++, px += dy) {
            ek_vf d[EK_WINOGRAD_M_F32 + 2];
            EK_UNROLL for (int j = 0; j < m + 2; j++) d[j] =
                few ? ek_vf_load_some(px + j * dx, some, ek_vf_set(0)) : ek_vf_load(px + j * dx);
            ek_winograd_f32_to(d, half[i], &k, m);
        }
        EK_ROLLED for (int j = 0; j < m + 2; j++, pv += apart) {
            ek_vf d[EK_WINOGRAD_M_F32 + 2], all[EK_WINOGRAD_M_F32 + 2];
            EK_UNROLL for (int i = 0; i < m + 2; i++) d[i] = half[i][j];
            ek_winograd_f32_to(d, all, &k, m);
            EK_UNROLL for (int i = 0; i < m + 2; i++) ek_vf_store(pv + i * (m + 2) * apart, all[i]);
        }
    }
}

/* The sums of a tile, s[number * apart], as results: `c` channels from channel o on. y, added: of
 * the first result. */
EK_KERNEL void ek_winograd_f32_out(const float *s, ptrdiff_t apart, const float *added, float *y,
                                   const ek_winograd_f32_t *p, const ek_tile_f32_t *t, int o, int c,
                                   int rows, int cols, const int m) {
    const ptrdiff_t yy = (ptrdiff_t)p->yy * p->dh, yx = (ptrdiff_t)p->yx * p->dw;
    const int clamps = !(t->todo & ~(EK_DO_LOW | EK_DO_HIGH)), adds = t->todo & EK_DO_ADD;
    const ek_vf low = ek_vf_set(t->low), high = ek_vf_set(t->high);
    const ek_winograd_f32_points_t k = ek_winograd_f32_points(p->q);
    EK_ROLLED for (int at = 0; at < c; at += EK_VL) {
        const int n = EK_MIN(c - at, EK_VL),
                  whole = rows == m && cols == m && (EK_MASKS || n == EK_VL);
        const ek_vmask some[2] = {ek_vmask_of(n), ek_vmask_of(0)};
        const ek_vf bias = ek_vf_load(t->bias + o + at);
        ek_vf half[EK_WINOGRAD_M_F32][EK_WINOGRAD_M_F32 + 2];
        float edge[EK_WINOGRAD_M_F32 *
                   EK_VL]; /* a row that is not whole goes by way of one that is */
        const float *ps = s + at, *other = adds ? added + at : added;
        float *to = y + at;
        EK_ROLLED for (int j = 0; j < m + 2; j++, ps += apart) {
            ek_vf d[EK_WINOGRAD_M_F32 + 2], r[EK_WINOGRAD_M_F32];
            EK_UNROLL for (int i = 0; i < m + 2; i++) d[i] = ek_vf_load(ps + i * (m + 2) * apart);
            ek_winograd_f32_from(d, r, &k, m);
            EK_UNROLL for (int i = 0; i < m; i++) half[i][j] = r[i];
        }
        EK_ROLLED for (int i = 0; i < rows; i++, to += yy) {
            ek_vf r[EK_WINOGRAD_M_F32], acc[EK_WINOGRAD_M_F32][2];
            ek_winograd_f32_from(half[i], r, &k, m);
            EK_UNROLL for (int j = 0; j < m; j++) acc[j][0] = r[j] + bias;
            if (clamps && whole) {
                EK_UNROLL for (int j = 0; j < m; j++) ek_vf_part_store(
                    to + j * yx, ek_vf_min(ek_vf_max(acc[j][0], low), high), some[0]);
                continue;
            }
            if (adds && !whole)
                EK_ROLLED for (int j = 0; j < cols; j++)
                    ek_row_f32(edge + j * EK_VL, other + j * yx, n);
            ek_tile_f32_finish(whole ? other : edge, whole ? yx : EK_VL, t, o + at, acc, some, m, 1,
                               1);
            if (adds) other += yy;
            EK_UNROLL for (int j = 0; j < m; j++)
                ek_vf_part_store(whole ? to + j * yx : edge + j * EK_VL, acc[j][0], some[0]);
            if (!whole)
                EK_ROLLED for (int j = 0; j < cols; j++)
                    ek_row_f32(to + j * yx, edge + j * EK_VL, n);
        }
    }
}

typedef void ek_winograd_f32_in_fn(const float *x, ptrdiff_t dy, ptrdiff_t dx, float *v,
                                   ptrdiff_t apart, int c, const float *q);
typedef void ek_winograd_f32_out_fn(const float *s, ptrdiff_t apart, const float *added, float *y,
                                    const ek_winograd_f32_t *p, const ek_tile_f32_t *t, int o,
                                    int c, int rows, int cols);

/* One function for each size, emitted where it is used. */
#define EK_WINOGRAD_SIZE_F32(M)                                                                    \
    EK_SHARED void ek_winograd_f32_in_##M(const float *x, ptrdiff_t dy, ptrdiff_t dx, float *v,    \
                                          ptrdiff_t apart, int c, const float *q) {                \
        ek_winograd_f32_in(x, dy, dx, v, apart, c, q, M, 0);                                       \
    }                                                                                              \
    EK_SHARED void ek_winograd_f32_in_##M##_few(const float *x, ptrdiff_t dy, ptrdiff_t dx,        \
                                                float *v, ptrdiff_t apart, int c,                  \
                                                const float *q) {                                  \
        ek_winograd_f32_in(x, dy, dx, v, apart, c, q, M, 1);                                       \
    }                                                                                              \
    EK_SHARED void ek_winograd_f32_out_##M(                                                        \
        const float *s, ptrdiff_t apart, const float *added, float *y, const ek_winograd_f32_t *p, \
        const ek_tile_f32_t *t, int o, int c, int rows, int cols) {                                \
        ek_winograd_f32_out(s, apart, added, y, p, t, o, c, rows, cols, M);                        \
    }
EK_WINOGRAD_SIZE_F32(2)
EK_WINOGRAD_SIZE_F32(4)

/* What tiles [first, first + count) read and write. */
EK_SHARED void ek_winograd_f32_touch(const float *x, const float *y, const ek_winograd_f32_t *p,
                                     int first, int count) {
    EK_ROLLED for (int i = first, next; i < first + count; i = next) {
        const ek_winograd_f32_at_t at = ek_winograd_f32_at(p, i);
        const float *image = x + (ptrdiff_t)at.image * p->ih * p->iw * p->ic;
        const float *result =
            y + (ptrdiff_t)at.image * p->yn + (ptrdiff_t)at.oy * p->yy + (ptrdiff_t)at.ox * p->yx;
        next = EK_MIN(i - i % p->across + p->across, first + count);
        const int wide = (next - i) * p->m * p->dw;
        const int from = EK_MAX(at.ix, 0), to = EK_MIN(at.ix + wide + 2 * p->dw, p->iw);
        EK_ROLLED for (int r = 0, iy = at.iy; r < (p->touch & 1 ? p->m + 2 : 0);
                       r++, iy += p->dh) if (iy >= 0 && iy < p->ih)
            ek_touch_f32(image + ((ptrdiff_t)iy * p->iw + from) * p->ic,
                         (ptrdiff_t)(to - from) * p->ic);
        EK_ROLLED for (int r = 0; r < (p->touch & 2 ? at.rows : 0);
                       r++, result += (ptrdiff_t)p->dh * p->yy)
            ek_touch_f32(result, (ptrdiff_t)(EK_MIN(wide, p->ow - at.ox) - 1) * p->yx + 1);
    }
}

/* Tiles [first, first + count) of the image, transformed: v[number * apart_v + tile]. */
EK_SHARED void ek_winograd_f32_load(const float *x, float *v, float *patch,
                                    const ek_winograd_f32_t *p, ek_winograd_f32_in_fn *in,
                                    int first, int count) {
    const int a = p->m + 2;
    EK_ROLLED for (int i = first; i < first + count; i++, v += EK_MAX(p->ic, EK_VL)) {
        const ek_winograd_f32_at_t at = ek_winograd_f32_at(p, i);
        const float *from = x + (ptrdiff_t)at.image * p->ih * p->iw * p->ic;
        if (at.iy >= 0 && at.ix >= 0 && at.iy + (a - 1) * p->dh < p->ih &&
            at.ix + (a - 1) * p->dw < p->iw) {
            const ptrdiff_t dx = (ptrdiff_t)p->dw * p->ic, dy = (ptrdiff_t)p->dh * p->iw * p->ic;
            in(from + ((ptrdiff_t)at.iy * p->iw + at.ix) * p->ic, dy, dx, v, p->apart_v, p->ic,
               p->q);
        } else {
            ek_winograd_f32_patch(from, patch, p, at.iy, at.ix);
            in(patch, (ptrdiff_t)a * p->ic, p->ic, v, p->apart_v, p->ic, p->q);
        }
    }
}

/* Their sums as results, of `c` channels from channel o on. */
EK_SHARED void ek_winograd_f32_store(const float *s, ptrdiff_t row, const float *added, float *y,
                                     const ek_winograd_f32_t *p, const ek_tile_f32_t *t,
                                     ek_winograd_f32_out_fn *out, int first, int count, int o,
                                     int c) {
    EK_ROLLED for (int i = first; i < first + count; i++, s += row) {
        const ek_winograd_f32_at_t at = ek_winograd_f32_at(p, i);
        const ptrdiff_t to =
            (ptrdiff_t)at.image * p->yn + (ptrdiff_t)at.oy * p->yy + (ptrdiff_t)at.ox * p->yx + o;
        if (at.cols > 0)
            out(s, p->apart_s, added ? added + to : added, y + to, p, t, o, c, at.rows, at.cols);
    }
}

/* What follows, on the results of tiles [first, first + count): `c` channels from channel o on. */
EK_SHARED void ek_winograd_f32_after(float *y, const ek_winograd_f32_t *p, int first, int count,
                                     int o, int c) {
    EK_ROLLED for (int i = first, next; i < first + count; i = next) {
        const ek_winograd_f32_at_t at = ek_winograd_f32_at(p, i);
        float *to = y + (ptrdiff_t)at.image * p->yn + (ptrdiff_t)at.oy * p->yy +
                    (ptrdiff_t)at.ox * p->yx + o;
        next = EK_MIN(i - i % p->across + p->across, first + count);
        const int cols = EK_MIN((next - i) * p->m, (p->ow - at.ox + p->dw - 1) / p->dw);
        EK_ROLLED for (int r = 0; r < (cols > 0 ? at.rows : 0); r++, to += (ptrdiff_t)p->dh * p->yy)
            ek_after_f32(p->after, to, (ptrdiff_t)p->dw * p->yx, cols, c, &p->coef);
    }
}

/* x [n,ih,iw,ic], w transformed and packed, bias and slope padded to vectors, added as y or null.
 * scratch: of this part alone, the matrices before the product and after it; these have room for
 * the image under a tile. */
EK_SHARED void ek_winograd_f32_simd(const float *x, const float *w, const float *bias,
                                    const float *slope, const float *added, float *y,
                                    float *scratch, const ek_winograd_f32_t *p,
                                    ek_winograd_f32_in_fn *in, ek_winograd_f32_out_fn *out,
                                    ek_tile_f32_fn *tile, ek_tile_f32_fn *tail, int part,
                                    int parts) {
    static const float none[EK_PANEL_F32];
    const int numbers = (p->m + 2) * (p->m + 2);
    const int wide = EK_MIN(p->panels * EK_PANEL_F32, (p->oc + EK_VL - 1) / EK_VL * EK_VL);
    const int tiles = p->n * p->dh * p->dw * p->down * p->across;
    const ptrdiff_t size = (ptrdiff_t)numbers * p->ic * EK_PANEL_F32;
    float *sums = scratch + (ptrdiff_t)numbers * p->apart_v;
    const ek_tile_f32_t product = {.runs_y = 1,
                                   .runs_x = 1,
                                   .run = p->ic,
                                   .sx = EK_MAX(p->ic, EK_VL),
                                   .yx = wide,
                                   .low = -INFINITY,
                                   .high = INFINITY,
                                   .bias = none};
    const ek_tile_f32_t t = {.todo = p->todo,
                             .low = p->low,
                             .high = p->high,
                             .low_sum = p->low_sum,
                             .high_sum = p->high_sum,
                             .bias = bias,
                             .slope = slope};
    ek_share_t blocks = {0, (tiles + p->block - 1) / p->block},
               panels = {0, (p->oc + EK_PANEL_F32 - 1) / EK_PANEL_F32};
    if (p->by_panel)
        panels = ek_share(panels.to, 1, part, parts);
    else
        blocks = ek_share(blocks.to, 1, part, parts);
    EK_ROLLED for (int b = blocks.from; b < blocks.to && panels.from < panels.to; b++) {
        const int first = b * p->block, count = EK_MIN(p->block, tiles - first);
        const int rows = (count + p->rows - 1) / p->rows * p->rows;
        if (p->touch) ek_winograd_f32_touch(x, y, p, first, count);
        ek_winograd_f32_load(x, scratch, sums, p, in, first, count);
        EK_ROLLED for (int j = panels.from, next; j < panels.to; j = next) {
            next = EK_MIN(j + p->panels, panels.to);
            EK_ROLLED for (int e = 0; e < numbers; e++) EK_ROLLED for (int k = j; k < next; k++) {
                const int narrow = p->oc - k * EK_PANEL_F32 <= EK_VL,
                          cols = narrow ? EK_VL : EK_PANEL_F32;
                const float *by = w + k * size + (ptrdiff_t)e * p->ic * cols;
                (narrow ? tail : tile)(scratch + (ptrdiff_t)e * p->apart_v, by, NULL,
                                       sums + (ptrdiff_t)e * p->apart_s + (k - j) * EK_PANEL_F32,
                                       &product, 0, rows, cols);
            }
            ek_winograd_f32_store(sums, wide, added, y, p, &t, out, first, count, j * EK_PANEL_F32,
                                  EK_MIN(next * EK_PANEL_F32, p->oc) - j * EK_PANEL_F32);
        }
        if (p->after) {
            const int o = panels.from * EK_PANEL_F32;
            ek_winograd_f32_after(y, p, first, count, o,
                                  EK_MIN(panels.to * EK_PANEL_F32, p->oc) - o);
        }
    }
}

#endif
