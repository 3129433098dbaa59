/* A turned crop of a camera's frame made into an input: converted, made smaller by blocks, sampled
 * between pixels, ordered and scaled.
 *
 * The same integers as vision/crop.py: the frame at a level is the rounded means of its blocks of
 * 2^level x 2^level pixels; a place is in 1/65536 of such a pixel, and its level the bilinear mean
 * of four by weights of 1/2048. Only the region that is read is converted, once. */
#ifndef EK_CROP_H
#define EK_CROP_H
#include "ek_frame.h"

enum {
    EK_CROP_PLACE = 16,  /* bits behind the point of a place */
    EK_CROP_WEIGHT = 11, /* of a weight: a sum of two directions fills 30 bits */
    EK_CROP_ONE = 1 << EK_CROP_WEIGHT
};

/* start: x and y of the middle of the first pixel; across, down: the steps to the next column and
 * row; the region is in pixels of the frame at its level, -1 the first beside it. */
typedef struct {
    int level, left, top, width, height;
    int64_t start[2], across[2], down[2];
} ek_crop_t;

/* Columns from + [0, n) of a row, four bytes each; the colours are in the frame's order. */
EK_SHARED void ek_crop_row(const ek_frame_t *f, int row, int from, int n, uint8_t *restrict out) {
    const uint8_t *p = f->planes[0] + row * f->strides[0];
    if (f->format == EK_RGB || f->format == EK_BGR) {
        p += 3 * (size_t)from;
        for (int i = 0; i < n; i++) {
            out[4 * i] = p[3 * i], out[4 * i + 1] = p[3 * i + 1], out[4 * i + 2] = p[3 * i + 2];
            out[4 * i + 3] = 0;
        }
    } else if (f->format == EK_RGBA)
        memcpy(out, p + 4 * (size_t)from, 4 * (size_t)n);
    else
        ek_frame_row(f, row, from, n, (uint32_t *)out);
}

/* n columns of a row from `from` on, which may be beside the frame, as may the row. own: as many
 * pixels and three more. */
EK_SHARED const uint8_t *ek_crop_filled(const ek_frame_t *f, const uint8_t *fill, int row, int from,
                                        int n, uint8_t *own) {
    const int inside = row >= 0 && row < f->height;
    const int first = inside ? EK_CLAMP(from, 0, f->width) : from + n;
    const int last = inside ? EK_CLAMP(from + n, first, f->width) : from + n;
    /* Two columns share a colour, so the first that is read is an even one. */
    const int shares = f->format == EK_YUYV || f->format == EK_NV12,
              even = first - (first & shares);
    uint8_t *to = own + 4 * (first & shares);
    if (first < last) {
        const int count = last - even;
        ek_crop_row(f, row, even, shares ? (count + 1) & ~1 : count, to + 4 * (even - from));
    }
    for (int i = 0; i < n; i++)
        if (from + i < first || from + i >= last) {
            uint8_t *pixel = to + 4 * (size_t)i;
            pixel[0] = fill[0], pixel[1] = fill[1], pixel[2] = fill[2], pixel[3] = 0;
        }
    return to;
}

/* The mean of `side` neighbours, by their sums of as many rows. */
EK_KERNEL void ek_crop_mean(const int16_t *sums, int side, int level, uint8_t *out) {
    ek_frame_4i total = {0, 0, 0, 0};
    for (int s = 0; s < side; s++) {
        ek_frame_4h column;
        memcpy(&column, sums + 4 * s, sizeof column);
        total += __builtin_convertvector(column, ek_frame_4i);
    }
    const ek_frame_4b mean =
        __builtin_convertvector((total + side * side / 2) >> (2 * level), ek_frame_4b);
    memcpy(out, &mean, sizeof mean);
}

/* The region's pixels, four bytes each, row by row. sums: two bytes for each of a row's in the
 * frame itself; a sum of 64 levels fits. own: such a row in pixels, and eight more. */
EK_SHARED void ek_crop_region(const ek_frame_t *f, const ek_crop_t *c, const uint8_t *fill,
                              int16_t *restrict sums, uint8_t *own, uint8_t *restrict out) {
    const int side = 1 << c->level, wide = c->width * side;
    for (int y = 0; y < c->height; y++, out += 4 * (size_t)c->width) {
        if (!c->level) {
            memcpy(out, ek_crop_filled(f, fill, c->top + y, c->left, c->width, own),
                   4 * (size_t)c->width);
            continue;
        }
        memset(sums, 0, 4 * (size_t)wide * sizeof *sums);
        for (int t = 0; t < side; t++) {
            const int row = (c->top + y) * side + t;
            const uint8_t *restrict p = ek_crop_filled(f, fill, row, c->left * side, wide, own);
            for (int i = 0; i < 4 * wide; i++) sums[i] = (int16_t)(sums[i] + p[i]);
        }
        for (int x = 0; x < c->width; x++)
            ek_crop_mean(sums + 4 * (size_t)x * side, side, c->level, out + 4 * (size_t)x);
    }
}

/* The level of four bytes at a place of the region. */
EK_KERNEL ek_frame_4i ek_crop_pixel(const uint8_t *p) {
    ek_frame_4b bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, ek_frame_4i);
}
EK_KERNEL void ek_crop_sample(const uint8_t *region, size_t row, int64_t x, int64_t y,
                              uint8_t *level) {
    enum { MASK = EK_CROP_ONE - 1, SHIFT = EK_CROP_PLACE - EK_CROP_WEIGHT };
    const uint8_t *p =
        region + (size_t)(y >> EK_CROP_PLACE) * row + 4 * (size_t)(x >> EK_CROP_PLACE);
    const int32_t right = (int32_t)(x >> SHIFT) & MASK, lower = (int32_t)(y >> SHIFT) & MASK;
    const ek_frame_4i upper =
        ek_crop_pixel(p) * (EK_CROP_ONE - right) + ek_crop_pixel(p + 4) * right;
    const ek_frame_4i below =
        ek_crop_pixel(p + row) * (EK_CROP_ONE - right) + ek_crop_pixel(p + row + 4) * right;
    const ek_frame_4i sum = upper * (EK_CROP_ONE - lower) + below * lower;
    const ek_frame_4b mean = __builtin_convertvector(
        (sum + (1 << (2 * EK_CROP_WEIGHT - 1))) >> (2 * EK_CROP_WEIGHT), ek_frame_4b);
    memcpy(level, &mean, sizeof mean);
}

/* The whole input. scratch: the region, with four bytes a pixel; three times its width in pixels of
 * the frame and eight more; the input's width. Not 0: what the caller gave cannot be. */
EK_KERNEL int ek_crop_input(ek_input_t in, const void *table, const ek_frame_t *f,
                            const ek_crop_t *c, uint8_t *scratch, void *out) {
    if (c->level < 0 || c->level > 6 || c->width < 2 || c->height < 2) return 1;
    const int turned = f->format == EK_BGR;
    const uint8_t fill[3] = {in.fill[turned ? 2 : 0], in.fill[1], in.fill[turned ? 0 : 2]};
    const size_t row = 4 * (size_t)c->width;
    uint8_t *region = scratch, *sums = region + row * (size_t)c->height,
            *own = sums + 2 * (row << c->level), *levels = own + (row << c->level) + 32;
    ek_crop_region(f, c, fill, (int16_t *)sums, own, region);
    const int64_t one = (int64_t)1 << EK_CROP_PLACE, left = c->left * one, top = c->top * one;
    const int64_t right = (int64_t)((f->width + (1 << c->level) - 1) >> c->level) * one,
                  bottom = (int64_t)((f->height + (1 << c->level) - 1) >> c->level) * one;
    for (int v = 0; v < in.height; v++) {
        int64_t x = c->start[0] + v * c->down[0], y = c->start[1] + v * c->down[1];
        for (int u = 0; u < in.width; u++, x += c->across[0], y += c->across[1])
            ek_crop_sample(region, row, EK_CLAMP(x, -one, right) - left,
                           EK_CLAMP(y, -one, bottom) - top, levels + 4 * (size_t)u);
        ek_frame_write(in, table, levels, turned, 0, v, in.width, 4, out);
    }
    const size_t bytes = (size_t)in.height * in.width * in.channels * in.size;
    for (int b = 1; b < in.batch; b++) memcpy((uint8_t *)out + bytes * b, out, bytes);
    return 0;
}
#endif
