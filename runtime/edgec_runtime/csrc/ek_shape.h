/* Ops that only move elements. */
#ifndef EK_SHAPE_H
#define EK_SHAPE_H
#include "ek_base.h"

EK_KERNEL void ek_copy(const void *x, void *y, size_t bytes) { memcpy(y, x, bytes); }

/* y[i] = x[sum of stride * index]: transposes, slices, broadcasts. */
typedef struct {
    int dim[6], stride[6];
} ek_gather_t;

/* The dimension whose elements lie side by side in x, where that is not the last one, and both are
 * worth a tile: a transpose. Else 5. */
EK_KERNEL int ek_gather_across(const ek_gather_t *p) {
    int d = p->stride[5] == 1 ? 5 : 4;
    while (d >= 0 && d < 5 && (p->stride[d] != 1 || p->dim[d] < 4)) d--;
    return d >= 0 && p->dim[5] >= 4 ? d : 5;
}

/* A transpose goes tile by tile, a line of x by four of y, which are in the cache while their
 * elements move. */
#define EK_GATHER(NAME, T)                                                                     \
    EK_KERNEL void NAME##_across(const T *x, T *y, const ek_gather_t *p, const int d) {        \
        enum { ROWS = 64 / sizeof(T), COLUMNS = 256 / sizeof(T) };                             \
        int dim[6], out[6] = {0, 0, 0, 0, 0, 1};                                               \
        for (int i = 4; i >= 0; i--) out[i] = out[i + 1] * p->dim[i + 1];                      \
        for (int i = 0; i < 6; i++) dim[i] = i == d ? 1 : p->dim[i];                           \
        const ptrdiff_t xs = p->stride[5], ys = out[d];                                        \
        EK_FOR_ND(dim, i, j, k, l, m) {                                                        \
            const T *from = x + EK_AT_ND(p->stride, i, j, k, l, m);                            \
            T *to = y + EK_AT_ND(out, i, j, k, l, m);                                          \
            for (int o0 = 0; o0 < dim[5]; o0 += COLUMNS)                                       \
                for (int r0 = 0; r0 < p->dim[d]; r0 += ROWS)                                   \
                    for (int r = r0; r < EK_MIN(r0 + ROWS, p->dim[d]); r++)                    \
                        for (int o = o0; o < EK_MIN(o0 + COLUMNS, dim[5]); o++)                \
                            to[r * ys + o] = from[o * xs + r];                                 \
        }                                                                                      \
    }                                                                                          \
    EK_KERNEL void NAME(const T *x, T *y, const ek_gather_t *p) {                              \
        const int across = ek_gather_across(p);                                                \
        if (across < 5) {                                                                      \
            NAME##_across(x, y, p, across);                                                    \
            return;                                                                            \
        }                                                                                      \
        EK_FOR_ND(p->dim, i, j, k, l, m) {                                                     \
            const T *row = x + EK_AT_ND(p->stride, i, j, k, l, m);                             \
            if (p->stride[5] == 1)                                                             \
                memcpy(y, row, (size_t)p->dim[5] * sizeof(T));                                 \
            else                                                                               \
                for (int o = 0; o < p->dim[5]; o++) y[o] = row[(ptrdiff_t)o * p->stride[5]];   \
            y += p->dim[5];                                                                    \
        }                                                                                      \
    }                                                                                          \
    /* n equal gathers, of which threads have a share each: dx and dy from one to the next. */ \
    EK_KERNEL void NAME##_part(const T *x, T *y, const ek_gather_t *p, int n, int dx, int dy,  \
                               int part, int parts) {                                          \
        const ek_share_t some = ek_share(n, 1, part, parts);                                   \
        for (int i = some.from; i < some.to; i++)                                              \
            NAME(x + (ptrdiff_t)i * dx, y + (ptrdiff_t)i * dy, p);                             \
    }
EK_GATHER(ek_gather_f32, float)
#if defined(EK_ELEMENT_F16)
EK_GATHER(ek_gather_f16, ek_half)
#endif
EK_GATHER(ek_gather_f64, double)
EK_GATHER(ek_gather_s8, int8_t)
EK_GATHER(ek_gather_u8, uint8_t)
EK_GATHER(ek_gather_s16, int16_t)
EK_GATHER(ek_gather_u16, uint16_t)
EK_GATHER(ek_gather_s32, int32_t)
EK_GATHER(ek_gather_u32, uint32_t)
EK_GATHER(ek_gather_s64, int64_t)
EK_GATHER(ek_gather_u64, uint64_t)

#endif
