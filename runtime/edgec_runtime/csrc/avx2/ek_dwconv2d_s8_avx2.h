/* Depthwise int8 convolution with AVX2: 16 channels of two taps at a time, as int16.
 *
 * Two taps are zipped to [channel][tap], which leaves one register with the channels 0 to 3 and 8
 * to 11, another with the others; tables and weights have that order, and packing the results
 * undoes it. A unit: bias, multiplier, addend, shift (ek_requant_avx2.h), or of functions that
 * round as ek_even: bias, scale (float), nothing, the zero point, [2][8] each; weights, less their
 * zero point, int16 [groups][2][8][2]. */
#ifndef EK_DWCONV2D_S8_AVX2_H
#define EK_DWCONV2D_S8_AVX2_H
#include "../ek_dwconv2d_taps_s8.h"
#include "ek_requant_avx2.h"

/* The sums and results of 16 channels. */
EK_KERNEL __m128i ek_dw_unit_s8_avx2(const int8_t *const *taps, ptrdiff_t at,
                                     const unsigned char *w, const ek_dwconv2d_taps_s8_t *p,
                                     const int groups, const int even) {
    const __m256i *q = (const void *)w, *k = q + 8;
    __m256i sum[2] = {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
    for (int g = 0; g < groups; g++, k += 2) {
        const __m256i a = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(taps[2 * g] + at)));
        const __m256i b =
            _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(taps[2 * g + 1] + at)));
        sum[0] = _mm256_add_epi32(
            sum[0], _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), _mm256_loadu_si256(k)));
        sum[1] = _mm256_add_epi32(
            sum[1], _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), _mm256_loadu_si256(k + 1)));
    }
    EK_UNROLL for (int j = 0; j < 2; j++) {
        const int32_t *c = (const void *)(q + 2 + j);
        if (even) {
            sum[j] = ek_even_avx2(sum[j], c, c + 32);
            continue;
        }
        sum[j] = ek_requant_avx2(sum[j], ek_requant_load_avx2(c, c + 16, c + 32), 0);
    }
    const __m256i v = _mm256_packs_epi32(sum[0], sum[1]);
    const __m128i narrow =
        _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return _mm_min_epi8(_mm_max_epi8(narrow, _mm_set1_epi8((char)p->low)),
                        _mm_set1_epi8((char)p->high));
}

EK_KERNEL void ek_dw_run_s8_avx2(const int8_t *const *taps, const unsigned char *w, int8_t *y,
                                 const ek_dwconv2d_taps_s8_t *p, int width, const int groups,
                                 const int even) {
    int at = 0;
    for (; at + 16 <= width; at += 16, w += p->step)
        _mm_storeu_si128((void *)(y + at), ek_dw_unit_s8_avx2(taps, at, w, p, groups, even));
    if (at < width) { /* the rest: of copies */
        int8_t some[EK_DW_MAX_TAPS][16], all[16];
        const int8_t *copies[EK_DW_MAX_TAPS];
        for (int t = 0; t < 2 * groups; t++) {
            for (int i = 0; i < width - at; i++) some[t][i] = taps[t][at + i];
            copies[t] = some[t];
        }
        _mm_storeu_si128((void *)all, ek_dw_unit_s8_avx2(copies, 0, w, p, groups, even));
        for (int i = 0; i < width - at; i++) y[at + i] = all[i];
    }
}

/* Nine taps, and any number of them. */
#define EK_DW_RUN_AVX2(NAME, RUN, groups, even)                                      \
    EK_SHARED void RUN(const int8_t *const *taps, const unsigned char *w, int8_t *y, \
                       const ek_dwconv2d_taps_s8_t *p, int width) {                  \
        ek_dw_run_s8_avx2(taps, w, y, p, width, groups, even);                       \
    }                                                                                \
    EK_KERNEL void NAME(const int8_t *x, const unsigned char *w, int8_t *y,          \
                        const ek_dwconv2d_taps_s8_t *p, int part, int parts) {       \
        ek_dwconv2d_taps_s8(x, w, y, p, RUN, 2, part, parts);                        \
    }
EK_DW_RUN_AVX2(ek_dwconv2d_nine_s8_avx2, ek_dw_run_nine_s8_avx2, 5, 0)
EK_DW_RUN_AVX2(ek_dwconv2d_any_s8_avx2, ek_dw_run_any_s8_avx2, p->groups, 0)
EK_DW_RUN_AVX2(ek_dwconv2d_ninee_s8_avx2, ek_dw_run_ninee_s8_avx2, 5, 1)
EK_DW_RUN_AVX2(ek_dwconv2d_anye_s8_avx2, ek_dw_run_anye_s8_avx2, p->groups, 1)

#endif
