/* int32 sums to int8 as ek_requantize and ek_even have it, bit for bit, with AVX2: 8 sums at a
 * time; how, ek_requant_vnni.h says. */
#ifndef EK_REQUANT_AVX2_H
#define EK_REQUANT_AVX2_H
#include "../ek_base.h"
#include <immintrin.h>

/* The constants of 8 channels. below: 0, INT32_MIN where nothing is shifted to the right. */
typedef struct {
    __m256i even, odd, add_even, add_odd, right, left, below;
} ek_requant_avx2_t;

EK_KERNEL ek_requant_avx2_t ek_requant_load_avx2(const int32_t *multiplier, const int32_t *addend,
                                                 const int32_t *shift) {
    const __m256i m = _mm256_loadu_si256((const void *)multiplier),
                  a = _mm256_loadu_si256((const void *)addend);
    const __m256i s = _mm256_loadu_si256((const void *)shift), zero = _mm256_setzero_si256();
    const __m256i half = _mm256_set1_epi64x(1ll << 31);
    ek_requant_avx2_t q;
    q.even = m;
    q.odd = _mm256_srli_epi64(m, 32);
    q.add_even = _mm256_or_si256(_mm256_slli_epi64(a, 32), half);
    q.add_odd = _mm256_blend_epi32(a, half, 0x55);
    q.right = _mm256_max_epi32(s, zero);
    q.left = _mm256_sub_epi32(_mm256_set1_epi32(1), _mm256_min_epi32(s, zero));
    q.below = _mm256_andnot_si256(_mm256_cmpgt_epi32(s, zero), _mm256_set1_epi32(INT32_MIN));
    return q;
}

/* plain: only results of sums above 0 matter, since others give less than z = -128 or z. */
EK_KERNEL __m256i ek_requant_avx2(__m256i sum, ek_requant_avx2_t q, const int plain) {
    const __m256i a = _mm256_sllv_epi32(sum, q.left);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, q.even), q.add_even);
    const __m256i odd =
        _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(a, 32), q.odd), q.add_odd);
    __m256i high = _mm256_blend_epi32(_mm256_shuffle_epi32(even, 0xf5), odd, 0xaa);
    if (!plain) high = _mm256_add_epi32(high, _mm256_cmpgt_epi32(q.below, sum));
    return _mm256_srav_epi32(high, q.right);
}

/* ek_even, before the clamp. */
EK_KERNEL __m256i ek_even_avx2(__m256i sum, const void *scale, const void *zero) {
    const __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), _mm256_loadu_ps(scale)),
                 most = _mm256_set1_ps(1e6f);
    const __m256 near =
        _mm256_max_ps(_mm256_min_ps(v, most), _mm256_sub_ps(_mm256_setzero_ps(), most));
    return _mm256_add_epi32(_mm256_cvtps_epi32(near), _mm256_loadu_si256(zero));
}

#endif
