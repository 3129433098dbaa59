/* Float convolutions of 1x1 whose weights are mostly zeros: only the others are multiplied.
 *
 * The pixels of a block are turned so that each channel's lie side by side; a weight then takes
 * some vectors of them at once. Weights: of each result channel the ones that are not 0, and where
 * in a turned block what they multiply is. */
#ifndef EK_SPARSE_F32_SIMD_H
#define EK_SPARSE_F32_SIMD_H
#include "ek_after_f32_simd.h"
#include "ek_tile_f32_simd.h"

enum {
    EK_SPARSE_VECTORS_F32 = 8,
    EK_SPARSE_PIXELS_F32 = EK_SPARSE_VECTORS_F32 * EK_VL
}; /* of a block */

typedef struct {
    int pixels, ic, oc;
    int yx;   /* floats between pixels of the result */
    int todo; /* EK_DO_* */
    float low, high, low_sum, high_sum;
    ek_after_f32_fn *after; /* what follows all that, or null */
    ek_coefficients_t coef;
} ek_sparse_f32_t;

/* z [ic][EK_SPARSE_PIXELS_F32]: pixels [from, from + count) of x; the last one stands for those
 * that are missing. */
EK_KERNEL void ek_sparse_f32_turn(const float *x, float *z, int ic, int from, int count) {
    EK_ROLLED for (int r = 0; r < EK_SPARSE_PIXELS_F32; r += EK_VL) {
        const float *rows[EK_VL];
        ek_vf v[EK_VL];
        EK_UNROLL for (int i = 0; i < EK_VL; i++) rows[i] =
            x + (ptrdiff_t)(from + EK_MIN(r + i, count - 1)) * ic;
        int k = 0;
        EK_ROLLED for (; k + EK_VL <= ic; k += EK_VL) {
            EK_UNROLL for (int i = 0; i < EK_VL; i++) v[i] = ek_vf_load(rows[i] + k);
            ek_vf_turn(v);
            EK_UNROLL for (int i = 0; i < EK_VL; i++)
                ek_vf_store(z + (k + i) * EK_SPARSE_PIXELS_F32 + r, v[i]);
        }
        EK_ROLLED for (; k < ic; k++) EK_UNROLL for (int i = 0; i < EK_VL; i++)
            z[k * EK_SPARSE_PIXELS_F32 + r + i] = rows[i][k];
    }
}

/* `cols` channels of the pixels of v, turned back, `rows` of them. */
EK_KERNEL void ek_sparse_f32_put(ek_vf *v, const float *added, float *y, const ek_sparse_f32_t *p,
                                 const ek_tile_f32_t *t, int o, int rows, int cols) {
    const ek_vmask all[2] = {ek_vmask_of(EK_VL), ek_vmask_of(0)};
    ek_vf_turn(v);
    if (rows == EK_VL && cols == EK_VL) {
        ek_vf acc[EK_VL][2];
        EK_UNROLL for (int i = 0; i < EK_VL; i++) acc[i][0] = v[i];
        if (p->todo) ek_tile_f32_finish(added, p->yx, t, o, acc, all, EK_VL, 1, 1);
        EK_UNROLL for (int i = 0; i < EK_VL; i++) ek_vf_store(y + (ptrdiff_t)i * p->yx, acc[i][0]);
        return;
    }
    float few[EK_VL][EK_VL], edge[EK_VL];
    EK_UNROLL for (int i = 0; i < EK_VL; i++) ek_vf_store(few[i], v[i]);
    EK_ROLLED for (int i = 0; i < rows; i++, y += p->yx) {
        ek_vf acc[1][2] = {{ek_vf_load(few[i])}};
        if (added) ek_row_f32(edge, added + (ptrdiff_t)i * p->yx, cols);
        if (p->todo) ek_tile_f32_finish(edge, 0, t, o, acc, all, 1, 1, 1);
        ek_vf_store_n(y, acc[0][0], cols);
    }
}

/* x [pixels,ic]; w: all weights; at: of each its channel's place in a turned block; ends [oc]:
 * where those of a result channel end; bias and slope padded; added as y or null; z: scratch of
 * this part alone. Threads share the blocks. */
EK_SHARED void ek_sparse_f32_simd(const float *x, const float *w, const int32_t *at,
                                  const int32_t *ends, const float *bias, const float *slope,
                                  const float *added, float *y, float *z, const ek_sparse_f32_t *p,
                                  int part, int parts) {
    const ek_tile_f32_t t = {.todo = p->todo,
                             .low = p->low,
                             .high = p->high,
                             .low_sum = p->low_sum,
                             .high_sum = p->high_sum,
                             .bias = bias,
                             .slope = slope};
    const ek_share_t share = ek_share(p->pixels, EK_SPARSE_PIXELS_F32, part, parts);
    EK_ROLLED for (int from = share.from; from < share.to; from += EK_SPARSE_PIXELS_F32) {
        const int count = EK_MIN(share.to - from, EK_SPARSE_PIXELS_F32);
        const ptrdiff_t first = (ptrdiff_t)from * p->yx;
        ek_sparse_f32_turn(x, z, p->ic, from, count);
        EK_ROLLED for (int o = 0, n = 0; o < p->oc; o += EK_VL) {
            const int cols = EK_MIN(EK_VL, p->oc - o);
            ek_vf sums[EK_SPARSE_VECTORS_F32][EK_VL];
            EK_ROLLED for (int j = 0; j < EK_VL; j++) {
                ek_vf acc[EK_SPARSE_VECTORS_F32];
                EK_UNROLL for (int v = 0; v < EK_SPARSE_VECTORS_F32; v++) acc[v] =
                    ek_vf_set(bias[o + j]);
                const int end = j < cols ? ends[o + j] : n;
                EK_ROLLED for (; n < end; n++) {
                    const float *zk = z + at[n];
                    const ek_vf weight = ek_vf_set(w[n]);
                    EK_UNROLL for (int v = 0; v < EK_SPARSE_VECTORS_F32; v++) acc[v] =
                        ek_vf_fma(ek_vf_load(zk + v * EK_VL), weight, acc[v]);
                }
                EK_UNROLL for (int v = 0; v < EK_SPARSE_VECTORS_F32; v++) sums[v][j] = acc[v];
            }
            EK_ROLLED for (int r = 0, v = 0; r < count; r += EK_VL, v++) {
                const ptrdiff_t to = first + (ptrdiff_t)r * p->yx + o;
                ek_sparse_f32_put(sums[v], added ? added + to : added, y + to, p, &t, o,
                                  EK_MIN(count - r, EK_VL), cols);
            }
        }
        if (p->after) ek_after_f32(p->after, y + first, p->yx, count, p->oc, &p->coef);
    }
}

#endif
