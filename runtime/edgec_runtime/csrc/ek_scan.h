/* Along one axis of [outer, n, inner]: running sums and products, and the largest or smallest
 * elements in order. */
#ifndef EK_SCAN_H
#define EK_SCAN_H
#include "ek_base.h"

typedef struct {
    int outer, n, inner, exclusive, reverse;
} ek_scan_t;

#define EK_SCAN(NAME, T, ACC, INIT, EXPR)                                          \
    EK_KERNEL void NAME(const T *x, T *y, const ek_scan_t *p) {                    \
        for (int o = 0; o < p->outer; o++)                                         \
            for (int i = 0; i < p->inner; i++) {                                   \
                ACC a = (INIT);                                                    \
                for (int j = 0; j < p->n; j++) {                                   \
                    const int at = p->reverse ? p->n - 1 - j : j;                  \
                    const ptrdiff_t k = ((ptrdiff_t)o * p->n + at) * p->inner + i; \
                    const T v = x[k];                                              \
                    if (p->exclusive) y[k] = (T)a;                                 \
                    a = (EXPR);                                                    \
                    if (!p->exclusive) y[k] = (T)a;                                \
                }                                                                  \
            }                                                                      \
    }
#define EK_SCAN_WRAP(NAME, T, W, INIT, OP) EK_SCAN(NAME, T, W, INIT, a OP(W) v)
EK_SCAN(ek_cum_sum_f32, float, double, 0.0, a + v)
EK_SCAN(ek_cum_prod_f32, float, double, 1.0, a *v)
EK_OF_INTEGERS(ek_cum_sum, EK_SCAN_WRAP, 0, +)
EK_OF_INTEGERS(ek_cum_prod, EK_SCAN_WRAP, 1, *)

typedef struct {
    int outer, n, inner, k, largest;
} ek_topk_t;

/* Of equal elements the first comes first; what is not a number comes last (OR_NAN). Sorted by
 * insertion: k is small beside n. */
#define EK_TOPK(NAME, T, W, OR_NAN)                                                               \
    EK_KERNEL void NAME(const T *x, T *y, int64_t *index, const ek_topk_t *p) {                   \
        for (int o = 0; o < p->outer; o++)                                                        \
            for (int i = 0; i < p->inner; i++) {                                                  \
                T *best = y + (ptrdiff_t)o * p->k * p->inner + i;                                 \
                int64_t *at = index + (ptrdiff_t)o * p->k * p->inner + i;                         \
                const ptrdiff_t s = p->inner;                                                     \
                for (int j = 0; j < p->n; j++) {                                                  \
                    const T v = x[((ptrdiff_t)o * p->n + j) * s + i];                             \
                    int r = EK_MIN(j, p->k);                                                      \
                    for (; r > 0 &&                                                               \
                           ((p->largest ? v > best[(r - 1) * s] : v < best[(r - 1) * s]) OR_NAN); \
                         r--)                                                                     \
                        if (r < p->k) {                                                           \
                            best[r * s] = best[(r - 1) * s];                                      \
                            at[r * s] = at[(r - 1) * s];                                          \
                        }                                                                         \
                    if (r < p->k) {                                                               \
                        best[r * s] = v;                                                          \
                        at[r * s] = j;                                                            \
                    }                                                                             \
                }                                                                                 \
            }                                                                                     \
    }
EK_TOPK(ek_topk_f32, float, float, || (v == v && best[(r - 1) * s] != best[(r - 1) * s]))
EK_TOPK(ek_topk_s8, int8_t, uint32_t, )
EK_OF_INTEGERS(ek_topk, EK_TOPK, )

#endif
