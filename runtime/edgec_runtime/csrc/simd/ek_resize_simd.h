/* Bilinear resizing of NHWC images (ek_resize.h) by vectors: rows first, then columns. */
#ifndef EK_RESIZE_SIMD_H
#define EK_RESIZE_SIMD_H
#include "ek_resize.h"
#include "ek_simd.h"

enum { EK_STRIP = 2048 }; /* elements of a strip of blended rows, on the stack; two pixels fit */

/* The columns j.. of which both pixels lie in a strip that begins with the left one of column j;
 * *width: of that strip, in elements. In all that follows x0 and x1 count elements, not pixels. */
EK_KERNEL int ek_strip(const int32_t *x0, const int32_t *x1, int j, int ow, int c, int *width) {
    const int first = x0[j];
    for (*width = 0; j < ow; j++) {
        const int wide = EK_MAX(x0[j], x1[j]) + c - first;
        if (wide > EK_STRIP || x0[j] < first) break;
        *width = EK_MAX(*width, wide);
    }
    return j;
}

/* For each row: a strip of R, made by VERTICAL from vectors at top and bottom + k; then for each
 * column and for vectors of its channels HORIZONTAL from the strip at left and right + k. A vector
 * may reach into the pixel after it, which is written later; at the end of the row it goes through
 * a buffer. */
#define EK_RESIZE_SIMD(NAME, PARAMS, T, R, LANES, SETUP, ROW_SETUP, VERTICAL, COLUMN_SETUP,   \
                       HORIZONTAL)                                                            \
    EK_SHARED void NAME(const T *x, T *y, const PARAMS *params, int part, int parts) {        \
        const PARAMS copy = *params, *const p = &copy; /* whose fields no store changes */    \
        const int c = p->c, line = p->iw * c, over = (c + (LANES) - 1) / (LANES) * (LANES);   \
        const ek_share_t rows = ek_share(p->n * p->oh, 1, part, parts);                       \
        R strip[EK_ROWS_OF_##NAME][EK_STRIP + (LANES)];                                       \
        memset(strip, 0, sizeof strip);                                                       \
        SETUP;                                                                                \
        for (int r = rows.from; r < rows.to; r++) {                                           \
            const int i = r % p->oh;                                                          \
            const T *image = x + (ptrdiff_t)(r / p->oh) * p->ih * line;                       \
            T *to = y + (ptrdiff_t)r * p->ow * c, *const end = to + p->ow * c;                \
            ROW_SETUP;                                                                        \
            for (int j = 0, width = line; j < p->ow;) {                                       \
                const int first = line <= EK_STRIP ? 0 : p->x0[j];                            \
                const int last =                                                              \
                    line <= EK_STRIP ? p->ow : ek_strip(p->x0, p->x1, j, p->ow, c, &width);   \
                const T *top = image + (ptrdiff_t)p->y0[i] * line + first;                    \
                const T *bottom = image + (ptrdiff_t)p->y1[i] * line + first;                 \
                T few_top[LANES], few_bottom[LANES];                                          \
                for (int k = 0, stop = width / (LANES) * (LANES); k < width;) {               \
                    if (k == stop) {                                                          \
                        top = memcpy(few_top, top, (size_t)(width - k) * sizeof(T));          \
                        bottom = memcpy(few_bottom, bottom, (size_t)(width - k) * sizeof(T)); \
                        stop += (LANES);                                                      \
                    }                                                                         \
                    for (; k < stop; k += (LANES), top += (LANES), bottom += (LANES)) {       \
                        VERTICAL;                                                             \
                    }                                                                         \
                }                                                                             \
                for (; j < last; j++, to += c) {                                              \
                    const R *left = strip[0] + (p->x0[j] - first),                            \
                            *right = strip[0] + (p->x1[j] - first);                           \
                    T few[LANES], *put = to;                                                  \
                    COLUMN_SETUP;                                                             \
                    if (end - to >= over) {                                                   \
                        for (int k = 0; k < c; k += (LANES), put += (LANES)) { HORIZONTAL; }  \
                    } else {                                                                  \
                        for (int k = 0; k < c; k += (LANES)) {                                \
                            put = few;                                                        \
                            HORIZONTAL;                                                       \
                            ek_copy_few(to + k, few, EK_MIN(LANES, c - k) * (int)sizeof(T));  \
                        }                                                                     \
                    }                                                                         \
                }                                                                             \
            }                                                                                 \
        }                                                                                     \
    }

enum {
    EK_ROWS_OF_ek_resize_bilinear_s8_simd = 1,
    EK_ROWS_OF_ek_resize_bilinear_u8_simd = 2,
    EK_ROWS_OF_ek_resize_dyadic_up_simd = 1,
    EK_ROWS_OF_ek_resize_dyadic_away_simd = 1
};

/* Two vectors at once where they are short, so that one's latency is the other's turn. */
enum { EK_TURNS = EK_VL < 16 ? 2 : 1, EK_WIDE = EK_TURNS * EK_VL };

#define EK_TURN for (int h = 0, e = k; h < EK_TURNS; h++, e += EK_VL)

/* v / 2^20, ties away from zero */
EK_RESIZE_SIMD(ek_resize_bilinear_s8_simd, ek_resize_bilinear_fixed_t, int8_t, int32_t, EK_WIDE,
               const ek_vshift shift = ek_vshift_right(20);
               ek_vi v[EK_TURNS], const int32_t fy = p->fy[i],
               EK_TURN ek_vi_store(strip[0] + e, ek_vi_load_s8(top + h * EK_VL) * (1024 - fy) +
                                                     ek_vi_load_s8(bottom + h * EK_VL) * fy),
               const int32_t fx = p->fx[j],
               EK_TURN v[h] = ek_vi_load(left + e) * (1024 - fx) + ek_vi_load(right + e) * fx;
               EK_TURN v[h] = ek_vi_round_shift(v[h] + (v[h] >> 31), shift);
               EK_TURN ek_vi_store_s8(put + h * EK_VL, v[h]))

/* Every product and sum is rounded as the plain kernel rounds it. */
EK_RESIZE_SIMD(
    ek_resize_bilinear_u8_simd, ek_resize_bilinear_real_t, int8_t, float, EK_WIDE,
    ek_vi v[EK_TURNS], const float fy = p->fy[i],
    EK_TURN ek_vf_store(strip[0] + e, ek_vf_of(ek_vi_load_s8(top + h * EK_VL) + 128) * (1 - fy));
    EK_TURN ek_vf_store(strip[1] + e, ek_vf_of(ek_vi_load_s8(bottom + h * EK_VL) + 128) * fy),
    const float fx = p->fx[j];
    const float gx = 1 - fx;
    const ptrdiff_t below = strip[1] - strip[0],
    EK_TURN v[h] = ek_vf_truncated(ek_vf_load(left + e) * gx + ek_vf_load(left + below + e) * gx +
                                   ek_vf_load(right + e) * fx + ek_vf_load(right + below + e) * fx +
                                   0.5f) -
                   128;
    EK_TURN ek_vi_store_s8(put + h * EK_VL, v[h]))

/* Weights in 1 / 2^bits, all exact in 16 bits: bits at most 4 where ties go up, 3 where they go
 * away from zero. */
typedef struct {
    int n, ih, iw, c, oh, ow;
    const int32_t *y0, *y1, *fy, *x0, *x1, *fx;
    int bits;
} ek_resize_dyadic_t;

#define EK_RESIZE_DYADIC(NAME, TIES)                                                              \
    EK_RESIZE_SIMD(                                                                               \
        NAME, ek_resize_dyadic_t, int8_t, int16_t, EK_VH, const int one = 1 << p->bits;           \
        const ek_vh shift = ek_vh_shift_right(2 * p->bits), const int16_t fy = (int16_t)p->fy[i]; \
        const int16_t gy = (int16_t)(one - fy),                                                   \
        ek_vh_store(strip[0] + k, ek_vh_load_s8(top) * gy + ek_vh_load_s8(bottom) * fy),          \
        const int16_t fx = (int16_t)p->fx[j];                                                     \
        const int16_t gx = (int16_t)(one - fx),                                                   \
        const ek_vh v = ek_vh_load(left + k) * gx + ek_vh_load(right + k) * fx;                   \
        ek_vh_store_s8(put, ek_vh_round(TIES, shift)))
EK_RESIZE_DYADIC(ek_resize_dyadic_up_simd, v)
EK_RESIZE_DYADIC(ek_resize_dyadic_away_simd, v + (v >> 15))

#endif
