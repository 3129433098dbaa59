/* Tiles of ek_gemm_s8.h for Arm cores without the dot product and windows of one run of few
 * elements: 8 windows times 8 channels, channels along the lanes. Elements are widened to 16 bits
 * and multiplied, by lane, with weights of 16 bits that have their zero point subtracted: there is
 * nothing to prove of them, and no sum across lanes.
 *
 * Panel: bias, multiplier, addend, shift [8] each (ek_half_neon); weights [run][8]; 64 bytes that
 * are loaded, not used. */
/* The macros below are pieces of assembly text, laid out as it issues. */
/* clang-format off */
#ifndef EK_GEMM_S8_LANES_NEON_H
#define EK_GEMM_S8_LANES_NEON_H
#include "ek_gemm_s8_neon.h"

enum { EK_LANES_MR = 8 };

#if defined(__clang__) /* gcc takes no more than 30 operands */
/* The order of an in-order core. v0 to v7: 8 elements of each window; v8 to v11: weights of 8 channels, loaded three
 * lanes ahead; v12 to v15: the next elements, widened as the last lane sets v0 to v7 free, four at once, for what is due
 * before a product that was begun earlier waits for it (at first v14 and v15: the bias). x8 to x15: windows; x16: where
 * the next elements are; x17: the other half of the weights. */
#define EK_PAIR_(a, b, u, r, i, e0, e1)                                    \
    "smlal %[s" #a "].4s, v" #u ".4h, v" #r ".h[" #i "]\n\t" e0            \
    "smlal2 %[s" #b "].4s, v" #u ".8h, v" #r ".h[" #i "]\n\t" e1
#define EK_PAIR(a, b, u, r, i) EK_PAIR_(a, b, u, r, i, "", "")
#define EK_LANE(u, i, e0, e1, e2, e3, e4, e5, e6, e7)                                                         \
    EK_PAIR(0, 1, u, 0, i) e0 EK_PAIR(2, 3, u, 1, i) e1 EK_PAIR(4, 5, u, 2, i) e2 EK_PAIR(6, 7, u, 3, i) e3   \
    EK_PAIR(8, 9, u, 4, i) e4 EK_PAIR(10, 11, u, 5, i) e5 EK_PAIR(12, 13, u, 6, i) e6 EK_PAIR(14, 15, u, 7, i) e7
#define EK_X(v, window) "ldr d" #v ", [x" #window ", x16]\n\t"
#define EK_WIDEN(to, v) "sshll v" #to ".8h, v" #v ".8b, #0\n\t"

#define EK_BIAS(s, v) "mov %[s" #s "].16b, v" #v ".16b\n\t"

/* The sums of windows of `run` elements, from the bias on. */
EK_KERNEL void ek_gemm_s8_run_neon(int32x4_t s[][2], const int8_t *x, ptrdiff_t step, const int32_t *q,
                                   const int16_t *w, int run) {
    int n = run >> 3;
    __asm__ volatile(
        EK_L(14, %[q], EK_0) "add x9, %[x], %[step]\n\tldr d0, [%[x], xzr]\n\tadd x10, %[x], %[step], lsl #1\n\t"
        EK_L(15, %[q], EK_16) "add x12, %[x], %[step], lsl #2\n\tldr d1, [x9, xzr]\n\tmov x16, xzr\n\t"
        EK_BIAS(0, 14) "add x11, x9, %[step], lsl #1\n\t" EK_BIAS(2, 14) "ldr d2, [x10, xzr]\n\t"
        EK_BIAS(4, 14) "add x13, x9, %[step], lsl #2\n\t" EK_BIAS(6, 14) "ldr d3, [x11, xzr]\n\t"
        EK_BIAS(8, 14) "add x14, x10, %[step], lsl #2\n\t" EK_BIAS(10, 14) EK_X(4, 12)
        EK_BIAS(12, 14) "add x15, x11, %[step], lsl #2\n\t" EK_BIAS(14, 14) EK_X(5, 13)
        EK_WIDEN(0, 0) EK_X(6, 14) EK_WIDEN(1, 1) EK_X(7, 15) EK_WIDEN(2, 2) EK_L(8, %[w], EK_0)
        EK_WIDEN(3, 3) "add x17, %[w], #64\n\t" EK_BIAS(1, 15) EK_L(9, %[w], EK_16) EK_BIAS(3, 15) "mov x8, %[x]\n\t"
        EK_BIAS(5, 15) EK_L(10, %[w], EK_32) EK_BIAS(7, 15) EK_BIAS(9, 15) EK_WIDEN(4, 4) EK_WIDEN(5, 5)
        EK_BIAS(11, 15) EK_WIDEN(6, 6) EK_BIAS(13, 15) EK_WIDEN(7, 7) EK_BIAS(15, 15)
        "1:\n\t"
        EK_LANE(8, 0, "", EK_L(11, %[w], EK_48), "", "add %[w], %[w], #128\n\t", "", "", "", "")
        EK_LANE(9, 1, "", EK_L(8, x17, EK_0), "", "", "", "", "", "")
        EK_LANE(10, 2, "", EK_L(9, x17, EK_16), "", "", "", "", "", "")
        EK_LANE(11, 3, "", EK_L(10, x17, EK_32), "", "subs %w[n], %w[n], #1\n\t", "", "", "", "")
        EK_LANE(8, 4, "csel x4, %[o8], xzr, ne\n\t", EK_L(11, x17, EK_48), "", "add x17, x17, #128\n\t", "",
                "add x16, x16, x4\n\t", "", "")
        EK_LANE(9, 5, "", EK_L(8, %[w], EK_0), "", EK_X(12, 8), "", EK_X(13, 9), "", "")
        EK_LANE(10, 6, "", EK_L(9, %[w], EK_16), "", EK_X(14, 10), "", EK_X(15, 11), "", "")
        EK_PAIR(0, 1, 11, 0, 7) EK_PAIR(2, 3, 11, 1, 7) EK_PAIR(4, 5, 11, 2, 7) EK_PAIR(6, 7, 11, 3, 7)
        EK_WIDEN(0, 12) EK_WIDEN(1, 13) EK_WIDEN(2, 14) EK_WIDEN(3, 15)
        EK_PAIR_(8, 9, 11, 4, 7, EK_X(12, 12), EK_X(13, 13)) EK_PAIR_(10, 11, 11, 5, 7, EK_X(14, 14), EK_X(15, 15))
        EK_PAIR(12, 13, 11, 6, 7) EK_L(10, %[w], EK_32) EK_PAIR(14, 15, 11, 7, 7)
        EK_WIDEN(4, 12) EK_WIDEN(5, 13) EK_WIDEN(6, 14) EK_WIDEN(7, 15)
        "b.ne 1b\n\t"
        : [s0] "=&w"(s[0][0]), [s1] "=&w"(s[0][1]), [s2] "=&w"(s[1][0]), [s3] "=&w"(s[1][1]), [s4] "=&w"(s[2][0]),
          [s5] "=&w"(s[2][1]), [s6] "=&w"(s[3][0]), [s7] "=&w"(s[3][1]), [s8] "=&w"(s[4][0]), [s9] "=&w"(s[4][1]),
          [s10] "=&w"(s[5][0]), [s11] "=&w"(s[5][1]), [s12] "=&w"(s[6][0]), [s13] "=&w"(s[6][1]), [s14] "=&w"(s[7][0]),
          [s15] "=&w"(s[7][1]), [w] "+r"(w), [n] "+r"(n)
        : [x] "r"(x), [step] "r"(step), [q] "r"(q), [o8] "r"((ptrdiff_t)8), [o16] "r"((ptrdiff_t)16),
          [o32] "r"((ptrdiff_t)32), [o48] "r"((ptrdiff_t)48)
        : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "x4",
          "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "cc", "memory");
}
#else
EK_KERNEL void ek_gemm_s8_run_neon(int32x4_t s[][2], const int8_t *x, ptrdiff_t step, const int32_t *q,
                                   const int16_t *w, int run) {
    EK_UNROLL for (int r = 0; r < EK_LANES_MR; r++) s[r][0] = vld1q_s32(q), s[r][1] = vld1q_s32(q + 4);
    EK_NO_UNROLL for (int k = 0; k < run; k += 8, w += 64) {
        int16x8_t v[EK_LANES_MR];
        EK_UNROLL for (int r = 0; r < EK_LANES_MR; r++) v[r] = vmovl_s8(vld1_s8(x + r * step + k));
#define EK_LANE(I)                                                            \
    EK_UNROLL for (int r = 0; r < EK_LANES_MR; r++) {                         \
        const int16x8_t u = vld1q_s16(w + 8 * (I));                           \
        s[r][0] = vmlal_laneq_s16(s[r][0], vget_low_s16(u), v[r], I);         \
        s[r][1] = vmlal_high_laneq_s16(s[r][1], u, v[r], I);                  \
    }
        EK_LANE(0) EK_LANE(1) EK_LANE(2) EK_LANE(3) EK_LANE(4) EK_LANE(5) EK_LANE(6) EK_LANE(7)
    }
}
#endif

EK_KERNEL void ek_gemm_s8_lanes_tile_neon(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel,
                                          int8_t *y, int channels, const ek_gemm_s8_t *p, const int mr,
                                          const int even) {
    const int32_t *q = (const void *)panel;
    const int16_t *w = (const void *)(panel + 16 * EK_NEON_NR);
    int32x4_t sum[EK_LANES_MR][2];
    ek_gemm_s8_run_neon(sum, *taps + at, p->step, q, w, p->run);
    if (even) {
        ek_gemm_s8_even_rows_neon(sum, mr, q, y, channels, p);
    } else if (p->finish != EK_GEMM_FAST) {
        int32_t sums[EK_LANES_MR * EK_NEON_NR];
        EK_UNROLL for (int r = 0; r < 2 * mr; r++) vst1q_s32(sums + 4 * r, sum[r / 2][r % 2]);
        if (p->finish == EK_GEMM_LAW) ek_gemm_s8_law_neon(sums, mr, q, y, channels, p);
        else ek_gemm_s8_scale(sums, mr, panel, y, channels, p);
    } else if (channels == EK_NEON_NR && p->low == -128 && p->high == 127 && p->y_zero == -128) {
        const ptrdiff_t y_step = p->y_step;
        int8x16_t v[EK_LANES_MR / 2]; /* all of them before the first is stored, which might change the tables */
        EK_UNROLL for (int r = 0; r < mr; r += 2)
            v[r / 2] = ek_bytes_neon(ek_half_neon(sum[r][0], sum[r][1], q + 8, q + 12, 1),
                                     ek_half_neon(sum[r + 1][0], sum[r + 1][1], q + 8, q + 12, 1));
        EK_UNROLL for (int r = 0; r < mr; r += 2, y += 2 * y_step)
            vst1_s8(y, vget_low_s8(v[r / 2])), vst1_s8(y + y_step, vget_high_s8(v[r / 2]));
    } else {
        EK_NO_UNROLL for (int r = 0; r < mr; r += 2)
            ek_gemm_s8_store_neon(ek_gemm_s8_bytes_neon(sum + r, q, p, 0), y + r * p->y_step, p->y_step, channels);
    }
}

EK_GEMM_S8(ek_gemm_s8_m8_lanes_neon, ek_gemm_s8_row_m8_lanes_neon, NULL, ek_gemm_s8_lanes_tile_neon, EK_LANES_MR, 0)
EK_GEMM_S8(ek_gemm_s8_m8x_lanes_neon, ek_gemm_s8_row_m8x_lanes_neon, NULL, ek_gemm_s8_lanes_tile_neon, EK_LANES_MR, 1)

#endif
/* clang-format on */
