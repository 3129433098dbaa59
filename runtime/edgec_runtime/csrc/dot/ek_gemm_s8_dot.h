/* Tiles of ek_gemm_s8.h for Arm cores with the dot product (Armv8.2: sdot, and sqrdmlah of
 * Armv8.1): up to 8 windows times 8 channels, or 6 times 16, in registers of sums.
 *
 * Panel: bias, multiplier, addend, shift [nr] each; weights, run padded to 4: of the whole pieces
 * of 16 elements [taps][run / 16][4][nr][4], then of what is left of each tap [taps][run % 16 /
 * 4][nr][4].
 *
 * FAST stands for two roundings, ties away from zero, plus y_zero, saturated to int8: of x =
 * round(sum * multiplier / 2^31) it takes (x + 2^(s-1) - (x < 0) + (y_zero << s)) >> s, for 1 <= s
 * <= 23. Only sums of -1 can be negative where x is not, and there the result is 0 anyway; so the
 * sign is that of the sum. addend is 2^(s-1) + (y_zero << s), which sqrdmlah adds at once, and
 * shift is 24 - s: a saturating shift to the left end, whose top byte is the result. Where y_zero
 * is -128, all that is negative becomes -128: its sign does not matter, and s may be 0 (nothing is
 * rounded). */
#ifndef EK_GEMM_S8_DOT_H
#define EK_GEMM_S8_DOT_H
#include "../ek_gemm_s8.h"
#include "../neon/ek_requant_neon.h"

/* Hides where a pointer comes from. Loads through it are loads, where a register of constants would
 * be copied: the load pipes are idle there, those for vectors are not. */
#define EK_AGAIN_DOT(pointer) __asm__ volatile("" : "+r"(pointer))

/* The results of 8 channels of a window: the upper half of the top bytes. m, s: multipliers and
 * shifts. */
EK_KERNEL int16x8_t ek_gemm_s8_half_dot(const int32x4_t *sum, const int32_t *addend,
                                        const int32x4_t *m, const int32x4_t *s, const int plain) {
    int32x4_t v[2];
    EK_AGAIN_DOT(addend);
    EK_UNROLL for (int i = 0; i < 2; i++) {
        v[i] = vld1q_s32(addend + 4 * i);
        if (!plain) v[i] = vsraq_n_s32(v[i], sum[i], 31);
        v[i] = vqshlq_s32(vqrdmlahq_s32(v[i], sum[i], m[i]), s[i]);
    }
    return vuzp2q_s16(vreinterpretq_s16_s32(v[0]), vreinterpretq_s16_s32(v[1]));
}

/* Results of fewer channels than a tile has. */
EK_KERNEL void ek_gemm_s8_some_dot(const int8x16_t *v, int8_t *y, int channels,
                                   const ek_gemm_s8_t *p, const int mr, const int nr) {
    int8_t all[8 * 16];
    EK_UNROLL for (int r = 0; r < mr; r += 16 / nr) vst1q_s8(all + nr * r, v[r]);
    for (int r = 0; r < mr; r++)
        memcpy(y + (ptrdiff_t)r * p->y_step, all + nr * r, (size_t)channels);
}

/* Sums to results of mr windows. plain: negative results and the clamp are those of saturation. */
EK_KERNEL void ek_gemm_s8_store_dot(int32x4_t sum[][4], const int32_t *q, int8_t *y, int channels,
                                    const ek_gemm_s8_t *p, const int mr, const int nr,
                                    const int plain) {
    const int32_t *addend = q + 2 * nr;
    int32x4_t m[4], s[4];
    EK_UNROLL for (int i = 0; i < nr / 4; i++) m[i] = vld1q_s32(q + nr + 4 * i),
                                               s[i] = vld1q_s32(q + 3 * nr + 4 * i);
    const int8x16_t low = vdupq_n_s8((int8_t)p->low), high = vdupq_n_s8((int8_t)p->high);
    const int rows = 16 / nr; /* windows whose results fill a register */
    int8x16_t v[8];
    EK_UNROLL for (int r = 0; r < mr; r += rows) {
        const int16x8_t a = ek_gemm_s8_half_dot(sum[r], addend, m, s, plain);
        int16x8_t b = a;
        if (nr == 16)
            b = ek_gemm_s8_half_dot(sum[r] + 2, addend + 8, m + 2, s + 2, plain);
        else if (r + 1 < mr)
            b = ek_gemm_s8_half_dot(sum[r + 1], addend, m, s, plain);
        v[r] = vuzp2q_s8(vreinterpretq_s8_s16(a), vreinterpretq_s8_s16(b));
        if (!plain) v[r] = vminq_s8(vmaxq_s8(v[r], low), high);
    }
    if (channels < nr) {
        ek_gemm_s8_some_dot(v, y, channels, p, mr, nr);
        return;
    }
    const ptrdiff_t step = p->y_step;
    EK_UNROLL for (int r = 0; r < mr; r += rows, y += step) {
        if (nr == 16) {
            vst1q_s8(y, v[r]);
        } else {
            vst1_s8(y, vget_low_s8(v[r]));
            if (r + 1 < mr) y += step, vst1_s8(y, vget_high_s8(v[r]));
        }
    }
}

/* Four products a lane of elements 4 * lane of x, of all windows. */
#define EK_GEMM_S8_STEP_DOT(SDOT, lane)                                                    \
    EK_UNROLL for (int i = 0; i < nv; i++) {                                               \
        const int8x16_t u = vld1q_s8(w + 4 * nr * (lane) + 16 * i);                        \
        EK_UNROLL for (int r = 0; r < mr; r++) sum[r][i] = SDOT(sum[r][i], u, v[r], lane); \
    }
#define EK_GEMM_S8_STEPS_DOT(X)                               \
    {                                                         \
        int8x16_t v[8];                                       \
        EK_UNROLL for (int r = 0; r < mr; r++) {              \
            v[r] = vld1q_s8(X);                               \
            if (zero) all[r] = vdotq_s32(all[r], v[r], ones); \
        }                                                     \
        EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 0)               \
        EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 1)               \
        EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 2)               \
        EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 3)               \
        w += 16 * nr;                                         \
    }

/* Pointers to mr windows behind a tap, each counting up in a register of its own. */
EK_KERNEL void ek_gemm_s8_windows_dot(const int8_t **x, const int8_t *tap, ptrdiff_t step,
                                      const int mr) {
    x[0] = tap;
    EK_UNROLL for (int r = 1; r < mr; r++) {
        x[r] = x[r - 1] + step;
        EK_AGAIN_DOT(x[r]);
    }
}

/* Sums start with the bias. */
EK_KERNEL void ek_gemm_s8_bias_dot(int32x4_t sum[][4], const int32_t *bias, const int mr,
                                   const int nv) {
    EK_UNROLL for (int r = 0; r < mr; r++) {
        EK_AGAIN_DOT(bias);
        EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] = vld1q_s32(bias + 4 * i);
    }
}

/* Products of the whole pieces of 16 elements of all taps, in one loop: those of a few steps each
 * would mispredict their ends. Returns the next weights. */
EK_KERNEL const int8_t *ek_gemm_s8_pieces_dot(int32x4_t sum[][4], int32x4_t *all,
                                              const int8_t *const *taps, ptrdiff_t at,
                                              const ek_gemm_s8_t *p, const int8_t *w, const int mr,
                                              const int nr, const int zero) {
    const int8x16_t ones = vdupq_n_s8(1);
    const ptrdiff_t step = p->step, past = at + (p->run & ~15);
    const int nv = nr / 4;
    ptrdiff_t to = at;
    EK_NO_UNROLL for (int n = p->taps * (p->run / 16); n > 0; n--) {
        const int8_t *x = *taps + to;
        to += 16;
        taps += to == past, to = to == past ? at : to;
        EK_GEMM_S8_STEPS_DOT(x + r * step)
    }
    return w;
}

/* Products of `depth` elements in pieces of 16 if that is not 0, and of the last of k, less
 * than 16. */
EK_KERNEL const int8_t *ek_gemm_s8_run_dot(int32x4_t sum[][4], int32x4_t *all, const int8_t **x,
                                           const int8_t *w, int k, const int mr, const int nr,
                                           const int zero, const int depth) {
    const int8x16_t ones = vdupq_n_s8(1),
                    ones4 = vreinterpretq_s8_s32(vsetq_lane_s32(0x01010101, vdupq_n_s32(0), 0));
    const int nv = nr / 4;
    if (depth >= 16) EK_GEMM_S8_STEPS_DOT((x[r] += 16) - 16)
    if (depth >= 32) EK_GEMM_S8_STEPS_DOT((x[r] += 16) - 16)
    if (depth >= 48) EK_GEMM_S8_STEPS_DOT((x[r] += 16) - 16)
    if (depth >= 64) EK_GEMM_S8_STEPS_DOT((x[r] += 16) - 16)
    if (k & 8) {
        int8x8_t v[8];
        EK_UNROLL for (int r = 0; r < mr; r++) {
            v[r] = vld1_s8(x[r]), x[r] += 8;
            if (zero) all[r] = vdotq_s32(all[r], vcombine_s8(v[r], vdup_n_s8(0)), ones);
        }
        EK_GEMM_S8_STEP_DOT(vdotq_lane_s32, 0)
        EK_GEMM_S8_STEP_DOT(vdotq_lane_s32, 1)
        w += 8 * nr;
    }
    if (k & 4) {
        int8x8_t v[8];
        EK_UNROLL for (int r = 0; r < mr; r++) {
            v[r] = vreinterpret_s8_s32(vld1_dup_s32((const void *)x[r]));
            if (zero) all[r] = vdotq_s32(all[r], vcombine_s8(v[r], v[r]), ones4);
        }
        EK_GEMM_S8_STEP_DOT(vdotq_lane_s32, 0)
        w += 4 * nr;
    }
    return w;
}

/* Results of any shift, of sums in memory. */
EK_SHARED void ek_gemm_s8_law_dot(const int32_t *sums, int rows, const unsigned char *panel,
                                  int8_t *y, int channels, const ek_gemm_s8_t *p) {
    const int32_t *multiplier = (const int32_t *)(const void *)panel + p->nr,
                  *shift = multiplier + p->nr;
    const int8x8_t low = vdup_n_s8((int8_t)p->low), high = vdup_n_s8((int8_t)p->high);
    const int16x8_t y_zero = vdupq_n_s16((int16_t)p->y_zero);
    for (int r = 0; r < rows; r++, sums += p->nr, y += p->y_step)
        for (int c = 0; c < channels; c += 8) {
            int32x4_t v[2];
            EK_UNROLL for (int i = 0; i < 2; i++) {
                const int at = c + 4 * i;
                v[i] = ek_multiply_neon(vld1q_s32(sums + at), vld1q_s32(multiplier + at),
                                        vld1q_s32(shift + at));
            }
            const int8x8_t result = vmin_s8(vmax_s8(ek_narrow_neon(v[0], v[1], y_zero), low), high);
            int8_t some[8];
            if (channels - c >= 8) {
                vst1_s8(y + c, result);
            } else {
                vst1_s8(some, result);
                memcpy(y + c, some, (size_t)(channels - c));
            }
        }
}

/* Whether saturation alone makes results: no activation but one to zero and above, and it at the
 * end of int8. */
EK_KERNEL int ek_gemm_s8_plain_dot(const ek_gemm_s8_t *p) {
    return p->finish == EK_GEMM_FAST && p->low == -128 && p->high == 127 && p->y_zero == -128;
}

/* Takes w_zero times the sum of a window's elements from its sums. */
EK_KERNEL void ek_gemm_s8_less_dot(int32x4_t sum[][4], const int32x4_t *all, const ek_gemm_s8_t *p,
                                   const int mr, const int nv) {
    EK_UNROLL for (int r = 0; r < mr; r++) {
        const int32x4_t less = vdupq_n_s32(p->w_zero * vaddvq_s32(all[r]));
        EK_UNROLL for (int i = 0; i < nv; i++) sum[r][i] = vsubq_s32(sum[r][i], less);
    }
}

/* Sums to results by EK_GEMM_EVEN. */
EK_KERNEL void ek_gemm_s8_even_dot(int32x4_t sum[][4], const unsigned char *panel, int8_t *y,
                                   int channels, const ek_gemm_s8_t *p, const int mr,
                                   const int nr) {
    const float *scale = (const float *)(const void *)panel + nr;
    const ek_even_end_neon_t e = ek_even_end_neon(p->y_zero, p->low, p->high);
    EK_UNROLL for (int r = 0; r < mr; r++, y += p->y_step) EK_UNROLL for (int c = 0; c < nr; c += 8)
        ek_eight_even_neon(sum[r][c / 4], sum[r][c / 4 + 1], scale + c, y + c, channels - c, &e);
}

/* The tile of mr windows and nr channels. zero: whether the weights have a zero point; even: of
 * EK_GEMM_EVEN. */
EK_KERNEL void ek_gemm_s8_tile_dot(const int8_t *const *taps, ptrdiff_t at,
                                   const unsigned char *panel, int8_t *y, int channels,
                                   const ek_gemm_s8_t *p, const int mr, const int nr,
                                   const int zero, const int even) {
    const int32_t *q = (const void *)panel;
    const int8_t *w = (const int8_t *)panel + 16 * nr, *x[8];
    const int nv = nr / 4;
    int32x4_t sum[8][4], all[8];
    EK_UNROLL for (int r = 0; r < mr; r++) all[r] = vdupq_n_s32(0);
    ek_gemm_s8_bias_dot(sum, q, mr, nv);
    w = ek_gemm_s8_pieces_dot(sum, all, taps, at, p, w, mr, nr, zero);
    for (int t = p->run & 15 ? p->taps : 0; t > 0; t--) {
        ek_gemm_s8_windows_dot(x, *taps++ + at + (p->run & ~15), p->step, mr);
        w = ek_gemm_s8_run_dot(sum, all, x, w, p->run & 15, mr, nr, zero, 0);
    }
    if (zero) ek_gemm_s8_less_dot(sum, all, p, mr, nv);
    if (even) {
        ek_gemm_s8_even_dot(sum, panel, y, channels, p, mr, nr);
    } else if (p->finish != EK_GEMM_FAST) {
        int32_t sums[8 * 16];
        EK_UNROLL for (int r = 0; r < mr; r++) EK_UNROLL for (int i = 0; i < nv; i++)
            vst1q_s32(sums + nr * r + 4 * i, sum[r][i]);
        if (p->finish == EK_GEMM_LAW)
            ek_gemm_s8_law_dot(sums, mr, panel, y, channels, p);
        else
            ek_gemm_s8_scale(sums, mr, panel, y, channels, p);
    } else if (ek_gemm_s8_plain_dot(p)) {
        ek_gemm_s8_store_dot(sum, q, y, channels, p, mr, nr, 1);
    } else {
        ek_gemm_s8_store_dot(sum, q, y, channels, p, mr, nr, 0);
    }
}

/* The tile of one run of a depth that is known: a straight line, in which the loads of the bias and
 * the results of the sums are worked out beside the products. */
EK_KERNEL void ek_gemm_s8_line_dot(const int8_t *const *taps, ptrdiff_t at,
                                   const unsigned char *panel, int8_t *y, int channels,
                                   const ek_gemm_s8_t *p, const int mr, const int nr,
                                   const int depth, const int zero) {
    const int32_t *q = (const void *)panel;
    const int8_t *x[8];
    int32x4_t sum[8][4], all[8];
    EK_UNROLL for (int r = 0; r < mr; r++) all[r] = vdupq_n_s32(0);
    ek_gemm_s8_bias_dot(sum, q, mr, nr / 4);
    ek_gemm_s8_windows_dot(x, taps[0] + at, p->step, mr);
    ek_gemm_s8_run_dot(sum, all, x, (const int8_t *)panel + 16 * nr, depth & 15, mr, nr, zero,
                       depth);
    if (zero) ek_gemm_s8_less_dot(sum, all, p, mr, nr / 4);
    ek_gemm_s8_store_dot(sum, q, y, channels, p, mr, nr, 1);
}

/* Rows of tiles; x: of EK_GEMM_EVEN, else of all others. */
#define EK_GEMM_S8_DOT(NAME, ROW, mr, nr, zero, even)                                       \
    EK_SHARED void ROW(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, \
                       int8_t *y, int channels, const ek_gemm_s8_t *p,                      \
                       int windows){EK_GEMM_S8_TILES(                                       \
        ek_gemm_s8_tile_dot, mr, channels, mr, nr, zero, even)} EK_GEMM_S8_WHOLE(NAME, ROW, NULL)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n16_dot, ek_gemm_s8_row_m1n16_dot, 1, 16, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m2n16_dot, ek_gemm_s8_row_m2n16_dot, 2, 16, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m3n16_dot, ek_gemm_s8_row_m3n16_dot, 3, 16, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n16_dot, ek_gemm_s8_row_m4n16_dot, 4, 16, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n8_dot, ek_gemm_s8_row_m1n8_dot, 1, 8, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n8_dot, ek_gemm_s8_row_m4n8_dot, 4, 8, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m7n8_dot, ek_gemm_s8_row_m7n8_dot, 7, 8, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m8n8_dot, ek_gemm_s8_row_m8n8_dot, 8, 8, 0, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n16z_dot, ek_gemm_s8_row_m1n16z_dot, 1, 16, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m2n16z_dot, ek_gemm_s8_row_m2n16z_dot, 2, 16, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m3n16z_dot, ek_gemm_s8_row_m3n16z_dot, 3, 16, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n16z_dot, ek_gemm_s8_row_m4n16z_dot, 4, 16, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n8z_dot, ek_gemm_s8_row_m1n8z_dot, 1, 8, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n8z_dot, ek_gemm_s8_row_m4n8z_dot, 4, 8, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m7n8z_dot, ek_gemm_s8_row_m7n8z_dot, 7, 8, 1, 0)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n16x_dot, ek_gemm_s8_row_m1n16x_dot, 1, 16, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m2n16x_dot, ek_gemm_s8_row_m2n16x_dot, 2, 16, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m3n16x_dot, ek_gemm_s8_row_m3n16x_dot, 3, 16, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n16x_dot, ek_gemm_s8_row_m4n16x_dot, 4, 16, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n8x_dot, ek_gemm_s8_row_m1n8x_dot, 1, 8, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n8x_dot, ek_gemm_s8_row_m4n8x_dot, 4, 8, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m7n8x_dot, ek_gemm_s8_row_m7n8x_dot, 7, 8, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m8n8x_dot, ek_gemm_s8_row_m8n8x_dot, 8, 8, 0, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n16zx_dot, ek_gemm_s8_row_m1n16zx_dot, 1, 16, 1, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m2n16zx_dot, ek_gemm_s8_row_m2n16zx_dot, 2, 16, 1, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m3n16zx_dot, ek_gemm_s8_row_m3n16zx_dot, 3, 16, 1, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n16zx_dot, ek_gemm_s8_row_m4n16zx_dot, 4, 16, 1, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m1n8zx_dot, ek_gemm_s8_row_m1n8zx_dot, 1, 8, 1, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m4n8zx_dot, ek_gemm_s8_row_m4n8zx_dot, 4, 8, 1, 1)
EK_GEMM_S8_DOT(ek_gemm_s8_m7n8zx_dot, ek_gemm_s8_row_m7n8zx_dot, 7, 8, 1, 1)

/* Rows of such tiles. What a schedule should not give them, results that saturation does not make
 * or channels that do not fill a panel, goes to other tiles of a window each. */
#define EK_GEMM_S8_LINE_DOT(NAME, ROW, OTHER, mr, nr, depth, zero)                          \
    EK_SHARED void ROW(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, \
                       int8_t *y, int channels, const ek_gemm_s8_t *p, int windows) {       \
        if (!ek_gemm_s8_plain_dot(p) || channels < nr) {                                    \
            OTHER(taps, at, panel, y, channels, p, windows);                                \
            return;                                                                         \
        }                                                                                   \
        EK_GEMM_S8_TILES(ek_gemm_s8_line_dot, mr, nr, mr, nr, depth, zero)                  \
    }                                                                                       \
    EK_GEMM_S8_WHOLE(NAME, ROW, NULL)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k16_dot, ek_gemm_s8_row_m4n16k16_dot, ek_gemm_s8_row_m1n16_dot,
                    4, 16, 16, 0)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k24_dot, ek_gemm_s8_row_m4n16k24_dot, ek_gemm_s8_row_m1n16_dot,
                    4, 16, 24, 0)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k28_dot, ek_gemm_s8_row_m4n16k28_dot, ek_gemm_s8_row_m1n16_dot,
                    4, 16, 28, 0)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k32_dot, ek_gemm_s8_row_m4n16k32_dot, ek_gemm_s8_row_m1n16_dot,
                    4, 16, 32, 0)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k64_dot, ek_gemm_s8_row_m4n16k64_dot, ek_gemm_s8_row_m1n16_dot,
                    4, 16, 64, 0)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m8n8k28_dot, ek_gemm_s8_row_m8n8k28_dot, ek_gemm_s8_row_m1n8_dot, 8,
                    8, 28, 0)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k8z_dot, ek_gemm_s8_row_m4n16k8z_dot, ek_gemm_s8_row_m1n16z_dot,
                    4, 16, 8, 1)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k16z_dot, ek_gemm_s8_row_m4n16k16z_dot,
                    ek_gemm_s8_row_m1n16z_dot, 4, 16, 16, 1)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k28z_dot, ek_gemm_s8_row_m4n16k28z_dot,
                    ek_gemm_s8_row_m1n16z_dot, 4, 16, 28, 1)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n16k32z_dot, ek_gemm_s8_row_m4n16k32z_dot,
                    ek_gemm_s8_row_m1n16z_dot, 4, 16, 32, 1)
EK_GEMM_S8_LINE_DOT(ek_gemm_s8_m4n8k28z_dot, ek_gemm_s8_row_m4n8k28z_dot, ek_gemm_s8_row_m1n8z_dot,
                    4, 8, 28, 1)

#endif
