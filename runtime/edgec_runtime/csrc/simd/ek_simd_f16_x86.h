/* The vectors of ek_simd_f16.h by AVX2 or AVX-512 with F16C: as many halves as a vector has floats.
 */
#ifndef EK_SIMD_F16_X86_H
#define EK_SIMD_F16_X86_H

enum { EK_VL16 = EK_VL, EK_MASKS16 = 0 };
typedef ek_vf ek_vf16;
typedef ek_vi ek_vi16;
typedef int ek_vmask16;

#if defined(__AVX512F__)
EK_KERNEL ek_vf ek_vf_load_f16(const ek_half *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
EK_KERNEL void ek_vf_store_f16(ek_half *p, ek_vf v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
EK_KERNEL ek_vf16 ek_vf16_rounded(ek_vf v) {
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#else
EK_KERNEL ek_vf ek_vf_load_f16(const ek_half *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
EK_KERNEL void ek_vf_store_f16(ek_half *p, ek_vf v) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
EK_KERNEL ek_vf16 ek_vf16_rounded(ek_vf v) {
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
#endif

EK_KERNEL ek_vf16 ek_vf16_set(ek_half v) { return ek_vf_set(v); }
EK_KERNEL ek_vf16 ek_vf16_load(const ek_half *p) { return ek_vf_load_f16(p); }
/* Each of EK_VL16 / 2 in two adjacent lanes. */
EK_KERNEL ek_vf16 ek_vf16_load_twice(const ek_half *p) {
    float half[EK_VL16 / 2];
    EK_UNROLL for (int i = 0; i < EK_VL16 / 2; i++) half[i] = (float)p[i];
    return ek_vf_load_twice(half);
}
EK_KERNEL void ek_vf16_store(ek_half *p, ek_vf16 v) { ek_vf_store_f16(p, v); }
EK_KERNEL ek_vmask16 ek_vmask16_of(int n) { return EK_CLAMP(n, 0, EK_VL16); }
EK_KERNEL ek_vf16 ek_vf16_load_some(const ek_half *p, ek_vmask16 some, ek_vf16 rest) {
    ek_half all[EK_VL16];
    ek_vf16_store(all, rest);
    ek_copy_few(all, p, some * (int)sizeof(ek_half));
    return ek_vf16_load(all);
}
EK_KERNEL void ek_vf16_store_some(ek_half *p, ek_vf16 v, ek_vmask16 some) {
    ek_half all[EK_VL16];
    ek_vf16_store(all, v);
    ek_copy_few(p, all, some * (int)sizeof(ek_half));
}
EK_KERNEL ek_vf16 ek_vf16_fma(ek_vf16 a, ek_vf16 b, ek_vf16 c) {
    return ek_vf16_rounded(ek_vf_fma(a, b, c));
}
EK_KERNEL ek_vf16 ek_vf16_fnma(ek_vf16 a, ek_vf16 b, ek_vf16 c) {
    return ek_vf16_rounded(ek_vf_fnma(a, b, c));
}
#define EK_STEP_OF_F16(at) ek_vf_set(0)
#define EK_FOUR_OF_F16(at) ek_vf_set(0)
#define EK_FMA_LANE_F16(c, b, a, at, j) ek_vf16_fma(b, ek_vf16_set((at)[j]), c)
EK_KERNEL ek_vf16 ek_vf16_max(ek_vf16 a, ek_vf16 b) { return ek_vf_max(a, b); }
EK_KERNEL ek_vf16 ek_vf16_min(ek_vf16 a, ek_vf16 b) { return ek_vf_min(a, b); }
EK_KERNEL ek_vf16 ek_vf16_abs(ek_vf16 a) { return ek_vf_abs(a); }
EK_KERNEL ek_vi16 ek_vf16_less(ek_vf16 a, ek_vf16 b) { return ek_vf_less(a, b); }
EK_KERNEL ek_vf16 ek_vf16_select(ek_vi16 mask, ek_vf16 a, ek_vf16 b) {
    return ek_vf_select(mask, a, b);
}
EK_KERNEL ek_vf16 ek_vf16_at_least(ek_vf16 a, ek_vf16 low) { return ek_vf_at_least(a, low); }
EK_KERNEL ek_vf16 ek_vf16_at_most(ek_vf16 a, ek_vf16 high) { return ek_vf_at_most(a, high); }
EK_KERNEL ek_vf16 ek_vf16_copy(const ek_half *p) { return ek_vf16_load(p); }
EK_KERNEL ek_vf16 ek_vf16_fma_at(ek_vf16 a, ek_vf16 b, const ek_half *c) {
    return ek_vf16_fma(a, b, ek_vf16_load(c));
}
EK_KERNEL ek_vi16 ek_vi16_set(int v) { return ek_vi_set(v); }
EK_KERNEL ek_vi16 ek_vi16_as(ek_vf16 v) { return ek_vi_as(v); }
EK_KERNEL ek_vf16 ek_vf16_as(ek_vi16 v) { return ek_vf_as(v); }
/* 2^(n - 15) from 1536 + n for n = 0…30, and 0 for n = 0. */
EK_KERNEL ek_vf16 ek_vf16_power(ek_vf16 n) {
    const ek_vf exponent = n - 1536.0f, one = ek_vf_set(1);
    const ek_vf power = (ek_vf)((ek_vf_round(exponent) + 112) << 23);
    return ek_vf_select(ek_vf_less(exponent, one), ek_vf_set(0), power);
}
EK_KERNEL ek_vf16 ek_vf16_reciprocal(ek_vf16 a) { return ek_vf16_rounded(ek_vf_set(1) / a); }
EK_KERNEL float ek_vf16_sum(ek_vf16 a) { return ek_vf_sum(a); }
EK_KERNEL ek_half ek_vf16_largest(ek_vf16 a) { return (ek_half)ek_vf_largest(a); }
EK_KERNEL ek_vf16 ek_vf16_evens(ek_vf16 a, ek_vf16 b) { return ek_vf_evens(a, b); }
EK_KERNEL void ek_vf16_turn(ek_vf16 *v) { ek_vf_turn(v); }

#endif
