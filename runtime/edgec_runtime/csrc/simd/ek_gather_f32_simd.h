/* Transposes of floats (ek_gather_t) by squares of a vector's lanes in each direction, and every
 * second float. */
#ifndef EK_GATHER_F32_SIMD_H
#define EK_GATHER_F32_SIMD_H
#include "../ek_shape.h"
#include "ek_simd.h"

/* y[r * ys + o] = x[o * xs + r] for r < rows, which are at least the lanes of a vector, and for the
 * o of a share, as many or none. The last squares overlap those before them. */
EK_SHARED void ek_gather_f32_turn(const float *x, float *y, ptrdiff_t xs, ptrdiff_t ys, int rows,
                                  ek_share_t columns) {
    enum { AT_ONCE = 1024 }; /* columns whose lines of x stay in the cache for all rows */
    EK_NO_UNROLL for (int from = columns.from; from < columns.to; from += AT_ONCE) {
        const int to = EK_MIN(from + AT_ONCE, columns.to);
        EK_NO_UNROLL for (int next = 0; next < rows; next += EK_VL) {
            const int r = EK_MIN(next, rows - EK_VL);
            EK_NO_UNROLL for (int column = from; column < to; column += EK_VL) {
                const int o = EK_MIN(column, to - EK_VL);
                ek_vf v[EK_VL];
                EK_UNROLL for (int i = 0; i < EK_VL; i++) v[i] = ek_vf_load(x + (o + i) * xs + r);
                ek_vf_turn(v);
                EK_UNROLL for (int i = 0; i < EK_VL; i++) ek_vf_store(y + (r + i) * ys + o, v[i]);
            }
        }
    }
}

/* A transpose (ek_gather_across) of at least a vector's lanes in both directions. Threads share the
 * elements of a row of y. */
EK_SHARED void ek_gather_f32_simd(const float *x, float *y, const ek_gather_t *p, int part,
                                  int parts) {
    const int d = ek_gather_across(p);
    const ek_share_t squares = ek_share(p->dim[5] / EK_VL, 1, part, parts);
    const ek_share_t columns = {squares.from * EK_VL,
                                part + 1 < parts ? squares.to * EK_VL : p->dim[5]};
    int dim[6], out[6] = {0, 0, 0, 0, 0, 1};
    for (int i = 4; i >= 0; i--) out[i] = out[i + 1] * p->dim[i + 1];
    for (int i = 0; i < 6; i++) dim[i] = i == d ? 1 : p->dim[i];
    EK_FOR_ND(dim, i, j, k, l, m)
    ek_gather_f32_turn(x + EK_AT_ND(p->stride, i, j, k, l, m), y + EK_AT_ND(out, i, j, k, l, m),
                       p->stride[5], out[d], p->dim[d], columns);
}

/* y[o] = x[2 * o] for o < n; nothing beyond the last of these is read. */
EK_SHARED void ek_gather_evens_f32_simd(const float *x, float *y, int n, int part, int parts) {
    const ek_share_t some = ek_share(n, EK_VL, part, parts);
    int o = some.from;
    EK_NO_UNROLL for (; o + EK_VL < some.to; o += EK_VL) {
        const ek_vf low = ek_vf_load(x + 2 * (ptrdiff_t)o);
        ek_vf_store(y + o, ek_vf_evens(low, ek_vf_load(x + 2 * (ptrdiff_t)o + EK_VL)));
    }
    EK_NO_UNROLL for (; o < some.to; o++) y[o] = x[2 * (ptrdiff_t)o];
}

#endif
