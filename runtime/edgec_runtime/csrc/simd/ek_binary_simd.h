/* Elementwise ops of two broadcast inputs (ek_binary.h) by vectors. */
#ifndef EK_BINARY_SIMD_H
#define EK_BINARY_SIMD_H
#include "ek_binary.h"
#include "ek_simd.h"

/* The rows (of the innermost dimension) that one part computes: elements from..to of row `row`,
 * with the offsets of the row in both inputs. A single row is split within. */
typedef struct {
    int row, end, from, to, at[5];
    ptrdiff_t a, b;
} ek_walk_t;

EK_KERNEL ek_walk_t ek_walk(const ek_broadcast_t *nd, int unit, int part, int parts) {
    const int *d = nd->dim, rows = d[0] * d[1] * d[2] * d[3] * d[4];
    const ek_share_t row = rows > 1 ? ek_share(rows, 1, part, parts) : (ek_share_t){0, 1};
    const ek_share_t inside = rows > 1 ? (ek_share_t){0, d[5]} : ek_share(d[5], unit, part, parts);
    ek_walk_t w = {.row = row.from, .end = row.to, .from = inside.from, .to = inside.to};
    for (int k = 4, rest = row.from; k >= 0; rest /= d[k--]) {
        w.at[k] = rest % d[k];
        w.a += (ptrdiff_t)w.at[k] * nd->a[k], w.b += (ptrdiff_t)w.at[k] * nd->b[k];
    }
    return w;
}
EK_KERNEL void ek_walk_on(ek_walk_t *w, const ek_broadcast_t *nd) {
    w->row++;
    for (int k = 4; k >= 0; k--) {
        w->a += nd->a[k], w->b += nd->b[k];
        if (++w->at[k] < nd->dim[k]) return;
        w->a -= (ptrdiff_t)nd->dim[k] * nd->a[k], w->b -= (ptrdiff_t)nd->dim[k] * nd->b[k];
        w->at[k] = 0;
    }
}

enum { EK_REPEATED = 512 }; /* elements of several short rows */

/* An input that is the same for every row, as often as rows are taken for one. */
EK_KERNEL const void *ek_repeat(void *to, const void *row, int bytes, int times) {
    for (int i = 0; i < times; i++) memcpy((char *)to + i * bytes, row, (size_t)bytes);
    return to;
}

/* For each row of elements: vectors of the inputs u and v, STATEMENT to make w of them. An input
 * that stands still along the row is one vector of its value, read again and again. The end of a
 * row is a vector of its own, in buffers, so that the loop has no branch and there is one of it. */
#define EK_ROWS(NAME, T, VECTOR, LANES, OF, PARAMS, SETUP, STATEMENT)                         \
    EK_SHARED void NAME(const T *a, const T *b, T *y, const PARAMS *p, int part, int parts) { \
        const ek_broadcast_t *nd = &p->nd;                                                    \
        const int on_a = nd->a[5] ? (LANES) : 0, on_b = nd->b[5] ? (LANES) : 0;               \
        T few_a[LANES] = {0}, few_b[LANES] = {0}, few_y[LANES];                               \
        T repeated[EK_REPEATED];                                                              \
        SETUP;                                                                                \
        if (p->repeat > 1)                                                                    \
            b = ek_repeat(repeated, b, nd->dim[5] / p->repeat * (int)sizeof(T), p->repeat);   \
        for (ek_walk_t r = ek_walk(nd, 64, part, parts); r.row < r.end; ek_walk_on(&r, nd)) { \
            const T *pa = a + r.a + (on_a ? r.from : 0), *pb = b + r.b + (on_b ? r.from : 0); \
            T *to = y + (ptrdiff_t)r.row * nd->dim[5] + r.from;                               \
            if (!on_a) OF##_store(few_a, OF##_set(*pa)), pa = few_a;                          \
            if (!on_b) OF##_store(few_b, OF##_set(*pb)), pb = few_b;                          \
            for (int n = r.to - r.from; n > 0;) {                                             \
                const int few = n < (LANES) ? n : 0;                                          \
                T *end = to;                                                                  \
                if (few) {                                                                    \
                    if (on_a) ek_copy_few(few_a, pa, n *(int)sizeof(T)), pa = few_a;          \
                    if (on_b) ek_copy_few(few_b, pb, n *(int)sizeof(T)), pb = few_b;          \
                    to = few_y, n = (LANES);                                                  \
                }                                                                             \
                for (; n >= (LANES); n -= (LANES), pa += on_a, pb += on_b, to += (LANES)) {   \
                    const VECTOR u = OF##_load(pa), v = OF##_load(pb);                        \
                    VECTOR w;                                                                 \
                    STATEMENT;                                                                \
                    OF##_store(to, w);                                                        \
                }                                                                             \
                if (few) ek_copy_few(end, few_y, few *(int)sizeof(T));                        \
            }                                                                                 \
        }                                                                                     \
    }
#define EK_ROWS_S8(NAME, PARAMS, SETUP, EXPR)                                               \
    EK_ROWS(NAME, int8_t, ek_vb, EK_VB, ek_vb, PARAMS, const ek_vb low = ek_vb_set(p->low); \
            const ek_vb high = ek_vb_set(p->high);                                          \
            SETUP, w = ek_vb_min(ek_vb_max(EXPR, low), high))

/* ADD and SUB, where a scaled sum gives the same bytes for all 65,536 pairs of bytes; otherwise
 * ek_law_s8_simd. */
typedef struct {
    ek_broadcast_t nd;
    int repeat; /* rows of b that are one of nd */
    int low, high;
    ek_scaled_sum_t sum;
} ek_sum_s8_t;

EK_ROWS_S8(ek_sum_s8_simd, ek_sum_s8_t, const ek_vsum_t sum = ek_vsum(&p->sum),
           ek_vb_sum(u, v, &sum))

/* As ek_fixed_point_sum_t; sign: 1 for ADD, -1 for SUB. */
typedef struct {
    ek_broadcast_t nd;
    int repeat; /* rows of b that are one of nd */
    int32_t a_zero, b_zero, y_zero, low, high, a_mul, a_shift, b_mul, b_shift, y_mul, y_shift;
    int sign;
} ek_fixed_point_sum_s8_t;

typedef struct {
    ek_vmul_t a, b, y;
} ek_law_scales_t;

EK_KERNEL ek_law_scales_t ek_law_scales(const ek_fixed_point_sum_s8_t *p) {
    return (ek_law_scales_t){ek_vmul(p->a_mul, p->a_shift), ek_vmul(p->b_mul, p->b_shift),
                             ek_vmul(p->y_mul, p->y_shift)};
}
EK_KERNEL ek_vb ek_vb_law(ek_vb u, ek_vb v, const ek_fixed_point_sum_s8_t *p,
                          const ek_law_scales_t *scale) {
    ek_vi a[4], b[4];
    ek_vb_widen(u, a), ek_vb_widen(v, b);
    for (int i = 0; i < 4; i++) {
        const ek_vi ra = ek_vi_multiply((a[i] - p->a_zero) * (1 << 20), &scale->a);
        const ek_vi rb = ek_vi_multiply((b[i] - p->b_zero) * (1 << 20), &scale->b);
        a[i] = ek_vi_multiply(ra + rb * p->sign, &scale->y) + p->y_zero;
    }
    return ek_vb_narrow(a);
}
EK_ROWS_S8(ek_law_s8_simd, ek_fixed_point_sum_s8_t, const ek_law_scales_t scales = ek_law_scales(p),
           ek_vb_law(u, v, p, &scales))

typedef struct {
    ek_broadcast_t nd;
    int repeat; /* rows of b that are one of nd */
    int low, high;
} ek_extremum_s8_t;

EK_ROWS_S8(ek_maximum_s8_simd, ek_extremum_s8_t, , ek_vb_max(u, v))
EK_ROWS_S8(ek_minimum_s8_simd, ek_extremum_s8_t, , ek_vb_min(u, v))

/* As ek_fixed_point_product_t. */
typedef struct {
    ek_broadcast_t nd;
    int repeat; /* rows of b that are one of nd */
    int32_t a_zero, b_zero, y_zero, low, high, mul, shift;
} ek_product_s8_t;

EK_KERNEL ek_vb ek_vb_product(ek_vb u, ek_vb v, const ek_product_s8_t *p, const ek_vmul_t *scale) {
    ek_vi a[4], b[4];
    ek_vb_widen(u, a), ek_vb_widen(v, b);
    for (int i = 0; i < 4; i++) {
        const ek_vi product = (a[i] - p->a_zero) * (b[i] - p->b_zero);
        a[i] = ek_vi_multiply(product, scale) + p->y_zero;
    }
    return ek_vb_narrow(a);
}
EK_ROWS_S8(ek_mul_s8_simd, ek_product_s8_t, const ek_vmul_t scale = ek_vmul(p->mul, p->shift),
           ek_vb_product(u, v, p, &scale))

#endif
