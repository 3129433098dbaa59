/* Ops that only move elements. */
#ifndef EK_SHAPE_H
#define EK_SHAPE_H
#include "ek_base.h"

EK_KERNEL void ek_copy(const void *x, void *y, size_t bytes) { memcpy(y, x, bytes); }

/* y[i] = x[sum of stride * index]: transposes, slices, broadcasts. */
typedef struct {
    int dim[6], stride[6];
} ek_gather_t;

#define EK_GATHER(NAME, T)                                                                   \
    EK_KERNEL void NAME(const T *x, T *y, const ek_gather_t *p) {                            \
        EK_FOR_ND(p->dim, i, j, k, l, m) {                                                   \
            const T *row = x + EK_AT_ND(p->stride, i, j, k, l, m);                           \
            if (p->stride[5] == 1)                                                           \
                memcpy(y, row, (size_t)p->dim[5] * sizeof(T));                               \
            else                                                                             \
                for (int o = 0; o < p->dim[5]; o++) y[o] = row[(ptrdiff_t)o * p->stride[5]]; \
            y += p->dim[5];                                                                  \
        }                                                                                    \
    }
EK_GATHER(ek_gather_f32, float)
EK_GATHER(ek_gather_f16, uint16_t)
EK_GATHER(ek_gather_f64, double)
EK_GATHER(ek_gather_s8, int8_t)
EK_GATHER(ek_gather_u8, uint8_t)
EK_GATHER(ek_gather_s16, int16_t)
EK_GATHER(ek_gather_u16, uint16_t)
EK_GATHER(ek_gather_s32, int32_t)
EK_GATHER(ek_gather_u32, uint32_t)
EK_GATHER(ek_gather_s64, int64_t)
EK_GATHER(ek_gather_u64, uint64_t)

#endif
