/* Tiles of ek_gemm_s8.h for x86 with AVX-512 VNNI: mr windows times 16, 32, 48 or 64 channels, all
 * sums in registers.
 *
 * vpdpbusd multiplies unsigned by signed bytes: elements are x + 128, made while rows pass through
 * the line buffers, and the panel's bias has -128 * sum(w - w_zero) in it. Panel: bias, multiplier,
 * addend, shift (ek_requant_vnni.h) [nr] each; weights [taps][run / 4][nr][4], run padded to 4. */
#ifndef EK_GEMM_S8_VNNI_H
#define EK_GEMM_S8_VNNI_H
#include "../ek_gemm_s8.h"
#include "ek_requant_vnni.h"

/* ek_gemm_s8_load_t: x + 128. */
EK_SHARED void ek_gemm_s8_load_vnni(void *to, const int8_t *from, ptrdiff_t n) {
    const __m512i flip = _mm512_set1_epi8(-128);
    uint8_t *y = to;
    ptrdiff_t i = 0;
    for (; i + 64 <= n; i += 64)
        _mm512_storeu_si512(y + i, _mm512_xor_si512(_mm512_loadu_si512(from + i), flip));
    if (i < n) {
        const __mmask64 rest = ~0ull >> (64 - (n - i));
        _mm512_mask_storeu_epi8(y + i, rest,
                                _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, from + i), flip));
    }
}

/* 16 * nv results of one window, in order, in the low bytes. */
EK_KERNEL __m512i ek_gemm_s8_narrow_vnni(const __m512i *v, const int nv) {
    if (nv == 1) return _mm512_castsi128_si512(_mm512_cvtsepi32_epi8(v[0]));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i low = _mm512_packs_epi32(v[0], v[1]);
    const __m512i high = nv == 2 ? low : _mm512_packs_epi32(v[2], v[nv - 1]);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}

/* mr windows of 16 * nv sums to results. plain: negative results and the clamp are those of
 * saturation. even: of EK_GEMM_EVEN. */
EK_KERNEL void ek_gemm_s8_store_vnni(const int32_t *sums, int mr, const int32_t *q, int8_t *y,
                                     int channels, const ek_gemm_s8_t *p, const int nv,
                                     const int plain, const int even) {
    const __m512i low = _mm512_set1_epi8((char)p->low), high = _mm512_set1_epi8((char)p->high);
    const __mmask64 some = ~0ull >> (64 - channels);
    ek_requant_vnni_t c[4];
    if (!even)
        EK_UNROLL for (int i = 0; i < nv; i++) c[i] =
            ek_requant_load_vnni(q + 16 * (nv + i), q + 16 * (2 * nv + i), q + 16 * (3 * nv + i));
    EK_NO_UNROLL for (int r = 0; r < mr; r++, y += p->y_step) {
        __m512i v[4];
        EK_UNROLL for (int i = 0; i < nv; i++, sums += 16) v[i] =
            even ? ek_even_vnni(_mm512_loadu_si512(sums), q + 16 * (nv + i), q + 16 * (2 * nv + i))
                 : ek_requant_vnni(_mm512_loadu_si512(sums), c[i], plain);
        v[0] = ek_gemm_s8_narrow_vnni(v, nv);
        if (!plain) v[0] = _mm512_min_epi8(_mm512_max_epi8(v[0], low), high);
        if (channels < 16 * nv || nv == 3)
            _mm512_mask_storeu_epi8(y, some, v[0]);
        else if (nv == 4)
            _mm512_storeu_si512(y, v[0]);
        else if (nv == 2)
            _mm256_storeu_si256((void *)y, _mm512_castsi512_si256(v[0]));
        else
            _mm_storeu_si128((void *)y, _mm512_castsi512_si128(v[0]));
    }
}

/* One for all tiles of a width: in each of them it would be most of the code. */
#define EK_GEMM_S8_STORE_VNNI(nv)                                                       \
    EK_SHARED void ek_gemm_s8_store_n##nv##_vnni(const int32_t *sums, int mr,           \
                                                 const unsigned char *panel, int8_t *y, \
                                                 int channels, const ek_gemm_s8_t *p) { \
        const int32_t *q = (const void *)panel;                                         \
        if (p->finish == EK_GEMM_LAW)                                                   \
            ek_gemm_s8_law(sums, mr, panel, y, channels, p);                            \
        else if (p->finish == EK_GEMM_EVEN)                                             \
            ek_gemm_s8_store_vnni(sums, mr, q, y, channels, p, nv, 0, 1);               \
        else if (p->finish == EK_GEMM_SCALE)                                            \
            ek_gemm_s8_scale(sums, mr, panel, y, channels, p);                          \
        else if (p->low == -128 && p->high == 127 && p->y_zero == -128)                 \
            ek_gemm_s8_store_vnni(sums, mr, q, y, channels, p, nv, 1, 0);               \
        else                                                                            \
            ek_gemm_s8_store_vnni(sums, mr, q, y, channels, p, nv, 0, 0);               \
    }
EK_GEMM_S8_STORE_VNNI(1)
EK_GEMM_S8_STORE_VNNI(2)
EK_GEMM_S8_STORE_VNNI(3)
EK_GEMM_S8_STORE_VNNI(4)

/* zero: whether the weights have a zero point. */
EK_KERNEL void ek_gemm_s8_tile_vnni(const int8_t *const *taps, ptrdiff_t at,
                                    const unsigned char *panel, int8_t *y, int channels,
                                    const ek_gemm_s8_t *p, const int mr, const int nv,
                                    const int zero) {
    const int32_t *bias = (const void *)panel;
    const int8_t *w = (const int8_t *)panel + 256 * nv;
    const __m512i ones = _mm512_set1_epi8(1);
    const ptrdiff_t step = p->step;
    __m512i sum[12][4], all[12];
    EK_UNROLL for (int r = 0; r < mr; r++) {
        EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] = _mm512_loadu_si512(bias + 16 * i);
        all[r] = _mm512_setzero_si512();
    }
    for (int t = 0; t < p->taps; t++) {
        const int8_t *x = taps[t] + at;
        EK_NO_UNROLL for (int k = 0; k < p->run; k += 4, x += 4, w += 64 * nv) {
            __m512i v[4];
            EK_UNROLL for (int i = 0; i < nv; i++) v[i] = _mm512_loadu_si512(w + 64 * i);
            EK_UNROLL for (int r = 0; r < mr; r++) {
                int32_t four;
                memcpy(&four, x + r * step, 4);
                const __m512i u = _mm512_set1_epi32(four);
                if (zero) all[r] = _mm512_dpbusd_epi32(all[r], u, ones);
                EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] =
                    _mm512_dpbusd_epi32(sum[r][i], u, v[i]);
            }
        }
    }
    if (zero) {
        const __m512i w_zero = _mm512_set1_epi32(p->w_zero);
        EK_UNROLL for (int r = 0; r < mr; r++) {
            const __m512i less = _mm512_mullo_epi32(all[r], w_zero);
            EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] = _mm512_sub_epi32(sum[r][i], less);
        }
    }
    int32_t sums[12 * 64] __attribute__((aligned(64)));
    EK_UNROLL for (int r = 0; r < mr; r++) EK_UNROLL for (int i = 0; i < nv; i++)
        _mm512_store_si512(sums + 16 * (r * nv + i), sum[r][i]);
    (nv == 1   ? ek_gemm_s8_store_n1_vnni
     : nv == 2 ? ek_gemm_s8_store_n2_vnni
     : nv == 3 ? ek_gemm_s8_store_n3_vnni
               : ek_gemm_s8_store_n4_vnni)(sums, mr, panel, y, channels, p);
}

EK_GEMM_S8(ek_gemm_s8_m6n64_vnni, ek_gemm_s8_row_m6n64_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 6, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m5n64_vnni, ek_gemm_s8_row_m5n64_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 5, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m4n64_vnni, ek_gemm_s8_row_m4n64_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m3n64_vnni, ek_gemm_s8_row_m3n64_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 3, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m2n64_vnni, ek_gemm_s8_row_m2n64_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 2, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m1n64_vnni, ek_gemm_s8_row_m1n64_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m8n48_vnni, ek_gemm_s8_row_m8n48_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 8, 3, 0)
EK_GEMM_S8(ek_gemm_s8_m7n48_vnni, ek_gemm_s8_row_m7n48_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 7, 3, 0)
EK_GEMM_S8(ek_gemm_s8_m6n48_vnni, ek_gemm_s8_row_m6n48_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 6, 3, 0)
EK_GEMM_S8(ek_gemm_s8_m4n48_vnni, ek_gemm_s8_row_m4n48_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 3, 0)
EK_GEMM_S8(ek_gemm_s8_m1n48_vnni, ek_gemm_s8_row_m1n48_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 3, 0)
EK_GEMM_S8(ek_gemm_s8_m12n32_vnni, ek_gemm_s8_row_m12n32_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 12, 2, 0)
EK_GEMM_S8(ek_gemm_s8_m8n32_vnni, ek_gemm_s8_row_m8n32_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 8, 2, 0)
EK_GEMM_S8(ek_gemm_s8_m7n32_vnni, ek_gemm_s8_row_m7n32_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 7, 2, 0)
EK_GEMM_S8(ek_gemm_s8_m4n32_vnni, ek_gemm_s8_row_m4n32_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 2, 0)
EK_GEMM_S8(ek_gemm_s8_m1n32_vnni, ek_gemm_s8_row_m1n32_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 2, 0)
EK_GEMM_S8(ek_gemm_s8_m12n16_vnni, ek_gemm_s8_row_m12n16_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 12, 1, 0)
EK_GEMM_S8(ek_gemm_s8_m8n16_vnni, ek_gemm_s8_row_m8n16_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 8, 1, 0)
EK_GEMM_S8(ek_gemm_s8_m7n16_vnni, ek_gemm_s8_row_m7n16_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 7, 1, 0)
EK_GEMM_S8(ek_gemm_s8_m4n16_vnni, ek_gemm_s8_row_m4n16_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 1, 0)
EK_GEMM_S8(ek_gemm_s8_m1n16_vnni, ek_gemm_s8_row_m1n16_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 1, 0)
EK_GEMM_S8(ek_gemm_s8_m5n64z_vnni, ek_gemm_s8_row_m5n64z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 5, 4, 1)
EK_GEMM_S8(ek_gemm_s8_m4n64z_vnni, ek_gemm_s8_row_m4n64z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 4, 1)
EK_GEMM_S8(ek_gemm_s8_m1n64z_vnni, ek_gemm_s8_row_m1n64z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 4, 1)
EK_GEMM_S8(ek_gemm_s8_m6n48z_vnni, ek_gemm_s8_row_m6n48z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 6, 3, 1)
EK_GEMM_S8(ek_gemm_s8_m4n48z_vnni, ek_gemm_s8_row_m4n48z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 3, 1)
EK_GEMM_S8(ek_gemm_s8_m1n48z_vnni, ek_gemm_s8_row_m1n48z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 3, 1)
EK_GEMM_S8(ek_gemm_s8_m8n32z_vnni, ek_gemm_s8_row_m8n32z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 8, 2, 1)
EK_GEMM_S8(ek_gemm_s8_m4n32z_vnni, ek_gemm_s8_row_m4n32z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 2, 1)
EK_GEMM_S8(ek_gemm_s8_m1n32z_vnni, ek_gemm_s8_row_m1n32z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 2, 1)
EK_GEMM_S8(ek_gemm_s8_m8n16z_vnni, ek_gemm_s8_row_m8n16z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 8, 1, 1)
EK_GEMM_S8(ek_gemm_s8_m4n16z_vnni, ek_gemm_s8_row_m4n16z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 4, 1, 1)
EK_GEMM_S8(ek_gemm_s8_m1n16z_vnni, ek_gemm_s8_row_m1n16z_vnni, ek_gemm_s8_load_vnni,
           ek_gemm_s8_tile_vnni, 1, 1, 1)

#endif
