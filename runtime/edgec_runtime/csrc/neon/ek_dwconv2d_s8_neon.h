/* int8 depthwise convolution without dot product (Cortex-A53, A72): two products at a time in 16
 * bits. Weights are packed so that no pair overflows: the magnitudes of the two sum to at most 255.
 */
#ifndef EK_DWCONV2D_S8_NEON_H
#define EK_DWCONV2D_S8_NEON_H
#include "../ek_dwconv2d_s8.h"
#include "ek_requant_neon.h"

/* Nine taps, weights [9][EK_DW]: a + b, c + d, e + f, g + h, i. lifted: the weights and `lift`, of
 * which `all` are the sums of the elements. */
EK_KERNEL int16x8_t ek_dw_nine_neon(const int8x8_t *a, const int8x8_t *b, const int8x8_t *c,
                                    const int8x8_t *w, int16x8_t all, int16x8_t lift,
                                    const int32_t *scale, const int32_t *scale4, const int saturate,
                                    const int lifted) {
    const int16x8_t h0 = vmlal_s8(vmull_s8(a[0], w[0]), b[0], w[1]),
                    h1 = vmlal_s8(vmull_s8(c[0], w[2]), a[1], w[3]);
    const int16x8_t h2 = vmlal_s8(vmull_s8(b[1], w[4]), c[1], w[5]),
                    h3 = vmlal_s8(vmull_s8(a[2], w[6]), b[2], w[7]);
    const int16x8_t h4 = vmull_s8(c[2], w[8]);
    int32x4_t l0 = vaddl_s16(vget_low_s16(h0), vget_low_s16(h1)), l1 = vaddl_high_s16(h0, h1);
    const int32x4_t m0 = vaddl_s16(vget_low_s16(h2), vget_low_s16(h3)), m1 = vaddl_high_s16(h2, h3);
    int32x4_t n0 = vaddw_s16(vld1q_s32(scale), vget_low_s16(h4));
    int32x4_t n1 = vaddw_high_s16(vld1q_s32(scale4), h4);
    if (lifted)
        n0 = vmlal_s16(n0, vget_low_s16(all), vget_low_s16(lift)),
        n1 = vmlal_high_s16(n1, all, lift);
    l0 = vaddq_s32(vaddq_s32(l0, m0), n0), l1 = vaddq_s32(vaddq_s32(l1, m1), n1);
    return ek_half_neon(l0, l1, scale + 8, scale4 + 8, saturate);
}

/* The sums of the three elements of a column. */
EK_KERNEL int16x8_t ek_dw_three_neon(const int8x8_t *k) {
    return vaddw_s8(vaddl_s8(k[0], k[1]), k[2]);
}

/* Windows 3x3, two at a time: with stride 1 of the columns k0 to k3, with stride 2 of k0 to k4. The
 * last two columns are the first ones of the next two windows. Without a branch in its body: an
 * in-order core has two windows to choose from. */
EK_KERNEL void ek_dw_slide_neon(const ek_dwconv2d_s8_t *p, const ek_dw_strip_t *strip,
                                const int stride, const int saturate, const int lifted) {
    enum { ROWS = 3 };
    const ek_dw_strip_t local = *strip, *s = &local; /* nothing that is stored can change it */
    const int kept = stride == 1 ? 2 : 1, fresh = 2 * stride;
    const int8x16_t low = vdupq_n_s8((int8_t)p->low), high = vdupq_n_s8((int8_t)p->high);
    /* pairs of windows whose columns are all inside the image */
    const int last = (s->iw - 1 - s->ix) / s->step - kept,
              pairs = EK_MAX(EK_MIN(s->n / 2, (last + 1) / fresh), 0);
    const int8_t *begin[5][ROWS]; /* the columns of the first two windows */
    EK_UNROLL for (int j = 0; j < kept + fresh; j++) EK_UNROLL for (int i = 0; i < ROWS; i++)
        begin[j][i] = ek_dw_column(s, i, j);
    EK_NO_UNROLL for (int b = 0; b < p->slide; b++) {
        const int32_t *scale = p->scale + b * 4 * EK_DW, *scale4 = EK_APART(scale + 4);
        const int at = p->at[b];
        int8x8_t w[9], k[5][ROWS];
        EK_UNROLL for (int i = 0; i < 9; i++) w[i] = vld1_s8(p->w + (b * 9 + i) * EK_DW);
        int16x8_t lift = vdupq_n_s16(0), sum[5], all[2] = {lift, lift};
        if (lifted) lift = vmovl_s8(vld1_s8(p->lift + b * EK_DW));
        EK_UNROLL for (int j = 0; j < kept; j++) {
            EK_UNROLL for (int i = 0; i < ROWS; i++) k[j][i] = vld1_s8(begin[j][i] + at);
            if (lifted) sum[j] = ek_dw_three_neon(k[j]);
        }
        int8_t *y = s->y + at, unused[EK_DW];
        EK_NO_UNROLL for (int done = 0; 2 * done < s->n;) {
            const int run = done < pairs ? pairs : 1;
            const int8_t *c[4][ROWS];
            ptrdiff_t o[ROWS] = {0, 0, 0};
            EK_UNROLL for (int j = 0; j < fresh; j++) EK_UNROLL for (int i = 0; i < ROWS;
                                                                     i++) c[j][i] =
                at + (done ? ek_dw_column(s, i, 2 * done * stride + kept + j) : begin[kept + j][i]);
            int8_t *y1 = 2 * done + 1 < s->n ? y + s->next : unused;
            done += run;
            EK_NO_UNROLL for (int r = 0; r < run; r++) {
                EK_UNROLL for (int j = 0; j < fresh; j++) EK_UNROLL for (int i = 0; i < ROWS; i++)
                    k[kept + j][i] = vld1_s8(c[j][i] + o[i]);
                EK_UNROLL for (int i = 0; i < ROWS; i++) o[i] += fresh * s->step * s->pixel[i];
                if (lifted) {
                    EK_UNROLL for (int j = kept; j < kept + fresh; j++) sum[j] =
                        ek_dw_three_neon(k[j]);
                    EK_UNROLL for (int i = 0; i < 2; i++) all[i] = vaddq_s16(
                        vaddq_s16(sum[i * stride], sum[i * stride + 1]), sum[i * stride + 2]);
                }
                const int16x8_t v0 = ek_dw_nine_neon(k[0], k[1], k[2], w, all[0], lift, scale,
                                                     scale4, saturate, lifted);
                const int16x8_t v1 = ek_dw_nine_neon(k[stride], k[stride + 1], k[stride + 2], w,
                                                     all[1], lift, scale, scale4, saturate, lifted);
                int8x16_t v = ek_bytes_neon(v0, v1);
                if (saturate != 1) v = vminq_s8(vmaxq_s8(v, low), high);
                vst1_s8(y, vget_low_s8(v));
                vst1_s8(y1, vget_high_s8(v));
                y += 2 * s->next, y1 += 2 * s->next;
                EK_UNROLL for (int j = 0; j < kept; j++) {
                    EK_UNROLL for (int i = 0; i < ROWS; i++) k[j][i] = k[fresh + j][i];
                    if (lifted) sum[j] = sum[fresh + j];
                }
            }
        }
    }
}

/* One or two pixels. */
EK_KERNEL void ek_dw_store_neon(const ek_dwconv2d_s8_t *p, int16x8_t a, int16x8_t b, int8_t *y,
                                const int pixels) {
    const int8x16_t v = vmaxq_s8(ek_bytes_neon(a, b), vdupq_n_s8((int8_t)p->low));
    const int8x16_t r = vminq_s8(v, vdupq_n_s8((int8_t)p->high));
    vst1_s8(y, vget_low_s8(r));
    if (pixels == 2) vst1_s8(y + p->oc, vget_high_s8(r));
}

/* Any number of taps, an even one; `pixels` next to each other share the loads of weights. */
EK_KERNEL void ek_dw_pairs_neon(const ek_dwconv2d_s8_t *p, const int8_t *const *taps, ptrdiff_t x,
                                ptrdiff_t advance, const int8_t *w, const int32_t *scale, int8_t *y,
                                const int pixels, const int how) {
    const int32_t *scale4 = EK_APART(scale + 4);
    int32x4_t a[2][2];
    EK_UNROLL for (int i = 0; i < pixels; i++) a[i][0] = vld1q_s32(scale),
                                               a[i][1] = vld1q_s32(scale4);
    EK_NO_UNROLL for (int t = 0; t < p->taps; t += 2, w += 2 * EK_DW) {
        const int8x8_t w0 = vld1_s8(w), w1 = vld1_s8(w + EK_DW);
        const int8_t *t0 = taps[t] + x, *t1 = taps[t + 1] + x;
        EK_UNROLL for (int i = 0; i < pixels; i++) {
            const int16x8_t h =
                vmlal_s8(vmull_s8(vld1_s8(t0 + i * advance), w0), vld1_s8(t1 + i * advance), w1);
            a[i][0] = vaddw_s16(a[i][0], vget_low_s16(h)), a[i][1] = vaddw_high_s16(a[i][1], h);
        }
    }
    int16x8_t half[2];
    EK_UNROLL for (int i = 0; i < pixels; i++) half[i] =
        ek_half_neon(a[i][0], a[i][1], scale + 8, scale4 + 8, how);
    ek_dw_store_neon(p, half[0], half[pixels - 1], y, pixels);
}

/* The blocks of the loop plain, of the pixels of TILE. how: as ek_half_neon. */
#define EK_DW_PLAIN(NAME, TILE, how)                                                              \
    EK_SHARED void NAME(const ek_dwconv2d_s8_t *p, const int8_t *const *taps, ptrdiff_t advance,  \
                        int8_t *y, int n) {                                                       \
        EK_NO_UNROLL for (int b = 0; b < p->plain; b++) {                                         \
            const int32_t *scale = p->scale + (p->slide + b) * 4 * EK_DW;                         \
            const int8_t *w = p->w_taps + (ptrdiff_t)b * p->taps * EK_DW;                         \
            const int at = p->at[p->slide + b];                                                   \
            int i = 0;                                                                            \
            EK_NO_UNROLL for (; i + 2 <= n; i += 2)                                               \
                TILE(p, taps, at + i * advance, advance, w, scale, y + (ptrdiff_t)i * p->oc + at, \
                     2, how);                                                                     \
            if (i < n)                                                                            \
                TILE(p, taps, at + i * advance, advance, w, scale, y + (ptrdiff_t)i * p->oc + at, \
                     1, how);                                                                     \
        }                                                                                         \
    }
EK_DW_PLAIN(ek_dw_plain_neon, ek_dw_pairs_neon, 0)
EK_DW_PLAIN(ek_dw_plain_even_neon, ek_dw_pairs_neon, EK_EVEN)

/* The first `count` of eight bytes; no other is read or written. */
EK_KERNEL int8x8_t ek_load_some_neon(const int8_t *x, int count) {
    int8_t some[8] = {0};
    if (count == 8) return vld1_s8(x);
    if (count == 1) return vld1_dup_s8(x);
    EK_NO_UNROLL for (int i = 0; i < count; i++) some[i] = x[i];
    return vld1_s8(some);
}
EK_KERNEL void ek_store_some_neon(int8_t *y, int8x8_t v, int count) {
    int8_t some[8];
    if (count == 8) {
        vst1_s8(y, v);
        return;
    }
    vst1_s8(some, v);
    EK_NO_UNROLL for (int i = 0; i < count; i++) y[i] = some[i];
}

/* how: 0, or EK_EVEN. */
EK_KERNEL void ek_dw_some_neon(const ek_dwconv2d_s8_t *p, const int8_t *const *taps,
                               ptrdiff_t advance, int8_t *y, int n, const int how) {
    const int multiplier = p->oc / p->ic, load = EK_MIN(p->ic, EK_DW), store = EK_MIN(p->oc, EK_DW);
    const int before = p->slide + p->plain;
    EK_NO_UNROLL for (int b = 0; b < p->any; b++) {
        const int32_t *scale = p->scale + (before + b) * 4 * EK_DW;
        const int8_t *w0 = p->w_taps + (ptrdiff_t)(p->plain + b) * p->taps * EK_DW;
        const int at = p->at[before + b], from = EK_MIN(at / multiplier, p->ic - load);
        const uint8x8_t spread = vld1_u8(p->spread + b * EK_DW);
        const int32x4_t m0 = vld1q_s32(scale + 8), m1 = vld1q_s32(scale + 12);
        const int32x4_t s0 = vld1q_s32(scale + 16), s1 = vld1q_s32(scale + 20);
        EK_NO_UNROLL for (int i = 0; i < n; i++) {
            const int8_t *w = w0;
            int32x4_t a0 = vld1q_s32(scale), a1 = vld1q_s32(scale + 4);
            EK_NO_UNROLL for (int t = 0; t < p->taps; t++, w += EK_DW) {
                const int8x8_t x = ek_load_some_neon(taps[t] + i * advance + from, load);
                const int16x8_t h = vmull_s8(vqtbl1_s8(vcombine_s8(x, x), spread), vld1_s8(w));
                a0 = vaddw_s16(a0, vget_low_s16(h)), a1 = vaddw_high_s16(a1, h);
            }
            int8x8_t v;
            if (how == EK_EVEN) {
                const int16x8_t half = ek_half_neon(a0, a1, scale + 8, scale + 12, how);
                v = vget_low_s8(ek_bytes_neon(half, half));
            } else {
                a0 = ek_multiply_neon(a0, m0, s0), a1 = ek_multiply_neon(a1, m1, s1);
                v = ek_narrow_neon(a0, a1, vdupq_n_s16((int16_t)p->y_zero));
            }
            v = vmin_s8(vmax_s8(v, vdup_n_s8((int8_t)p->low)), vdup_n_s8((int8_t)p->high));
            ek_store_some_neon(y + (ptrdiff_t)i * p->oc + at, v, store);
        }
    }
}
#define EK_DW_ANY_NEON(NAME, how)                                                                \
    EK_SHARED void NAME(const ek_dwconv2d_s8_t *p, const int8_t *const *taps, ptrdiff_t advance, \
                        int8_t *y, int n) {                                                      \
        ek_dw_some_neon(p, taps, advance, y, n, how);                                            \
    }
EK_DW_ANY_NEON(ek_dw_any_neon, 0)
EK_DW_ANY_NEON(ek_dw_any_even_neon, EK_EVEN)

/* NAME: the whole. SLIDE: 3x3 windows of a stride; NULL for loops that no block is for. */
#define EK_DWCONV2D_S8(NAME, SLIDE, ROWS, PLAIN, ANY)                                         \
    EK_KERNEL void NAME(const int8_t *x, int8_t *y, const ek_dwconv2d_s8_t *p, void *scratch, \
                        int part, int parts) {                                                \
        ek_dw_walk(x, y, p, scratch, part, parts, ROWS, SLIDE, PLAIN, ANY);                   \
    }
#define EK_DWCONV2D_S8_K3(NAME, SLIDE, ROWS, BODY, ...)                       \
    EK_SHARED void SLIDE(const ek_dwconv2d_s8_t *p, const ek_dw_strip_t *s) { \
        BODY(p, s, __VA_ARGS__);                                              \
    }                                                                         \
    EK_DWCONV2D_S8(NAME, SLIDE, ROWS, NULL, NULL)
#define EK_DWCONV2D_S8_LIFTED(NAME, SLIDE, ROWS, PLAIN, BODY, ...)            \
    EK_SHARED void SLIDE(const ek_dwconv2d_s8_t *p, const ek_dw_strip_t *s) { \
        BODY(p, s, __VA_ARGS__);                                              \
    }                                                                         \
    EK_DWCONV2D_S8(NAME, SLIDE, ROWS, PLAIN, ek_dw_any_neon)

/* Windows 3x3 with stride 1 (and any dilation) and 2, with results as they saturate; with lifted
 * weights, and blocks of other loops too; other windows. S1, S2: what ek_dw_slide_* takes for a
 * stride; ROWS: of the result that it computes at once with stride 1. */
#define EK_DWCONV2D_S8_OF(ISA, ROWS, S1, S2)                                         \
    EK_DWCONV2D_S8_STRIDE(ISA, k3s1, ROWS, S1)                                       \
    EK_DWCONV2D_S8_STRIDE(ISA, k3s2, 1, S2)                                          \
    EK_DWCONV2D_S8(ek_dwconv2d_s8_##ISA, NULL, 1, ek_dw_plain_##ISA, ek_dw_any_neon) \
    EK_DWCONV2D_S8(ek_dwconv2d_s8_even_##ISA, NULL, 1, ek_dw_plain_even_##ISA, ek_dw_any_even_neon)
#define EK_DWCONV2D_S8_STRIDE(ISA, K, ROWS, S)                                                   \
    EK_DWCONV2D_S8_K3(ek_dwconv2d_s8_##K##_##ISA, ek_dw_##K##_##ISA, ROWS, ek_dw_slide_##ISA, S, \
                      0, 0)                                                                      \
    EK_DWCONV2D_S8_K3(ek_dwconv2d_s8_##K##_saturate_##ISA, ek_dw_##K##_saturate_##ISA, ROWS,     \
                      ek_dw_slide_##ISA, S, 1, 0)                                                \
    EK_DWCONV2D_S8_LIFTED(ek_dwconv2d_s8_##K##_lifted_##ISA, ek_dw_##K##_lifted_##ISA, ROWS,     \
                          ek_dw_plain_##ISA, ek_dw_slide_##ISA, S, 0, 1)                         \
    EK_DWCONV2D_S8_LIFTED(ek_dwconv2d_s8_##K##_saturate_lifted_##ISA,                            \
                          ek_dw_##K##_saturate_lifted_##ISA, ROWS, ek_dw_plain_##ISA,            \
                          ek_dw_slide_##ISA, S, 1, 1)                                            \
    EK_DWCONV2D_S8_LIFTED(ek_dwconv2d_s8_##K##_even_##ISA, ek_dw_##K##_even_##ISA, ROWS,         \
                          ek_dw_plain_even_##ISA, ek_dw_slide_##ISA, S, EK_EVEN, 1)

EK_DWCONV2D_S8_OF(neon, 1, 1, 2)

#endif
