/* Comparisons, logic, and the choice between two values; a bool is a byte of 0 or 1. */
#ifndef EK_COMPARE_H
#define EK_COMPARE_H
#include "ek_binary.h"

#define EK_BINARY_BOOL(NAME, T, W, EXPR) EK_BINARY(NAME, T, uint8_t, EXPR)
EK_BINARY(ek_equal_f32, float, uint8_t, u == v)
EK_OF_INTEGERS(ek_equal, EK_BINARY_BOOL, u == v)
EK_BINARY(ek_not_equal_f32, float, uint8_t, u != v)
EK_OF_INTEGERS(ek_not_equal, EK_BINARY_BOOL, u != v)
EK_BINARY(ek_less_f32, float, uint8_t, u < v)
EK_OF_INTEGERS(ek_less, EK_BINARY_BOOL, u < v)
EK_BINARY(ek_less_equal_f32, float, uint8_t, u <= v)
EK_OF_INTEGERS(ek_less_equal, EK_BINARY_BOOL, u <= v)
EK_BINARY(ek_greater_f32, float, uint8_t, u > v)
EK_OF_INTEGERS(ek_greater, EK_BINARY_BOOL, u > v)
EK_BINARY(ek_greater_equal_f32, float, uint8_t, u >= v)
EK_OF_INTEGERS(ek_greater_equal, EK_BINARY_BOOL, u >= v)

/* int8 with scales: in fixed point with 256 steps to 1. */
typedef struct {
    int32_t a_zero, b_zero, a_mul, a_shift, b_mul, b_shift;
} ek_compare_t;

EK_KERNEL int32_t ek_compare_steps(int8_t x, int32_t zero, int32_t mul, int32_t shift) {
    return ek_multiply((x - zero) * (1 << 8), mul, shift);
}
#define EK_COMPARE_S8(NAME, OPERATOR)                                                           \
    EK_KERNEL void NAME(const int8_t *a, const int8_t *b, uint8_t *y, const ek_broadcast_t *nd, \
                        const ek_compare_t *q) {                                                \
        EK_BINARY_BODY(int8_t, uint8_t,                                                         \
                       ek_compare_steps(u, q->a_zero, q->a_mul, q->a_shift)                     \
                           OPERATOR ek_compare_steps(v, q->b_zero, q->b_mul, q->b_shift))       \
    }
EK_COMPARE_S8(ek_equal_s8, ==)
EK_COMPARE_S8(ek_not_equal_s8, !=)
EK_COMPARE_S8(ek_less_s8, <)
EK_COMPARE_S8(ek_less_equal_s8, <=)
EK_COMPARE_S8(ek_greater_s8, >)
EK_COMPARE_S8(ek_greater_equal_s8, >=)

EK_BINARY(ek_logical_and_u8, uint8_t, uint8_t, u &&v)
EK_BINARY(ek_logical_or_u8, uint8_t, uint8_t, u || v)
EK_BINARY(ek_logical_xor_u8, uint8_t, uint8_t, !u != !v)

EK_KERNEL void ek_logical_not_u8(const uint8_t *x, uint8_t *y, int n) {
    for (int i = 0; i < n; i++) y[i] = !x[i];
}

/* As ek_broadcast_t, with the strides of the condition. */
typedef struct {
    int dim[6], c[6], a[6], b[6];
} ek_where_t;

#define EK_WHERE(NAME, T)                                                                       \
    EK_KERNEL void NAME(const uint8_t *c, const T *a, const T *b, T *y, const ek_where_t *nd) { \
        EK_FOR_ND(nd->dim, i, j, k, l, m) {                                                     \
            const uint8_t *pc = c + EK_AT_ND(nd->c, i, j, k, l, m);                             \
            const T *pa = a + EK_AT_ND(nd->a, i, j, k, l, m),                                   \
                    *pb = b + EK_AT_ND(nd->b, i, j, k, l, m);                                   \
            for (int o = 0; o < nd->dim[5]; o++) {                                              \
                const T u = pa[(ptrdiff_t)o * nd->a[5]], v = pb[(ptrdiff_t)o * nd->b[5]];       \
                *y++ = pc[(ptrdiff_t)o * nd->c[5]] ? u : v;                                     \
            }                                                                                   \
        }                                                                                       \
    }
#define EK_WHERE_INT(NAME, T, W, UNUSED) EK_WHERE(NAME, T)
EK_WHERE(ek_where_f32, float)
EK_WHERE(ek_where_s8, int8_t)
EK_OF_INTEGERS(ek_where, EK_WHERE_INT, )

#endif
