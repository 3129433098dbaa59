/* The index of the extreme element along one axis: [outer, n, inner] -> [outer, inner]. */
#ifndef EK_ARG_H
#define EK_ARG_H
#include "ek_base.h"

typedef struct {
    int outer, n, inner, sign,
        last; /* sign 1: the largest, -1: the smallest; of equal ones the first or the last */
} ek_arg_t;

#define EK_ARG(NAME, X, Y)                                                             \
    EK_KERNEL void NAME(const X *x, Y *y, const ek_arg_t *p) {                         \
        for (int o = 0; o < p->outer; o++, x += (ptrdiff_t)p->n * p->inner)            \
            for (int i = 0; i < p->inner; i++) {                                       \
                X best = x[i];                                                         \
                int at = 0;                                                            \
                for (int k = 1; k < p->n; k++) {                                       \
                    const X v = x[(ptrdiff_t)k * p->inner + i];                        \
                    if ((p->sign > 0 ? v > best : v < best) || (p->last && v == best)) \
                        best = v, at = k;                                              \
                }                                                                      \
                *y++ = at;                                                             \
            }                                                                          \
    }
EK_ARG(ek_arg_f32_s32, float, int32_t)
EK_ARG(ek_arg_f32_s64, float, int64_t)
EK_ARG(ek_arg_s8_s32, int8_t, int32_t)
EK_ARG(ek_arg_s8_s64, int8_t, int64_t)
EK_ARG(ek_arg_u8_s64, uint8_t, int64_t)
EK_ARG(ek_arg_s32_s64, int32_t, int64_t)
EK_ARG(ek_arg_s64_s64, int64_t, int64_t)

#endif
