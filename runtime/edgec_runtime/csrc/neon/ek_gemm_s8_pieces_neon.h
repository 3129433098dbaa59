/* Sums of the pieces of ek_gemm_s8_neon.h, two windows (or 1) times 8 channels: [window][channel],
 * four lanes each. */
/* The macros below are pieces of assembly text, laid out as it issues. */
/* clang-format off */
#ifndef EK_GEMM_S8_PIECES_NEON_H
#define EK_GEMM_S8_PIECES_NEON_H
#include "../ek_base.h"
#include <arm_neon.h>

typedef struct {
    int32_t tap, element; /* bytes into the pointers of taps, and behind the pointer */
} ek_gemm_s8_piece_t;

EK_KERNEL const int8_t *ek_gemm_s8_piece_neon(const int8_t *const *taps, ptrdiff_t at,
                                              const ek_gemm_s8_piece_t *piece) {
    return *(const int8_t *const *)(const void *)((const char *)taps + piece->tap) + at + piece->element;
}

/* Sums of pairs; written down, so that no compiler makes SADALP of it and what follows (see EK_TWO_BESIDE). */
EK_KERNEL int32x4_t ek_pairs_neon(int16x8_t x) {
    int32x4_t r;
    __asm__("saddlp %0.4s, %1.8h" : "=w"(r) : "w"(x));
    return r;
}

/* n sums of `pieces` each (1 or 2) of mr windows, as the compiler likes. Weights lie [channel][pieces][16]. */
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
                s[r][c] = vaddq_s32(s[r][c], ek_pairs_neon(t));
            }
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
#define EK_I0 "#0" /* out-of-order cores take two operations for a register */
#define EK_I16 "#16"
#define EK_I32 "#32"
#define EK_I48 "#48"
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
#define EK_POINTS_1 "ldp x12, x13, [%[piece]]\n\t"
#define EK_POINTS_2 "ldr x10, [%[taps], w12, uxtw]\n\tldr x11, [%[taps], w13, uxtw]\n\t"
#define EK_POINTS_3 "add x10, x10, x12, asr #32\n\tadd x11, x11, x13, asr #32\n\tadd %[piece], %[piece], #16\n\t"
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
EK_KERNEL void ek_gemm_s8_fours_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece,
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

/* The first piece of two windows: nothing to add to. o0 to o48: of loads. */
#define EK_FIRST_PIECE(o0, o16, o32, o48)                                                                         \
    __asm__ volatile(                                                                                             \
        "ldr q24, [%[x], xzr]\n\t" EK_L(16, %[w], o0) EK_L(18, %[w], o16) "ldr q26, [%[x], %[step]]\n\t"          \
        "add x5, %[w], #64\n\t"                                                                                   \
        EK_FIRST(16, 18, 20, 22, %[w], o32, o48, 0, 1, 2, 3)                                                      \
        EK_FIRST(20, 22, 16, 18, x5, o0, o16, 4, 5, 6, 7)                                                         \
        EK_FIRST(16, 18, 20, 22, x5, o32, o48, 8, 9, 10, 11)                                                      \
        EK_FIRST(20, 22, 16, 18, x5, o0, o16, 12, 13, 14, 15)                                                     \
        : EK_FIRST_OPERANDS                                                                                       \
        : EK_FIRST_INPUTS                                                                                         \
        : EK_CLOBBERS)
EK_KERNEL void ek_gemm_s8_first_neon(int32x4_t s[2][8], const int8_t *w, const int8_t *x, ptrdiff_t step,
                                     const int beside) {
    if (beside) EK_FIRST_PIECE(EK_I0, EK_I16, EK_I32, EK_I48);
    else EK_FIRST_PIECE(EK_0, EK_16, EK_32, EK_48);
}

/* The twos of two windows. Weights lie [channel][16]. */
EK_KERNEL void ek_gemm_s8_twos_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece,
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
}

/* For out-of-order cores. Two channels of a two, weights a and b: its products in t0 to t3, and beside them those of
 * the two channels before, in r0 to r3, to sums. Products have one pipe of the Cortex-A72; SADDLP and ADD take either,
 * where SADALP would take the other one twice as long. */
#define EK_P(r) "saddlp v" #r ".4s, v" #r ".8h\n\t"
#define EK_A(s, r) "add %[s" #s "].4s, %[s" #s "].4s, v" #r ".4s\n\t"
#define EK_TWO_BESIDE(a, b, n0, n1, base, o0, o1, first, second, t0, t1, t2, t3, r0, r1, r2, r3, s0, s1, s2, s3)         \
    EK_M8(smull, t0, a, 24) EK_P(r0) EK_L(n0, base, o0) EK_M8(smull, t1, a, 26) EK_P(r1)                          \
    EK_M8(smull, t2, b, 24) EK_P(r2) EK_L(n1, base, o1) EK_M8(smull, t3, b, 26) EK_P(r3) first                    \
    EK_M16(smlal2, t0, a, 24) EK_A(s0, r0) EK_M16(smlal2, t1, a, 26) EK_A(s1, r1) second                          \
    EK_M16(smlal2, t2, b, 24) EK_A(s2, r2) EK_M16(smlal2, t3, b, 26) EK_A(s3, r3)
/* The same beside the sums. */
EK_KERNEL void ek_gemm_s8_twos_beside_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece,
                                             int count, const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step) {
    __asm__ volatile(
        EK_POINT_1 EK_POINT_2 EK_POINT_3
        "add x5, %[w], #64\n\tadd x4, %[w], #128\n\t"
        EK_L(24, x10, "%[at0]") EK_L(26, x10, "%[at1]") EK_L(16, %[w], EK_I0) EK_L(18, %[w], EK_I16)
        "movi v17.4s, #0\n\tmovi v19.4s, #0\n\tmovi v21.4s, #0\n\tmovi v23.4s, #0\n\t"
        "1:\n\t"
        EK_TWO_BESIDE(16, 18, 20, 22, %[w], EK_I32, EK_I48, EK_POINT_1, "", 28, 29, 30, 31, 17, 19, 21, 23, 12, 13, 14, 15)
        EK_TWO_BESIDE(20, 22, 16, 18, x5, EK_I0, EK_I16, EK_POINT_2, EK_POINT_3 "add %[w], %[w], #128\n\t",
               17, 19, 21, 23, 28, 29, 30, 31, 0, 1, 2, 3)
        EK_TWO_BESIDE(16, 18, 20, 22, x5, EK_I32, EK_I48, "", "", 28, 29, 30, 31, 17, 19, 21, 23, 4, 5, 6, 7)
        EK_TWO_BESIDE(20, 22, 16, 18, x4, EK_I0, EK_I16, "", "add x5, x5, #128\n\tadd x4, x4, #128\n\tsubs %w[n], %w[n], #1\n\t",
               17, 19, 21, 23, 28, 29, 30, 31, 8, 9, 10, 11)
        EK_L(24, x10, "%[at0]") EK_L(26, x10, "%[at1]")
        "b.ne 1b\n\t"
        EK_P(17) EK_P(19) EK_P(21) EK_P(23) EK_A(12, 17) EK_A(13, 19) EK_A(14, 21) EK_A(15, 23)
        : EK_SUM_OPERANDS
        : EK_OTHER_OPERANDS
        : EK_CLOBBERS);
}
/* The second piece of two windows, if it is the last: in a straight line with what follows. */
#define EK_PRODUCTS(a, b, n0, n1, base, o0, o1, t0, t1, t2, t3)                                                   \
    EK_M8(smull, t0, a, 24) EK_L(n0, base, o0) EK_M8(smull, t1, a, 26) EK_M8(smull, t2, b, 24)                    \
    EK_L(n1, base, o1) EK_M8(smull, t3, b, 26) EK_M16(smlal2, t0, a, 24) EK_M16(smlal2, t1, a, 26)                \
    EK_M16(smlal2, t2, b, 24) EK_M16(smlal2, t3, b, 26)
EK_KERNEL void ek_gemm_s8_last_neon(int32x4_t s[2][8], const int8_t *w, const int8_t *x, ptrdiff_t step) {
    const ek_gemm_s8_piece_t *piece = 0;
    int count = 0;
    __asm__ volatile(
        "ldr q24, [%[x], xzr]\n\t" EK_L(16, %[w], EK_I0) EK_L(18, %[w], EK_I16) "ldr q26, [%[x], %[step]]\n\t"
        "add x5, %[w], #64\n\t"
        EK_PRODUCTS(16, 18, 20, 22, %[w], EK_I32, EK_I48, 28, 29, 30, 31)
        EK_TWO_BESIDE(20, 22, 16, 18, x5, EK_I0, EK_I16, "", "", 17, 19, 21, 23, 28, 29, 30, 31, 0, 1, 2, 3)
        EK_TWO_BESIDE(16, 18, 20, 22, x5, EK_I32, EK_I48, "", "", 28, 29, 30, 31, 17, 19, 21, 23, 4, 5, 6, 7)
        EK_TWO_BESIDE(20, 22, 16, 18, x5, EK_I0, EK_I16, "", "", 17, 19, 21, 23, 28, 29, 30, 31, 8, 9, 10, 11)
        EK_P(17) EK_P(19) EK_P(21) EK_P(23) EK_A(12, 17) EK_A(13, 19) EK_A(14, 21) EK_A(15, 23)
        : EK_SUM_OPERANDS
        : [x] "r"(x), [step] "r"(step)
        : EK_CLOBBERS);
}
#else
EK_KERNEL void ek_gemm_s8_first_neon(int32x4_t s[2][8], const int8_t *w, const int8_t *x, ptrdiff_t step,
                                     const int beside) {
    const ek_gemm_s8_piece_t piece = {0, 0};
    (void)beside;
    EK_UNROLL for (int i = 0; i < 16; i++) s[i / 8][i % 8] = vdupq_n_s32(0);
    ek_gemm_s8_pieces_neon(s, w, &piece, 1, &x, 0, step, 1, 2);
}
EK_KERNEL void ek_gemm_s8_fours_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece, int count,
                                     const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step) {
    ek_gemm_s8_pieces_neon(s, w, piece, count, taps, at, step, 2, 2);
}
EK_KERNEL void ek_gemm_s8_twos_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece, int count,
                                    const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step) {
    ek_gemm_s8_pieces_neon(s, w, piece, count, taps, at, step, 1, 2);
}
EK_KERNEL void ek_gemm_s8_twos_beside_neon(int32x4_t s[2][8], const int8_t *w, const ek_gemm_s8_piece_t *piece,
                                           int count, const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step) {
    ek_gemm_s8_pieces_neon(s, w, piece, count, taps, at, step, 1, 2);
}
EK_KERNEL void ek_gemm_s8_last_neon(int32x4_t s[2][8], const int8_t *w, const int8_t *x, ptrdiff_t step) {
    const ek_gemm_s8_piece_t piece = {0, 0};
    ek_gemm_s8_pieces_neon(s, w, &piece, 1, &x, 0, step, 1, 2);
}
#endif

#endif
/* clang-format on */
