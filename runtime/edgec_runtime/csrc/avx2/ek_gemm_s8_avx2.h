/* Tiles of ek_gemm_s8.h for x86 with AVX2: mr windows times 8, 16 or 24 channels, all sums in
 * registers.
 *
 * vpmaddwd adds two products of int16, and never overflows: elements become int16 while rows pass
 * through the line buffers, and weights are packed as int16, less their zero point. Panel: bias,
 * multiplier, addend, shift (ek_requant_avx2.h) [nr] each; weights [taps][run / 2][nr][2], run
 * padded to 2. */
#ifndef EK_GEMM_S8_AVX2_H
#define EK_GEMM_S8_AVX2_H
#include "../ek_gemm_s8.h"
#include "ek_requant_avx2.h"

/* ek_gemm_s8_load_t: int16. */
EK_SHARED void ek_gemm_s8_load_avx2(void *to, const int8_t *from, ptrdiff_t n) {
    int16_t *y = to;
    ptrdiff_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((void *)(y + i),
                            _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(from + i))));
    for (; i < n; i++) y[i] = from[i];
}

/* 8 * nv results of one window, in order, in the low bytes. */
EK_KERNEL __m256i ek_gemm_s8_narrow_avx2(const __m256i *v, const int nv) {
    const __m256i order = nv == 3 ? _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)
                                  : _mm256_setr_epi32(0, 4, 1, 5, 0, 0, 0, 0);
    const __m256i low = _mm256_packs_epi32(v[0], v[nv > 1]),
                  high = nv == 3 ? _mm256_packs_epi32(v[2], v[2]) : low;
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high), order);
}

/* The first bytes of a register. */
EK_SHARED void ek_gemm_s8_some_avx2(int8_t *y, __m256i v, int count) {
    int8_t all[32];
    _mm256_storeu_si256((void *)all, v);
    EK_NO_UNROLL for (int i = 0; i < count; i++) y[i] = all[i];
}

/* 8 * nv results of one window, those of `channels`. */
EK_KERNEL void ek_gemm_s8_put_avx2(int8_t *y, __m256i v, int channels, const int nv) {
    if (channels < 8 * nv) {
        ek_gemm_s8_some_avx2(y, v, channels);
    } else if (nv == 1) {
        _mm_storel_epi64((void *)y, _mm256_castsi256_si128(v));
    } else {
        _mm_storeu_si128((void *)y, _mm256_castsi256_si128(v));
        if (nv == 3) _mm_storel_epi64((void *)(y + 16), _mm256_extracti128_si256(v, 1));
    }
}

/* The sums of a tile to results, where negative ones and the clamp are those of saturation. */
EK_KERNEL void ek_gemm_s8_store_avx2(__m256i sum[][3], const int32_t *q, int8_t *y, int channels,
                                     const ek_gemm_s8_t *p, const int mr, const int nv) {
    EK_UNROLL for (int i = 0; i < nv; i++, q += 8) {
        const ek_requant_avx2_t c = ek_requant_load_avx2(q + 8 * nv, q + 16 * nv, q + 24 * nv);
        EK_UNROLL for (int r = 0; r < mr; r++) sum[r][i] = ek_requant_avx2(sum[r][i], c, 1);
    }
    EK_UNROLL for (int r = 0; r < mr; r++)
        ek_gemm_s8_put_avx2(y + r * p->y_step, ek_gemm_s8_narrow_avx2(sum[r], nv), channels, nv);
}

/* The same of any sums, once for all tiles of a width: it is not as fast, but few results need it.
 */
#define EK_GEMM_S8_STORE_AVX2(nv)                                                                  \
    EK_SHARED void ek_gemm_s8_store_n##nv##_avx2(__m256i *sum, int mr, const unsigned char *panel, \
                                                 int8_t *y, int channels, const ek_gemm_s8_t *p) { \
        const __m256i low = _mm256_set1_epi8((char)p->low),                                        \
                      high = _mm256_set1_epi8((char)p->high);                                      \
        const int32_t *q = (const void *)panel;                                                    \
        if (p->finish == EK_GEMM_LAW) {                                                            \
            ek_gemm_s8_law((const void *)sum, mr, panel, y, channels, p);                          \
            return;                                                                                \
        }                                                                                          \
        if (p->finish == EK_GEMM_SCALE) {                                                          \
            ek_gemm_s8_scale((const void *)sum, mr, panel, y, channels, p);                        \
            return;                                                                                \
        }                                                                                          \
        EK_UNROLL for (int i = 0; i < nv; i++, q += 8) {                                           \
            const ek_requant_avx2_t c =                                                            \
                ek_requant_load_avx2(q + 8 * nv, q + 16 * nv, q + 24 * nv);                        \
            EK_NO_UNROLL for (int r = 0; r < mr; r++) sum[r * nv + i] =                            \
                p->finish == EK_GEMM_EVEN ? ek_even_avx2(sum[r * nv + i], q + 8 * nv, q + 16 * nv) \
                                          : ek_requant_avx2(sum[r * nv + i], c, 0);                \
        }                                                                                          \
        EK_NO_UNROLL for (int r = 0; r < mr; r++, sum += nv, y += p->y_step) {                     \
            const __m256i v = _mm256_max_epi8(ek_gemm_s8_narrow_avx2(sum, nv), low);               \
            ek_gemm_s8_put_avx2(y, _mm256_min_epi8(v, high), channels, nv);                        \
        }                                                                                          \
    }
EK_GEMM_S8_STORE_AVX2(1)
EK_GEMM_S8_STORE_AVX2(2)
EK_GEMM_S8_STORE_AVX2(3)

EK_KERNEL void ek_gemm_s8_tile_avx2(const int8_t *const *taps, ptrdiff_t at,
                                    const unsigned char *panel, int8_t *y, int channels,
                                    const ek_gemm_s8_t *p, const int mr, const int nv) {
    const int32_t *q = (const void *)panel;
    const int16_t *w = (const void *)(panel + 128 * nv);
    const ptrdiff_t step = p->step;
    __m256i sum[8][3];
    EK_UNROLL for (int r = 0; r < mr; r++) EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] =
        _mm256_loadu_si256((const void *)(q + 8 * i));
    for (int t = 0; t < p->taps; t++) {
        const int8_t *x = taps[t] + at;
        EK_NO_UNROLL for (int k = 0; k < p->run; k += 2, x += 4, w += 16 * nv) {
            __m256i v[3];
            EK_UNROLL for (int i = 0; i < nv; i++) v[i] =
                _mm256_loadu_si256((const void *)(w + 16 * i));
            EK_UNROLL for (int r = 0; r < mr; r++) {
                int32_t two;
                memcpy(&two, x + r * step, 4);
                const __m256i u = _mm256_set1_epi32(two);
                EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] =
                    _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(u, v[i]));
            }
        }
    }
    if (p->finish == EK_GEMM_FAST && p->low == -128 && p->high == 127 && p->y_zero == -128) {
        ek_gemm_s8_store_avx2(sum, q, y, channels, p, mr, nv);
    } else {
        __m256i all[8 * 3];
        EK_UNROLL for (int r = 0; r < mr; r++) EK_UNROLL for (int i = 0; i < nv; i++)
            all[r * nv + i] = sum[r][i];
        (nv == 1   ? ek_gemm_s8_store_n1_avx2
         : nv == 2 ? ek_gemm_s8_store_n2_avx2
                   : ek_gemm_s8_store_n3_avx2)(all, mr, panel, y, channels, p);
    }
}

EK_GEMM_S8(ek_gemm_s8_m4n24_avx2, ek_gemm_s8_row_m4n24_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 4, 3)
EK_GEMM_S8(ek_gemm_s8_m2n24_avx2, ek_gemm_s8_row_m2n24_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 2, 3)
EK_GEMM_S8(ek_gemm_s8_m1n24_avx2, ek_gemm_s8_row_m1n24_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 1, 3)
EK_GEMM_S8(ek_gemm_s8_m6n16_avx2, ek_gemm_s8_row_m6n16_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 6, 2)
EK_GEMM_S8(ek_gemm_s8_m5n16_avx2, ek_gemm_s8_row_m5n16_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 5, 2)
EK_GEMM_S8(ek_gemm_s8_m4n16_avx2, ek_gemm_s8_row_m4n16_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 4, 2)
EK_GEMM_S8(ek_gemm_s8_m2n16_avx2, ek_gemm_s8_row_m2n16_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 2, 2)
EK_GEMM_S8(ek_gemm_s8_m1n16_avx2, ek_gemm_s8_row_m1n16_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 1, 2)
EK_GEMM_S8(ek_gemm_s8_m8n8_avx2, ek_gemm_s8_row_m8n8_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 8, 1)
EK_GEMM_S8(ek_gemm_s8_m4n8_avx2, ek_gemm_s8_row_m4n8_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 4, 1)
EK_GEMM_S8(ek_gemm_s8_m1n8_avx2, ek_gemm_s8_row_m1n8_avx2, ek_gemm_s8_load_avx2,
           ek_gemm_s8_tile_avx2, 1, 1)

#endif
