/* int8 depthwise convolution with sdot (Cortex-A76): four taps of a channel side by side, zipped
 * from four rows. */
#ifndef EK_DWCONV2D_S8_DOT_H
#define EK_DWCONV2D_S8_DOT_H
#include "../neon/ek_dwconv2d_s8_neon.h"

/* Four taps of eight channels: [channel][tap], four channels in each half. */
EK_KERNEL void ek_dw_zip_dot(int8x16_t *k, int8x8_t a, int8x8_t b, int8x8_t c, int8x8_t d) {
    const int16x8_t ab = vreinterpretq_s16_s8(vzip1q_s8(vcombine_s8(a, a), vcombine_s8(b, b)));
    const int16x8_t cd = vreinterpretq_s16_s8(vzip1q_s8(vcombine_s8(c, c), vcombine_s8(d, d)));
    k[0] = vreinterpretq_s8_s16(vzip1q_s16(ab, cd)),
    k[1] = vreinterpretq_s8_s16(vzip2q_s16(ab, cd));
}

/* The results of a window whose columns are k[0] to k[2]; they begin with loads, of which there are
 * pipes to spare. lift: what is to be added to all weights, if `lifted`. */
EK_KERNEL int16x8_t ek_dw_window_dot(const int8x16_t k[3][2], const int8x16_t *w,
                                     const int8x16_t *lift, const int32_t *scale,
                                     const int saturate, const int lifted) {
    const int32_t *bias = scale;
    __asm__ volatile(""
                     : "+r"(bias)); /* else one load would serve several windows, and copies take
                                       what loads leave */
    int32x4_t a = vld1q_s32(bias), b = vld1q_s32(bias + 4);
    EK_UNROLL for (int j = 0; j < 3; j++) {
        a = vdotq_s32(a, w[2 * j], k[j][0]), b = vdotq_s32(b, w[2 * j + 1], k[j][1]);
        if (lifted) a = vdotq_s32(a, lift[0], k[j][0]), b = vdotq_s32(b, lift[1], k[j][1]);
    }
    return ek_half_neon(a, b, bias + 8, bias + 12, saturate);
}

/* A byte for each of eight channels three times, as of weights [channel][tap]. */
EK_KERNEL void ek_dw_thrice_dot(int8x16_t v[2], const int8_t *bytes) {
    const int16x8_t wide = vreinterpretq_s16_u16(vmovl_u8(vld1_u8((const uint8_t *)bytes)));
    const uint32x4_t low = vmovl_u16(vget_low_u16(vreinterpretq_u16_s16(wide)));
    const uint32x4_t high = vmovl_high_u16(vreinterpretq_u16_s16(wide));
    v[0] = vreinterpretq_s8_u32(vmulq_n_u32(low, 0x10101)),
    v[1] = vreinterpretq_s8_u32(vmulq_n_u32(high, 0x10101));
}

/* Windows 3x3. rows: 2 with stride 1, the second with the weights one place further, and two
 * windows at a time; 1 and one with stride 2. */
EK_KERNEL void ek_dw_slide_dot(const ek_dwconv2d_s8_t *p, const ek_dw_strip_t *strip,
                               const int rows, const int saturate, const int lifted) {
    const ek_dw_strip_t local = *strip, *s = &local; /* nothing that is stored can change it */
    const int lines = rows == 2 ? 4 : 3, stride = 3 - rows, kept = 3 - stride, fresh = 2,
              windows = rows;
    const int8x16_t low = vdupq_n_s8((int8_t)p->low), high = vdupq_n_s8((int8_t)p->high);
    /* steps whose columns are all inside the image */
    const int last = (s->iw - 1 - s->ix) / s->step - kept;
    const int inside = EK_MAX(EK_MIN(s->n / windows, (last + 1) / fresh), 0);
    const int8_t *begin[4][4]; /* the first columns */
    EK_UNROLL for (int j = 0; j < kept + fresh; j++) EK_UNROLL for (int i = 0; i < lines; i++)
        begin[j][i] = ek_dw_column(s, i, j);
    EK_NO_UNROLL for (int b = 0; b < p->slide; b++) {
        const int32_t *scale = p->scale + b * 4 * EK_DW;
        const int at = p->at[b];
        int8x16_t w[2][6], k[4][2], lift[2][2];
        if (lifted) ek_dw_thrice_dot(lift[0], p->lift + b * EK_DW);
        EK_UNROLL for (int i = 0; lifted && i < 2; i++) lift[1][i] =
            vreinterpretq_s8_s32(vshlq_n_s32(vreinterpretq_s32_s8(lift[0][i]), 8));
        EK_UNROLL for (int i = 0; i < 6; i++) {
            w[0][i] = vld1q_s8(p->w + (b * 6 + i) * 16);
            w[1][i] = vreinterpretq_s8_s32(vshlq_n_s32(vreinterpretq_s32_s8(w[0][i]), 8));
        }
        EK_UNROLL for (int j = 0; j < kept; j++) {
            int8x8_t x[4];
            EK_UNROLL for (int i = 0; i < lines; i++) x[i] = vld1_s8(begin[j][i] + at);
            ek_dw_zip_dot(k[j], x[0], x[1], x[2], x[lines - 1]);
        }
        int8_t unused[EK_DW], *y = s->y + at, *below = s->two ? s->y2 + at : unused;
        const ptrdiff_t next = windows * s->next, next2 = s->two ? next : 0,
                        right2 = s->two ? s->next : 0;
        EK_NO_UNROLL for (int done = 0; windows * done < s->n;) {
            const int run = done < inside ? inside : 1;
            const int8_t *c[2][4];
            ptrdiff_t o[4] = {0, 0, 0, 0};
            EK_UNROLL for (int j = 0; j < fresh; j++) EK_UNROLL for (int i = 0; i < lines; i++)
                c[j][i] =
                    at + (done ? ek_dw_column(s, i, fresh * done + kept + j) : begin[kept + j][i]);
            const int two = 2 * done + 1 < s->n;
            int8_t *y1 = two ? y + s->next : unused, *below1 = two ? below + right2 : unused;
            done += run;
            EK_NO_UNROLL for (int steps = run; steps > 0; steps--) {
                EK_UNROLL for (int j = 0; j < fresh; j++) {
                    int8x8_t x[4];
                    EK_UNROLL for (int i = 0; i < lines; i++) x[i] = vld1_s8(c[j][i] + o[i]);
                    ek_dw_zip_dot(k[kept + j], x[0], x[1], x[2], x[lines - 1]);
                }
                EK_UNROLL for (int i = 0; i < lines; i++) o[i] += fresh * s->step * s->pixel[i];
                EK_UNROLL for (int r = 0; r < rows; r++) {
                    const int16x8_t left =
                        ek_dw_window_dot(k, w[r], lift[r], scale, saturate, lifted);
                    int16x8_t right = left;
                    if (windows == 2)
                        right = ek_dw_window_dot(k + 1, w[r], lift[r], scale, saturate, lifted);
                    int8x16_t v = ek_bytes_neon(left, right);
                    if (saturate != 1) v = vminq_s8(vmaxq_s8(v, low), high);
                    vst1_s8(r ? below : y, vget_low_s8(v));
                    if (windows == 2) vst1_s8(r ? below1 : y1, vget_high_s8(v));
                }
                y += next, y1 += next, below += next2, below1 += next2;
                EK_UNROLL for (int j = 0; j < kept; j++) k[j][0] = k[fresh + j][0],
                                                         k[j][1] = k[fresh + j][1];
            }
        }
    }
}

/* A multiple of four taps, weights [taps / 4][EK_DW][4]. */
EK_KERNEL void ek_dw_fours_dot(const ek_dwconv2d_s8_t *p, const int8_t *const *taps, ptrdiff_t x,
                               ptrdiff_t advance, const int8_t *w, const int32_t *scale, int8_t *y,
                               const int pixels, const int how) {
    int32x4_t a[2][2];
    EK_UNROLL for (int i = 0; i < pixels; i++) a[i][0] = vld1q_s32(scale),
                                               a[i][1] = vld1q_s32(scale + 4);
    EK_NO_UNROLL for (int t = 0; t < p->taps; t += 4, w += 4 * EK_DW) {
        const int8x16_t w0 = vld1q_s8(w), w1 = vld1q_s8(w + 16);
        const int8_t *t0 = taps[t] + x, *t1 = taps[t + 1] + x, *t2 = taps[t + 2] + x,
                     *t3 = taps[t + 3] + x;
        EK_UNROLL for (int i = 0; i < pixels; i++) {
            const ptrdiff_t o = i * advance;
            int8x16_t k[2];
            ek_dw_zip_dot(k, vld1_s8(t0 + o), vld1_s8(t1 + o), vld1_s8(t2 + o), vld1_s8(t3 + o));
            a[i][0] = vdotq_s32(a[i][0], w0, k[0]), a[i][1] = vdotq_s32(a[i][1], w1, k[1]);
        }
    }
    int16x8_t half[2];
    EK_UNROLL for (int i = 0; i < pixels; i++) half[i] =
        ek_half_neon(a[i][0], a[i][1], scale + 8, scale + 12, how);
    ek_dw_store_neon(p, half[0], half[pixels - 1], y, pixels);
}

EK_DW_PLAIN(ek_dw_plain_dot, ek_dw_fours_dot, 0)
EK_DW_PLAIN(ek_dw_plain_even_dot, ek_dw_fours_dot, EK_EVEN)

EK_DWCONV2D_S8_OF(dot, 2, 2, 1)

#endif
