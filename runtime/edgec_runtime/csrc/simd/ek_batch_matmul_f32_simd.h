/* Products of two float matrices that are both computed: panels of the second are packed in
 * scratch, as weights are. */
#ifndef EK_BATCH_MATMUL_F32_SIMD_H
#define EK_BATCH_MATMUL_F32_SIMD_H
#include "ek_matmul.h"
#include "ek_tile_f32_simd.h"

/* Rows [from, from + count) of a matrix of k columns, `rows` of them in scratch, those that are not
 * there 0. */
EK_SHARED void ek_matmul_rows_f32(const float *a, float *to, const ek_batch_matmul_t *p, int count,
                                  int rows) {
    EK_ROLLED for (int r = 0; r < rows; r++, to += p->k) {
        const float *from = a + (ptrdiff_t)r * p->ar;
        if (r >= count)
            memset(to, 0, (size_t)p->k * sizeof(float));
        else if (p->ac == 1)
            ek_row_f32(to, from, p->k);
        else
            EK_ROLLED for (int l = 0; l < p->k; l++) to[l] = from[(ptrdiff_t)l * p->ac];
    }
}

/* n columns of a matrix whose columns are contiguous, from b on: they become the rows of a vector
 * each. The rows of the panel are EK_PANEL_F32 floats apart. */
EK_SHARED void ek_matmul_turned_f32(const float *b, float *to, const ek_batch_matmul_t *p, int n) {
    EK_ROLLED for (int l = 0; l < p->k; l += EK_VL, to += EK_VL * EK_PANEL_F32) {
        const int depth = EK_MIN(EK_VL, p->k - l);
        ek_vf rows[EK_VL];
        EK_UNROLL for (int i = 0; i < EK_VL; i++) rows[i] =
            i < n ? ek_vf_load_n(b + (ptrdiff_t)i * p->bc + l, depth) : ek_vf_set(0);
        ek_vf_turn(rows);
        EK_UNROLL for (int r = 0; r < EK_VL; r++) if (r < depth)
            ek_vf_store(to + r * EK_PANEL_F32, rows[r]);
    }
}

/* Columns [j, j + EK_PANEL_F32) of a matrix of k rows; those that are not there are 0. */
EK_SHARED void ek_matmul_panel_f32(const float *b, float *to, const ek_batch_matmul_t *p, int j) {
    const float *from = b + (ptrdiff_t)j * p->bc;
    const int count = EK_MIN(EK_PANEL_F32, p->n - j), second = EK_MAX(count - EK_VL, 0);
    if (p->bc == 1) {
        EK_ROLLED for (int l = 0; l < p->k; l++, to += EK_PANEL_F32, from += p->br) {
            ek_vf_store(to, ek_vf_load_n(from, count));
            ek_vf_store(to + EK_VL, ek_vf_load_n(from + EK_VL, second));
        }
    } else if (p->br == 1) {
        ek_matmul_turned_f32(from, to, p, EK_MIN(count, EK_VL));
        ek_matmul_turned_f32(from + (ptrdiff_t)EK_VL * p->bc, to + EK_VL, p, second);
    } else {
        EK_ROLLED for (int l = 0; l < p->k; l++, to += EK_PANEL_F32, from += p->br)
            EK_ROLLED for (int i = 0; i < EK_PANEL_F32; i++) to[i] =
                i < count ? from[(ptrdiff_t)i * p->bc] : 0.0f;
    }
}

/* rows: of the tile. panel: (rows + EK_PANEL_F32) * k floats, of this part alone. Threads share the
 * panels. */
EK_SHARED void ek_batch_matmul_f32_simd(const float *a, const float *b, float *y, float *panel,
                                        const ek_batch_matmul_t *p, ek_tile_f32_fn *tile, int rows,
                                        int part, int parts) {
    static const float zeros[EK_PANEL_F32];
    float *few = panel + p->k * EK_PANEL_F32;
    const int panels = (p->n + EK_PANEL_F32 - 1) / EK_PANEL_F32,
              count = p->dim[0] * p->dim[1] * p->dim[2] * p->dim[3];
    const ek_share_t share = ek_share(count * panels, 1, part, parts);
    ek_tile_f32_t t = {.runs_y = 1,
                       .runs_x = 1,
                       .run = p->k,
                       .yx = p->n,
                       .bias = zeros,
                       .low = -INFINITY,
                       .high = INFINITY};
    EK_ROLLED for (int s = share.from; s < share.to; s++) {
        const int j = s % panels * EK_PANEL_F32, cols = EK_MIN(EK_PANEL_F32, p->n - j),
                  direct = p->ac == 1;
        const float *pa = a, *pb = b;
        float *py = y + (ptrdiff_t)(s / panels) * p->m * p->n + j;
        EK_ROLLED for (int d = 3, rest = s / panels; d >= 0; rest /= p->dim[d], d--) {
            pa += (ptrdiff_t)(rest % p->dim[d]) * p->a[d];
            pb += (ptrdiff_t)(rest % p->dim[d]) * p->b[d];
        }
        const int whole = direct ? p->m / rows * rows : 0;
        ek_matmul_panel_f32(pb, panel, p, j);
        t.sx = p->ar;
        tile(pa, panel, NULL, py, &t, 0, whole, cols);
        t.sx = p->k;
        EK_ROLLED for (int i = whole; i < p->m; i += rows) {
            ek_matmul_rows_f32(pa + (ptrdiff_t)i * p->ar, few, p, EK_MIN(rows, p->m - i), rows);
            tile(few, panel, NULL, py + (ptrdiff_t)i * p->n, &t, 0, EK_MIN(rows, p->m - i), cols);
        }
    }
}

#endif
