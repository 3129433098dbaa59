/* int32 sums to int8 as ek_requantize and ek_even have it, bit for bit, with AVX-512: 16 sums at a
 * time.
 *
 * Multipliers m are less than 2^31, shifts s go from -30 to 23 (to the right where positive), and
 * sums a are less than 2^30, shifted to the left where they are. The law is floor((h + 2^(s-1) - (h
 * < 0)) / 2^s) + z of the sum a, where h = floor((a * m + 2^30) / 2^31), and h + z where s = 0.
 * Floors of quotients combine: the upper half of 2 * a * m + 2^31 + (addend << 32) is h + addend,
 * with addend = 2^(s-1) + (z << s), or z; then - (h < 0), and >> s. Only a = -1 with m = 2^30 (or m
 * = 0) is negative where h is not, and there the result is z with and without: so the sign is that
 * of a. */
#ifndef EK_REQUANT_VNNI_H
#define EK_REQUANT_VNNI_H
#include "../ek_base.h"
#include <immintrin.h>

/* The constants of 16 channels. left: 1 more than the shift to the left. */
typedef struct {
    __m512i even, odd, add_even, add_odd, right, left;
} ek_requant_vnni_t;

EK_KERNEL ek_requant_vnni_t ek_requant_load_vnni(const int32_t *multiplier, const int32_t *addend,
                                                 const int32_t *shift) {
    const __m512i m = _mm512_loadu_si512(multiplier), a = _mm512_loadu_si512(addend),
                  s = _mm512_loadu_si512(shift);
    const __m512i half = _mm512_set1_epi64(1ll << 31), zero = _mm512_setzero_si512();
    ek_requant_vnni_t q;
    q.even = m;
    q.odd = _mm512_srli_epi64(m, 32);
    q.add_even = _mm512_or_si512(_mm512_slli_epi64(a, 32), half);
    q.add_odd = _mm512_mask_blend_epi32(0x5555, a, half);
    q.right = _mm512_max_epi32(s, zero);
    q.left = _mm512_sub_epi32(_mm512_set1_epi32(1), _mm512_min_epi32(s, zero));
    return q;
}

/* plain: only results of sums above 0 matter, since others give less than z = -128 or z. */
EK_KERNEL __m512i ek_requant_vnni(__m512i sum, ek_requant_vnni_t q, const int plain) {
    const __m512i a = _mm512_sllv_epi32(sum, q.left);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, q.even), q.add_even);
    const __m512i odd =
        _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), q.odd), q.add_odd);
    __m512i high = _mm512_mask_shuffle_epi32(odd, 0x5555, even, _MM_PERM_DDBB);
    const __mmask16 rounds = _mm512_test_epi32_mask(q.right, q.right);
    if (!plain) high = _mm512_add_epi32(high, _mm512_maskz_srai_epi32(rounds, sum, 31));
    return _mm512_srav_epi32(high, q.right);
}

/* ek_even, before the clamp. */
EK_KERNEL __m512i ek_even_vnni(__m512i sum, const void *scale, const void *zero) {
    const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(scale)),
                 most = _mm512_set1_ps(1e6f);
    const __m512 near =
        _mm512_max_ps(_mm512_min_ps(v, most), _mm512_sub_ps(_mm512_setzero_ps(), most));
    return _mm512_add_epi32(_mm512_cvtps_epi32(near), _mm512_loadu_si512(zero));
}

#endif
