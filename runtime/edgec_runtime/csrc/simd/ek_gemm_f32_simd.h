/* Float convolutions as matrix products without a copy of the image: windows are read where they
 * lie.
 *
 * Only tiles that touch the border, or the end of a row, go by way of a patch: the windows of one
 * block, padded, in scratch. Threads share the blocks of windows, or the panels of channels. */
#ifndef EK_GEMM_F32_SIMD_H
#define EK_GEMM_F32_SIMD_H
#include "ek_after_f32_simd.h"
#include "ek_tile_f32_simd.h"

typedef struct {
    int n, ih, iw, ic, oh, ow, oc; /* image and result */
    int kh, kw, sh, sw, dh, dw;    /* kernel, stride, dilation */
    int pt, pl;                    /* padding at the top and left */
    int group_ic;                  /* input channels of one group */
    int yx;                        /* floats between pixels of the result */
    int yy, yn;                    /* between its rows and images; may be left out */
    int tile;                      /* windows of a tile */
    int block;    /* windows that meet one panel of weights after the other: whole tiles */
    int panels;   /* panels that all windows meet before the next ones are read */
    int by_panel; /* threads share panels first, not blocks */
    int touch; /* what of a block is fetched first, as it is beyond the cache: 1 image, 2 result and
                  what is added to it */
    int blocks; /* that all groups meet before the next ones are read; 0: all */
    int last;   /* the first channel of the last panel, if it computes some of the one before again,
                   so   that its vectors are whole; may be left out */
    int todo;   /* EK_DO_* */
    float low, high, low_sum, high_sum;
    ek_after_f32_fn *after; /* what follows all that, or null */
    ek_coefficients_t coef; /* of it */
} ek_gemm_f32_t;

/* The windows from (y0, x0), `cols` pixels wide, `c` channels: [kh][cols][c], zeros around the
 * image. */
EK_SHARED void ek_patch_f32(const float *x, float *to, const ek_gemm_f32_t *p, int y0, int x0,
                            int cols, int c) {
    const int left = EK_MIN(EK_MAX(-x0, 0), cols), right = EK_MAX(left, EK_MIN(p->iw - x0, cols));
    EK_ROLLED for (int ky = 0; ky < p->kh; ky++, to += (ptrdiff_t)cols * c) {
        const int iy = y0 + ky * p->dh;
        if (iy < 0 || iy >= p->ih) {
            memset(to, 0, (size_t)cols * c * sizeof(float));
            continue;
        }
        const float *from = x + ((ptrdiff_t)iy * p->iw + x0) * p->ic;
        memset(to, 0, (size_t)left * c * sizeof(float));
        if (c == p->ic)
            memcpy(to + left * c, from + (ptrdiff_t)left * c,
                   (size_t)(right - left) * c * sizeof(float));
        else
            EK_ROLLED for (int i = left; i < right; i++)
                ek_row_f32(to + i * c, from + (ptrdiff_t)i * p->ic, c);
        memset(to + right * c, 0, (size_t)(cols - right) * c * sizeof(float));
    }
}

/* What windows [i, end) of a row read, and the oc channels of a group that they write. */
EK_SHARED void ek_gemm_f32_touch(const float *x, const float *added, const float *y,
                                 const ek_gemm_f32_t *p, int y0, int i, int end, int oc) {
    const int from = EK_MAX(i * p->sw - p->pl, 0),
              to = EK_MIN((end - 1) * p->sw - p->pl + (p->kw - 1) * p->dw + 1, p->iw);
    EK_ROLLED for (int ky = 0, iy = y0; ky < (p->touch & 1 ? p->kh : 0);
                   ky++, iy += p->dh) if (iy >= 0 && iy < p->ih)
        ek_touch_f32(x + ((ptrdiff_t)iy * p->iw + from) * p->ic,
                     (ptrdiff_t)(to - from - 1) * p->ic + p->group_ic);
    const ptrdiff_t at = (ptrdiff_t)i * p->yx, n = (ptrdiff_t)(end - i - 1) * p->yx + oc;
    if (p->touch & 2) ek_touch_f32(y + at, n);
    if (p->touch & 2 && added) ek_touch_f32(added + at, n);
}

/* Group g, and the blocks of windows in `some`. x, y, added: of its first channel. */
EK_KERNEL void ek_gemm_f32_group(const float *x, const float *w, const float *added, float *y,
                                 float *patch, const ek_gemm_f32_t *p, ek_tile_f32_fn *tile,
                                 ek_tile_f32_fn *tail, ek_tile_f32_t *t, int oc, int g,
                                 ek_range_t some, int part, int parts) {
    const int across = (p->ow + p->block - 1) / p->block, c = p->group_ic,
              wide = (p->kw - 1) * p->dw, last = p->last ? p->last : oc;
    const ptrdiff_t size = (ptrdiff_t)p->kh * p->kw * c * EK_PANEL_F32;
    const int whole = p->dw == 1 && c == p->ic; /* a row of a window is one run */
    const int blocks = p->n * p->oh * across, count = (oc + EK_PANEL_F32 - 1) / EK_PANEL_F32;
    EK_ROLLED for (int at_once = 0; at_once < count; at_once += p->panels)
        EK_ROLLED for (int b = some.from; b < some.to; b++) {
        const ek_range_t panels = ek_share_of(b, blocks, count, p->by_panel, part, parts);
        const int j = EK_MAX(at_once, panels.from), past = EK_MIN(at_once + p->panels, panels.to);
        if (j >= past) continue;
        const int row = b / across, image = row / p->oh, oy = row % p->oh, y0 = oy * p->sh - p->pt;
        const int end = EK_MIN(b % across * p->block + p->block, p->ow);
        const int inside = y0 >= 0 && y0 + (p->kh - 1) * p->dh < p->ih;
        const float *px = x + (ptrdiff_t)image * p->ih * p->iw * p->ic;
        const ptrdiff_t at = (ptrdiff_t)image * p->yn + (ptrdiff_t)oy * p->yy;
        if (p->touch && g == 0 && j == panels.from &&
            panels.to - j == count) /* else other threads write there too */
            ek_gemm_f32_touch(px, added ? added + at : added, y + at, p, y0, b % across * p->block,
                              end, oc);
#define EK_INSIDE_F32(I) \
    (inside && (I) * p->sw >= p->pl && ((I) + p->tile - 1) * p->sw - p->pl + wide < p->iw)
        EK_ROLLED for (int i = b % across * p->block, next; i < end; i = next) {
            const int direct = EK_INSIDE_F32(i), x0 = i * p->sw - p->pl;
            const ptrdiff_t to = at + (ptrdiff_t)i * p->yx;
            const float *from = px + ((ptrdiff_t)y0 * p->iw + x0) * p->ic;
            for (next = i + p->tile; next < end && EK_INSIDE_F32(next) == direct; next += p->tile) {
            }
            if (direct) {
                t->runs_x = whole ? 1 : p->kw, t->run = whole ? p->kw * c : c;
                t->dy = (ptrdiff_t)p->dh * p->iw * p->ic, t->dx = p->dw * p->ic,
                t->sx = p->sw * p->ic;
            } else {
                const int cols = (next - i - 1) * p->sw + wide + 1;
                ek_patch_f32(px, patch, p, y0, x0, cols, c);
                from = patch;
                t->runs_x = p->dw == 1 ? 1 : p->kw, t->run = p->dw == 1 ? p->kw * c : c;
                t->dy = (ptrdiff_t)cols * c, t->dx = p->dw * c, t->sx = p->sw * c;
            }
            EK_ROLLED for (int k = j; k < past; k++) {
                const int o = EK_MIN(k * EK_PANEL_F32, last), cols = EK_MIN(EK_PANEL_F32, oc - o);
                (cols <= EK_VL ? tail : tile)(from, w + k * size, added ? added + to + o : added,
                                              y + to + o, t, o, EK_MIN(next, end) - i, cols);
            }
            if (p->after) {
                const int o = j * EK_PANEL_F32, cols = EK_MIN(past * EK_PANEL_F32, oc) - o;
                ek_after_f32(p->after, y + to + o, p->yx, EK_MIN(next, end) - i, cols, &p->coef);
            }
        }
    }
}

/* x [n,ih,iw,ic], w packed for each group, bias and slope padded likewise, added as y or null.
 * patch: of this part alone. */
EK_SHARED void ek_gemm_f32_simd(const float *x, const float *w, const float *bias,
                                const float *slope, const float *added, float *y, float *patch,
                                const ek_gemm_f32_t *p, ek_tile_f32_fn *tile, ek_tile_f32_fn *tail,
                                int part, int parts) {
    const int groups = p->ic / p->group_ic, oc = p->oc / groups;
    const int padded = (oc + EK_VL - 1) / EK_VL * EK_VL;
    ek_tile_f32_t t = {.runs_y = p->kh,
                       .yx = p->yx,
                       .todo = p->todo,
                       .low = p->low,
                       .high = p->high,
                       .low_sum = p->low_sum,
                       .high_sum = p->high_sum,
                       .bias = bias,
                       .slope = slope};
    const int blocks = p->n * p->oh * ((p->ow + p->block - 1) / p->block),
              most = p->blocks ? p->blocks : blocks;
    EK_ROLLED for (int from = 0; from < blocks; from += most) {
        const float *own = w;
        t.bias = bias, t.slope = slope;
        const ek_range_t some = {from, EK_MIN(from + most, blocks)};
        EK_ROLLED for (int g = 0; g < groups; g++) {
            ek_gemm_f32_group(x + g * p->group_ic, own, added ? added + g * oc : added, y + g * oc,
                              patch, p, tile, tail, &t, oc, g, some, part, parts);
            own += (ptrdiff_t)padded * p->kh * p->kw * p->group_ic;
            t.bias += padded;
            if (slope) t.slope += padded;
        }
    }
}

/* Transposed: the results of one row and column of strides are those of a plain convolution, whose
 * taps lie sh and sw apart and are packed backwards. w: those of all sh * sw, one after the other.
 */
EK_SHARED void ek_transpose_conv2d_f32_simd(const float *x, const float *w, const float *bias,
                                            const float *slope, const float *added, float *y,
                                            float *patch, const ek_gemm_f32_t *p,
                                            ek_tile_f32_fn *tile, ek_tile_f32_fn *tail, int part,
                                            int parts) {
    const int padded = (p->oc + EK_VL - 1) / EK_VL * EK_VL;
    EK_ROLLED for (int py = 0; py < p->sh; py++) EK_ROLLED for (int px = 0; px < p->sw; px++) {
        ek_gemm_f32_t q = *p;
        const int ky = (py + p->pt) % p->sh, kx = (px + p->pl) % p->sw;
        const ptrdiff_t at = (ptrdiff_t)py * p->yy + (ptrdiff_t)px * p->yx;
        q.kh = (p->kh - ky + p->sh - 1) / p->sh, q.kw = (p->kw - kx + p->sw - 1) / p->sw;
        q.pt = q.kh - 1 - (py + p->pt - ky) / p->sh, q.pl = q.kw - 1 - (px + p->pl - kx) / p->sw;
        q.oh = (p->oh - py + p->sh - 1) / p->sh, q.ow = (p->ow - px + p->sw - 1) / p->sw;
        q.yx *= p->sw, q.yy *= p->sh, q.sh = q.sw = 1;
        ek_gemm_f32_simd(x, w, bias, slope, added ? added + at : added, y + at, patch, &q, tile,
                         tail, part, parts);
        w += (ptrdiff_t)padded * q.kh * q.kw * p->ic;
    }
}

#endif
