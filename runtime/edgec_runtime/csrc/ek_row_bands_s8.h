/* Int8 layers of ek_row_bands.h. */
#ifndef EK_ROW_BANDS_S8_H
#define EK_ROW_BANDS_S8_H
#include "ek_dwconv2d_s8.h"
#include "ek_dwconv2d_taps_s8.h"
#include "ek_gemm_s8.h"
#include "ek_row_bands.h"

/* One of the ek_gemm_s8_m*, whose rows of windows are rows of the image. */
typedef void ek_gemm_s8_fn(const int8_t *x, const void *panels, int8_t *y, const ek_gemm_s8_t *p,
                           void *scratch, int part, int parts);
typedef struct {
    const void *w;
    const ek_gemm_s8_t *p;
    ek_gemm_s8_fn *kernel;
} ek_band_gemm_s8_t;

EK_SHARED void ek_band_gemm_s8(const void *layer, const void *x, ptrdiff_t readable,
                               const void *added, void *y, void *scratch, int pixels) {
    const ek_band_gemm_s8_t *g = layer;
    ek_gemm_s8_t q = *g->p;
    (void)added;
    q.ih = q.oh = pixels / q.ow, q.windows = pixels, q.size = (int)EK_MIN(readable, INT32_MAX);
    g->kernel(x, g->w, y, &q, scratch, 0, 1);
}

/* One of the ek_dwconv2d_s8_* for Arm. */
typedef void ek_dwconv2d_s8_fn(const int8_t *x, int8_t *y, const ek_dwconv2d_s8_t *p, void *scratch,
                               int part, int parts);
typedef struct {
    const ek_dwconv2d_s8_t *p;
    ek_dwconv2d_s8_fn *kernel;
} ek_band_dwconv2d_s8_t;

EK_SHARED void ek_band_dwconv2d_s8(const void *layer, const void *x, const ek_band_t *band,
                                   const void *added, void *y, void *scratch) {
    const ek_band_dwconv2d_s8_t *d = layer;
    ek_dwconv2d_s8_t q = *d->p;
    (void)added;
    q.n = 1, q.ih = band->high - band->low, q.oh = band->to - band->from, q.pt = band->top;
    d->kernel(x, y, &q, scratch, 0, 1);
}

/* One of the ek_dwconv2d_*_s8_* for x86. */
typedef void ek_dwconv2d_taps_s8_fn(const int8_t *x, const unsigned char *w, int8_t *y,
                                    const ek_dwconv2d_taps_s8_t *p, int part, int parts);
typedef struct {
    const void *w;
    const ek_dwconv2d_taps_s8_t *p;
    ek_dwconv2d_taps_s8_fn *kernel;
} ek_band_dwconv2d_taps_s8_t;

EK_SHARED void ek_band_dwconv2d_taps_s8(const void *layer, const void *x, const ek_band_t *band,
                                        const void *added, void *y, void *scratch) {
    const ek_band_dwconv2d_taps_s8_t *d = layer;
    ek_dwconv2d_taps_s8_t q = *d->p;
    (void)added, (void)scratch;
    q.n = 1, q.ih = band->high - band->low, q.oh = band->to - band->from, q.pt = band->top;
    d->kernel(x, d->w, y, &q, 0, 1);
}

#endif
