/* The vectors of ek_simd.h by AVX2 and FMA: 8 floats. */
#ifndef EK_SIMD_AVX2_H
#define EK_SIMD_AVX2_H
#include "ek_simd_sse.h"

enum { EK_VL = 8 };
typedef __m256 ek_vf;
typedef int32_t ek_vi __attribute__((vector_size(32)));

#define EK_M(v) ((__m256i)(v))
#define EK_X(name) _mm256_##name
EK_KERNEL ek_vf ek_vf_set(float v) { return _mm256_set1_ps(v); }
EK_KERNEL ek_vf ek_vf_load(const float *p) { return _mm256_loadu_ps(p); }
/* Each of EK_VL / 2 in two adjacent lanes. */
EK_KERNEL ek_vf ek_vf_load_twice(const float *p) {
    const __m256i lanes = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), lanes);
}
EK_KERNEL void ek_vf_store(float *p, ek_vf v) { _mm256_storeu_ps(p, v); }
/* The first n of a vector; masked loads and stores take longer than others. */
enum { EK_MASKS = 0 };
typedef __m256i ek_vmask;
EK_KERNEL ek_vmask ek_vmask_of(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
EK_KERNEL ek_vf ek_vf_load_some(const float *p, ek_vmask some, ek_vf rest) {
    return _mm256_blendv_ps(rest, _mm256_maskload_ps(p, some), (ek_vf)some);
}
EK_KERNEL void ek_vf_store_some(float *p, ek_vf v, ek_vmask some) {
    _mm256_maskstore_ps(p, some, v);
}
EK_KERNEL ek_vf ek_vf_fma(ek_vf a, ek_vf b, ek_vf c) { return _mm256_fmadd_ps(a, b, c); }
EK_KERNEL ek_vf ek_vf_fnma(ek_vf a, ek_vf b, ek_vf c) { return _mm256_fnmadd_ps(a, b, c); }
/* Of NaN and a number the instructions give the second operand. */
EK_KERNEL ek_vf ek_vf_max(ek_vf a, ek_vf b) { return _mm256_max_ps(b, a); }
EK_KERNEL ek_vf ek_vf_min(ek_vf a, ek_vf b) { return _mm256_min_ps(b, a); }
/* The same with bounds of 0 and more. */
EK_KERNEL ek_vf ek_vf_at_least(ek_vf a, ek_vf low) { return ek_vf_max(a, low); }
EK_KERNEL ek_vf ek_vf_at_most(ek_vf a, ek_vf high) { return ek_vf_min(a, high); }
EK_KERNEL ek_vf ek_vf_copy(const float *p) { return ek_vf_load(p); } /* one more of the same */
EK_KERNEL ek_vf ek_vf_sqrt(ek_vf a) { return _mm256_sqrt_ps(a); }
EK_KERNEL ek_vf ek_vf_abs(ek_vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
EK_KERNEL ek_vi ek_vf_less(ek_vf a, ek_vf b) { return (ek_vi)_mm256_cmp_ps(a, b, _CMP_LT_OQ); }
EK_KERNEL ek_vf ek_vf_select(ek_vi mask, ek_vf a, ek_vf b) {
    return _mm256_blendv_ps(b, a, (ek_vf)mask);
}
EK_KERNEL ek_vf ek_vf_of(ek_vi a) { return _mm256_cvtepi32_ps(EK_M(a)); }
/* Ties away from zero; |a| < 2^30, or not a number, which becomes 0. The rest is exact. */
EK_KERNEL ek_vi ek_vf_round(ek_vf a) {
    a = _mm256_and_ps(a, _mm256_cmp_ps(a, a, _CMP_ORD_Q));
    const ek_vf whole = _mm256_round_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
                rest = a - whole;
    return (ek_vi)_mm256_cvtps_epi32(whole) + (ek_vi)_mm256_cvttps_epi32(rest + rest);
}
EK_KERNEL ek_vf ek_vf_reciprocal(ek_vf a) { return _mm256_div_ps(_mm256_set1_ps(1), a); }
EK_KERNEL ek_vf ek_vf_sign_of(ek_vf a, ek_vf sign) { /* a >= 0 with the sign of the other */
    return _mm256_or_ps(a, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign));
}
/* Every second element of both, from the first on. */
EK_KERNEL ek_vf ek_vf_evens(ek_vf a, ek_vf b) {
    const __m256d pairs = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88)); /* of a, b, a, b */
    return _mm256_castpd_ps(_mm256_permute4x64_pd(pairs, 0xD8));
}
/* Rows become columns: each round puts the halves of two rows together, element by element (H. S.
 * Stone, Parallel Processing with the Perfect Shuffle, 1971). */
EK_KERNEL void ek_vf_turn(ek_vf *v) {
    EK_UNROLL for (int round = 0; round < 3; round++) {
        ek_vf next[EK_VL];
        EK_UNROLL for (int i = 0; i < EK_VL / 2; i++) {
            const ek_vf low = _mm256_unpacklo_ps(v[i], v[i + EK_VL / 2]),
                        high = _mm256_unpackhi_ps(v[i], v[i + EK_VL / 2]);
            next[2 * i] = _mm256_permute2f128_ps(low, high, 0x20);
            next[2 * i + 1] = _mm256_permute2f128_ps(low, high, 0x31);
        }
        EK_UNROLL for (int i = 0; i < EK_VL; i++) v[i] = next[i];
    }
}
EK_KERNEL float ek_vf_sum(ek_vf a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
EK_KERNEL float ek_vf_largest(ek_vf a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
EK_KERNEL ek_vi ek_vi_load(const int32_t *p) {
    return (ek_vi)_mm256_loadu_si256((const __m256i *)p);
}
EK_KERNEL void ek_vi_store(int32_t *p, ek_vi v) { _mm256_storeu_si256((__m256i *)p, EK_M(v)); }
/* The high half of 2ab, rounded, of even and odd elements apart; b > INT32_MIN. */
EK_KERNEL ek_vi ek_vi_high_mul(ek_vi a, ek_vi b) {
    const __m256i half = _mm256_set1_epi64x(1 << 30), odd_a = _mm256_srli_epi64(EK_M(a), 32);
    const __m256i odd_b = _mm256_srli_epi64(EK_M(b), 32);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(EK_M(a), EK_M(b)), half);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(odd_a, odd_b), half);
    return (ek_vi)_mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_add_epi64(odd, odd), 0xaa);
}

typedef __m256i ek_vb;
EK_KERNEL ek_vb ek_vb_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
EK_KERNEL void ek_vb_store(void *p, ek_vb v) { _mm256_storeu_si256((__m256i *)p, v); }
EK_KERNEL void ek_vb_widen(ek_vb b, ek_vi *v) { /* four vectors in order */
    const __m128i low = _mm256_castsi256_si128(b), high = _mm256_extracti128_si256(b, 1);
    v[0] = (ek_vi)_mm256_cvtepi8_epi32(low),
    v[1] = (ek_vi)_mm256_cvtepi8_epi32(_mm_srli_si128(low, 8));
    v[2] = (ek_vi)_mm256_cvtepi8_epi32(high),
    v[3] = (ek_vi)_mm256_cvtepi8_epi32(_mm_srli_si128(high, 8));
}
/* Saturates. Packing works in halves of a register: their dwords are put in order at the end. */
EK_KERNEL ek_vb ek_vb_narrow(const ek_vi *v) {
    const __m256i low = _mm256_packs_epi32(EK_M(v[0]), EK_M(v[1])),
                  high = _mm256_packs_epi32(EK_M(v[2]), EK_M(v[3]));
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* 16 int16 */
typedef int16_t ek_vh __attribute__((vector_size(32)));
EK_KERNEL ek_vh ek_vh_load(const int16_t *p) {
    return (ek_vh)_mm256_loadu_si256((const __m256i *)p);
}
EK_KERNEL void ek_vh_store(int16_t *p, ek_vh v) { _mm256_storeu_si256((__m256i *)p, (__m256i)v); }
EK_KERNEL ek_vh ek_vh_load_s8(const int8_t *p) {
    return (ek_vh)_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
}
EK_KERNEL void ek_vh_store_s8(int8_t *p, ek_vh v) { /* saturates */
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16((__m256i)v, (__m256i)v), 8);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(bytes));
}
EK_KERNEL ek_vi ek_vi_load_s8(const int8_t *p) {
    return (ek_vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
EK_KERNEL void ek_vi_store_s8(int8_t *p, ek_vi v) { /* saturates */
    const __m256i half = _mm256_packs_epi32(EK_M(v), EK_M(v)),
                  bytes = _mm256_packs_epi16(half, half);
    const int32_t four[2] = {_mm256_extract_epi32(bytes, 0), _mm256_extract_epi32(bytes, 4)};
    memcpy(p, four, 8);
}
EK_KERNEL ek_vi ek_vf_truncated(ek_vf a) { return (ek_vi)_mm256_cvttps_epi32(a); }

/* 256 bytes to look up: sixteen rows of 16, each in every lane of a register. */
typedef struct {
    __m256i row[16];
} ek_table_t;

EK_KERNEL void ek_table_load(ek_table_t *t, const int8_t *p) {
    for (int i = 0; i < 16; i++)
        t->row[i] = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(p + 16 * i)));
}

#include "ek_simd_x86.h"

#endif
