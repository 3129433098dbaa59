/* Tiles of ek_gemm_s8.h for Arm cores without the dot product: 2 windows (or 1) times 8 channels, k
 * along the lanes.
 *
 * Products of int8 are summed in 16 bits before they are added to 32. A window is cut into pieces
 * of 16 elements (and of 8, see edgec/schedule/gemm_s8/neon.py). The packer proves what cannot
 * overflow: the magnitudes of all weights of a lane sum to at most 255. That holds for the two
 * weights of a piece, and for the four of two pieces that it finds to fit each other; these are the
 * fours, the other pieces the twos, those of 8 elements the ones. What a weight has above that, and
 * what int8 does not hold (weights have their zero point subtracted), is left out and follows as
 * `rest`: an element of the window with 8 more weights.
 *
 * Panel: bias, multiplier, addend, shift [8] each (ek_half_neon); the numbers of fours, twos, ones
 * and rests (int32 each); where their pieces are (ek_gemm_s8_piece_t): two of each four and two
 * more, each two and one more, each one; weights: [fours][8][2][16], [twos][8][16], [ones][8][8],
 * 128 bytes that are loaded, not used; the rests. There is a two wherever there is a four. */
#ifndef EK_GEMM_S8_NEON_H
#define EK_GEMM_S8_NEON_H
#include "../ek_gemm_s8.h"
#include "ek_gemm_s8_pieces_neon.h"
#include "ek_requant_neon.h"

enum { EK_NEON_NR = 8 };

typedef struct {
    ek_gemm_s8_piece_t at;
    int8_t w[EK_NEON_NR];
} ek_gemm_s8_rest_t;

/* Sums to results of two windows. */
EK_KERNEL int8x16_t ek_gemm_s8_bytes_neon(int32x4_t sum[][2], const int32_t *q,
                                          const ek_gemm_s8_t *p, const int saturate) {
    const int32_t *q4 = EK_APART(q + 4);
    const int16x8_t first = ek_half_neon(sum[0][0], sum[0][1], q + 8, q4 + 8, saturate);
    const int8x16_t v =
        ek_bytes_neon(first, ek_half_neon(sum[1][0], sum[1][1], q + 8, q4 + 8, saturate));
    return saturate == 1
               ? v
               : vminq_s8(vmaxq_s8(v, vdupq_n_s8((int8_t)p->low)), vdupq_n_s8((int8_t)p->high));
}
EK_KERNEL void ek_gemm_s8_store_neon(int8x16_t v, int8_t *y, ptrdiff_t y_step, int channels) {
    if (channels == EK_NEON_NR) {
        vst1_s8(y, vget_low_s8(v)), vst1_s8(y + y_step, vget_high_s8(v));
    } else {
        int8_t part[16];
        vst1q_s8(part, v);
        memcpy(y, part, (size_t)channels), memcpy(y + y_step, part + 8, (size_t)channels);
    }
}

/* Sums to results by EK_GEMM_LAW: any shift. */
EK_SHARED void ek_gemm_s8_law_neon(const int32_t *sums, int rows, const int32_t *q, int8_t *y,
                                   int channels, const ek_gemm_s8_t *p) {
    EK_NO_UNROLL for (int r = 0; r < rows; r++, sums += EK_NEON_NR, y += p->y_step) {
        const int32x4_t a = ek_multiply_neon(vld1q_s32(sums), vld1q_s32(q + 8), vld1q_s32(q + 16));
        const int32x4_t b =
            ek_multiply_neon(vld1q_s32(sums + 4), vld1q_s32(q + 12), vld1q_s32(q + 20));
        int8_t part[8];
        const int8x8_t v = ek_narrow_neon(a, b, vdupq_n_s16((int16_t)p->y_zero));
        vst1_s8(part, vmin_s8(vmax_s8(v, vdup_n_s8((int8_t)p->low)), vdup_n_s8((int8_t)p->high)));
        memcpy(y, part, (size_t)channels);
    }
}

/* Sums to results by EK_GEMM_EVEN. */
EK_KERNEL void ek_gemm_s8_even_rows_neon(int32x4_t sum[][2], int rows, const int32_t *q, int8_t *y,
                                         int channels, const ek_gemm_s8_t *p) {
    const float *scale = (const float *)(const void *)(q + EK_NEON_NR);
    const ek_even_end_neon_t e = ek_even_end_neon(p->y_zero, p->low, p->high);
    EK_UNROLL for (int r = 0; r < rows; r++, y += p->y_step)
        ek_eight_even_neon(sum[r][0], sum[r][1], scale, y, channels, &e);
}

/* Adds what the weights lack. */
EK_KERNEL void ek_gemm_s8_rests_neon(int32x4_t sum[][2], const ek_gemm_s8_rest_t *rest, int count,
                                     const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step,
                                     const int mr) {
    EK_NO_UNROLL for (; count > 0; count--, rest++) {
        const int8_t *x = ek_gemm_s8_piece_neon(taps, at, &rest->at);
        const int8x8_t w = vld1_s8(rest->w);
        EK_UNROLL for (int r = 0; r < mr; r++) {
            const int16x8_t t = vmull_s8(w, vld1_dup_s8(x + r * step));
            sum[r][0] = vaddw_s16(sum[r][0], vget_low_s16(t)),
            sum[r][1] = vaddw_high_s16(sum[r][1], t);
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
} ek_gemm_s8_panel_neon_t;

EK_KERNEL ek_gemm_s8_panel_neon_t ek_gemm_s8_panel_neon(const unsigned char *panel) {
    const int32_t *q = (const void *)panel, *count = q + 4 * EK_NEON_NR;
    ek_gemm_s8_panel_neon_t a = {
        .q = q, .fours = count[0], .twos = count[1], .ones = count[2], .rests = count[3]};
    a.four = (const void *)(count + 4), a.two = a.four + 2 * a.fours + 2,
    a.one = a.two + a.twos + 1;
    a.w_four = (const int8_t *)(a.one + a.ones), a.w_two = a.w_four + 256 * a.fours,
    a.w_one = a.w_two + 128 * a.twos;
    a.rest = (const void *)(a.w_one + 64 * a.ones + 128);
    return a;
}

/* The sums of the lanes of each channel of a window, and of `more` [8]: the bias. */
EK_KERNEL void ek_gemm_s8_across_neon(int32x4_t sum[2], const int32x4_t c[8], const int32_t *more) {
    const int32_t *more4 = EK_APART(more + 4);
    sum[0] = vaddq_s32(vpaddq_s32(vpaddq_s32(c[0], c[1]), vpaddq_s32(c[2], c[3])), vld1q_s32(more));
    sum[1] =
        vaddq_s32(vpaddq_s32(vpaddq_s32(c[4], c[5]), vpaddq_s32(c[6], c[7])), vld1q_s32(more4));
}

/* The ones of mr windows. */
EK_KERNEL void ek_gemm_s8_ones_neon(int32x4_t s[2][8], const ek_gemm_s8_panel_neon_t *a,
                                    const int8_t *const *taps, ptrdiff_t at, ptrdiff_t step,
                                    const int mr) {
    const int8_t *w = a->w_one;
    EK_NO_UNROLL for (int i = 0; i < a->ones; i++, w += 64) {
        const int8_t *x = ek_gemm_s8_piece_neon(taps, at, a->one + i);
        int8x8_t v[2];
        EK_UNROLL for (int r = 0; r < mr; r++) v[r] = vld1_s8(x + r * step);
        EK_UNROLL for (int c = 0; c < 8; c++) {
            const int8x8_t u = vld1_s8(w + 8 * c);
            EK_UNROLL for (int r = 0; r < mr; r++) s[r][c] =
                vaddq_s32(s[r][c], ek_pairs_neon(vmull_s8(u, v[r])));
        }
    }
}

/* One window, of any panel. even: of EK_GEMM_EVEN, else of all others. */
EK_KERNEL void ek_gemm_s8_window_neon(const int8_t *const *taps, ptrdiff_t at,
                                      const ek_gemm_s8_panel_neon_t *a, int8_t *y, int channels,
                                      const ek_gemm_s8_t *p, const int even) {
    int32x4_t s[2][8], sum[2][2];
    EK_UNROLL for (int c = 0; c < 8; c++) s[0][c] = vdupq_n_s32(0);
    ek_gemm_s8_pieces_neon(s, a->w_four, a->four, a->fours, taps, at, 0, 2, 1);
    ek_gemm_s8_pieces_neon(s, a->w_two, a->two, a->twos, taps, at, 0, 1, 1);
    ek_gemm_s8_ones_neon(s, a, taps, at, 0, 1);
    ek_gemm_s8_across_neon(sum[0], s[0], a->q);
    ek_gemm_s8_rests_neon(sum, a->rest, a->rests, taps, at, 0, 1);
    if (even) {
        ek_gemm_s8_even_rows_neon(sum, 1, a->q, y, channels, p);
    } else if (p->finish != EK_GEMM_FAST) {
        int32_t sums[EK_NEON_NR];
        vst1q_s32(sums, sum[0][0]), vst1q_s32(sums + 4, sum[0][1]);
        if (p->finish == EK_GEMM_LAW)
            ek_gemm_s8_law_neon(sums, 1, a->q, y, channels, p);
        else
            ek_gemm_s8_scale(sums, 1, (const unsigned char *)a->q, y, channels, p);
    } else {
        sum[1][0] = sum[0][0], sum[1][1] = sum[0][1];
        ek_gemm_s8_store_neon(ek_gemm_s8_bytes_neon(sum, a->q, p, 0), y, 0, channels);
    }
}
EK_SHARED void ek_gemm_s8_one_neon(const int8_t *const *taps, ptrdiff_t at,
                                   const ek_gemm_s8_panel_neon_t *a, int8_t *y, int channels,
                                   const ek_gemm_s8_t *p) {
    ek_gemm_s8_window_neon(taps, at, a, y, channels, p, 0);
}
EK_SHARED void ek_gemm_s8_onex_neon(const int8_t *const *taps, ptrdiff_t at,
                                    const ek_gemm_s8_panel_neon_t *a, int8_t *y, int channels,
                                    const ek_gemm_s8_t *p) {
    ek_gemm_s8_window_neon(taps, at, a, y, channels, p, 1);
}

/* The rests of two windows, and the bias. */
EK_KERNEL void ek_gemm_s8_lifted_neon(int32_t more[2 * EK_NEON_NR],
                                      const ek_gemm_s8_panel_neon_t *a, const int8_t *const *taps,
                                      ptrdiff_t at, ptrdiff_t step) {
    int32x4_t sum[2][2];
    EK_UNROLL for (int i = 0; i < 4; i++) sum[i / 2][i % 2] = vld1q_s32(a->q + i % 2 * 4);
    ek_gemm_s8_rests_neon(sum, a->rest, a->rests, taps, at, step, 2);
    EK_UNROLL for (int i = 0; i < 4; i++) vst1q_s32(more + 4 * i, sum[i / 2][i % 2]);
}

/* Windows in pairs, with a two to begin with: the first piece of a pair beside the results of the
 * pair before it, which wait for each other. beside: see EK_TWO_BESIDE. saturate: as ek_half_neon;
 * 1 is of all channels. two: of a two more, and nothing else. */
EK_KERNEL void ek_gemm_s8_pairs_neon(const int8_t *const *taps, ptrdiff_t at,
                                     const ek_gemm_s8_panel_neon_t *a, int8_t *y, int channels,
                                     const ek_gemm_s8_t *p, int pairs, const int beside,
                                     const int saturate, const int two) {
    const ptrdiff_t step = p->step, y_step = p->y_step;
    const int8_t *x = ek_gemm_s8_piece_neon(taps, at, a->two);
    const int32_t *more = a->q;
    const int twos = a->twos - 1, next = a->rests ? EK_NEON_NR : 0;
    const int deep = twos + a->fours + a->ones + a->rests; /* than one piece */
    int32_t lifted[2 * EK_NEON_NR];
    int32x4_t s[2][8], sum[2][2];
    const int8_t *z = two ? ek_gemm_s8_piece_neon(taps, at, a->two + 1) : x;
    ek_gemm_s8_first_neon(s, a->w_two, x, step, beside);
    EK_NO_UNROLL for (; pairs > 0; pairs--, at += 2 * step, y += 2 * y_step) {
        if (two) {
            ek_gemm_s8_last_neon(s, a->w_two + 128, z, step);
        } else if (deep) {
            if (a->rests) ek_gemm_s8_lifted_neon(lifted, a, taps, at, step), more = lifted;
            if (!beside && a->fours)
                ek_gemm_s8_fours_neon(s, a->w_four, a->four, a->fours, taps, at, step);
            if (!beside && twos)
                ek_gemm_s8_twos_neon(s, a->w_two + 128, a->two + 1, twos, taps, at, step);
            if (beside && twos)
                ek_gemm_s8_twos_beside_neon(s, a->w_two + 128, a->two + 1, twos, taps, at, step);
            ek_gemm_s8_ones_neon(s, a, taps, at, step, 2);
        }
        ek_gemm_s8_across_neon(sum[0], s[0], more);
        ek_gemm_s8_across_neon(sum[1], s[1], two ? more : more + next);
        x += pairs > 1 ? 2 * step : 0, z += pairs > 1 ? 2 * step : 0;
        const int8x16_t v = ek_gemm_s8_bytes_neon(sum, a->q, p, saturate);
        const int late = beside && saturate != 1; /* what follows a branch is not beside */
        if (!late) ek_gemm_s8_store_neon(v, y, y_step, saturate == 1 ? EK_NEON_NR : channels);
        ek_gemm_s8_first_neon(s, a->w_two, x, step, beside);
        if (late) ek_gemm_s8_store_neon(v, y, y_step, channels);
    }
}

/* The same where all is one one. */
EK_KERNEL void ek_gemm_s8_short_neon(const int8_t *const *taps, ptrdiff_t at,
                                     const ek_gemm_s8_panel_neon_t *a, int8_t *y, int channels,
                                     const ek_gemm_s8_t *p, int pairs, const int saturate) {
    const ptrdiff_t step = p->step, y_step = p->y_step;
    const int8_t *x = ek_gemm_s8_piece_neon(taps, at, a->one);
    EK_NO_UNROLL for (; pairs > 0; pairs--, x += 2 * step, y += 2 * y_step) {
        const int8x8_t v[2] = {vld1_s8(x), vld1_s8(x + step)};
        int32x4_t s[2][8], sum[2][2];
        EK_UNROLL for (int c = 0; c < 8; c++) {
            const int8x8_t u = vld1_s8(a->w_one + 8 * c);
            EK_UNROLL for (int r = 0; r < 2; r++) s[r][c] = vpaddlq_s16(vmull_s8(u, v[r]));
        }
        ek_gemm_s8_across_neon(sum[0], s[0], a->q), ek_gemm_s8_across_neon(sum[1], s[1], a->q);
        ek_gemm_s8_store_neon(ek_gemm_s8_bytes_neon(sum, a->q, p, saturate), y, y_step, channels);
    }
}

/* The tile over a row. */
EK_KERNEL void ek_gemm_s8_row_neon(const int8_t *const *taps, ptrdiff_t at,
                                   const unsigned char *panel, int8_t *y, int channels,
                                   const ek_gemm_s8_t *p, int windows, const int mr,
                                   const int beside, const int even) {
    const ek_gemm_s8_panel_neon_t a = ek_gemm_s8_panel_neon(panel);
    const int saturate =
        channels == EK_NEON_NR && p->low == -128 && p->high == 127 && p->y_zero == -128;
    int done = 0;
    if (even && mr == 2 && a.twos) {
        ek_gemm_s8_pairs_neon(taps, at, &a, y, channels, p, windows / 2, beside, EK_EVEN, 0);
        done = windows & ~1;
    } else if (!even && mr == 2 && p->finish == EK_GEMM_FAST) {
        if (a.twos) {
            const int two = beside && a.twos == 2 && !a.fours && !a.ones && !a.rests;
            if (saturate && two)
                ek_gemm_s8_pairs_neon(taps, at, &a, y, channels, p, windows / 2, beside, 1, 1);
            else if (saturate)
                ek_gemm_s8_pairs_neon(taps, at, &a, y, channels, p, windows / 2, beside, 1, 0);
            else
                ek_gemm_s8_pairs_neon(taps, at, &a, y, channels, p, windows / 2, beside, 0, 0);
            done = windows & ~1;
        } else if (saturate && a.ones == 1 && !a.rests) {
            ek_gemm_s8_short_neon(taps, at, &a, y, EK_NEON_NR, p, windows / 2, 1);
            done = windows & ~1;
        }
    }
    for (; done < windows; done++)
        (even ? ek_gemm_s8_onex_neon : ek_gemm_s8_one_neon)(
            taps, at + done * p->step, &a, y + (ptrdiff_t)done * p->y_step, channels, p);
}

/* x: of EK_GEMM_EVEN. */
#define EK_GEMM_S8_NEON(NAME, ROW, MR, BESIDE, EVEN)                                        \
    EK_SHARED void ROW(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, \
                       int8_t *y, int channels, const ek_gemm_s8_t *p, int windows) {       \
        ek_gemm_s8_row_neon(taps, at, panel, y, channels, p, windows, MR, BESIDE, EVEN);    \
    }                                                                                       \
    EK_GEMM_S8_WHOLE(NAME, ROW, NULL)
EK_GEMM_S8_NEON(ek_gemm_s8_m1_neon, ek_gemm_s8_row_m1_neon, 1, 0, 0)
EK_GEMM_S8_NEON(ek_gemm_s8_m2_neon, ek_gemm_s8_row_m2_neon, 2, 0, 0)
EK_GEMM_S8_NEON(ek_gemm_s8_m1x_neon, ek_gemm_s8_row_m1x_neon, 1, 0, 1)
EK_GEMM_S8_NEON(ek_gemm_s8_m2x_neon, ek_gemm_s8_row_m2x_neon, 2, 0, 1)
/* For out-of-order cores; of panels without fours. */
EK_GEMM_S8_NEON(ek_gemm_s8_m1_twos_neon, ek_gemm_s8_row_m1_twos_neon, 1, 1, 0)
EK_GEMM_S8_NEON(ek_gemm_s8_m2_twos_neon, ek_gemm_s8_row_m2_twos_neon, 2, 1, 0)
EK_GEMM_S8_NEON(ek_gemm_s8_m1x_twos_neon, ek_gemm_s8_row_m1x_twos_neon, 1, 1, 1)
EK_GEMM_S8_NEON(ek_gemm_s8_m2x_twos_neon, ek_gemm_s8_row_m2x_twos_neon, 2, 1, 1)

#endif
