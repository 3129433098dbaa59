/* Borders around tensors of up to six dimensions. */
#ifndef EK_PAD_H
#define EK_PAD_H
#include "ek_base.h"

/* The border's value; the inside's dimensions, the output's strides, where the inside begins;
 * `size` elements in all. */
typedef struct {
    double value;
    int size, dim[6], stride[6], offset;
} ek_pad_t;

#define EK_PAD(NAME, T)                                                  \
    EK_KERNEL void NAME(const T *x, T *y, const ek_pad_t *p) {           \
        for (int i = 0; i < p->size; i++) y[i] = (T)p->value;            \
        EK_FOR_ND(p->dim, i, j, k, l, m) {                               \
            T *row = y + p->offset + EK_AT_ND(p->stride, i, j, k, l, m); \
            memcpy(row, x, (size_t)p->dim[5] * sizeof(T));               \
            x += p->dim[5];                                              \
        }                                                                \
    }
EK_PAD(ek_pad_f32, float)
#if defined(EK_ELEMENT_F16)
EK_PAD(ek_pad_f16, ek_half)
#endif
#define EK_PAD_INT(NAME, T, W, UNUSED) EK_PAD(NAME, T)
EK_PAD(ek_pad_s8, int8_t)
EK_OF_INTEGERS(ek_pad, EK_PAD_INT, )

enum { EK_PAD_REFLECT, EK_PAD_SYMMETRIC, EK_PAD_EDGE, EK_PAD_WRAP };

typedef struct {
    int x_dim[6], dim[6], before[6];
    int mode; /* one of EK_PAD_* */
} ek_pad_fold_t;

/* The element of 0..n-1 that lies at place i of the endless line that a mode makes of them. */
EK_KERNEL int ek_fold(int i, int n, int mode) {
    if (mode == EK_PAD_EDGE || n == 1) return EK_CLAMP(i, 0, n - 1);
    int period = mode == EK_PAD_WRAP ? n : mode == EK_PAD_REFLECT ? 2 * (n - 1) : 2 * n;
    i %= period;
    if (i < 0) i += period;
    return i < n ? i : period - i - (mode == EK_PAD_SYMMETRIC);
}

#define EK_AT_FOLD(d, at) (row * p->x_dim[d] + ek_fold((at) - p->before[d], p->x_dim[d], p->mode))
#define EK_PAD_FOLD(NAME, T)                                                \
    EK_KERNEL void NAME(const T *x, T *y, const ek_pad_fold_t *p) {         \
        EK_FOR_ND(p->dim, i, j, k, l, m) {                                  \
            ptrdiff_t row = 0;                                              \
            row = EK_AT_FOLD(0, i), row = EK_AT_FOLD(1, j);                 \
            row = EK_AT_FOLD(2, k), row = EK_AT_FOLD(3, l);                 \
            row = EK_AT_FOLD(4, m);                                         \
            for (int o = 0; o < p->dim[5]; o++) *y++ = x[EK_AT_FOLD(5, o)]; \
        }                                                                   \
    }
EK_PAD_FOLD(ek_pad_fold_f32, float)
#if defined(EK_ELEMENT_F16)
EK_PAD_FOLD(ek_pad_fold_f16, ek_half)
#endif
#define EK_PAD_FOLD_INT(NAME, T, W, UNUSED) EK_PAD_FOLD(NAME, T)
EK_PAD_FOLD(ek_pad_fold_s8, int8_t)
EK_OF_INTEGERS(ek_pad_fold, EK_PAD_FOLD_INT, )

#endif
