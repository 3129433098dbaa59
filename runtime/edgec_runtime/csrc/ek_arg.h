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
#define EK_ARG_BOTH(NAME, X, W, UNUSED) \
    EK_ARG(NAME##_s32, X, int32_t)      \
    EK_ARG(NAME##_s64, X, int64_t)
EK_ARG_BOTH(ek_arg_f32, float, , )
EK_ARG_BOTH(ek_arg_s8, int8_t, , )
EK_OF_INTEGERS(ek_arg, EK_ARG_BOTH, )

#endif
