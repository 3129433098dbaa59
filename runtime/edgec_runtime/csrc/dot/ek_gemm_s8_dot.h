/* Tiles of ek_gemm_s8.h for Arm cores with the dot product (Armv8.2: sdot, and sqrdmlah of Armv8.1): up to 8 windows
 * times 8 channels in 16 registers of sums.
 *
 * Panel: bias, multiplier, addend, shift [8] each; weights [taps][run / 4][8][4], run padded to 4.
 *
 * FAST stands for two roundings, ties away from zero, plus y_zero, saturated to int8: of x = round(sum * multiplier /
 * 2^31) it takes (x + 2^(s-1) - (x < 0) + (y_zero << s)) >> s, for 1 <= s <= 23. Only sums of -1 can be negative where
 * x is not, and there the result is 0 anyway; so the sign is that of the sum. addend is 2^(s-1) + (y_zero << s), which
 * sqrdmlah adds at once, and shift is 24 - s: a saturating shift to the left end, whose top byte is the result. */
#ifndef EK_GEMM_S8_DOT_H
#define EK_GEMM_S8_DOT_H
#include "ek_gemm_s8.h"
#include <arm_neon.h>

enum { EK_DOT_NR = 8 };

/* Hides where a pointer comes from. Loads through it are loads, where a register of constants would be copied: the load
 * pipes are idle there, those for vectors are not. Pointers to windows stay in registers, each counting up. */
#define EK_AGAIN_DOT(pointer) __asm__ volatile("" : "+r"(pointer))

/* Sums to results of mr windows, two at a time. plain: negative results and the clamp are those of saturation. */
EK_KERNEL void ek_gemm_s8_store_dot(int32x4_t sum[][2], const int32_t *q, int8_t *y, int channels,
                                    const ek_gemm_s8_t *p, const int mr, const int plain) {
    const int32x4_t m0 = vld1q_s32(q + 8), m1 = vld1q_s32(q + 12), s0 = vld1q_s32(q + 24), s1 = vld1q_s32(q + 28);
    const int8x16_t low = vdupq_n_s8((int8_t)p->low), high = vdupq_n_s8((int8_t)p->high);
    const ptrdiff_t step = p->y_step;
    int16x8_t half[9];
    half[mr] = vdupq_n_s16(0);
    EK_UNROLL for (int r = 0; r < mr; r++) {
        EK_AGAIN_DOT(q);
        int32x4_t a = vld1q_s32(q + 16), b = vld1q_s32(q + 20);
        if (!plain) a = vsraq_n_s32(a, sum[r][0], 31), b = vsraq_n_s32(b, sum[r][1], 31);
        a = vqshlq_s32(vqrdmlahq_s32(a, sum[r][0], m0), s0), b = vqshlq_s32(vqrdmlahq_s32(b, sum[r][1], m1), s1);
        half[r] = vuzp2q_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b));
    }
    EK_UNROLL for (int r = 0; r < mr; r += 2) {
        int8x16_t v = vuzp2q_s8(vreinterpretq_s8_s16(half[r]), vreinterpretq_s8_s16(half[r + 1]));
        int8_t part[16];
        if (!plain) v = vminq_s8(vmaxq_s8(v, low), high);
        if (channels == EK_DOT_NR) {
            vst1_s8(y, vget_low_s8(v)), y += step;
            if (r + 1 < mr) vst1_s8(y, vget_high_s8(v)), y += step;
        } else {
            vst1q_s8(part, v);
            memcpy(y, part, (size_t)channels), y += step;
            if (r + 1 < mr) memcpy(y, part + 8, (size_t)channels), y += step;
        }
    }
}

/* Four products a lane of elements 4 * lane of x, of all windows. */
#define EK_GEMM_S8_STEP_DOT(SDOT, lane)                                                    \
    {                                                                                      \
        const int8x16_t w0 = vld1q_s8(w + 32 * (lane)), w1 = vld1q_s8(w + 32 * (lane) + 16); \
        EK_UNROLL for (int r = 0; r < mr; r++) {                                           \
            sum[r][0] = SDOT(sum[r][0], w0, v[r], lane);                                   \
            sum[r][1] = SDOT(sum[r][1], w1, v[r], lane);                                   \
        }                                                                                  \
    }

/* The tile of mr windows. zero: whether the weights have a zero point. */
EK_KERNEL void ek_gemm_s8_tile_dot(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, int8_t *y,
                                   int channels, const ek_gemm_s8_t *p, const int mr, const int zero) {
    const int32_t *q = (const void *)panel;
    const int8_t *w = (const int8_t *)panel + 16 * EK_DOT_NR;
    const int8x16_t ones = vdupq_n_s8(1), ones4 = vreinterpretq_s8_s32(vsetq_lane_s32(0x01010101, vdupq_n_s32(0), 0));
    const ptrdiff_t step = p->step;
    int32x4_t sum[8][2], all[8];
    EK_UNROLL for (int r = 0; r < mr; r++) {
        EK_AGAIN_DOT(q);
        sum[r][0] = vld1q_s32(q), sum[r][1] = vld1q_s32(q + 4);
        all[r] = vdupq_n_s32(0);
    }
    for (int t = 0; t < p->taps; t++) {
        const int8_t *x[8];
        int k = p->run;
        x[0] = taps[t] + at;
        EK_UNROLL for (int r = 1; r < mr; r++) {
            x[r] = x[r - 1] + step;
            EK_AGAIN_DOT(x[r]);
        }
        for (; k >= 16; k -= 16, w += 128) {
            int8x16_t v[8];
            EK_UNROLL for (int r = 0; r < mr; r++) {
                v[r] = vld1q_s8(x[r]), x[r] += 16;
                if (zero) all[r] = vdotq_s32(all[r], v[r], ones);
            }
            EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 0)
            EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 1)
            EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 2)
            EK_GEMM_S8_STEP_DOT(vdotq_laneq_s32, 3)
        }
        if (k & 8) {
            int8x8_t v[8];
            EK_UNROLL for (int r = 0; r < mr; r++) {
                v[r] = vld1_s8(x[r]), x[r] += 8;
                if (zero) all[r] = vdotq_s32(all[r], vcombine_s8(v[r], vdup_n_s8(0)), ones);
            }
            EK_GEMM_S8_STEP_DOT(vdotq_lane_s32, 0)
            EK_GEMM_S8_STEP_DOT(vdotq_lane_s32, 1)
            w += 64;
        }
        if (k & 4) {
            int8x8_t v[8];
            EK_UNROLL for (int r = 0; r < mr; r++) {
                int32_t four;
                memcpy(&four, x[r], 4);
                v[r] = vreinterpret_s8_s32(vdup_n_s32(four));
                if (zero) all[r] = vdotq_s32(all[r], vcombine_s8(v[r], v[r]), ones4);
            }
            EK_GEMM_S8_STEP_DOT(vdotq_lane_s32, 0)
            w += 32;
        }
    }
    if (zero) {
        EK_UNROLL for (int r = 0; r < mr; r++) {
            const int32x4_t less = vdupq_n_s32(p->w_zero * vaddvq_s32(all[r]));
            sum[r][0] = vsubq_s32(sum[r][0], less), sum[r][1] = vsubq_s32(sum[r][1], less);
        }
    }
    if (p->finish == EK_GEMM_FAST) {
        if (p->low != -128 || p->high != 127 || p->y_zero != -128) ek_gemm_s8_store_dot(sum, q, y, channels, p, mr, 0);
        else ek_gemm_s8_store_dot(sum, q, y, channels, p, mr, 1);
    } else {
        int32_t sums[8][8];
        EK_UNROLL for (int r = 0; r < mr; r++) vst1q_s32(sums[r], sum[r][0]), vst1q_s32(sums[r] + 4, sum[r][1]);
        ek_gemm_s8_finish(sums[0], mr, panel, y, channels, p);
    }
}

EK_GEMM_S8(ek_gemm_s8_m1_dot, ek_gemm_s8_row_m1_dot, NULL, ek_gemm_s8_tile_dot, 1, 0)
EK_GEMM_S8(ek_gemm_s8_m2_dot, ek_gemm_s8_row_m2_dot, NULL, ek_gemm_s8_tile_dot, 2, 0)
EK_GEMM_S8(ek_gemm_s8_m3_dot, ek_gemm_s8_row_m3_dot, NULL, ek_gemm_s8_tile_dot, 3, 0)
EK_GEMM_S8(ek_gemm_s8_m4_dot, ek_gemm_s8_row_m4_dot, NULL, ek_gemm_s8_tile_dot, 4, 0)
EK_GEMM_S8(ek_gemm_s8_m5_dot, ek_gemm_s8_row_m5_dot, NULL, ek_gemm_s8_tile_dot, 5, 0)
EK_GEMM_S8(ek_gemm_s8_m6_dot, ek_gemm_s8_row_m6_dot, NULL, ek_gemm_s8_tile_dot, 6, 0)
EK_GEMM_S8(ek_gemm_s8_m7_dot, ek_gemm_s8_row_m7_dot, NULL, ek_gemm_s8_tile_dot, 7, 0)
EK_GEMM_S8(ek_gemm_s8_m8_dot, ek_gemm_s8_row_m8_dot, NULL, ek_gemm_s8_tile_dot, 8, 0)
EK_GEMM_S8(ek_gemm_s8_m1z_dot, ek_gemm_s8_row_m1z_dot, NULL, ek_gemm_s8_tile_dot, 1, 1)
EK_GEMM_S8(ek_gemm_s8_m2z_dot, ek_gemm_s8_row_m2z_dot, NULL, ek_gemm_s8_tile_dot, 2, 1)
EK_GEMM_S8(ek_gemm_s8_m3z_dot, ek_gemm_s8_row_m3z_dot, NULL, ek_gemm_s8_tile_dot, 3, 1)
EK_GEMM_S8(ek_gemm_s8_m4z_dot, ek_gemm_s8_row_m4z_dot, NULL, ek_gemm_s8_tile_dot, 4, 1)
EK_GEMM_S8(ek_gemm_s8_m5z_dot, ek_gemm_s8_row_m5z_dot, NULL, ek_gemm_s8_tile_dot, 5, 1)
EK_GEMM_S8(ek_gemm_s8_m6z_dot, ek_gemm_s8_row_m6z_dot, NULL, ek_gemm_s8_tile_dot, 6, 1)
EK_GEMM_S8(ek_gemm_s8_m7z_dot, ek_gemm_s8_row_m7z_dot, NULL, ek_gemm_s8_tile_dot, 7, 1)
EK_GEMM_S8(ek_gemm_s8_m8z_dot, ek_gemm_s8_row_m8z_dot, NULL, ek_gemm_s8_tile_dot, 8, 1)

#endif
