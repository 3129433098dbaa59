/* The index of the extreme of rows of bytes (ek_arg.h) by vectors. */
#ifndef EK_ARG_SIMD_H
#define EK_ARG_SIMD_H
#include "ek_arg.h"
#include "ek_simd.h"

/* Rows of 16..32 elements, as two vectors that overlap. Without a branch: the least index of those
 * that equal the largest; for the last of them indices count down from 255. */
#define EK_ARG_SIMD(NAME, Y)                                                                  \
    EK_SHARED void NAME(const int8_t *x, Y *y, const ek_arg_t *p, int part, int parts) {      \
        static const uint8_t up[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}; \
        const int n = p->n, end = n - 16, flip = p->last ? 255 : 0;                           \
        const ek_b16 first = ek_b16_xor(ek_b16_load(up), ek_b16_set(flip));                   \
        const ek_b16 second =                                                                 \
            ek_b16_xor(ek_b16_add(ek_b16_load(up), ek_b16_set(end)), ek_b16_set(flip));       \
        const ek_share_t rows = ek_share(p->outer, 64, part, parts);                          \
        x += (ptrdiff_t)rows.from * n;                                                        \
        for (int r = rows.from; r < rows.to; r++, x += n) {                                   \
            const ek_b16 a = ek_b16_load(x), b = ek_b16_load(x + end),                        \
                         most = ek_b16_largest(ek_b16_max(a, b));                             \
            const ek_b16 in_a = ek_b16_where_equal(a, most, first),                           \
                         in_b = ek_b16_where_equal(b, most, second);                          \
            y[r] = ek_b16_least_u8(ek_b16_min_u8(in_a, in_b)) ^ flip;                         \
        }                                                                                     \
    }
EK_ARG_SIMD(ek_arg_s8_s32_simd, int32_t)
EK_ARG_SIMD(ek_arg_s8_s64_simd, int64_t)

#endif
