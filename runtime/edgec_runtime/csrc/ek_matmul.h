/* Matrix products. */
#ifndef EK_MATMUL_H
#define EK_MATMUL_H
#include "ek_binary.h"

/* y[rows,o] = x[rows,k] * w[o,k] transposed + bias[o]. Several partial sums: shorter chains, and
 * closer to the exact sum. */
#define EK_FULLY_CONNECTED(NAME, T)                                                          \
    EK_KERNEL void NAME(const T *x, const T *w, const T *bias, T *y, int rows, int k, int o, \
                        const ek_activation_t *act) {                                        \
        for (int r = 0; r < rows; r++, x += k)                                               \
            for (int j = 0; j < o; j++) {                                                    \
                const T *row = w + (ptrdiff_t)j * k;                                         \
                float sums[8] = {0};                                                         \
                for (int i = 0; i < k; i++) sums[i % 8] += x[i] * row[i];                    \
                float sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) +                    \
                            ((sums[4] + sums[5]) + (sums[6] + sums[7]));                     \
                sum += bias[j];                                                              \
                *y++ = (T)EK_CLAMP(sum, act->low, act->high);                                \
            }                                                                                \
    }
EK_FULLY_CONNECTED(ek_fully_connected_f32, float)
#if defined(EK_ELEMENT_F16)
EK_FULLY_CONNECTED(ek_fully_connected_f16, ek_half)
#endif

/* What one unit of the sum is worth in units of the output, for each output: one rounding, ties
 * away from zero. */
typedef struct {
    int32_t x_zero, w_zero, y_zero, low, high;
    const double *scale;
} ek_double_requant_t;

EK_KERNEL void ek_fully_connected_s8(const int8_t *x, const int8_t *w, const int32_t *bias,
                                     int8_t *y, int rows, int k, int o,
                                     const ek_double_requant_t *q) {
    for (int r = 0; r < rows; r++, x += k)
        for (int j = 0; j < o; j++) {
            const int8_t *row = w + (ptrdiff_t)j * k;
            int32_t sum = 0;
            for (int i = 0; i < k; i++) sum += (x[i] - q->x_zero) * (row[i] - q->w_zero);
            const double v = round((sum + bias[j]) * q->scale[j]) + q->y_zero;
            *y++ = (int8_t)EK_CLAMP(v, q->low, q->high);
        }
}

EK_KERNEL void ek_fully_connected_even_s8(const int8_t *x, const int8_t *w, const int32_t *bias,
                                          int8_t *y, int rows, int k, int o,
                                          const ek_float_requant_t *q) {
    for (int r = 0; r < rows; r++, x += k)
        for (int j = 0; j < o; j++) {
            const int8_t *row = w + (ptrdiff_t)j * k;
            int32_t sum = 0;
            for (int i = 0; i < k; i++) sum += (x[i] - q->x_zero) * (row[i] - q->w_zero);
            *y++ = ek_even(sum + bias[j], q->scale[j], q->y_zero, q->low, q->high);
        }
}

typedef struct {
    int dim[4], a[4], b[4]; /* leading dimensions and the elements between matrices along them */
    int m, n, k;            /* y[m,n] = a[m,k] * b[k,n] */
    int ar, ac, br, bc;     /* elements between rows and between columns of both */
} ek_batch_matmul_t;

/* A_ZERO and B_ZERO subtract a zero point, where there is one; RESULT is that of the sum `acc[o]`.
 */
#define EK_BATCH_MATMUL_BODY(T, W, A_ZERO, B_ZERO, RESULT)                                     \
    {                                                                                          \
        const int count = p->dim[0] * p->dim[1] * p->dim[2] * p->dim[3];                       \
        for (int g = 0; g < count; g++) {                                                      \
            const T *pa = a, *pb = b;                                                          \
            for (int d = 3, rest = g; d >= 0; rest /= p->dim[d], d--) {                        \
                pa += (ptrdiff_t)(rest % p->dim[d]) * p->a[d];                                 \
                pb += (ptrdiff_t)(rest % p->dim[d]) * p->b[d];                                 \
            }                                                                                  \
            for (int i = 0; i < p->m; i++, y += p->n)                                          \
                for (int j = 0; j < p->n; j += EK_LANES) {                                     \
                    const int lanes = EK_MIN(EK_LANES, p->n - j);                              \
                    W acc[EK_LANES] = {0};                                                     \
                    for (int l = 0; l < p->k; l++) {                                           \
                        const W v = (W)pa[(ptrdiff_t)i * p->ar + (ptrdiff_t)l * p->ac] A_ZERO; \
                        const T *row = pb + (ptrdiff_t)l * p->br + (ptrdiff_t)j * p->bc;       \
                        for (int o = 0; o < lanes; o++)                                        \
                            acc[o] += v * ((W)row[(ptrdiff_t)o * p->bc] B_ZERO);               \
                    }                                                                          \
                    for (int o = 0; o < lanes; o++) y[j + o] = (T)(RESULT);                    \
                }                                                                              \
        }                                                                                      \
    }
#define EK_BATCH_MATMUL(NAME, T, W, UNUSED)                                         \
    EK_KERNEL void NAME(const T *a, const T *b, T *y, const ek_batch_matmul_t *p) { \
        EK_BATCH_MATMUL_BODY(T, W, , , acc[o])                                      \
    }
EK_BATCH_MATMUL(ek_batch_matmul_f32, float, float, )
EK_OF_INTEGERS(ek_batch_matmul, EK_BATCH_MATMUL, )
#if defined(EK_ELEMENT_F16)
EK_BATCH_MATMUL(ek_batch_matmul_f16, ek_half, float, )
#endif

EK_KERNEL int8_t ek_batch_matmul_one(int32_t sum, const ek_fixed_point_product_t *q) {
    const int32_t v = ek_multiply(sum, q->mul, q->shift) + q->y_zero;
    return (int8_t)EK_CLAMP(v, q->low, q->high);
}
EK_KERNEL void ek_batch_matmul_s8(const int8_t *a, const int8_t *b, int8_t *y,
                                  const ek_batch_matmul_t *p, const ek_fixed_point_product_t *q) {
    EK_BATCH_MATMUL_BODY(int8_t, int32_t, -q->a_zero, -q->b_zero, ek_batch_matmul_one(acc[o], q))
}

#endif
