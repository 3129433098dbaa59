/* Tiles of ek_gemm_s8.h for Arm cores without the dot product: 2 windows (or 1) times 8 channels, k along the lanes.
 *
 * Products of int8 are summed in 16 bits before SADALP adds them to 32. A window is cut into pieces of 16 elements (and
 * of 8, see edgec/schedule/gemm_s8/neon.py). The packer proves what cannot overflow: the magnitudes of all weights of a
 * lane sum to at most 255. That holds for the two weights of a piece, and for the four of two pieces that it finds to
 * fit each other; these are the fours, the other pieces the twos, those of 8 elements the ones. What a weight has above
 * that, and what int8 does not hold (weights have their zero point subtracted), is left out and follows as `rest`: an
 * element of the window with 8 more weights.
 *
 * Panel: bias, multiplier, addend, shift [8] each (ek_half_neon); the numbers of fours, twos, ones and rests (int32
 * each); where their pieces are (ek_gemm_s8_piece_t): two of each four and two more, each two and one more, each one;
 * weights: [fours][8][2][16], [twos][8][16], [ones][8][8], 128 bytes that are loaded, not used; the rests. There is a
 * two wherever there is a four. */
#ifndef EK_GEMM_S8_NEON_H
#define EK_GEMM_S8_NEON_H
#include "../ek_gemm_s8.h"
#include "ek_requant_neon.h"

enum { EK_NEON_NR = 8 };

typedef struct {
    int32_t tap, element; /* bytes into the pointers of taps, and behind the pointer */
} ek_gemm_s8_piece_t;

typedef struct {
    ek_gemm_s8_piece_t at;
    int8_t w[EK_NEON_NR];
} ek_gemm_s8_rest_t;

EK_KERNEL const int8_t *ek_gemm_s8_piece_neon(const int8_t *const *taps, ptrdiff_t at,
                                              const ek_gemm_s8_piece_t *piece) {
    return *(const int8_t *const *)(const void *)((const char *)taps + piece->tap) + at + piece->element;
}

/* Sums to results of mr windows. */
EK_KERNEL void ek_gemm_s8_store_neon(int32x4_t sum[][2], const int32_t *q, int8_t *y, int channels,
                                     const ek_gemm_s8_t *p, const int mr, const int saturate) {
    const int32_t *q4 = EK_APART(q + 4);
    const int16x8_t first = ek_half_neon(sum[0][0], sum[0][1], q + 8, q4 + 8, saturate);
    int8x16_t v = ek_bytes_neon(first, mr > 1 ? ek_half_neon(sum[1][0], sum[1][1], q + 8, q4 + 8, saturate) : first);
    if (!saturate) v = vminq_s8(vmaxq_s8(v, vdupq_n_s8((int8_t)p->low)), vdupq_n_s8((int8_t)p->high));
    if (channels == EK_NEON_NR) {
        vst1_s8(y, vget_low_s8(v));
        if (mr > 1) vst1_s8(y + p->y_step, vget_high_s8(v));
    } else {
        int8_t part[16];
        vst1q_s8(part, v);
        memcpy(y, part, (size_t)channels);
        if (mr > 1) memcpy(y + p->y_step, part + 8, (size_t)channels);
    }
}

/* Sums to results by EK_GEMM_LAW: any shift. */
EK_SHARED void ek_gemm_s8_law_neon(const int32_t *sums, int rows, const int32_t *q, int8_t *y, int channels,
                                   const ek_gemm_s8_t *p) {
    EK_NO_UNROLL for (int r = 0; r < rows; r++, sums += EK_NEON_NR, y += p->y_step) {
        const int32x4_t a = ek_multiply_neon(vld1q_s32(sums), vld1q_s32(q + 8), vld1q_s32(q + 16));
        const int32x4_t b = ek_multiply_neon(vld1q_s32(sums + 4), vld1q_s32(q + 12), vld1q_s32(q + 20));
        int8_t part[8];
        const int8x8_t v = ek_narrow_neon(a, b, vdupq_n_s16((int16_t)p->y_zero));
        vst1_s8(part, vmin_s8(vmax_s8(v, vdup_n_s8((int8_t)p->low)), vdup_n_s8((int8_t)p->high)));
        memcpy(y, part, (size_t)channels);
    }
}

/* Adds what the weights lack. */
EK_KERNEL void ek_gemm_s8_rests_neon(int32x4_t sum[][2], const ek_gemm_s8_rest_t *rest, int count,
                                     const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step, const int mr) {
    EK_NO_UNROLL for (; count > 0; count--, rest++) {
        const int8_t *x = ek_gemm_s8_piece_neon(taps, at, &rest->at);
        const int8x8_t w = vld1_s8(rest->w);
        EK_UNROLL for (int r = 0; r < mr; r++) {
            const int16x8_t t = vmull_s8(w, vld1_dup_s8(x + r * step));
            sum[r][0] = vaddw_s16(sum[r][0], vget_low_s16(t)), sum[r][1] = vaddw_high_s16(sum[r][1], t);
        }
    }
}

#if defined(__clang__) /* gcc takes no more than 30 operands */
/* The order of instructions is that of an in-order core, written down: a load beside every other product, what it
 * loads needed eight products later, four sums between the products of one. Loads have a register for an offset: their
 * results are due when those of the products are. Operands s0 to s15: sums of window 0 and window 1 in turn, for each
 * channel. v16-v19, v20-v23: weights of two channels, now and next; v24, v25: pieces of window 0, v26, v27: of window
 * 1; v28-v31: 16-bit sums. x4 to x7: 64 bytes of weights each. */
#define EK_M_(op, t, w, half, x) #op " v" #t ".8h, v" #w "." #half ", v" #x "." #half "\n\t"
#define EK_M8(op, t, w, x) EK_M_(op, t, w, 8b, x)
#define EK_M16(op, t, w, x) EK_M_(op, t, w, 16b, x)
#define EK_L(v, base, offset) "ldr q" #v ", [" #base ", " offset "]\n\t"
#define EK_0 "xzr"
#define EK_16 "%[o16]"
#define EK_32 "%[o32]"
#define EK_48 "%[o48]"
#define EK_S(s, t) "sadalp %[s" #s "].4s, v" #t ".8h\n\t"
#define EK_F(s, t) "saddlp %[s" #s "].4s, v" #t ".8h\n\t"
#define EK_SUM_OPERANDS                                                                                          \
    [s0] "+w"(s[0][0]), [s1] "+w"(s[1][0]), [s2] "+w"(s[0][1]), [s3] "+w"(s[1][1]), [s4] "+w"(s[0][2]),          \
        [s5] "+w"(s[1][2]), [s6] "+w"(s[0][3]), [s7] "+w"(s[1][3]), [s8] "+w"(s[0][4]), [s9] "+w"(s[1][4]),      \
        [s10] "+w"(s[0][5]), [s11] "+w"(s[1][5]), [s12] "+w"(s[0][6]), [s13] "+w"(s[1][6]), [s14] "+w"(s[0][7]), \
        [s15] "+w"(s[1][7]), [w] "+r"(w), [piece] "+r"(piece), [n] "+r"(count)
#define EK_OTHER_OPERANDS                                                                                      \
    [taps] "r"(taps), [at0] "r"(at), [at1] "r"(at + step), [o16] "r"((ptrdiff_t)16), [o32] "r"((ptrdiff_t)32), \
        [o48] "r"((ptrdiff_t)48)
#define EK_CLOBBERS                                                                                                 \
    "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", \
        "x4", "x5", "x6", "x7", "x10", "x11", "x12", "x13", "cc", "memory"

/* Where the next two pieces are, in three steps that wait for each other. */
#define EK_POINTS_1 "ldp x12, x13, [%[piece]], #16\n\t"
#define EK_POINTS_2 "ldr x10, [%[taps], w12, uxtw]\n\tldr x11, [%[taps], w13, uxtw]\n\t"
#define EK_POINTS_3 "add x10, x10, x12, asr #32\n\tadd x11, x11, x13, asr #32\n\t"
#define EK_POINT_1 "ldr x12, [%[piece]], #8\n\t"
#define EK_POINT_2 "ldr x10, [%[taps], w12, uxtw]\n\t"
#define EK_POINT_3 "add x10, x10, x12, asr #32\n\t"

/* Two channels of a four: weights a0 a1 and b0 b1; the next two, n0 to n3, from a base on; what else is to be done. */
#define EK_FOUR(a0, a1, b0, b1, n0, n1, n2, n3, base, first, second, s0, s1, s2, s3)                                \
    EK_M8(smull, 28, a0, 24) EK_L(n0, base, EK_0) EK_M8(smull, 29, a0, 26) EK_M8(smull, 30, b0, 24)                 \
    EK_L(n1, base, EK_16) EK_M8(smull, 31, b0, 26) EK_M16(smlal2, 28, a0, 24) EK_L(n2, base, EK_32)                 \
    EK_M16(smlal2, 29, a0, 26) EK_M16(smlal2, 30, b0, 24) EK_L(n3, base, EK_48) EK_M16(smlal2, 31, b0, 26)          \
    EK_M8(smlal, 28, a1, 25) EK_M8(smlal, 29, a1, 27) first EK_M8(smlal, 30, b1, 25) EK_M8(smlal, 31, b1, 27)       \
    EK_M16(smlal2, 28, a1, 25) EK_M16(smlal2, 29, a1, 27) EK_M16(smlal2, 30, b1, 25) EK_M16(smlal2, 31, b1, 27)     \
    EK_S(s0, 28) second EK_S(s1, 29) EK_S(s2, 30) EK_S(s3, 31)

/* The fours of two windows. Weights lie [channel][2][16]. */
EK_KERNEL const int8_t *ek_gemm_s8_fours_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece,
                                              int count, const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step) {
    __asm__ volatile(
        EK_POINTS_1 EK_POINTS_2 EK_POINTS_3
        "add x5, %[w], #64\n\tadd x6, %[w], #128\n\tadd x7, %[w], #192\n\tadd x4, %[w], #256\n\t"
        EK_L(24, x10, "%[at0]") EK_L(26, x10, "%[at1]") EK_L(25, x11, "%[at0]") EK_L(27, x11, "%[at1]")
        EK_L(16, %[w], EK_0) EK_L(17, %[w], EK_16) EK_L(18, %[w], EK_32) EK_L(19, %[w], EK_48)
        "1:\n\t"
        EK_FOUR(16, 17, 18, 19, 20, 21, 22, 23, x5, "", EK_POINTS_1, 0, 1, 2, 3)
        EK_FOUR(20, 21, 22, 23, 16, 17, 18, 19, x6, EK_POINTS_2, EK_POINTS_3, 4, 5, 6, 7)
        EK_FOUR(16, 17, 18, 19, 20, 21, 22, 23, x7, "", "", 8, 9, 10, 11)
        EK_FOUR(20, 21, 22, 23, 16, 17, 18, 19, x4, EK_L(24, x10, "%[at0]") EK_L(26, x10, "%[at1]"),
                EK_L(25, x11, "%[at0]") EK_L(27, x11, "%[at1]")
                "add x5, x5, #256\n\tadd x6, x6, #256\n\tadd x7, x7, #256\n\tadd x4, x4, #256\n\t"
                "subs %w[n], %w[n], #1\n\t", 12, 13, 14, 15)
        "b.ne 1b\n\tsub %[w], x4, #256\n\t"
        : EK_SUM_OPERANDS
        : EK_OTHER_OPERANDS
        : EK_CLOBBERS);
    return w;
}

/* Two channels of a two: weights a and b. */
#define EK_TWO(a, b, n0, n1, base, o0, o1, first, second, s0, s1, s2, s3)                                         \
    EK_M8(smull, 28, a, 24) EK_L(n0, base, o0) EK_M8(smull, 29, a, 26) EK_M8(smull, 30, b, 24)                    \
    EK_L(n1, base, o1) EK_M8(smull, 31, b, 26) EK_M16(smlal2, 28, a, 24) EK_M16(smlal2, 29, a, 26)                \
    EK_M16(smlal2, 30, b, 24) EK_M16(smlal2, 31, b, 26) EK_S(s0, 28) first EK_S(s1, 29) EK_S(s2, 30) second       \
    EK_S(s3, 31)
#define EK_FIRST(a, b, n0, n1, base, o0, o1, s0, s1, s2, s3)                                                      \
    EK_M8(smull, 28, a, 24) EK_L(n0, base, o0) EK_M8(smull, 29, a, 26) EK_M8(smull, 30, b, 24)                    \
    EK_L(n1, base, o1) EK_M8(smull, 31, b, 26) EK_M16(smlal2, 28, a, 24) EK_M16(smlal2, 29, a, 26)                \
    EK_M16(smlal2, 30, b, 24) EK_M16(smlal2, 31, b, 26) EK_F(s0, 28) EK_F(s1, 29) EK_F(s2, 30) EK_F(s3, 31)

#define EK_FIRST_OPERANDS                                                                                         \
    [s0] "=&w"(s[0][0]), [s1] "=&w"(s[1][0]), [s2] "=&w"(s[0][1]), [s3] "=&w"(s[1][1]), [s4] "=&w"(s[0][2]),      \
        [s5] "=&w"(s[1][2]), [s6] "=&w"(s[0][3]), [s7] "=&w"(s[1][3]), [s8] "=&w"(s[0][4]), [s9] "=&w"(s[1][4]),  \
        [s10] "=&w"(s[0][5]), [s11] "=&w"(s[1][5]), [s12] "=&w"(s[0][6]), [s13] "=&w"(s[1][6]),                   \
        [s14] "=&w"(s[0][7]), [s15] "=&w"(s[1][7])
#define EK_FIRST_INPUTS                                                                                           \
    [w] "r"(w), [x] "r"(x), [step] "r"(step), [o16] "r"((ptrdiff_t)16), [o32] "r"((ptrdiff_t)32),                 \
        [o48] "r"((ptrdiff_t)48)

/* The first piece of two windows: nothing to add to. */
EK_KERNEL void ek_gemm_s8_first_neon(int32x4_t s[2][8], const int8_t *w, const int8_t *x, ptrdiff_t step) {
    __asm__ volatile(
        "ldr q24, [%[x], xzr]\n\t" EK_L(16, %[w], EK_0) EK_L(18, %[w], EK_16) "ldr q26, [%[x], %[step]]\n\t"
        "add x5, %[w], #64\n\t"
        EK_FIRST(16, 18, 20, 22, %[w], EK_32, EK_48, 0, 1, 2, 3)
        EK_FIRST(20, 22, 16, 18, x5, EK_0, EK_16, 4, 5, 6, 7)
        EK_FIRST(16, 18, 20, 22, x5, EK_32, EK_48, 8, 9, 10, 11)
        EK_FIRST(20, 22, 16, 18, x5, EK_0, EK_16, 12, 13, 14, 15)
        : EK_FIRST_OPERANDS
        : EK_FIRST_INPUTS
        : EK_CLOBBERS);
}

/* The twos of two windows. Weights lie [channel][16]. */
EK_KERNEL const int8_t *ek_gemm_s8_twos_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece,
                                             int count, const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step) {
    __asm__ volatile(
        EK_POINT_1 EK_POINT_2 EK_POINT_3
        "add x5, %[w], #64\n\tadd x4, %[w], #128\n\t"
        EK_L(24, x10, "%[at0]") EK_L(26, x10, "%[at1]") EK_L(16, %[w], EK_0) EK_L(18, %[w], EK_16) EK_L(20, %[w], EK_32)
        "1:\n\t"
        EK_TWO(16, 18, 20, 22, %[w], EK_32, EK_48, "", EK_POINT_1, 0, 1, 2, 3)
        EK_TWO(20, 22, 16, 18, x5, EK_0, EK_16, EK_POINT_2, EK_POINT_3 "add %[w], %[w], #128\n\t", 4, 5, 6, 7)
        EK_TWO(16, 18, 20, 22, x5, EK_32, EK_48, "", "", 8, 9, 10, 11)
        EK_TWO(20, 22, 16, 18, x4, EK_0, EK_16, EK_L(24, x10, "%[at0]") EK_L(26, x10, "%[at1]"),
               "add x5, x5, #128\n\tadd x4, x4, #128\n\tsubs %w[n], %w[n], #1\n\t", 12, 13, 14, 15)
        "b.ne 1b\n\t"
        : EK_SUM_OPERANDS
        : EK_OTHER_OPERANDS
        : EK_CLOBBERS);
    return w;
}

#endif

/* The same for mr windows, as the compiler likes: `pieces` of each of n sums. */
EK_KERNEL void ek_gemm_s8_pieces_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece, int n,
                                      const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step, const int pieces,
                                      const int mr) {
    EK_NO_UNROLL for (int i = 0; i < n; i++, piece += pieces) {
        const int8_t *x = ek_gemm_s8_piece_neon(taps, at, piece), *z = x;
        if (pieces == 2) z = ek_gemm_s8_piece_neon(taps, at, piece + 1);
        int8x16_t a[2], b[2];
        EK_UNROLL for (int r = 0; r < mr; r++) a[r] = vld1q_s8(x + r * step), b[r] = vld1q_s8(z + r * step);
        EK_UNROLL for (int c = 0; c < 8; c++, w += 16 * pieces) {
            const int8x16_t u = vld1q_s8(w), v = pieces == 2 ? vld1q_s8(w + 16) : u;
            EK_UNROLL for (int r = 0; r < mr; r++) {
                int16x8_t t = vmlal_high_s8(vmull_s8(vget_low_s8(u), vget_low_s8(a[r])), u, a[r]);
                if (pieces == 2) t = vmlal_high_s8(vmlal_s8(t, vget_low_s8(v), vget_low_s8(b[r])), v, b[r]);
                s[r][c] = vpadalq_s16(s[r][c], t);
            }
        }
    }
}

/* Where the parts of a panel are, and what must be asked once for all windows. */
typedef struct {
    const int32_t *q;
    const ek_gemm_s8_piece_t *four, *two, *one;
    const int8_t *w_four, *w_two, *w_one;
    const ek_gemm_s8_rest_t *rest;
    int fours, twos, ones, rests;
    int slow; /* rests, or not EK_GEMM_FAST */
    int easy; /* all channels, and results as they saturate */
} ek_gemm_s8_panel_neon_t;

EK_KERNEL ek_gemm_s8_panel_neon_t ek_gemm_s8_panel_neon(const unsigned char *panel, int channels,
                                                        const ek_gemm_s8_t *p) {
    const int32_t *q = (const void *)panel, *count = q + 4 * EK_NEON_NR;
    ek_gemm_s8_panel_neon_t a = {.q = q, .fours = count[0], .twos = count[1], .ones = count[2], .rests = count[3]};
    a.four = (const void *)(count + 4), a.two = a.four + 2 * a.fours + 2, a.one = a.two + a.twos + 1;
    a.w_four = (const int8_t *)(a.one + a.ones), a.w_two = a.w_four + 256 * a.fours, a.w_one = a.w_two + 128 * a.twos;
    a.rest = (const void *)(a.w_one + 64 * a.ones + 128);
    a.slow = a.rests || p->finish != EK_GEMM_FAST;
    a.easy = channels == EK_NEON_NR && p->low == -128 && p->high == 127 && p->y_zero == -128;
    return a;
}

/* The sums of the lanes of each channel, and the bias. */
EK_KERNEL void ek_gemm_s8_across_neon(int32x4_t sum[][2], int32x4_t s[2][8], const int32_t *q, const int mr) {
    const int32_t *q4 = EK_APART(q + 4);
    EK_UNROLL for (int r = 0; r < mr; r++) {
        const int32x4_t *c = s[r];
        sum[r][0] = vaddq_s32(vpaddq_s32(vpaddq_s32(c[0], c[1]), vpaddq_s32(c[2], c[3])), vld1q_s32(q));
        sum[r][1] = vaddq_s32(vpaddq_s32(vpaddq_s32(c[4], c[5]), vpaddq_s32(c[6], c[7])), vld1q_s32(q4));
    }
}

/* The sums of fours and twos; zeros where there are none. */
EK_KERNEL void ek_gemm_s8_wide_neon(int32x4_t s[2][8], const ek_gemm_s8_panel_neon_t *a, const int8_t *const *taps,
                                    ptrdiff_t at, ptrdiff_t step, const int mr, const int single) {
#if defined(__clang__)
    if (mr == 2 && a->twos) {
        ek_gemm_s8_first_neon(s, a->w_two, ek_gemm_s8_piece_neon(taps, at, a->two), step);
        if (!single && a->fours) ek_gemm_s8_fours_neon(s, a->w_four, a->four, a->fours, taps, at, step);
        if (!single && a->twos > 1) ek_gemm_s8_twos_neon(s, a->w_two + 128, a->two + 1, a->twos - 1, taps, at, step);
        return;
    }
#endif
    EK_UNROLL for (int r = 0; r < mr; r++)
        EK_UNROLL for (int c = 0; c < 8; c++) s[r][c] = vdupq_n_s32(0);
    if (!single) ek_gemm_s8_pieces_neon(s, a->w_four, a->four, a->fours, taps, at, step, 2, mr);
    ek_gemm_s8_pieces_neon(s, a->w_two, a->two, a->twos, taps, at, step, 1, mr);
}

/* The ones. */
EK_KERNEL void ek_gemm_s8_ones_neon(int32x4_t s[2][8], const ek_gemm_s8_panel_neon_t *a, const int8_t *const *taps,
                                    ptrdiff_t at, ptrdiff_t step, const int mr) {
    const int8_t *w = a->w_one;
    EK_NO_UNROLL for (int i = 0; i < a->ones; i++, w += 64) {
        const int8_t *x = ek_gemm_s8_piece_neon(taps, at, a->one + i);
        int8x8_t v[2];
        EK_UNROLL for (int r = 0; r < mr; r++) v[r] = vld1_s8(x + r * step);
        EK_UNROLL for (int c = 0; c < 8; c++) {
            const int8x8_t u = vld1_s8(w + 8 * c);
            EK_UNROLL for (int r = 0; r < mr; r++) s[r][c] = vpadalq_s16(s[r][c], vmull_s8(u, v[r]));
        }
    }
}

EK_KERNEL void ek_gemm_s8_tile_neon(const int8_t *const *taps, ptrdiff_t at, const ek_gemm_s8_panel_neon_t *a,
                                    int8_t *y, int channels, const ek_gemm_s8_t *p, ptrdiff_t step, const int mr) {
    const int32_t *q = a->q;
    int32x4_t s[2][8], sum[2][2];
    ek_gemm_s8_wide_neon(s, a, taps, at, step, mr, 0);
    ek_gemm_s8_ones_neon(s, a, taps, at, step, mr);
    ek_gemm_s8_across_neon(sum, s, q, mr);
    if (a->slow) {
        ek_gemm_s8_rests_neon(sum, a->rest, a->rests, taps, at, step, mr);
        if (p->finish != EK_GEMM_FAST) {
            int32_t sums[2 * EK_NEON_NR];
            EK_UNROLL for (int r = 0; r < 2 * mr; r++) vst1q_s32(sums + 4 * r, sum[r / 2][r % 2]);
            if (p->finish == EK_GEMM_LAW) ek_gemm_s8_law_neon(sums, mr, q, y, channels, p);
            else ek_gemm_s8_finish(sums, mr, (const unsigned char *)q, y, channels, p);
            return;
        }
    }
    if (mr > 1 && a->easy) ek_gemm_s8_store_neon(sum, q, y, EK_NEON_NR, p, mr, 1);
    else ek_gemm_s8_store_neon(sum, q, y, channels, p, mr, 0);
}

/* Two windows whose panel is easy. single: a two alone. */
EK_KERNEL void ek_gemm_s8_easy_neon(const int8_t *const *taps, ptrdiff_t at, const ek_gemm_s8_panel_neon_t *a,
                                    int8_t *y, const ek_gemm_s8_t *p, ptrdiff_t step, const int single) {
    int32x4_t s[2][8], sum[2][2];
    ek_gemm_s8_wide_neon(s, a, taps, at, step, 2, single);
    if (!single) ek_gemm_s8_ones_neon(s, a, taps, at, step, 2);
    ek_gemm_s8_across_neon(sum, s, a->q, 2);
    ek_gemm_s8_store_neon(sum, a->q, y, EK_NEON_NR, p, 2, 1);
}

/* The same where all is one one. */
EK_KERNEL void ek_gemm_s8_short_neon(const int8_t *const *taps, ptrdiff_t at, const ek_gemm_s8_panel_neon_t *a,
                                     int8_t *y, const ek_gemm_s8_t *p, ptrdiff_t step) {
    const int8_t *x = ek_gemm_s8_piece_neon(taps, at, a->one);
    const int8x8_t v[2] = {vld1_s8(x), vld1_s8(x + step)};
    int32x4_t s[2][8], sum[2][2];
    EK_UNROLL for (int c = 0; c < 8; c++) {
        const int8x8_t u = vld1_s8(a->w_one + 8 * c);
        EK_UNROLL for (int r = 0; r < 2; r++) s[r][c] = vpaddlq_s16(vmull_s8(u, v[r]));
    }
    ek_gemm_s8_across_neon(sum, s, a->q, 2);
    ek_gemm_s8_store_neon(sum, a->q, y, EK_NEON_NR, p, 2, 1);
}

/* The tile over a row; the last one overlaps the one before it. */
EK_KERNEL void ek_gemm_s8_row_neon(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, int8_t *y,
                                   int channels, const ek_gemm_s8_t *p, int windows, const int mr) {
    const ek_gemm_s8_panel_neon_t a = ek_gemm_s8_panel_neon(panel, channels, p);
    const ptrdiff_t step = p->step, y_step = p->y_step;
    const int easy = mr == 2 && a.easy && !a.slow;
    int left = windows;
    if (easy && a.twos == 1 && !a.fours && !a.ones)
        EK_NO_UNROLL for (; left >= 2; left -= 2, at += 2 * step, y += 2 * y_step)
            ek_gemm_s8_easy_neon(taps, at, &a, y, p, step, 1);
    else if (easy && a.twos)
        EK_NO_UNROLL for (; left >= 2; left -= 2, at += 2 * step, y += 2 * y_step)
            ek_gemm_s8_easy_neon(taps, at, &a, y, p, step, 0);
    else if (easy && a.ones == 1)
        EK_NO_UNROLL for (; left >= 2; left -= 2, at += 2 * step, y += 2 * y_step)
            ek_gemm_s8_short_neon(taps, at, &a, y, p, step);
    EK_NO_UNROLL for (; left > 0; left -= mr, at += mr * step, y += mr * y_step) {
        const ptrdiff_t back = EK_MAX(mr - left, 0);
        ek_gemm_s8_tile_neon(taps, at - back * step, &a, y - back * y_step, channels, p, step, mr);
    }
}

#define EK_GEMM_S8_NEON(NAME, ROW, MR)                                                                                 \
    EK_SHARED void ROW(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, int8_t *y, int channels,   \
                       const ek_gemm_s8_t *p, int windows) {                                                           \
        ek_gemm_s8_row_neon(taps, at, panel, y, channels, p, windows, MR);                                             \
    }                                                                                                                  \
    EK_KERNEL void NAME(const int8_t *x, const void *panels, int8_t *y, const ek_gemm_s8_t *p, void *scratch,          \
                        int part, int parts) {                                                                         \
        ek_gemm_s8(x, panels, y, p, scratch, ROW, NULL, part, parts);                                                  \
    }
EK_GEMM_S8_NEON(ek_gemm_s8_m1_neon, ek_gemm_s8_row_m1_neon, 1)
EK_GEMM_S8_NEON(ek_gemm_s8_m2_neon, ek_gemm_s8_row_m2_neon, 2)

#endif
