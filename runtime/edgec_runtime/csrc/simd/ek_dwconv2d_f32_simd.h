/* Float depthwise convolutions: a tile of 2 x 4 results for a vector of channels, so that an input that is loaded meets
 * all the results that want it. Dilated ones take results that lie as far apart as their taps.
 *
 * Weights are packed [vectors of channels][kh][kw][lanes]. The last vector ends with the last channel and overlaps the one
 * before it; fewer channels than lanes are one vector, with the weights, bias and slopes of all lanes. */
#ifndef EK_DWCONV2D_F32_SIMD_H
#define EK_DWCONV2D_F32_SIMD_H
#include "ek_after_f32_simd.h"
#include "ek_tile_f32_simd.h"

enum { EK_DW_ROWS = 2, EK_DW_COLS = 4, EK_DW_RESULTS = EK_DW_ROWS * EK_DW_COLS, EK_DW_INPUTS = 256 };

typedef struct {
    int n, ih, iw, c, oh, ow;   /* image [n,ih,iw,c], result [n,oh,ow,c] */
    int yx;                     /* floats between pixels of the result */
    int kh, kw, sh, sw, dh, dw; /* kernel, stride, dilation */
    int pt, pl;                 /* padding at the top and left */
    int apart_y, apart_x;       /* between the results of a tile: the dilation, 1 for a stride */
    int rows, cols;             /* inputs of a tile */
    int run;                    /* tiles of a row that meet one vector of weights after the other */
    int touch;                  /* whether rows are fetched first: image and result are beyond the cache */
    int todo;                   /* EK_DO_* */
    float low, high, low_sum, high_sum;
    ek_after_f32_fn *after;     /* what follows all that, or null */
    ek_coef_t coef;             /* of it */
} ek_dwconv2d_f32_t;

/* One tile: inputs where they lie, or one by one where the tile touches the border. All results are stored, the second
 * row first: those that nobody wants share the place of a wanted one that is stored after them. */
typedef struct {
    const float *x;
    ptrdiff_t dy, dx;
    const float *const *each; /* [rows][cols], null within the image */
    float *y[EK_DW_RESULTS];
    ptrdiff_t added; /* from a result to what is added to it */
    int count;       /* more than one tile, the next to the right: within the image, nothing but a clamp follows */
} ek_dwtile_f32_t;

typedef void ek_dwtile_f32_fn(const ek_dwtile_f32_t *t, const float *w, const float *bias, const float *slope,
                              const ek_dwconv2d_f32_t *p);

#define EK_EACH_DW(r) EK_UNROLL for (int r = 0; r < EK_DW_RESULTS; r++)

/* What all vectors of a tile share, where no store can change it. */
typedef struct {
    float *y[EK_DW_RESULTS];
    const float *added, *bias, *slope;
    int c, todo, few; /* few: less channels than lanes, those of `some` */
    ek_vmask some;
    ek_vf low, high, low_sum, high_sum;
} ek_dwsums_f32_t;

EK_KERNEL void ek_dwsums_f32(ek_dwsums_f32_t *s, const ek_dwtile_f32_t *t, const float *bias, const float *slope,
                             const ek_dwconv2d_f32_t *p, const int few) {
    s->few = few, s->some = ek_vmask_of(p->c);
    EK_EACH_DW(r) s->y[r] = t->y[r];
    s->added = t->y[0] + t->added, s->bias = bias, s->slope = slope, s->c = p->c, s->todo = p->todo;
    s->low = ek_vf_set(p->low), s->high = ek_vf_set(p->high);
    s->low_sum = ek_vf_set(p->low_sum), s->high_sum = ek_vf_set(p->high_sum);
}

EK_KERNEL ek_vf ek_dw_load(const float *x, const ek_dwsums_f32_t *s) {
    return s->few ? ek_vf_load_some(x, s->some, ek_vf_set(0)) : ek_vf_load(x);
}
EK_KERNEL void ek_dw_store(float *y, ek_vf v, const ek_dwsums_f32_t *s) {
    if (s->few)
        ek_vf_store_some(y, v, s->some);
    else
        ek_vf_store(y, v);
}

/* What follows the sums of channels from c on. */
EK_KERNEL void ek_dwsums_f32_finish(ek_vf *acc, const ek_dwsums_f32_t *s, int c) {
    EK_EACH_DW(r) acc[r] = ek_vf_min(ek_vf_max(acc[r], s->low), s->high);
    if (s->todo & ~(EK_DO_LOW | EK_DO_HIGH)) {
        if (s->todo & EK_DO_ADD) EK_EACH_DW(r) acc[r] += ek_dw_load(s->added + (s->y[r] - s->y[0]) + c, s);
        EK_EACH_DW(r) acc[r] = ek_vf_min(ek_vf_max(acc[r], s->low_sum), s->high_sum);
        if (s->todo & EK_DO_PRELU) {
            const ek_vf slopes = ek_vf_load(s->slope + c);
            EK_EACH_DW(r) acc[r] = ek_prelu_of(acc[r], slopes);
        }
        if (s->todo & EK_DO_HARD_SWISH) EK_EACH_DW(r) acc[r] = ek_hard_swish_of(acc[r]);
    }
    EK_UNROLL for (int r = EK_DW_COLS; r < EK_DW_RESULTS; r++) ek_dw_store(s->y[r] + c, acc[r], s);
    EK_UNROLL for (int r = 0; r < EK_DW_COLS; r++) ek_dw_store(s->y[r] + c, acc[r], s);
}

/* K x K taps with stride S, or dilated: row by row of the inputs of a tile. */
EK_KERNEL void ek_dwtile_f32(const ek_dwtile_f32_t *t, const float *w, const float *bias, const float *slope,
                             const ek_dwconv2d_f32_t *p, const int K, const int S, const int border, const int few) {
    enum { MOST = 11 }; /* inputs of 4 results of 5 taps with stride 2 */
    const int rows = (EK_DW_ROWS - 1) * S + K, cols = (EK_DW_COLS - 1) * S + K;
    const float *row[MOST], *const *each = t->each;
    const ptrdiff_t dx = t->dx;
    ek_dwsums_f32_t s;
    ek_dwsums_f32(&s, t, bias, slope, p, few);
    if (!border) EK_UNROLL for (int i = 0; i < rows; i++) row[i] = t->x + i * t->dy;
    EK_ROLLED for (int next = 0; next < s.c; next += EK_VL, w += K * K * EK_VL) {
        const int c = few ? EK_MAX(EK_MIN(next, s.c - EK_VL), 0) : EK_MIN(next, s.c - EK_VL);
        ek_vf acc[EK_DW_RESULTS];
        acc[0] = ek_vf_load(s.bias + c);
        EK_EACH_DW(r) acc[r] = acc[0];
        EK_UNROLL for (int i = 0; i < rows; i++) {
            ek_vf x[MOST];
            EK_UNROLL for (int j = 0; j < cols; j++)
                x[j] = ek_dw_load((border ? each[i * cols + j] : row[i] + j * dx) + c, &s);
            EK_UNROLL for (int o = 0; o < EK_DW_ROWS; o++) {
                const int ky = i - o * S;
                if (ky < 0 || ky >= K) continue;
                EK_UNROLL for (int kx = 0; kx < K; kx++) {
                    const ek_vf v = ek_vf_load(w + (ky * K + kx) * EK_VL);
                    EK_UNROLL for (int q = 0; q < EK_DW_COLS; q++)
                        acc[o * EK_DW_COLS + q] = ek_vf_fma(x[q * S + kx], v, acc[o * EK_DW_COLS + q]);
                }
            }
        }
        ek_dwsums_f32_finish(acc, &s, c);
    }
}

/* The same for a run of tiles within the image, which keep the weights of a vector of channels in registers. */
EK_KERNEL void ek_dwrun_f32(const ek_dwtile_f32_t *t, const float *w, const float *bias, const ek_dwconv2d_f32_t *p,
                            const int K, const int S) {
    enum { MOST = 11, TAPS = 25 };
    const int rows = (EK_DW_ROWS - 1) * S + K, cols = (EK_DW_COLS - 1) * S + K, total = p->c, count = t->count;
    const ptrdiff_t dx = t->dx, dy = t->dy, yx = (ptrdiff_t)p->apart_x * p->yx;
    const ek_vf low = ek_vf_set(p->low), high = ek_vf_set(p->high);
    const float *const first = t->x;
    float *const first_y = t->y[0], *const first_z = t->y[EK_DW_COLS];
    EK_ROLLED for (int next = 0; next < total; next += EK_VL, w += K * K * EK_VL) {
        const int c = EK_MIN(next, total - EK_VL);
        const ek_vf sum = ek_vf_load(bias + c);
        const float *x = first + c;
        float *y = first_y + c, *z = first_z + c; /* the second row may be the first, which is stored after it */
        ek_vf v[TAPS];
        int left = count;
        EK_UNROLL for (int i = 0; i < K * K; i++) v[i] = ek_vf_load(w + i * EK_VL);
        EK_ROLLED do {
            ek_vf acc[EK_DW_RESULTS];
            EK_EACH_DW(r) acc[r] = sum;
            EK_UNROLL for (int i = 0; i < rows; i++) {
                ek_vf in[MOST];
                EK_UNROLL for (int j = 0; j < cols; j++) in[j] = ek_vf_load(x + i * dy + j * dx);
                EK_UNROLL for (int o = 0; o < EK_DW_ROWS; o++) {
                    const int ky = i - o * S;
                    if (ky < 0 || ky >= K) continue;
                    EK_UNROLL for (int kx = 0; kx < K; kx++) {
                        EK_UNROLL for (int q = 0; q < EK_DW_COLS; q++)
                            acc[o * EK_DW_COLS + q] = ek_vf_fma(in[q * S + kx], v[ky * K + kx], acc[o * EK_DW_COLS + q]);
                    }
                }
            }
            EK_EACH_DW(r) acc[r] = ek_vf_min(ek_vf_max(acc[r], low), high);
            EK_UNROLL for (int q = 0; q < EK_DW_COLS; q++) ek_vf_store(z + q * yx, acc[EK_DW_COLS + q]);
            EK_UNROLL for (int q = 0; q < EK_DW_COLS; q++) ek_vf_store(y + q * yx, acc[q]);
            x += EK_DW_COLS * S * dx, y += EK_DW_COLS * yx, z += EK_DW_COLS * yx;
        } while (--left);
    }
}

#define EK_DWTILE_F32(K, S)                                                                                           \
    EK_SHARED void ek_dwtile_f32_k##K##s##S(const ek_dwtile_f32_t *t, const float *w, const float *bias,              \
                                            const float *slope, const ek_dwconv2d_f32_t *p) {                         \
        if (!EK_MASKS && EK_VL > 4 && p->c < EK_VL)                                                                   \
            ek_dwtile_f32(t, w, bias, slope, p, K, S, 1, 1);                                                          \
        else if (t->each)                                                                                             \
            ek_dwtile_f32(t, w, bias, slope, p, K, S, 1, EK_MASKS);                                                   \
        else if (t->count > 1)                                                                                        \
            ek_dwrun_f32(t, w, bias, p, K, S);                                                                        \
        else                                                                                                          \
            ek_dwtile_f32(t, w, bias, slope, p, K, S, 0, EK_MASKS);                                                   \
    }
EK_DWTILE_F32(3, 1)
EK_DWTILE_F32(3, 2)
EK_DWTILE_F32(5, 1)
EK_DWTILE_F32(5, 2)

/* Any taps: `each` is [taps][results]. */
EK_SHARED void ek_dwtile_f32_any(const ek_dwtile_f32_t *t, const float *w, const float *bias, const float *slope,
                                 const ek_dwconv2d_f32_t *p) {
    const int taps = p->kh * p->kw;
    ek_dwsums_f32_t s;
    ek_dwsums_f32(&s, t, bias, slope, p, 0);
    EK_ROLLED for (int next = 0; next < s.c; next += EK_VL) {
        const int c = EK_MIN(next, s.c - EK_VL);
        const float *const *each = t->each;
        ek_vf acc[EK_DW_RESULTS];
        acc[0] = ek_vf_load(s.bias + c);
        EK_EACH_DW(r) acc[r] = acc[0];
        EK_ROLLED for (int k = 0; k < taps; k++, w += EK_VL, each += EK_DW_RESULTS) {
            const ek_vf v = ek_vf_load(w);
            EK_EACH_DW(r) acc[r] = ek_vf_fma(ek_vf_load(each[r] + c), v, acc[r]);
        }
        ek_dwsums_f32_finish(acc, &s, c);
    }
}

/* The address of a pixel, or of zeros around the image. */
EK_KERNEL const float *ek_dw_pixel(const float *x, const float *zeros, const ek_dwconv2d_f32_t *p, int iy, int ix) {
    const int inside = iy >= 0 && iy < p->ih && ix >= 0 && ix < p->iw;
    return inside ? x + ((ptrdiff_t)iy * p->iw + ix) * p->c : zeros;
}

/* How many tiles from result (oy, ox) on lie within the image, and nothing but a clamp follows; 0: not even one. */
EK_KERNEL int ek_dw_inside(const ek_dwconv2d_f32_t *p, int oy, int ox) {
    const int y0 = oy * p->sh - p->pt, x0 = ox * p->sw - p->pl, step = EK_DW_COLS * p->apart_x;
    const int left = p->iw - 1 - (p->cols - 1) * p->dw - x0, wanted = p->ow - 1 - (EK_DW_COLS - 1) * p->apart_x - ox;
    if (!p->rows || (!EK_MASKS && p->c < EK_VL)) return 0;
    if (y0 < 0 || y0 + (p->rows - 1) * p->dh >= p->ih || x0 < 0 || left < 0) return 0;
    if (p->run == 1 || p->c < EK_VL || wanted < 0 || p->todo & ~(EK_DO_LOW | EK_DO_HIGH)) return 1;
    return EK_MIN(p->run, EK_MIN(left / (step * p->sw), wanted / step) + 1);
}

/* The `count` tiles at result (oy, ox) of one image, 0 for one that touches its border; columns to the left of the image
 * give its first results. */
EK_SHARED void ek_dwconv2d_f32_tile(const float *x, const float *w, const float *bias, const float *slope, float *y,
                                    ptrdiff_t added, const float *zeros, const ek_dwconv2d_f32_t *p,
                                    ek_dwtile_f32_fn *tile, int oy, int ox, int count) {
    const float *each[EK_DW_INPUTS];
    const int y0 = oy * p->sh - p->pt, x0 = ox * p->sw - p->pl;
    ek_dwtile_f32_t t = {
        .dy = (ptrdiff_t)p->dh * p->iw * p->c, .dx = (ptrdiff_t)p->dw * p->c, .added = added, .count = count};
    EK_EACH_DW(r) {
        const int row = oy + r / EK_DW_COLS * p->apart_y, col = ox + r % EK_DW_COLS * p->apart_x;
        const int at_col = col < 0 ? (ox + EK_DW_COLS * p->apart_x) % p->apart_x : col;
        t.y[r] = y + ((ptrdiff_t)(row < p->oh ? row : oy) * p->ow + at_col) * p->yx;
    }
    if (!p->rows) {
        EK_ROLLED for (int k = 0; k < p->kh * p->kw; k++)
            EK_ROLLED for (int r = 0; r < EK_DW_RESULTS; r++)
                each[k * EK_DW_RESULTS + r] =
                    ek_dw_pixel(x, zeros, p, y0 + r / EK_DW_COLS * p->sh + k / p->kw * p->dh,
                                x0 + r % EK_DW_COLS * p->sw + k % p->kw * p->dw);
        t.each = each;
    } else if (count) {
        t.x = x + ((ptrdiff_t)y0 * p->iw + x0) * p->c;
    } else {
        EK_ROLLED for (int i = 0; i < p->rows; i++)
            EK_ROLLED for (int j = 0; j < p->cols; j++)
                each[i * p->cols + j] = ek_dw_pixel(x, zeros, p, y0 + i * p->dh, x0 + j * p->dw);
        t.each = each;
    }
    tile(&t, w, bias, slope, p);
}

/* What the tiles of the rows from oy on read and write; `known` inputs of a tile were those of one before. */
EK_SHARED void ek_dwconv2d_f32_touch(const float *x, const float *y, const ek_dwconv2d_f32_t *p, int oy, int known) {
    const ptrdiff_t in = (ptrdiff_t)p->iw * p->c, out = (ptrdiff_t)p->ow * p->yx;
    EK_ROLLED for (int i = known; i < p->rows; i++) {
        const int iy = oy * p->sh - p->pt + i * p->dh;
        if (iy >= 0 && iy < p->ih) ek_touch_f32(x + iy * in, in);
    }
    EK_ROLLED for (int o = 0; o < EK_DW_ROWS; o++)
        if (oy + o * p->apart_y < p->oh) ek_touch_f32(y + (oy + o * p->apart_y) * out, out - p->yx + p->c);
}

/* added: null, or as y. zeros: room for c, of this part alone. Threads share the rows of tiles. */
EK_SHARED void ek_dwconv2d_f32_simd(const float *x, const float *w, const float *bias, const float *slope,
                                    const float *added, float *y, float *zeros, const ek_dwconv2d_f32_t *p,
                                    ek_dwtile_f32_fn *tile, int part, int parts) {
    const int bands = (p->oh + EK_DW_ROWS * p->apart_y - 1) / (EK_DW_ROWS * p->apart_y) * p->apart_y;
    const ek_share_t share = ek_share(p->n * bands, 1, part, parts);
    memset(zeros, 0, (size_t)p->c * sizeof(float));
    EK_ROLLED for (int b = share.from; b < share.to; b++) {
        const int image = b / bands, band = b % bands;
        const int oy = band / p->apart_y * EK_DW_ROWS * p->apart_y + band % p->apart_y;
        const float *px = x + (ptrdiff_t)image * p->ih * p->iw * p->c;
        float *py = y + (ptrdiff_t)image * p->oh * p->ow * p->yx;
        if (oy >= p->oh) continue;
        if (p->touch) {
            const int first = b - share.from < p->apart_y || band < p->apart_y;
            ek_dwconv2d_f32_touch(px, py, p, oy, first ? 0 : EK_MAX(p->rows - EK_DW_ROWS * p->sh, 0));
        }
        EK_ROLLED for (int phase = 0; phase < EK_MIN(p->apart_x, p->ow); phase++) {
            /* the last tile of a row ends with it, and computes some results again */
            const int last = phase + (p->ow - 1 - phase) / p->apart_x * p->apart_x - (EK_DW_COLS - 1) * p->apart_x;
            EK_ROLLED for (int ox = phase, count; ox < p->ow; ox += EK_MAX(count, 1) * EK_DW_COLS * p->apart_x) {
                count = ek_dw_inside(p, oy, EK_MIN(ox, last));
                ek_dwconv2d_f32_tile(px, w, bias, slope, py, added ? added - y : 0, zeros, p, tile, oy,
                                     EK_MIN(ox, last), count);
            }
        }
        EK_ROLLED for (int row = oy; p->after && row < EK_MIN(oy + EK_DW_ROWS * p->apart_y, p->oh); row += p->apart_y)
            ek_after_f32(p->after, py + (ptrdiff_t)row * p->ow * p->yx, p->yx, p->ow, p->c, &p->coef);
    }
}

#endif
