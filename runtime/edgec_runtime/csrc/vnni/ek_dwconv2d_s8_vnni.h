/* Depthwise int8 convolution with AVX-512 VNNI: 64 channels of four taps at a time.
 *
 * Four taps are zipped to [channel][tap] by two rounds of unpacking, which leaves register j with
 * channels 4j to 4j + 3 of each sixteen; tables and weights have that order, and packing the
 * results undoes it. Elements are x + 128, the bias has -128 * sum(w - w_zero) in it. A unit: bias,
 * multiplier, the constants to add for even and for odd channels (int64), right and left
 * (ek_requant_vnni.h) [4][16] each; weights [groups][sets][4][16][4]. Of functions that round as
 * ek_even: bias, scale (float), 2 unused, the zero point, 1 unused. */
#ifndef EK_DWCONV2D_S8_VNNI_H
#define EK_DWCONV2D_S8_VNNI_H
#include "../ek_dwconv2d_taps_s8.h"
#include "ek_requant_vnni.h"

/* 64 elements of a tap, those of the mask. */
EK_KERNEL __m512i ek_dw_load_vnni(const int8_t *x, __mmask64 some) {
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(some, x), _mm512_set1_epi8(-128));
}

/* [channel][tap] of four taps. */
EK_KERNEL void ek_dw_zip_vnni(__m512i *v, __m512i x0, __m512i x1, __m512i x2, __m512i x3) {
    const __m512i a = _mm512_unpacklo_epi8(x0, x1), b = _mm512_unpacklo_epi8(x2, x3);
    const __m512i c = _mm512_unpackhi_epi8(x0, x1), d = _mm512_unpackhi_epi8(x2, x3);
    v[0] = _mm512_unpacklo_epi16(a, b), v[1] = _mm512_unpackhi_epi16(a, b);
    v[2] = _mm512_unpacklo_epi16(c, d), v[3] = _mm512_unpackhi_epi16(c, d);
}

/* How functions are made: as ek_dw_store_vnni has it; weights are sums of several bytes. */
enum { EK_DW_PLAIN = 1, EK_DW_SETS = 2, EK_DW_EVEN = 4 };

/* Sums to results, by the tables of a unit. EK_DW_PLAIN: as ek_requant_vnni, and the clamp is that
 * of saturation; EK_DW_EVEN: as ek_even. */
EK_KERNEL void ek_dw_store_vnni(int8_t *y, __m512i *sum, const unsigned char *unit, __mmask64 some,
                                const ek_dwconv2d_taps_s8_t *p, const int how) {
    const int plain = how & EK_DW_PLAIN;
    EK_UNROLL for (int j = 0; j < 4; j++) {
        const unsigned char *q = unit + 256 + 64 * j;
        if (how & EK_DW_EVEN) {
            sum[j] = ek_even_vnni(sum[j], q, q + 768);
            continue;
        }
        const ek_requant_vnni_t c = {
            _mm512_loadu_si512(q),       _mm512_loadu_si512(q + 4),   _mm512_loadu_si512(q + 256),
            _mm512_loadu_si512(q + 512), _mm512_loadu_si512(q + 768), _mm512_loadu_si512(q + 1024),
        };
        sum[j] = ek_requant_vnni(sum[j], c, plain);
    }
    __m512i v =
        _mm512_packs_epi16(_mm512_packs_epi32(sum[0], sum[1]), _mm512_packs_epi32(sum[2], sum[3]));
    if (!plain)
        v = _mm512_min_epi8(_mm512_max_epi8(v, _mm512_set1_epi8((char)p->low)),
                            _mm512_set1_epi8((char)p->high));
    _mm512_mask_storeu_epi8(y, some, v);
}

EK_KERNEL void ek_dw_run_s8_vnni(const int8_t *const *taps, const unsigned char *w, int8_t *y,
                                 const ek_dwconv2d_taps_s8_t *p, int width, const int groups,
                                 const int sets, const int how) {
    for (int at = 0; at < width; at += 64, w += p->step) {
        const __mmask64 some = width - at < 64 ? (1ull << (width - at)) - 1 : ~0ull;
        const unsigned char *k = w + 1536;
        __m512i sum[4], v[4];
        EK_UNROLL for (int j = 0; j < 4; j++) sum[j] = _mm512_loadu_si512(w + 64 * j);
        for (int g = 0; g < groups; g++) {
            const int8_t *const *t = taps + 4 * g;
            const __m512i x0 = ek_dw_load_vnni(t[0] + at, some),
                          x1 = ek_dw_load_vnni(t[1] + at, some);
            const __m512i x2 = ek_dw_load_vnni(t[2] + at, some),
                          x3 = ek_dw_load_vnni(t[3] + at, some);
            ek_dw_zip_vnni(v, x0, x1, x2, x3);
            for (int s = 0; s < sets; s++, k += 256)
                EK_UNROLL for (int j = 0; j < 4; j++) sum[j] =
                    _mm512_dpbusd_epi32(sum[j], v[j], _mm512_loadu_si512(k + 64 * j));
        }
        ek_dw_store_vnni(y + at, sum, w, some, p, how);
    }
}

/* Nine taps, and any number of them. */
#define EK_DW_RUN_VNNI(NAME, RUN, groups, sets, how)                                 \
    EK_SHARED void RUN(const int8_t *const *taps, const unsigned char *w, int8_t *y, \
                       const ek_dwconv2d_taps_s8_t *p, int width) {                  \
        ek_dw_run_s8_vnni(taps, w, y, p, width, groups, sets, how);                  \
    }                                                                                \
    EK_KERNEL void NAME(const int8_t *x, const unsigned char *w, int8_t *y,          \
                        const ek_dwconv2d_taps_s8_t *p, int part, int parts) {       \
        ek_dwconv2d_taps_s8(x, w, y, p, RUN, 4, part, parts);                        \
    }
EK_DW_RUN_VNNI(ek_dwconv2d_nine_s8_vnni, ek_dw_run_nine_s8_vnni, 3, 1, 0)
EK_DW_RUN_VNNI(ek_dwconv2d_any_s8_vnni, ek_dw_run_any_s8_vnni, p->groups, p->sets, 0)
EK_DW_RUN_VNNI(ek_dwconv2d_ninee_s8_vnni, ek_dw_run_ninee_s8_vnni, 3, 1, EK_DW_EVEN)
EK_DW_RUN_VNNI(ek_dwconv2d_anye_s8_vnni, ek_dw_run_anye_s8_vnni, p->groups, p->sets, EK_DW_EVEN)

/* Windows 3x3: three columns, each of four rows, move by `stride`; two rows of windows see the same
 * columns. Weights of a unit: by columns [3][4][16][4], those of rows 0 to 2 for the first row of
 * windows, and of 1 to 3 for the second. */
EK_KERNEL void ek_dw_column_vnni(__m512i *v, const ek_dw_rows_s8_t *r, int ix, int at,
                                 __mmask64 some, const ek_dwconv2d_taps_s8_t *p, const int rows) {
    if ((unsigned)ix < (unsigned)p->iw) {
        __m512i x[4];
        EK_UNROLL for (int i = 0; i < 4; i++) x[i] =
            i <= rows + 1 ? ek_dw_load_vnni(r->row[i] + (ptrdiff_t)ix * r->pixel[i] + at, some)
                          : x[0];
        ek_dw_zip_vnni(v, x[0], x[1], x[2], x[3]);
    } else {
        v[0] = v[1] = v[2] = v[3] =
            _mm512_xor_si512(_mm512_set1_epi8(*p->zeros), _mm512_set1_epi8(-128));
    }
}

/* The results of windows whose columns are k. */
EK_KERNEL void ek_dw_windows_vnni(__m512i k[3][4], const ek_dw_rows_s8_t *r, ptrdiff_t at,
                                  const unsigned char *w, __mmask64 some,
                                  const ek_dwconv2d_taps_s8_t *p, const int rows, const int how) {
    const int sets = how & EK_DW_SETS ? p->sets : 1;
    EK_UNROLL for (int row = rows - 1; row >= 0; row--) {
        const unsigned char *weights = w + 1536 + 768 * sets * row;
        __m512i sum[4];
        EK_UNROLL for (int j = 0; j < 4; j++) sum[j] = _mm512_loadu_si512(w + 64 * j);
        EK_UNROLL for (int i = 0; i < 3; i++) for (int s = 0; s < sets; s++, weights += 256)
            EK_UNROLL for (int j = 0; j < 4; j++) sum[j] =
                _mm512_dpbusd_epi32(sum[j], k[i][j], _mm512_loadu_si512(weights + 64 * j));
        ek_dw_store_vnni(r->y[row] + at, sum, w, some, p, how);
    }
}
EK_KERNEL void ek_dw_slide_vnni(const ek_dw_rows_s8_t *r, const unsigned char *w,
                                const ek_dwconv2d_taps_s8_t *p, int from, int to, const int stride,
                                const int how) {
    const int rows = 3 - stride;
    w += (ptrdiff_t)from * p->step;
    for (int at = 64 * from; at < EK_MIN(p->c, 64 * to); at += 64, w += p->step) {
        const __mmask64 some = p->c - at < 64 ? (1ull << (p->c - at)) - 1 : ~0ull;
        __m512i k[3][4];
        EK_UNROLL for (int i = 0; i < 3 - stride; i++)
            ek_dw_column_vnni(k[i], r, i - p->pl, at, some, p, rows);
        for (int ox = 0; ox < p->ow; ox++) {
            const int ix = ox * stride - p->pl;
            EK_UNROLL for (int i = 3 - stride; i < 3; i++)
                ek_dw_column_vnni(k[i], r, ix + i, at, some, p, rows);
            ek_dw_windows_vnni(k, r, (ptrdiff_t)ox * p->c + at, w, some, p, rows, how);
            EK_UNROLL for (int i = 0; i < 3 - stride; i++) EK_UNROLL for (int j = 0; j < 4; j++)
                k[i][j] = k[i + stride][j];
        }
    }
}
/* The same for images so narrow that a unit has several pixels: stride 1, columns are loaded for
 * each unit. */
EK_KERNEL void ek_dw_flat_vnni(const ek_dw_rows_s8_t *r, const unsigned char *w,
                               const ek_dwconv2d_taps_s8_t *p, const int how) {
    const int inside = p->iw - 2 + p->pl, pixels = 64 / p->c;
    for (int ox = 0, count; ox < p->ow; ox += count) {
        const int ix = ox - p->pl;
        count = ix >= 0 && ox < inside ? EK_MIN(EK_MIN(p->ow, inside) - ox, pixels) : 1;
        const __mmask64 some = ~0ull >> (64 - count * p->c);
        __m512i k[3][4];
        EK_UNROLL for (int i = 0; i < 3; i++) ek_dw_column_vnni(k[i], r, ix + i, 0, some, p, 2);
        ek_dw_windows_vnni(k, r, (ptrdiff_t)ox * p->c, w, some, p, 2, how);
    }
}

/* The functions for rows of windows, `at_once` of them. */
#define EK_DW_ROWS_VNNI(NAME, ROWS, at_once, CALL)                             \
    EK_SHARED void ROWS(const ek_dw_rows_s8_t *r, const unsigned char *w,      \
                        const ek_dwconv2d_taps_s8_t *p, int from, int to) {    \
        (void)from, (void)to; /* a flat row is one unit */                     \
        CALL;                                                                  \
    }                                                                          \
    EK_KERNEL void NAME(const int8_t *x, const unsigned char *w, int8_t *y,    \
                        const ek_dwconv2d_taps_s8_t *p, int part, int parts) { \
        ek_dwconv2d_slide_s8(x, w, y, p, ROWS, at_once, part, parts);          \
    }
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s1_s8_vnni, ek_dw_k3s1_s8_vnni, 2,
                ek_dw_slide_vnni(r, w, p, from, to, 1, 0))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s2_s8_vnni, ek_dw_k3s2_s8_vnni, 1,
                ek_dw_slide_vnni(r, w, p, from, to, 2, 0))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3flat_s8_vnni, ek_dw_k3flat_s8_vnni, 2, ek_dw_flat_vnni(r, w, p, 0))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s1p_s8_vnni, ek_dw_k3s1p_s8_vnni, 2,
                ek_dw_slide_vnni(r, w, p, from, to, 1, EK_DW_PLAIN))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s2p_s8_vnni, ek_dw_k3s2p_s8_vnni, 1,
                ek_dw_slide_vnni(r, w, p, from, to, 2, EK_DW_PLAIN))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3flatp_s8_vnni, ek_dw_k3flatp_s8_vnni, 2,
                ek_dw_flat_vnni(r, w, p, EK_DW_PLAIN))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s1z_s8_vnni, ek_dw_k3s1z_s8_vnni, 2,
                ek_dw_slide_vnni(r, w, p, from, to, 1, EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s2z_s8_vnni, ek_dw_k3s2z_s8_vnni, 1,
                ek_dw_slide_vnni(r, w, p, from, to, 2, EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3flatz_s8_vnni, ek_dw_k3flatz_s8_vnni, 2,
                ek_dw_flat_vnni(r, w, p, EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s1zp_s8_vnni, ek_dw_k3s1zp_s8_vnni, 2,
                ek_dw_slide_vnni(r, w, p, from, to, 1, EK_DW_PLAIN | EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s2zp_s8_vnni, ek_dw_k3s2zp_s8_vnni, 1,
                ek_dw_slide_vnni(r, w, p, from, to, 2, EK_DW_PLAIN | EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3flatzp_s8_vnni, ek_dw_k3flatzp_s8_vnni, 2,
                ek_dw_flat_vnni(r, w, p, EK_DW_PLAIN | EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s1e_s8_vnni, ek_dw_k3s1e_s8_vnni, 2,
                ek_dw_slide_vnni(r, w, p, from, to, 1, EK_DW_EVEN))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s2e_s8_vnni, ek_dw_k3s2e_s8_vnni, 1,
                ek_dw_slide_vnni(r, w, p, from, to, 2, EK_DW_EVEN))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3flate_s8_vnni, ek_dw_k3flate_s8_vnni, 2,
                ek_dw_flat_vnni(r, w, p, EK_DW_EVEN))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s1ze_s8_vnni, ek_dw_k3s1ze_s8_vnni, 2,
                ek_dw_slide_vnni(r, w, p, from, to, 1, EK_DW_EVEN | EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3s2ze_s8_vnni, ek_dw_k3s2ze_s8_vnni, 1,
                ek_dw_slide_vnni(r, w, p, from, to, 2, EK_DW_EVEN | EK_DW_SETS))
EK_DW_ROWS_VNNI(ek_dwconv2d_k3flatze_s8_vnni, ek_dw_k3flatze_s8_vnni, 2,
                ek_dw_flat_vnni(r, w, p, EK_DW_EVEN | EK_DW_SETS))

#endif
