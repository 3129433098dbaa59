/* Float layers of ek_row_bands.h. */
#ifndef EK_ROW_BANDS_F32_SIMD_H
#define EK_ROW_BANDS_F32_SIMD_H
#include "../ek_row_bands.h"
#include "ek_dwconv2d_f32_simd.h"
#include "ek_gemm_f32_simd.h"

/* What ek_gemm_f32_simd takes. */
typedef struct {
    const float *w, *bias;
    const float *slope; /* or null */
    const ek_gemm_f32_t *p;
    ek_tile_f32_fn *tile, *tail;
} ek_band_gemm_f32_t;

EK_SHARED void ek_band_gemm_f32(const void *layer, const void *x, ptrdiff_t readable,
                                const void *added, void *y, void *scratch, int pixels) {
    const ek_band_gemm_f32_t *g = layer;
    ek_gemm_f32_t q = *g->p;
    (void)readable;
    q.iw = q.ow = pixels;
    ek_gemm_f32_simd(x, g->w, g->bias, g->slope, added, y, scratch, &q, g->tile, g->tail, 0, 1);
}

/* What ek_dwconv2d_f32_simd takes. */
typedef struct {
    const float *w, *bias;
    const float *slope; /* or null */
    const ek_dwconv2d_f32_t *p;
    ek_dwtile_f32_fn *tile;
} ek_band_dwconv2d_f32_t;

EK_SHARED void ek_band_dwconv2d_f32(const void *layer, const void *rows, const ek_band_t *band,
                                    const void *added, void *y, void *scratch) {
    const ek_band_dwconv2d_f32_t *d = layer;
    ek_dwconv2d_f32_t q = *d->p;
    const float *x = rows;
    q.ring = band->ring;
    if (!q.ring) x -= (ptrdiff_t)band->low * q.iw * q.c; /* they are the image itself */
    if (q.touch) ek_dwconv2d_f32_touch(x, y, &q, band->from, band->to, band->from == 0);
    if (!q.cols) memset(scratch, 0, (size_t)q.c * sizeof(float));
    ek_dwconv2d_f32_rows(x, d->w, d->bias, d->slope, y,
                         added ? (const float *)added - (float *)y : 0, scratch, &q, d->tile,
                         band->from, band->to, (ek_share_t){0, q.c});
}

#endif
