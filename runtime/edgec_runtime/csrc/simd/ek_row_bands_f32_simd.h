/* A 1x1 convolution, a depthwise one and a 1x1 one in bands of rows, so that what lies between them stays in the cache:
 * each band makes the expanded rows that it needs beyond those of the band before, in place of some that it does not. */
#ifndef EK_ROW_BANDS_F32_SIMD_H
#define EK_ROW_BANDS_F32_SIMD_H
#include "ek_dwconv2d_f32_simd.h"
#include "ek_gemm_f32_simd.h"

/* A 1x1 convolution of any number of pixels, with what ek_gemm_f32_simd takes. */
typedef struct {
    ek_gemm_f32_t p;
    const float *w, *bias, *slope; /* w: null where there is no such convolution */
    ek_tile_f32_fn *tile, *tail;
} ek_band_gemm_f32_t;

typedef struct {
    ek_band_gemm_f32_t before, after;
    ek_dwconv2d_f32_t p;
    const float *w, *bias, *slope;
    ek_dwtile_f32_fn *tile;
    int rows;          /* of the depthwise result, in one band */
    int kept, between; /* floats of the expanded rows of a band, and of its depthwise result */
} ek_row_bands_f32_t;

EK_SHARED void ek_band_gemm_f32(const float *x, const ek_band_gemm_f32_t *g, const float *added, float *y, float *patch,
                                int pixels) {
    ek_gemm_f32_t q = g->p;
    q.iw = q.ow = pixels;
    ek_gemm_f32_simd(x, g->w, g->bias, g->slope, added, y, patch, &q, g->tile, g->tail, 0, 1);
}

/* x: the image of the first convolution that there is; added: null, or as y. kept: scratch of this part alone, those
 * rows, then what is between, then what the convolutions need. Threads share the bands. */
EK_SHARED void ek_row_bands_f32_simd(const float *x, const float *added, float *y, float *kept, const ek_row_bands_f32_t *p,
                                 int part, int parts) {
    const ek_dwconv2d_f32_t *d = &p->p;
    const int bands = (d->oh + p->rows - 1) / p->rows, has_before = p->before.w != NULL, has_after = p->after.w != NULL;
    const ptrdiff_t wide = (ptrdiff_t)d->iw * d->c, x_row = has_before ? (ptrdiff_t)d->iw * p->before.p.ic : wide;
    const ptrdiff_t y_row = (ptrdiff_t)d->ow * (has_after ? p->after.p.yx : d->yx);
    const ek_share_t share = ek_share(d->n * bands, 1, part, parts);
    float *between = kept + p->kept, *rest = between + p->between;
    int to = 0; /* the last ones that there are of those rows */
    ek_dwconv2d_f32_t q = *d;
    if (has_before) q.ring = (int)(p->kept / wide);
    EK_ROLLED for (int b = share.from; b < share.to; b++) {
        const int image = b / bands, o = b % bands * p->rows, count = EK_MIN(p->rows, d->oh - o), y0 = o * d->sh - d->pt;
        const int low = EK_MIN(EK_MAX(y0, 0), d->ih);
        const int high = EK_MAX(EK_MIN(y0 + (count - 1) * d->sh + (d->kh - 1) * d->dh + 1, d->ih), low);
        const float *px = x + (ptrdiff_t)image * d->ih * x_row;
        const ptrdiff_t at = ((ptrdiff_t)image * d->oh + o) * y_row;
        float *dw = has_after ? between : y + at;
        if (has_before) {
            if (b == share.from || o == 0 || to < low) to = low;
            EK_ROLLED for (int next; to < high; to = next) {
                next = EK_MIN(high, to - to % q.ring + q.ring);
                ek_band_gemm_f32(px + to * x_row, &p->before, NULL, kept + to % q.ring * wide, rest, (next - to) * d->iw);
            }
        }
        if (!q.cols) memset(rest, 0, (size_t)q.c * sizeof(float));
        ek_dwconv2d_f32_rows(has_before ? kept : px, p->w, p->bias, p->slope, dw, !has_after && added ? added - y : 0, rest,
                             &q, p->tile, o, o + count);
        if (has_after) ek_band_gemm_f32(between, &p->after, added ? added + at : NULL, y + at, rest, count * d->ow);
    }
}

#endif
