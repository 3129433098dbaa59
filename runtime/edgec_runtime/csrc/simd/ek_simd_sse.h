/* What both widths of ek_simd.h on x86 have of 16 bytes. */
#ifndef EK_SIMD_SSE_H
#define EK_SIMD_SSE_H
#include <immintrin.h>

/* 16 bytes, on every CPU */
typedef __m128i ek_b16;
EK_KERNEL ek_b16 ek_b16_load(const void *p) { return _mm_loadu_si128(p); }
EK_KERNEL ek_b16 ek_b16_set(int v) { return _mm_set1_epi8((char)v); }
EK_KERNEL ek_b16 ek_b16_xor(ek_b16 a, ek_b16 b) { return _mm_xor_si128(a, b); }
EK_KERNEL ek_b16 ek_b16_add(ek_b16 a, ek_b16 b) { return _mm_add_epi8(a, b); }
EK_KERNEL ek_b16 ek_b16_max(ek_b16 a, ek_b16 b) { return _mm_max_epi8(a, b); }
EK_KERNEL ek_b16 ek_b16_min_u8(ek_b16 a, ek_b16 b) { return _mm_min_epu8(a, b); }
EK_KERNEL int ek_b16_least_u8(ek_b16 a) {
    return _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_min_epu8(a, _mm_srli_epi16(a, 8)))) & 255;
}
EK_KERNEL ek_b16 ek_b16_largest(ek_b16 a) { /* in every byte */
    return _mm_set1_epi8((char)(127 - ek_b16_least_u8(_mm_xor_si128(a, _mm_set1_epi8(127)))));
}
EK_KERNEL ek_b16 ek_b16_where_equal(ek_b16 a, ek_b16 b, ek_b16 then) { /* elsewhere all ones */
    return _mm_or_si128(then, _mm_xor_si128(_mm_cmpeq_epi8(a, b), _mm_set1_epi8(-1)));
}

#endif
