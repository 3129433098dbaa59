/* What the vectors of AVX2 and AVX-512 have by instructions of one name, EK_X(name); included by
 * each, at its end. */
#ifndef EK_SIMD_X86_H
#define EK_SIMD_X86_H

/* c + b * at[j]: a multiplication takes one element from memory for all of a vector. */
enum { EK_STEP_F32 = 4, EK_TERMS_F32 = 0 };
#define EK_LANES_F32(M, K) M(K, 0) M(K, 1) M(K, 2) M(K, 3)
#define EK_STEP_OF_F32(at) ek_vf_set(0)
#define EK_FOUR_OF_F32(at) ek_vf_set(0)
#define EK_FMA_LANE_F32(c, b, a, at, j) ek_vf_fma(b, ek_vf_set((at)[j]), c)

EK_KERNEL ek_vi ek_vi_set(int32_t v) { return (ek_vi)EK_X(set1_epi32)(v); }
EK_KERNEL ek_vi ek_vi_max(ek_vi a, ek_vi b) { return (ek_vi)EK_X(max_epi32)(EK_M(a), EK_M(b)); }
EK_KERNEL ek_vi ek_vi_min(ek_vi a, ek_vi b) { return (ek_vi)EK_X(min_epi32)(EK_M(a), EK_M(b)); }

typedef __m128i ek_vshift;
EK_KERNEL ek_vshift ek_vshift_left(int n) { return _mm_cvtsi32_si128(n); }
EK_KERNEL ek_vshift ek_vshift_right(int n) { return _mm_cvtsi32_si128(n); }
EK_KERNEL ek_vi ek_vi_shift(ek_vi a, ek_vshift left) {
    return (ek_vi)EK_X(sll_epi32)(EK_M(a), left);
}
EK_KERNEL ek_vi ek_vi_round_shift(ek_vi a, ek_vshift right) {
    const ek_vb half = EK_X(srli_epi32)(EK_X(sll_epi32)(EK_X(set1_epi32)(1), right), 1);
    return (ek_vi)EK_X(sra_epi32)(EK_X(add_epi32)(EK_M(a), half), right);
}

EK_KERNEL ek_vb ek_vb_set(int v) { return EK_X(set1_epi8)((char)v); }
EK_KERNEL ek_vb ek_vb_max(ek_vb a, ek_vb b) { return EK_X(max_epi8)(a, b); }
EK_KERNEL ek_vb ek_vb_min(ek_vb a, ek_vb b) { return EK_X(min_epi8)(a, b); }
EK_KERNEL ek_vb ek_vb_add(ek_vb a, ek_vb b) { return EK_X(adds_epi8)(a, b); } /* saturates */

EK_KERNEL ek_vh ek_vh_set(int v) { return (ek_vh)EK_X(set1_epi16)((short)v); }
EK_KERNEL ek_vh ek_vh_shift_right(int n) { return ek_vh_set(n); }
EK_KERNEL ek_vh ek_vh_round(ek_vh a, ek_vh shift) { /* ties upwards; |a| + half < 2^15 */
    return (a + ((ek_vh_set(1) << shift) >> 1)) >> shift;
}

/* table[x + 128]: of each row the elements whose upper half is its number; elsewhere a byte of 0 is
 * shuffled in. */
EK_KERNEL ek_vb ek_table_at(const ek_table_t *t, ek_vb x) {
    const ek_vb index = x ^ EK_X(set1_epi8)(-128), beyond = EK_X(set1_epi8)(0x70);
    ek_vb y = index ^ index;
    for (int i = 0; i < 16; i++)
        y |= EK_X(shuffle_epi8)(t->row[i],
                                EK_X(adds_epu8)(index ^ EK_X(set1_epi8)((char)(16 * i)), beyond));
    return y;
}

/* a * ka + b * kb + bias, downwards to a whole number, saturated. In units of 2^-27; the low 15
 * bits of ka and kb and the low 11 of the bias are apart. */
typedef struct {
    ek_vb high, low, bias, rest; /* high and low: pairs of 16 bits */
} ek_vsum_t;

EK_KERNEL ek_vb ek_pairs(int16_t a, int16_t b) {
    return EK_X(set1_epi32)((int)((uint16_t)a | (uint32_t)(uint16_t)b << 16));
}
EK_KERNEL ek_vsum_t ek_vsum(const ek_scaled_sum_t *p) {
    return (ek_vsum_t){ek_pairs(p->a_high, p->b_high), ek_pairs(p->a_low, p->b_low),
                       EK_X(set1_epi32)(p->bias), EK_X(set1_epi32)(p->rest)};
}
EK_KERNEL ek_vb ek_vsum_of(ek_vb ab, const ek_vsum_t *q) {
    const ek_vb high = EK_X(slli_epi32)(EK_X(madd_epi16)(ab, q->high), 4);
    const ek_vb low = EK_X(srai_epi32)(EK_X(add_epi32)(EK_X(madd_epi16)(ab, q->low), q->rest), 11);
    return EK_X(srai_epi32)(EK_X(add_epi32)(EK_X(add_epi32)(high, low), q->bias), 16);
}
EK_KERNEL ek_vb ek_vb_sum(ek_vb a, ek_vb b, const ek_vsum_t *q) {
    ek_vb half[2];
    for (int h = 0; h < 2; h++) {
        const ek_vb ab = h ? EK_X(unpackhi_epi8)(a, b) : EK_X(unpacklo_epi8)(a, b);
        const ek_vb u = EK_X(srai_epi16)(EK_X(slli_epi16)(ab, 8), 8), v = EK_X(srai_epi16)(ab, 8);
        const ek_vb low = EK_X(unpacklo_epi16)(u, v), high = EK_X(unpackhi_epi16)(u, v);
        half[h] = EK_X(packs_epi32)(ek_vsum_of(low, q), ek_vsum_of(high, q));
    }
    return EK_X(packs_epi16)(half[0], half[1]);
}

#endif
