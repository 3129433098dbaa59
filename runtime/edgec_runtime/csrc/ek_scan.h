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

/* Of equal elements the first comes first, and NaN is larger than all numbers (OR_NAN).
 *
 * A heap of the k best so far, the last of them in its root: Williams, Algorithm 232, Heapsort,
 * Communications of the ACM 7(6), 1964. An element that is none of them costs a comparison, any
 * other log2 k steps; in the end the heap is sorted. */
#define EK_TOPK(NAME, T, W, OR_NAN)                                                             \
    EK_KERNEL bool NAME##_beats(T v, T u, int largest) {                                        \
        return (largest ? v > u : v < u) OR_NAN;                                                \
    }                                                                                           \
    /* Whether element a comes before element b in the result. */                               \
    EK_KERNEL bool NAME##_before(const T *best, const int64_t *at, ptrdiff_t a, ptrdiff_t b,    \
                                 int largest) {                                                 \
        if (NAME##_beats(best[a], best[b], largest)) return true;                               \
        return !NAME##_beats(best[b], best[a], largest) && at[a] < at[b];                       \
    }                                                                                           \
    EK_KERNEL void NAME##_swap(T *best, int64_t *at, ptrdiff_t a, ptrdiff_t b) {                \
        const T v = best[a];                                                                    \
        const int64_t i = at[a];                                                                \
        best[a] = best[b], at[a] = at[b];                                                       \
        best[b] = v, at[b] = i;                                                                 \
    }                                                                                           \
    /* Element r of a heap of n goes down to where both below it come before it. */             \
    EK_SHARED void NAME##_sink(T *best, int64_t *at, ptrdiff_t s, int r, int n, int largest) {  \
        for (int low; (low = 2 * r + 1) < n; r = low) {                                         \
            if (low + 1 < n && NAME##_before(best, at, low * s, (low + 1) * s, largest)) low++; \
            if (NAME##_before(best, at, low * s, r * s, largest)) return;                       \
            NAME##_swap(best, at, r *s, low *s);                                                \
        }                                                                                       \
    }                                                                                           \
    EK_KERNEL void NAME(const T *x, T *y, int64_t *index, const ek_topk_t *p) {                 \
        for (int o = 0; o < p->outer; o++)                                                      \
            for (int i = 0; i < p->inner; i++) {                                                \
                T *best = y + (ptrdiff_t)o * p->k * p->inner + i;                               \
                int64_t *at = index + (ptrdiff_t)o * p->k * p->inner + i;                       \
                const T *from = x + (ptrdiff_t)o * p->n * p->inner + i;                         \
                const ptrdiff_t s = p->inner;                                                   \
                for (int j = 0; j < p->k; j++) best[j * s] = from[j * s], at[j * s] = j;        \
                for (int r = p->k / 2 - 1; r >= 0; r--)                                         \
                    NAME##_sink(best, at, s, r, p->k, p->largest);                              \
                for (int j = p->k; j < p->n && p->k > 0; j++) {                                 \
                    if (!NAME##_beats(from[j * s], best[0], p->largest)) continue;              \
                    best[0] = from[j * s], at[0] = j;                                           \
                    NAME##_sink(best, at, s, 0, p->k, p->largest);                              \
                }                                                                               \
                for (int n = p->k - 1; n > 0; n--) {                                            \
                    NAME##_swap(best, at, 0, n *s);                                             \
                    NAME##_sink(best, at, s, 0, n, p->largest);                                 \
                }                                                                               \
            }                                                                                   \
    }
EK_TOPK(ek_topk_f32, float, float, || ((v == v) != (u == u) && (v != v) == largest))
EK_TOPK(ek_topk_s8, int8_t, uint32_t, )
EK_OF_INTEGERS(ek_topk, EK_TOPK, )

#endif
