/* The vectors of ek_simd.h by AVX-512 (F, BW, VL): 16 floats. */
#ifndef EK_SIMD_AVX512_H
#define EK_SIMD_AVX512_H
#include "ek_simd_sse.h"

enum { EK_VL = 16 };
typedef __m512 ek_vf;
typedef int32_t ek_vi __attribute__((vector_size(64)));

#define EK_M(v) ((__m512i)(v))
#define EK_X(name) _mm512_##name
EK_KERNEL ek_vf ek_vf_set(float v) { return _mm512_set1_ps(v); }
EK_KERNEL ek_vf ek_vf_load(const float *p) { return _mm512_loadu_ps(p); }
/* Each of EK_VL / 2 in two adjacent lanes. */
EK_KERNEL ek_vf ek_vf_load_twice(const float *p) {
    const __m512i lanes = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(lanes, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
EK_KERNEL void ek_vf_store(float *p, ek_vf v) { _mm512_storeu_ps(p, v); }
/* The first n of a vector; masked loads and stores take no longer than others. */
enum { EK_MASKS = 1 };
typedef __mmask16 ek_vmask;
EK_KERNEL ek_vmask ek_vmask_of(int n) {
    return (ek_vmask)(n < EK_VL ? (1u << EK_MAX(n, 0)) - 1 : 0xffff);
}
EK_KERNEL ek_vf ek_vf_load_some(const float *p, ek_vmask some, ek_vf rest) {
    return _mm512_mask_loadu_ps(rest, some, p);
}
EK_KERNEL void ek_vf_store_some(float *p, ek_vf v, ek_vmask some) {
    _mm512_mask_storeu_ps(p, some, v);
}
EK_KERNEL ek_vf ek_vf_fma(ek_vf a, ek_vf b, ek_vf c) { return _mm512_fmadd_ps(a, b, c); }
EK_KERNEL ek_vf ek_vf_fnma(ek_vf a, ek_vf b, ek_vf c) { return _mm512_fnmadd_ps(a, b, c); }
/* Of NaN and a number the instructions give the second operand. */
EK_KERNEL ek_vf ek_vf_max(ek_vf a, ek_vf b) { return _mm512_max_ps(b, a); }
EK_KERNEL ek_vf ek_vf_min(ek_vf a, ek_vf b) { return _mm512_min_ps(b, a); }
/* The same with bounds of 0 and more. */
EK_KERNEL ek_vf ek_vf_at_least(ek_vf a, ek_vf low) { return ek_vf_max(a, low); }
EK_KERNEL ek_vf ek_vf_at_most(ek_vf a, ek_vf high) { return ek_vf_min(a, high); }
EK_KERNEL ek_vf ek_vf_copy(const float *p) { return ek_vf_load(p); } /* one more of the same */
EK_KERNEL ek_vf ek_vf_sqrt(ek_vf a) { return _mm512_sqrt_ps(a); }
EK_KERNEL ek_vf ek_vf_abs(ek_vf a) { return (ek_vf)((ek_vi)a & 0x7fffffff); }
EK_KERNEL ek_vi ek_vf_less(ek_vf a, ek_vf b) {
    return (ek_vi)_mm512_maskz_set1_epi32(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), -1);
}
EK_KERNEL ek_vf ek_vf_select(ek_vi mask, ek_vf a, ek_vf b) {
    return _mm512_mask_blend_ps(_mm512_test_epi32_mask(EK_M(mask), EK_M(mask)), b, a);
}
EK_KERNEL ek_vf ek_vf_of(ek_vi a) { return _mm512_cvtepi32_ps(EK_M(a)); }
/* Ties away from zero; |a| < 2^30, or not a number, which becomes 0. The rest is exact. */
EK_KERNEL ek_vi ek_vf_round(ek_vf a) {
    a = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, a, _CMP_ORD_Q), a);
    const ek_vf whole = _mm512_roundscale_ps(a, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC),
                rest = a - whole;
    return (ek_vi)_mm512_cvtps_epi32(whole) + (ek_vi)_mm512_cvttps_epi32(rest + rest);
}
EK_KERNEL ek_vf ek_vf_reciprocal(ek_vf a) { return _mm512_div_ps(_mm512_set1_ps(1), a); }
EK_KERNEL ek_vf ek_vf_sign_of(ek_vf a, ek_vf sign) { /* a >= 0 with the sign of the other */
    return (ek_vf)((ek_vi)a | ((ek_vi)sign & (int32_t)0x80000000));
}
/* Every second element of both, from the first on. */
EK_KERNEL ek_vf ek_vf_evens(ek_vf a, ek_vf b) {
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, evens, b);
}
/* As ek_simd_avx2.h has it. */
EK_KERNEL void ek_vf_turn(ek_vf *v) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    EK_UNROLL for (int round = 0; round < 4; round++) {
        ek_vf next[EK_VL];
        EK_UNROLL for (int i = 0; i < EK_VL / 2; i++) {
            next[2 * i] = _mm512_permutex2var_ps(v[i], low, v[i + EK_VL / 2]);
            next[2 * i + 1] = _mm512_permutex2var_ps(v[i], high, v[i + EK_VL / 2]);
        }
        EK_UNROLL for (int i = 0; i < EK_VL; i++) v[i] = next[i];
    }
}
EK_KERNEL float ek_vf_sum(ek_vf a) { return _mm512_reduce_add_ps(a); }
EK_KERNEL float ek_vf_largest(ek_vf a) { return _mm512_reduce_max_ps(a); }
EK_KERNEL ek_vi ek_vi_load(const int32_t *p) { return (ek_vi)_mm512_loadu_si512(p); }
EK_KERNEL void ek_vi_store(int32_t *p, ek_vi v) { _mm512_storeu_si512(p, EK_M(v)); }
/* The high half of 2ab, rounded, of even and odd elements apart; b > INT32_MIN. */
EK_KERNEL ek_vi ek_vi_high_mul(ek_vi a, ek_vi b) {
    const __m512i half = _mm512_set1_epi64(1 << 30), odd_a = _mm512_srli_epi64(EK_M(a), 32);
    const __m512i odd_b = _mm512_srli_epi64(EK_M(b), 32);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(EK_M(a), EK_M(b)), half);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(odd_a, odd_b), half);
    return (ek_vi)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 31),
                                          _mm512_add_epi64(odd, odd));
}

typedef __m512i ek_vb;
EK_KERNEL ek_vb ek_vb_load(const void *p) { return _mm512_loadu_si512(p); }
EK_KERNEL void ek_vb_store(void *p, ek_vb v) { _mm512_storeu_si512(p, v); }
EK_KERNEL void ek_vb_widen(ek_vb b, ek_vi *v) { /* four vectors in order */
    v[0] = (ek_vi)_mm512_cvtepi8_epi32(_mm512_castsi512_si128(b));
    v[1] = (ek_vi)_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(b, 1));
    v[2] = (ek_vi)_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(b, 2));
    v[3] = (ek_vi)_mm512_cvtepi8_epi32(_mm512_extracti32x4_epi32(b, 3));
}
/* Saturates. Packing works in quarters of a register: their dwords are put in order at the end. */
EK_KERNEL ek_vb ek_vb_narrow(const ek_vi *v) {
    const __m512i low = _mm512_packs_epi32(EK_M(v[0]), EK_M(v[1])),
                  high = _mm512_packs_epi32(EK_M(v[2]), EK_M(v[3]));
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low, high));
}

/* 32 int16 */
typedef int16_t ek_vh __attribute__((vector_size(64)));
EK_KERNEL ek_vh ek_vh_load(const int16_t *p) { return (ek_vh)_mm512_loadu_si512(p); }
EK_KERNEL void ek_vh_store(int16_t *p, ek_vh v) { _mm512_storeu_si512(p, (__m512i)v); }
EK_KERNEL ek_vh ek_vh_load_s8(const int8_t *p) {
    return (ek_vh)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}
EK_KERNEL void ek_vh_store_s8(int8_t *p, ek_vh v) { /* saturates */
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtsepi16_epi8((__m512i)v));
}
EK_KERNEL ek_vi ek_vi_load_s8(const int8_t *p) {
    return (ek_vi)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p));
}
EK_KERNEL void ek_vi_store_s8(int8_t *p, ek_vi v) { /* saturates */
    _mm_storeu_si128((__m128i *)p, _mm512_cvtsepi32_epi8(EK_M(v)));
}
EK_KERNEL ek_vi ek_vf_truncated(ek_vf a) { return (ek_vi)_mm512_cvttps_epi32(a); }

/* 256 bytes to look up: sixteen rows of 16, each in every lane of a register. */
typedef struct {
    __m512i row[16];
} ek_table_t;

EK_KERNEL void ek_table_load(ek_table_t *t, const int8_t *p) {
    for (int i = 0; i < 16; i++)
        t->row[i] = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p + 16 * i)));
}

#include "ek_simd_x86.h"

#endif
