/* Elementwise functions of floats that follow each other, block by block: what lies between them
 * stays in the first cache, and is nowhere whole. */
#ifndef EK_CHAIN_F32_SIMD_H
#define EK_CHAIN_F32_SIMD_H
#include "ek_after_f32_simd.h"
#include "ek_chain.h"

/* y = a op b, clamped. */
typedef struct {
    int op;      /* one of EK_CHAIN_* */
    int a, b, y; /* b: less than 0 where it is k */
    float low, high;
    /* As many constants as a block has elements; bias: of a scale. */
    const float *k, *bias;     /* may be left out */
    ek_after_f32_fn *function; /* may be left out, or null */
    ek_coefficients_t coef;    /* may be left out */
} ek_chain_step_f32_t;

typedef struct {
    int n, block; /* elements of a tensor; of a block, which begins with the first channel of a
                     pixel */
    int steps;
    const ek_chain_step_f32_t *step[EK_CHAIN_STEPS];
} ek_chain_f32_t;

/* Two vectors a turn: an in-order core has something to do while it waits. Then one, if there is
 * one more. */
#define EK_CHAIN_LOOP_F32(EXPR)                                         \
    EK_NO_UNROLL for (; at + 2 * EK_VL <= n; at += 2 * EK_VL) {         \
        ek_vf y2[2];                                                    \
        EK_UNROLL for (int j = 0; j < 2; j++) {                         \
            const int i = at + j * EK_VL;                               \
            const ek_vf u = ek_vf_load(a + i), v = ek_vf_load(b + i);   \
            y2[j] = EXPR;                                               \
        }                                                               \
        ek_vf_store(y + at, y2[0]), ek_vf_store(y + at + EK_VL, y2[1]); \
    }                                                                   \
    if (at + EK_VL <= n) {                                              \
        const int i = at;                                               \
        const ek_vf u = ek_vf_load(a + i), v = ek_vf_load(b + i);       \
        ek_vf_store(y + i, EXPR), at += EK_VL;                          \
    }                                                                   \
    break
#define EK_CHAIN_CLAMPED_F32(v) ek_vf_min(ek_vf_max(v, low), high)

/* n elements; those behind the last whole vector in buffers. */
EK_SHARED void ek_chain_step_f32(const ek_chain_step_f32_t *s, const float *a, const float *b,
                                 const float *bias, float *y, int n) {
    int at = 0;
    const ek_vf low = ek_vf_set(s->low), high = ek_vf_set(s->high), zero = ek_vf_set(0);
    switch (s->op) {
    case EK_CHAIN_ADD:
        EK_CHAIN_LOOP_F32(EK_CHAIN_CLAMPED_F32(u + v));
    case EK_CHAIN_SUB:
        EK_CHAIN_LOOP_F32(EK_CHAIN_CLAMPED_F32(u - v));
    case EK_CHAIN_MUL:
        EK_CHAIN_LOOP_F32(EK_CHAIN_CLAMPED_F32(u * v));
    case EK_CHAIN_SCALE:
        EK_CHAIN_LOOP_F32(ek_vf_fma(u, v, ek_vf_load(bias + i)));
    case EK_CHAIN_PRELU:
        EK_CHAIN_LOOP_F32(ek_vf_select(ek_vf_less(u, zero), u * v, u));
    case EK_CHAIN_CLAMP:
        EK_CHAIN_LOOP_F32(EK_CHAIN_CLAMPED_F32(((void)v, u)));
    default:
        s->function(a, y, n, &s->coef, 0, 1);
        return;
    }
    if (at < n) {
        const int few = (n - at) * (int)sizeof(float);
        float u[EK_VL] = {0}, v[EK_VL] = {0}, w[EK_VL] = {0}, end[EK_VL];
        ek_copy_few(u, a + at, few), ek_copy_few(v, b + at, few), ek_copy_few(w, bias + at, few);
        ek_chain_step_f32(s, u, v, w, end, EK_VL);
        ek_copy_few(y + at, end, few);
    }
}

/* Inputs x0 to x3, outputs y0 and y1, of n elements each; those that no step names: any. Threads
 * share the blocks. */
EK_SHARED void ek_chain_f32_simd(const float *x0, const float *x1, const float *x2, const float *x3,
                                 float *y0, float *y1, const ek_chain_f32_t *p, int part,
                                 int parts) {
    float slots[EK_CHAIN_PLACES - EK_CHAIN_SLOT][EK_CHAIN_BLOCK] __attribute__((aligned(64)));
    const ek_share_t share = ek_share(p->n, p->block, part, parts);
    const float *const x[EK_CHAIN_Y] = {x0, x1, x2, x3};
    EK_NO_UNROLL for (int from = share.from; from < share.to; from += p->block) {
        float *const out[EK_CHAIN_PLACES - EK_CHAIN_Y] = {y0 + from, y1 + from, slots[0], slots[1],
                                                          slots[2]};
        EK_NO_UNROLL for (int i = 0; i < p->steps; i++) {
            const ek_chain_step_f32_t *s = p->step[i];
            const float *a = s->a < EK_CHAIN_Y ? x[s->a] + from : out[s->a - EK_CHAIN_Y];
            const float *b = s->b < 0            ? s->k
                             : s->b < EK_CHAIN_Y ? x[s->b] + from
                                                 : out[s->b - EK_CHAIN_Y];
            ek_chain_step_f32(s, a, b ? b : a, s->bias ? s->bias : a, out[s->y - EK_CHAIN_Y],
                              EK_MIN(p->block, share.to - from));
        }
    }
}

#endif
