/* Rows of bytes picked by index; an index that lies outside is clamped, so that nothing beyond a
 * tensor is read. */
#ifndef EK_TAKE_H
#define EK_TAKE_H
#include "ek_base.h"

EK_KERNEL size_t ek_inside(int64_t i, int dim) {
    return (size_t)EK_CLAMP(i < 0 ? i + dim : i, 0, dim - 1);
}

/* [outer, dim, bytes] -> [outer, n, bytes] */
typedef struct {
    int outer, dim, n, bytes;
} ek_take_t;

#define EK_TAKE(NAME, I)                                                              \
    EK_KERNEL void NAME(const void *x, const I *index, void *y, const ek_take_t *p) { \
        const char *from = x;                                                         \
        char *to = y;                                                                 \
        const size_t bytes = (size_t)p->bytes;                                        \
        for (int o = 0; o < p->outer; o++, from += (size_t)p->dim * bytes)            \
            for (int i = 0; i < p->n; i++, to += bytes)                               \
                memcpy(to, from + ek_inside(index[i], p->dim) * bytes, bytes);        \
    }
EK_TAKE(ek_take_s32, int32_t)
EK_TAKE(ek_take_s64, int64_t)

/* n rows, each at k coordinates; the pitch of a coordinate is in bytes. */
typedef struct {
    int n, k, dim[6], pitch[6], bytes;
} ek_take_nd_t;

#define EK_TAKE_ND(NAME, I)                                                              \
    EK_KERNEL void NAME(const void *x, const I *index, void *y, const ek_take_nd_t *p) { \
        char *to = y;                                                                    \
        for (int i = 0; i < p->n; i++, to += p->bytes) {                                 \
            const char *from = x;                                                        \
            for (int j = 0; j < p->k; j++)                                               \
                from += ek_inside(*index++, p->dim[j]) * (size_t)p->pitch[j];            \
            memcpy(to, from, (size_t)p->bytes);                                          \
        }                                                                                \
    }
EK_TAKE_ND(ek_take_nd_s32, int32_t)
EK_TAKE_ND(ek_take_nd_s64, int64_t)

#endif
