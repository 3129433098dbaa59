/* Single elements picked and placed by index; an index that lies outside is clamped. */
#ifndef EK_SCATTER_H
#define EK_SCATTER_H
#include "ek_take.h"

/* The indices' dimensions; the strides of the picked tensor along them, 0 along the axis that the
 * indices run through. */
typedef struct {
    int dim[6], stride[6], size, step, bytes, total;
} ek_elements_t;

#define EK_GATHER_ELEMENTS(NAME, I)                                                       \
    EK_KERNEL void NAME(const void *x, const I *index, void *y, const ek_elements_t *p) { \
        char *to = y;                                                                     \
        const size_t bytes = (size_t)p->bytes;                                            \
        EK_FOR_ND(p->dim, i, j, k, l, m) {                                                \
            const ptrdiff_t row = EK_AT_ND(p->stride, i, j, k, l, m);                     \
            for (int o = 0; o < p->dim[5]; o++, to += bytes) {                            \
                const ptrdiff_t at = row + (ptrdiff_t)o * p->stride[5];                   \
                const ptrdiff_t by = (ptrdiff_t)ek_inside(*index++, p->size) * p->step;   \
                memcpy(to, (const char *)x + (size_t)(at + by) * bytes, bytes);           \
            }                                                                             \
        }                                                                                 \
    }
EK_GATHER_ELEMENTS(ek_gather_elements_s32, int32_t)
EK_GATHER_ELEMENTS(ek_gather_elements_s64, int64_t)

/* y = x, then y[index] = EXPR of what is there (a) and the update (u). */
#define EK_SCATTER_ELEMENTS(NAME, T, W, EXPR)                                       \
    EK_KERNEL void NAME(const T *x, const int64_t *index, const T *update, T *y,    \
                        const ek_elements_t *p) {                                   \
        if (x != y) memcpy(y, x, (size_t)p->total * sizeof(T));                     \
        EK_FOR_ND(p->dim, i, j, k, l, m) {                                          \
            const ptrdiff_t row = EK_AT_ND(p->stride, i, j, k, l, m);               \
            for (int o = 0; o < p->dim[5]; o++) {                                   \
                const ptrdiff_t at = row + (ptrdiff_t)o * p->stride[5];             \
                T *to = y + at + (ptrdiff_t)ek_inside(*index++, p->size) * p->step; \
                const T a = *to, u = *update++;                                     \
                (void)a;                                                            \
                *to = (T)(EXPR);                                                    \
            }                                                                       \
        }                                                                           \
    }
EK_SCATTER_ELEMENTS(ek_scatter_elements_none_f32, float, float, u)
EK_SCATTER_ELEMENTS(ek_scatter_elements_add_f32, float, float, a + u)
EK_SCATTER_ELEMENTS(ek_scatter_elements_mul_f32, float, float, a *u)
EK_SCATTER_ELEMENTS(ek_scatter_elements_max_f32, float, float, EK_MAXIMUM(a, u))
EK_SCATTER_ELEMENTS(ek_scatter_elements_min_f32, float, float, EK_MINIMUM(a, u))
EK_OF_INTEGERS(ek_scatter_elements_none, EK_SCATTER_ELEMENTS, u)
EK_OF_INTEGERS(ek_scatter_elements_max, EK_SCATTER_ELEMENTS, EK_MAX(a, u))
EK_OF_INTEGERS(ek_scatter_elements_min, EK_SCATTER_ELEMENTS, EK_MIN(a, u))
#define EK_SCATTER_ELEMENTS_WRAP(NAME, T, W, OP) EK_SCATTER_ELEMENTS(NAME, T, W, (W)a OP(W) u)
EK_OF_INTEGERS(ek_scatter_elements_add, EK_SCATTER_ELEMENTS_WRAP, +)
EK_OF_INTEGERS(ek_scatter_elements_mul, EK_SCATTER_ELEMENTS_WRAP, *)

/* n rows of `row` elements, each placed at k coordinates; `pitch` of a coordinate is in elements.
 */
typedef struct {
    int n, k, dim[6], pitch[6], row, total;
} ek_scatter_nd_t;

#define EK_SCATTER_ND(NAME, T, W, EXPR)                                          \
    EK_KERNEL void NAME(const T *x, const int64_t *index, const T *update, T *y, \
                        const ek_scatter_nd_t *p) {                              \
        if (x != y) memcpy(y, x, (size_t)p->total * sizeof(T));                  \
        for (int i = 0; i < p->n; i++) {                                         \
            T *to = y;                                                           \
            for (int j = 0; j < p->k; j++)                                       \
                to += (ptrdiff_t)ek_inside(*index++, p->dim[j]) * p->pitch[j];   \
            for (int r = 0; r < p->row; r++) {                                   \
                const T a = to[r], u = *update++;                                \
                (void)a;                                                         \
                to[r] = (T)(EXPR);                                               \
            }                                                                    \
        }                                                                        \
    }
EK_SCATTER_ND(ek_scatter_nd_none_f32, float, float, u)
EK_SCATTER_ND(ek_scatter_nd_add_f32, float, float, a + u)
EK_SCATTER_ND(ek_scatter_nd_mul_f32, float, float, a *u)
EK_SCATTER_ND(ek_scatter_nd_max_f32, float, float, EK_MAXIMUM(a, u))
EK_SCATTER_ND(ek_scatter_nd_min_f32, float, float, EK_MINIMUM(a, u))
EK_OF_INTEGERS(ek_scatter_nd_none, EK_SCATTER_ND, u)
EK_OF_INTEGERS(ek_scatter_nd_max, EK_SCATTER_ND, EK_MAX(a, u))
EK_OF_INTEGERS(ek_scatter_nd_min, EK_SCATTER_ND, EK_MIN(a, u))
#define EK_SCATTER_ND_WRAP(NAME, T, W, OP) EK_SCATTER_ND(NAME, T, W, (W)a OP(W) u)
EK_OF_INTEGERS(ek_scatter_nd_add, EK_SCATTER_ND_WRAP, +)
EK_OF_INTEGERS(ek_scatter_nd_mul, EK_SCATTER_ND_WRAP, *)

#endif
