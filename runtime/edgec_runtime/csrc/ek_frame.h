/* A camera's frame made into an input: converted, cropped, resized, ordered and scaled in one pass
 * over its rows.
 *
 * The same integers as resample.py and photo.py compute: weights are parts of 1 << 14, a column of
 * rows is summed to 1/64 levels, then rows of those to levels, which a table makes into elements.
 */
#ifndef EK_FRAME_H
#define EK_FRAME_H
#include "ek_base.h"
#if defined(__SSSE3__)
#include <tmmintrin.h>
#endif

enum { EK_RGB, EK_BGR, EK_GRAY, EK_RGBA, EK_YUYV, EK_NV12 };
enum { EK_FRAME_BLOCK = 64, EK_FRAME_ROWS = 512 /* the most that are summed */ };

/* planes: the pixels, and for NV12 the colours; strides: bytes from row to row. */
typedef struct {
    int format, width, height;
    const uint8_t *planes[2];
    int64_t strides[2];
} ek_frame_t;

/* Result i is the sum of `most` elements from first[i] on, by weights[i * most ...]. */
typedef struct {
    int count, most;
    const int32_t *first;
    const int16_t *weights;
} ek_taps_t;

/* What the input is: elements of `size` bytes; gray: luma in all channels; bgr: blue first; planes:
 * channels first. */
typedef struct {
    int height, width, channels, size, gray, bgr, planes, batch;
    uint8_t fill[3]; /* levels, red first */
} ek_input_t;

typedef int32_t ek_frame_vi __attribute__((vector_size(64)));
typedef uint8_t ek_frame_vb __attribute__((vector_size(16)));
typedef int16_t ek_frame_vh __attribute__((vector_size(32)));
typedef int32_t ek_frame_4i __attribute__((vector_size(16)));
typedef int16_t ek_frame_4h __attribute__((vector_size(8)));
typedef uint8_t ek_frame_4b __attribute__((vector_size(4)));

/* BT.601, Y in 16...235, as four bytes: red, green, blue, none. */
EK_KERNEL uint32_t ek_frame_pixel(int32_t y, int32_t u, int32_t v) {
    const int32_t c = 298 * (y - 16) + 128, d = u - 128, e = v - 128;
    const int32_t r = (c + 409 * e) >> 8, g = (c - 100 * d - 208 * e) >> 8, b = (c + 516 * d) >> 8;
    return (uint32_t)(EK_CLAMP(r, 0, 255) | EK_CLAMP(g, 0, 255) << 8 | EK_CLAMP(b, 0, 255) << 16);
}

/* n pairs of pixels of a row, from an even column on. */
EK_SHARED void ek_frame_yuyv(const uint8_t *restrict p, int n, uint32_t *restrict out) {
    for (int i = 0; i < n; i++) {
        out[2 * i] = ek_frame_pixel(p[4 * i], p[4 * i + 1], p[4 * i + 3]);
        out[2 * i + 1] = ek_frame_pixel(p[4 * i + 2], p[4 * i + 1], p[4 * i + 3]);
    }
}
EK_SHARED void ek_frame_nv12(const uint8_t *restrict y, const uint8_t *restrict uv, int n,
                             uint32_t *restrict out) {
    for (int i = 0; i < n; i++) {
        out[2 * i] = ek_frame_pixel(y[2 * i], uv[2 * i], uv[2 * i + 1]);
        out[2 * i + 1] = ek_frame_pixel(y[2 * i + 1], uv[2 * i], uv[2 * i + 1]);
    }
}

/* Columns from + [0, n) of a row, four bytes each, at the result; `from` and n are even where two
 * share a colour. */
EK_SHARED void ek_frame_row(const ek_frame_t *f, int row, int from, int n, uint32_t *out) {
    const uint8_t *p = f->planes[0] + row * f->strides[0];
    if (f->format == EK_YUYV)
        ek_frame_yuyv(p + 2 * from, n / 2, out);
    else if (f->format == EK_NV12)
        ek_frame_nv12(p + from, f->planes[1] + (row >> 1) * f->strides[1] + from, n / 2, out);
    else
        for (int i = 0; i < n; i++) out[i] = p[from + i] * 0x10101u;
}

/* to[i] = the sum of rows[t][i] * weights[t], in 1/64 levels; n >= EK_FRAME_BLOCK: the last block
 * may overlap. */
EK_KERNEL void ek_frame_block(const uint8_t *const *rows, const int16_t *weights, int most, int at,
                              int16_t *to) {
    enum { PARTS = EK_FRAME_BLOCK / 16 };
    ek_frame_vi sum[PARTS] = {{0}};
    for (int t = 0; t < most; t++)
        for (int i = 0; i < PARTS; i++) {
            ek_frame_vb x;
            memcpy(&x, rows[t] + at + 16 * i, sizeof x);
            sum[i] += __builtin_convertvector(x, ek_frame_vi) * (int32_t)weights[t];
        }
    for (int i = 0; i < PARTS; i++) {
        const ek_frame_vh y = __builtin_convertvector((sum[i] + 128) >> 8, ek_frame_vh);
        memcpy(to + at + 16 * i, &y, sizeof y);
    }
}
EK_SHARED void ek_frame_down(const uint8_t *const *rows, const int16_t *weights, int most, int n,
                             int16_t *to) {
    if (n < EK_FRAME_BLOCK) {
        for (int i = 0; i < n; i++) {
            int32_t sum = 128;
            for (int t = 0; t < most; t++) sum += rows[t][i] * weights[t];
            to[i] = (int16_t)(sum >> 8);
        }
        return;
    }
    for (int i = 0; i + EK_FRAME_BLOCK < n; i += EK_FRAME_BLOCK)
        ek_frame_block(rows, weights, most, i, to);
    ek_frame_block(rows, weights, most, n - EK_FRAME_BLOCK, to);
}

/* The sum and two taps more, where that is one instruction. */
#if defined(__SSSE3__)
enum { EK_FRAME_PAIRS = 1 };
EK_KERNEL ek_frame_4i ek_frame_two(const int16_t *x, const int16_t *weights, int each,
                                   ek_frame_4i sum) {
    const __m128i by_three = _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, 4, 5, 10, 11);
    const __m128i by_four = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
    int32_t pair;
    memcpy(&pair, weights, sizeof pair);
    const __m128i both =
        _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)x), each == 3 ? by_three : by_four);
    return sum + (ek_frame_4i)_mm_madd_epi16(both, _mm_set1_epi32(pair));
}
#else
enum { EK_FRAME_PAIRS = 0 };
EK_KERNEL ek_frame_4i ek_frame_two(const int16_t *x, const int16_t *weights, int each,
                                   ek_frame_4i sum) {
    (void)x, (void)weights, (void)each;
    return sum;
}
#endif

/* Levels, four bytes for each result, of a row of 1/64 levels with `each` a column; reads two
 * elements too many. */
EK_KERNEL void ek_frame_columns(const int16_t *row, const ek_taps_t *taps, int left, int each,
                                int most, uint8_t *levels) {
    const int16_t *w = taps->weights;
    for (int i = 0; i < taps->count; i++, w += most) {
        const int16_t *x = row + (ptrdiff_t)each * (taps->first[i] - left);
        ek_frame_4i sum = {1 << 19, 1 << 19, 1 << 19, 1 << 19};
        int t = 0;
        for (; EK_FRAME_PAIRS && t + 1 < most; t += 2)
            sum = ek_frame_two(x + each * t, w + t, each, sum);
        for (; t < most; t++) {
            ek_frame_4h one;
            memcpy(&one, x + each * t, sizeof one);
            sum += __builtin_convertvector(one, ek_frame_4i) * (int32_t)w[t];
        }
        sum >>= 20; /* to 0...255 without branches */
        sum &= ~(sum >> 31);
        sum = (sum | (sum > 255)) & 255;
        const ek_frame_4b level = __builtin_convertvector(sum, ek_frame_4b);
        memcpy(levels + 4 * i, &level, sizeof level);
    }
}
EK_SHARED void ek_frame_across(const int16_t *row, const ek_taps_t *taps, int left, int each,
                               uint8_t *levels) {
#define EK_FRAME_MOST(N)                                     \
    case N:                                                  \
        if (each == 3)                                       \
            ek_frame_columns(row, taps, left, 3, N, levels); \
        else                                                 \
            ek_frame_columns(row, taps, left, 4, N, levels); \
        return;
    switch (taps->most) { /* loops of few steps are written out */
        EK_FRAME_MOST(1)
        EK_FRAME_MOST(2)
        EK_FRAME_MOST(3)
        EK_FRAME_MOST(4)
        EK_FRAME_MOST(5)
        EK_FRAME_MOST(6) EK_FRAME_MOST(7) EK_FRAME_MOST(8) EK_FRAME_MOST(10) EK_FRAME_MOST(12)
    }
    ek_frame_columns(row, taps, left, each, taps->most, levels);
}

/* n pixels from column `x` on of row `y` of an input, from their levels (four bytes each, blue
 * first if `turned`). */
#define EK_FRAME_WRITE(NAME, T)                                                           \
    EK_KERNEL void NAME(ek_input_t in, const void *table, const uint8_t *restrict levels, \
                        int turned, int x, int y, int n, int step, void *restrict out) {  \
        const T *values = table;                                                          \
        const size_t plane = in.planes ? (size_t)in.height * in.width : 1,                \
                     next = in.planes ? 1 : (size_t)in.channels;                          \
        T *restrict to = (T *)out + ((size_t)y * in.width + x) * next;                    \
        for (int i = 0; i < n; i++, to += next, levels += step) {                         \
            uint8_t rgb[3] = {levels[turned ? 2 : 0], levels[1], levels[turned ? 0 : 2]}; \
            if (in.gray)                                                                  \
                rgb[0] = rgb[1] = rgb[2] =                                                \
                    (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;     \
            for (int c = 0; c < in.channels; c++) {                                       \
                const int from = in.bgr ? 2 - c : c; /* red first, as the table is */     \
                to[plane * c] = values[256 * from + rgb[from]];                           \
            }                                                                             \
        }                                                                                 \
    }
EK_FRAME_WRITE(ek_frame_write_1, uint8_t)
EK_FRAME_WRITE(ek_frame_write_4, uint32_t)

EK_KERNEL void ek_frame_write(ek_input_t in, const void *table, const uint8_t *levels, int turned,
                              int x, int y, int n, int step, void *out) {
    if (n <= 0) return;
    if (in.size == 1)
        ek_frame_write_1(in, table, levels, turned, x, y, n, step, out);
    else
        ek_frame_write_4(in, table, levels, turned, x, y, n, step, out);
}

/* The whole input, at `left`, `top` of which the part of the frame that the taps say is put.
 * scratch, aligned to 64: down->most + 2 rows of four bytes for each column that is used and 64
 * beside, and four bytes for each of the result's. Not 0: what the caller gave cannot be. */
EK_KERNEL int ek_frame_input(ek_input_t in, const void *table, const ek_frame_t *f,
                             const ek_taps_t *down, const ek_taps_t *across, int left, int top,
                             uint8_t *scratch, void *out) {
    const int first = across->first[0],
              used = across->first[across->count - 1] + across->most - first;
    const int plain = f->format == EK_RGB || f->format == EK_BGR || f->format == EK_RGBA,
              turned = f->format == EK_BGR;
    const int each = plain && f->format != EK_RGBA ? 3 : 4, even = first & ~1,
              right = left + across->count;
    if (down->most > EK_FRAME_ROWS || right > in.width || top + down->count > in.height) return 1;
    const size_t row = (4 * (size_t)used + 64) & ~(size_t)63;
    int16_t *sums = (int16_t *)(scratch + row * (size_t)down->most);
    uint8_t *levels = (uint8_t *)sums + 2 * row;
    const uint8_t *rows[EK_FRAME_ROWS];
    int have[EK_FRAME_ROWS];
    for (int t = 0; t < down->most; t++) have[t] = -1;
    for (int y = 0; y < in.height; y++) {
        const int i = y - top, inside = i >= 0 && i < down->count;
        ek_frame_write(in, table, in.fill, 0, 0, y, inside ? left : in.width, 0, out);
        if (!inside) continue;
        ek_frame_write(in, table, in.fill, 0, right, y, in.width - right, 0, out);
        for (int t = 0; t < down->most; t++) {
            const int r = down->first[i] + t, slot = r % down->most;
            uint8_t *own = scratch + row * (size_t)slot;
            rows[t] = plain ? f->planes[0] + r * f->strides[0] + each * (size_t)first
                            : own + 4 * (first - even);
            if (plain || have[slot] == r) continue;
            ek_frame_row(f, r, even, EK_MIN((first + used - even + 1) & ~1, f->width - even),
                         (uint32_t *)own);
            have[slot] = r;
        }
        const int16_t *weights = down->weights + (size_t)i * down->most;
        int begin = 0, end = down->most;
        while (begin < end - 1 && !weights[begin]) begin++;
        while (begin < end - 1 && !weights[end - 1]) end--;
        ek_frame_down(rows + begin, weights + begin, end - begin, each * used, sums);
        ek_frame_across(sums, across, first, each, levels);
        ek_frame_write(in, table, levels, turned, left, y, across->count, 4, out);
    }
    const size_t bytes = (size_t)in.height * in.width * in.channels * in.size;
    for (int b = 1; b < in.batch; b++) memcpy((uint8_t *)out + bytes * b, out, bytes);
    return 0;
}
#endif
