/* A 1x1 convolution, a depthwise one and a 1x1 one in bands of rows, so that what lies between them
 * stays in the cache: each band makes the expanded rows that it needs beyond those of the band
 * before, in place of some that it does not. Of any type: what computes a layer is in
 * ek_row_bands_f32_simd.h and ek_row_bands_s8.h. */
#ifndef EK_ROW_BANDS_H
#define EK_ROW_BANDS_H
#include "ek_base.h"

/* `pixels` results of a 1x1 convolution, whole rows of them. added: null, or as y. readable: bytes
 * from x on. */
typedef void ek_band_pointwise_fn(const void *layer, const void *x, ptrdiff_t readable,
                                  const void *added, void *y, void *scratch, int pixels);

/* Rows [from, to) of a depthwise result, by rows [low, high) of the image; `top` rows of padding
 * are above these. */
typedef struct {
    int from, to, low, high, top;
    int ring; /* 0, or row r of the image is in place r % ring */
} ek_band_t;

/* x: row `low` of the image, or the ring. y: row `from`. */
typedef void ek_band_depthwise_fn(const void *layer, const void *x, const ek_band_t *band,
                                  const void *added, void *y, void *scratch);

typedef struct {
    int n, ih, iw, oh, ow, kh, sh, dh, pt; /* of the depthwise convolution */
    int x_row, wide_row, y_row;            /* bytes of a row: of x, of the depthwise image, of y */
    int rows;                              /* of the depthwise result, in one band */
    int ring; /* expanded rows of a band, if the depthwise convolution takes a ring; else 0 */
    int kept, between; /* bytes of the expanded rows of a band and of its depthwise result, slack
                          included */
    /* Each convolution and its layer may be left out where there is none. */
    ek_band_pointwise_fn *before;                             /* may be left out */
    ek_band_depthwise_fn *depthwise;                          /* may be left out */
    ek_band_pointwise_fn *after;                              /* may be left out */
    const void *before_layer, *depthwise_layer, *after_layer; /* may be left out */
} ek_row_bands_t;

/* x: the image of the first convolution that there is; added: null, or as y. scratch: of this part
 * alone, expanded rows, then what is between, then what the layers need. Threads share the rows. */
EK_SHARED void ek_row_bands(const void *x, const void *added, void *y, void *scratch,
                            const ek_row_bands_t *p, int part, int parts) {
    const ptrdiff_t wide = p->wide_row;
    const ek_share_t share = ek_share(p->n * p->oh, p->dh, part, parts);
    unsigned char *kept = scratch, *between = kept + p->kept, *rest = between + p->between;
    int first = 0, past = 0; /* the expanded rows that there are */
    EK_NO_UNROLL for (int row = share.from, count; row < share.to; row += count) {
        const int image = row / p->oh, o = row % p->oh, y0 = o * p->sh - p->pt;
        count = EK_MIN(p->rows, EK_MIN(p->oh - o, share.to - row));
        const int low = EK_MIN(EK_MAX(y0, 0), p->ih);
        const int high =
            EK_MAX(EK_MIN(y0 + (count - 1) * p->sh + (p->kh - 1) * p->dh + 1, p->ih), low);
        const unsigned char *px = (const unsigned char *)x + (ptrdiff_t)image * p->ih * p->x_row;
        const ptrdiff_t at = ((ptrdiff_t)image * p->oh + o) * p->y_row;
        const void *more = added ? (const unsigned char *)added + at : NULL;
        unsigned char *to = (unsigned char *)y + at;
        const ek_band_t band = {o, o + count, low, high, low - y0, p->before ? p->ring : 0};
        if (p->before) {
            if (row == share.from || o == 0 || past < low) first = past = low;
            if (!p->ring) memmove(kept, kept + (low - first) * wide, (size_t)((past - low) * wide));
            first = low;
            EK_NO_UNROLL for (int next; past < high; past = next) {
                const int place = p->ring ? past % p->ring : past - low;
                next = p->ring ? EK_MIN(high, past - place + p->ring) : high;
                p->before(p->before_layer, px + (ptrdiff_t)past * p->x_row,
                          ((ptrdiff_t)(p->n - image) * p->ih - past) * p->x_row, NULL,
                          kept + place * wide, rest, (next - past) * p->iw);
            }
        }
        p->depthwise(p->depthwise_layer, p->before ? kept : px + low * wide, &band,
                     p->after ? NULL : more, p->after ? between : to, rest);
        if (p->after) p->after(p->after_layer, between, p->between, more, to, rest, count * p->ow);
    }
}

#endif
