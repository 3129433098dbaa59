/* Attention of floats: softmax(scale * Q K' + bias) V, some rows of it at a time, so that the
 * scores stay in the first cache and are nowhere whole. Heads and windows are strides of the
 * operands. */
#ifndef EK_ATTENTION_F32_SIMD_H
#define EK_ATTENTION_F32_SIMD_H
#include "ek_batch_matmul_f32_simd.h"
#include "ek_softmax_f32_simd.h"

/* Floats between matrices along the leading dimensions, and between rows. Elements of a row are
 * adjacent. */
typedef struct {
    int lead[4], row;
} ek_attention_strides_f32_t;

typedef struct {
    int dim[4];             /* leading dimensions */
    int m, n, depth, width; /* Q[m,depth], K[n,depth], V[n,width]; of the result [m,width] */
    int pitch;              /* between rows of scores and of the bias: whole panels */
    int block;              /* rows of scores at a time: whole tiles */
    float scale, beta;      /* of the scores, and of what is added up */
    ek_attention_strides_f32_t q, k, v, y, bias;
} ek_attention_f32_t;

EK_KERNEL ptrdiff_t ek_attention_at_f32(const ek_attention_f32_t *p,
                                        const ek_attention_strides_f32_t *s, int matrix) {
    ptrdiff_t at = 0;
    EK_ROLLED for (int d = 3; d >= 0; matrix /= p->dim[d], d--) at +=
        (ptrdiff_t)(matrix % p->dim[d]) * s->lead[d];
    return at;
}

/* The panels of K', times the scale, and behind them those of V. */
EK_SHARED void ek_attention_pack_f32(const float *k, const float *v, float *to,
                                     const ek_attention_f32_t *p) {
    const ek_batch_matmul_t turned = {.n = p->n, .k = p->depth, .br = 1, .bc = p->k.row},
                            plain = {.n = p->width, .k = p->n, .br = p->v.row, .bc = 1};
    EK_ROLLED for (int j = 0; j < p->n; j += EK_PANEL_F32, to += p->depth * EK_PANEL_F32) {
        ek_matmul_panel_f32(k, to, &turned, j);
        if (p->scale != 1) ek_scale_row_f32(to, p->depth * EK_PANEL_F32, p->scale);
    }
    EK_ROLLED for (int j = 0; j < p->width; j += EK_PANEL_F32, to += p->n * EK_PANEL_F32)
        ek_matmul_panel_f32(v, to, &plain, j);
}

/* Rows of the scores, `count` of them wanted: of whole tiles all are written. few: rows of Q of a
 * tile. */
EK_SHARED void ek_attention_scores_f32(const float *q, const float *panel, const float *bias,
                                       float *to, float *few, const ek_attention_f32_t *p,
                                       ek_tile_f32_fn *tile, int rows, int count) {
    static const float zeros[EK_PANEL_F32];
    const int whole = count / rows * rows;
    ek_tile_f32_t t = {.runs_y = 1,
                       .runs_x = 1,
                       .run = p->depth,
                       .yx = p->pitch,
                       .todo = bias ? EK_DO_ADD : 0,
                       .bias = zeros,
                       .low = -INFINITY,
                       .high = INFINITY};
    const ek_batch_matmul_t rest = {.k = p->depth, .ar = p->q.row, .ac = 1};
    if (whole < count)
        ek_matmul_rows_f32(q + (ptrdiff_t)whole * p->q.row, few, &rest, count - whole, rows);
    EK_ROLLED for (int j = 0; j < p->n; j += EK_PANEL_F32, panel += p->depth * EK_PANEL_F32) {
        const ptrdiff_t at = (ptrdiff_t)whole * p->pitch + j;
        t.sx = p->q.row;
        tile(q, panel, bias ? bias + j : bias, to + j, &t, 0, whole, EK_PANEL_F32);
        t.sx = p->depth;
        if (whole < count)
            tile(few, panel, bias ? bias + at : bias, to + at, &t, 0, rows, EK_PANEL_F32);
    }
}

/* bias: rows of `pitch` floats, of whole tiles, -infinity behind the n-th; or null. memory: the
 * panels of K and V, `block` rows of scores and a tile of rows of Q, of this part alone. sums: the
 * tile for what has no bias. Threads share the blocks of rows. */
EK_SHARED void ek_attention_f32_simd(const float *q, const float *k, const float *v,
                                     const float *bias, float *y, float *memory,
                                     const ek_attention_f32_t *p, ek_tile_f32_fn *tile,
                                     ek_tile_f32_fn *sums, int rows, int part, int parts) {
    static const float zeros[EK_PANEL_F32];
    const int blocks = (p->m + p->block - 1) / p->block,
              count = p->dim[0] * p->dim[1] * p->dim[2] * p->dim[3];
    const int panels = (p->n + EK_PANEL_F32 - 1) / EK_PANEL_F32,
              wide = (p->width + EK_PANEL_F32 - 1) / EK_PANEL_F32;
    const ek_share_t share = ek_share(count * blocks, 1, part, parts);
    const ek_tile_f32_t t = {.runs_y = 1,
                             .runs_x = 1,
                             .run = p->n,
                             .sx = p->pitch,
                             .yx = p->y.row,
                             .bias = zeros,
                             .low = -INFINITY,
                             .high = INFINITY};
    float *values = memory + (ptrdiff_t)panels * p->depth * EK_PANEL_F32;
    float *scores = values + (ptrdiff_t)wide * p->n * EK_PANEL_F32;
    float *few = scores + (ptrdiff_t)p->block * p->pitch;
    int packed = -1;
    EK_ROLLED for (int s = share.from; s < share.to; s++) {
        const int matrix = s / blocks, from = s % blocks * p->block;
        const int here = EK_MIN(p->block, p->m - from);
        if (matrix != packed)
            ek_attention_pack_f32(k + ek_attention_at_f32(p, &p->k, matrix),
                                  v + ek_attention_at_f32(p, &p->v, matrix), memory, p);
        packed = matrix;
        const float *added =
            bias ? bias + ek_attention_at_f32(p, &p->bias, matrix) + (ptrdiff_t)from * p->pitch
                 : bias;
        const ptrdiff_t first = ek_attention_at_f32(p, &p->q, matrix) + (ptrdiff_t)from * p->q.row;
        ek_attention_scores_f32(q + first, memory, added, scores, few, p, bias ? tile : sums, rows,
                                here);
        EK_ROLLED for (int r = 0; r < here; r++) {
            float *row = scores + (ptrdiff_t)r * p->pitch;
            if (!bias) EK_ROLLED for (int i = p->n; i < p->pitch; i++) row[i] = -INFINITY;
            ek_softmax_long_f32(row, row, p->pitch, p->beta);
        }
        float *to = y + ek_attention_at_f32(p, &p->y, matrix) + (ptrdiff_t)from * p->y.row;
        EK_ROLLED for (int j = 0; j < wide; j++)
            sums(scores, values + (ptrdiff_t)j * p->n * EK_PANEL_F32, NULL, to + j * EK_PANEL_F32,
                 &t, 0, here, EK_MIN(EK_PANEL_F32, p->width - j * EK_PANEL_F32));
    }
}

#endif
