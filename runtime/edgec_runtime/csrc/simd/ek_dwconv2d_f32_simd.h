/* Float depthwise convolutions: a tile of adjacent results of one row for a vector of channels, so
 * that an input that is loaded meets all the results that want it. Dilated ones take results that
 * lie as far apart as their taps. Where each channel of the image has two results, an input is
 * loaded into two lanes.
 *
 * Weights are packed [vectors of channels][kh][kw][lanes]. The last vector ends with the last
 * channel and overlaps the one before it; fewer channels than lanes are one vector, with the
 * weights, bias and slopes of all lanes. */
#ifndef EK_DWCONV2D_F32_SIMD_H
#define EK_DWCONV2D_F32_SIMD_H
#include "ek_after_f32_simd.h"
#include "ek_tile_f32_simd.h"

/* Results of a tile, and of one of any taps; so many taps, and rows of taps of the others. */
enum { EK_DW_F32_COLS = 8, EK_DW_F32_ANY = 4, EK_DW_F32_TAPS = 64, EK_DW_F32_LINES = 7 };

typedef struct {
    int n, ih, iw, oh, ow;      /* image [n,ih,iw,ic], result [n,oh,ow,c] */
    int kh, kw, sh, sw, dh, dw; /* kernel, stride, dilation */
    int pt, pl;                 /* padding at the top and left */
    int ic, c;                  /* channels of the image; of the result: as many or twice that */
    int yx;                     /* floats between pixels of the result */
    int apart;                  /* between the results of a tile: the dilation, 1 for a stride */
    int cols;                   /* results of a tile; 0: that of any taps */
    int chunk; /* channels that all rows meet before the next ones: whole lines of 64 bytes, or all
                */
    int ring;  /* rows that are kept of the image: row iy lies at iy % ring; 0: it is all there */
    int by_channels; /* threads share the channels, whole lines of 64 bytes, not the rows */
    int touch; /* what of some rows is fetched first, as it is beyond the cache: 1 image, 2 result
                */
    int todo;  /* EK_DO_* */
    float low, high, low_sum, high_sum;
    ek_after_f32_fn *after; /* what follows all that, or null */
    ek_coefficients_t coef; /* of it */
} ek_dwconv2d_f32_t;

/* Tiles of one row, from left to right. */
typedef struct {
    const float
        *x; /* column of the first tap of the first result, which may lie outside the image */
    ptrdiff_t row[EK_DW_F32_LINES], dx; /* from there to the rows of taps; between taps */
    int c, c0;                          /* channels of the result; before the first of them */
    float *y;                           /* the first result */
    ptrdiff_t yx, added;                /* between results; from a result to what is added to it */
    int from, past;                     /* the rows of taps that are within the image */
    int left, right;                    /* columns of inputs of the one tile that are not */
    int count;                          /* tiles */
    const float *const *each;           /* for any taps: the address of [taps][results] */
} ek_dwrow_f32_t;

typedef void ek_dwtile_f32_fn(const ek_dwrow_f32_t *t, const float *w, const float *bias,
                              const float *slope, const ek_dwconv2d_f32_t *p);

#define EK_EACH_DW_F32(r) EK_UNROLL for (int r = 0; r < N; r++)

/* What is done to the sums of channels, where no store can change it. */
typedef struct {
    const float *bias, *slope; /* of the first of these channels */
    ptrdiff_t added;
    int todo, few; /* few: less channels than lanes, those of `some` */
    ek_vmask some;
    ek_vf low, high, low_sum, high_sum;
} ek_dwend_f32_t;

EK_KERNEL ek_dwend_f32_t ek_dwend_f32(const ek_dwrow_f32_t *t, const ek_dwconv2d_f32_t *p,
                                      const int few) {
    return (ek_dwend_f32_t){NULL,
                            NULL,
                            t->added,
                            p->todo,
                            few,
                            ek_vmask_of(p->c),
                            ek_vf_set(p->low),
                            ek_vf_set(p->high),
                            ek_vf_set(p->low_sum),
                            ek_vf_set(p->high_sum)};
}
/* What sums begin with. In halves it is not the bias, beside which products lose bits: that is
 * added last. */
EK_KERNEL ek_vf ek_dw_f32_first(const float *bias) {
    return EK_TERMS_F32 > 0 ? ek_vf_set(0.0f) : ek_vf_copy(bias);
}
EK_KERNEL ek_vf ek_dw_f32_load(const float *x, const ek_dwend_f32_t *e, const int M) {
    if (M == 2) return ek_vf_load_twice(x);
    return e->few ? ek_vf_load_some(x, e->some, ek_vf_set(0)) : ek_vf_load(x);
}
EK_KERNEL void ek_dw_f32_store(float *y, ek_vf v, const ek_dwend_f32_t *e) {
    if (e->few)
        ek_vf_store_some(y, v, e->some);
    else
        ek_vf_store(y, v);
}

/* What follows N sums, whose results lie at y + at[r]. */
EK_KERNEL void ek_dwend_f32_all(ek_vf *acc, const ek_dwend_f32_t *e, float *y, ptrdiff_t yx,
                                const ptrdiff_t *at, const int N, const int END) {
    if (EK_TERMS_F32 > 0) {
        const ek_vf bias = ek_vf_load(e->bias);
        EK_EACH_DW_F32(r) acc[r] = acc[r] + bias;
    }
    if (END == EK_END_LOW) EK_EACH_DW_F32(r) acc[r] = ek_vf_max(acc[r], e->low);
    if (END == EK_END_BOTH) EK_EACH_DW_F32(r) acc[r] = ek_vf_clamp(acc[r], e->low, e->high);
    if (END == EK_END_ANY && e->todo) {
        EK_EACH_DW_F32(r) acc[r] = ek_vf_min(ek_vf_max(acc[r], e->low), e->high);
        if (e->todo & EK_DO_ADD) {
            EK_EACH_DW_F32(r) acc[r] += ek_dw_f32_load(y + e->added + (at ? at[r] : r * yx), e, 1);
            EK_EACH_DW_F32(r) acc[r] = ek_vf_min(ek_vf_max(acc[r], e->low_sum), e->high_sum);
        }
        if (e->todo & EK_DO_PRELU) {
            const ek_vf slopes = ek_vf_load(e->slope);
            EK_EACH_DW_F32(r) acc[r] = ek_vf_prelu(acc[r], slopes);
        }
        if (e->todo & EK_DO_HARD_SWISH) EK_EACH_DW_F32(r) acc[r] = ek_vf_hard_swish(acc[r]);
    }
    EK_EACH_DW_F32(r) ek_dw_f32_store(y + (at ? at[r] : r * yx), acc[r], e);
}

/* K x K taps with stride S, or dilated: N results. M: channels of the result for one of the image.
 * border: columns of inputs may lie outside the image; part: rows. */
EK_KERNEL void ek_dwtile_f32(const ek_dwrow_f32_t *t, const float *w, const float *bias,
                             const float *slope, const ek_dwconv2d_f32_t *p, const int K,
                             const int S, const int N, const int M, const int END, const int border,
                             const int part, const int few) {
    enum {
        MOST = 21,
        HALF = 3
    }; /* inputs of 8 results of 7 taps with stride 2; columns that may lie outside */
    const int cols = (N - 1) * S + K, half = K / 2, total = t->c, least = -t->c0;
    const int from = part ? t->from : 0, past = part ? t->past : K;
    const ptrdiff_t dx = t->dx, yx = t->yx;
    const float *x = t->x;
    float *y = t->y;
    ek_dwend_f32_t e = ek_dwend_f32(t, p, few);
    ptrdiff_t at_left[HALF], at_right[HALF]; /* of those columns, or of the nearest ones within */
    ek_vi in_left[HALF], in_right[HALF];     /* all ones where they are within */
    if (border) EK_UNROLL for (int j = 0; j < half; j++) {
            const int right = cols - half + j;
            at_left[j] = EK_MAX(j, t->left) * dx, in_left[j] = ek_vi_set(j < t->left ? 0 : -1);
            at_right[j] = EK_MIN(right, cols - 1 - t->right) * dx;
            in_right[j] = ek_vi_set(right > cols - 1 - t->right ? 0 : -1);
        }
    EK_ROLLED for (int left = t->count; left > 0; left--, x += N * S * dx, y += N * yx) {
        const float *v = w;
        EK_ROLLED for (int next = 0; next < total; next += EK_VL, v += K * K * EK_VL) {
            const int last = EK_MIN(next, total - EK_VL), c = few ? EK_MAX(last, least) : last;
            ek_vf acc[EK_DW_F32_COLS];
            EK_EACH_DW_F32(r) acc[r] = ek_dw_f32_first(bias + c);
            EK_UNROLL for (int ky = 0; ky < K; ky++) {
                if (ky != half && (ky < from || ky >= past)) continue;
                const float *row = x + c / M + t->row[ky];
                ek_vf in[MOST];
                EK_UNROLL for (int j = 0; j < cols; j++) {
                    const int r = j - cols + half; /* of those at the right */
                    const int at = EK_CLAMP(j < half ? j : r, 0, HALF - 1);
                    const ek_vf v_ =
                        border && (j < half || r >= 0)
                            ? ek_dw_f32_load(row + (j < half ? at_left : at_right)[at], &e, M)
                            : ek_dw_f32_load(row + j * dx, &e, M);
                    in[j] = v_;
                    if (border && (j < half || r >= 0))
                        in[j] = ek_vf_as(ek_vi_as(v_) & (j < half ? in_left : in_right)[at]);
                }
                EK_UNROLL for (int kx = 0; kx < K; kx++) {
                    const ek_vf weights = ek_vf_load(v + (ky * K + kx) * EK_VL);
                    EK_EACH_DW_F32(r) acc[r] = ek_vf_fma(in[r * S + kx], weights, acc[r]);
                }
            }
            e.bias = bias + c;
            if (END == EK_END_ANY && slope) e.slope = slope + c;
            ek_dwend_f32_all(acc, &e, y + c, yx, NULL, N, END);
        }
    }
}

#define EK_DWTILE_F32(NAME, ...)                                                      \
    EK_SHARED void ek_dwtile_f32_##NAME(const ek_dwrow_f32_t *t, const float *w,      \
                                        const float *bias, const float *slope,        \
                                        const ek_dwconv2d_f32_t *p) {                 \
        const int few = EK_VL > 4 && p->c < EK_VL, part = t->from || t->past < p->kh, \
                  border = part || t->left | t->right;                                \
        if (few && (border || !EK_MASKS))                                             \
            ek_dwtile_f32(t, w, bias, slope, p, __VA_ARGS__, 1, 1, 1);                \
        else if (few)                                                                 \
            ek_dwtile_f32(t, w, bias, slope, p, __VA_ARGS__, 0, 0, 1);                \
        else if (part)                                                                \
            ek_dwtile_f32(t, w, bias, slope, p, __VA_ARGS__, 1, 1, 0);                \
        else if (border)                                                              \
            ek_dwtile_f32(t, w, bias, slope, p, __VA_ARGS__, 1, 0, 0);                \
        else                                                                          \
            ek_dwtile_f32(t, w, bias, slope, p, __VA_ARGS__, 0, 0, 0);                \
    }
#define EK_DWENDS_F32(NAME, ...)                        \
    EK_DWTILE_F32(NAME, __VA_ARGS__, EK_END_ANY)        \
    EK_DWTILE_F32(NAME##_sum, __VA_ARGS__, EK_END_NONE) \
    EK_DWTILE_F32(NAME##_low, __VA_ARGS__, EK_END_LOW)  \
    EK_DWTILE_F32(NAME##_both, __VA_ARGS__, EK_END_BOTH)
#define EK_DWTILES_F32(K, S, N)                 \
    EK_DWENDS_F32(k##K##s##S##x##N, K, S, N, 1) \
    EK_DWENDS_F32(k##K##s##S##x##N##_twice, K, S, N, 2)
#define EK_DWTAPS_F32(N)    \
    EK_DWTILES_F32(3, 1, N) \
    EK_DWTILES_F32(3, 2, N) \
    EK_DWTILES_F32(5, 1, N) EK_DWTILES_F32(5, 2, N) EK_DWTILES_F32(7, 1, N) EK_DWTILES_F32(7, 2, N)
EK_DWTAPS_F32(4)
EK_DWTAPS_F32(5)
EK_DWTAPS_F32(6)
EK_DWTAPS_F32(7)
EK_DWTAPS_F32(8)

/* Any taps: those of t->each. Results that nobody wants are the last one again. */
EK_SHARED void ek_dwtile_f32_any(const ek_dwrow_f32_t *t, const float *w, const float *bias,
                                 const float *slope, const ek_dwconv2d_f32_t *p) {
    const int taps = p->kh * p->kw, few = EK_VL > 4 && p->c < EK_VL;
    ek_dwend_f32_t e = ek_dwend_f32(t, p, few);
    ptrdiff_t at[EK_DW_F32_ANY];
    EK_UNROLL for (int r = 0; r < EK_DW_F32_ANY; r++) at[r] = EK_MIN(r, t->count - 1) * t->yx;
    EK_ROLLED for (int next = 0; next < t->c; next += EK_VL) {
        const int c = EK_MIN(next, EK_MAX(t->c - EK_VL, 0));
        const float *const *each = t->each;
        ek_vf acc[EK_DW_F32_ANY];
        acc[0] = ek_dw_f32_first(bias + c);
        EK_UNROLL for (int r = 0; r < EK_DW_F32_ANY; r++) acc[r] = acc[0];
        EK_ROLLED for (int k = 0; k < taps; k++, w += EK_VL, each += EK_DW_F32_ANY) {
            const ek_vf v = ek_vf_load(w);
            EK_UNROLL for (int r = 0; r < EK_DW_F32_ANY; r++) acc[r] = ek_vf_fma(
                few ? ek_vf_load_some(each[r], e.some, v) : ek_vf_load(each[r] + c), v, acc[r]);
        }
        e.bias = bias + c;
        if (slope) e.slope = slope + c;
        ek_dwend_f32_all(acc, &e, t->y + c, 0, at, EK_DW_F32_ANY, EK_END_ANY);
    }
}

/* `count` results from (oy, ox) on, of any taps: those around the image are of `zeros`. */
EK_SHARED void ek_dwconv2d_f32_any(const float *x, const float *w, const float *bias,
                                   const float *slope, const float *zeros,
                                   const ek_dwconv2d_f32_t *p, ek_dwrow_f32_t *t, int oy, int ox,
                                   int count) {
    const float *each[EK_DW_F32_TAPS * EK_DW_F32_ANY], **next = each;
    EK_ROLLED for (int ky = 0, iy = oy * p->sh - p->pt; ky < p->kh; ky++, iy += p->dh) {
        const int inside = iy >= 0 && iy < p->ih;
        const float *row =
            inside ? x + (ptrdiff_t)(p->ring ? iy % p->ring : iy) * p->iw * p->ic : zeros;
        EK_ROLLED for (int kx = 0, x0 = ox * p->sw - p->pl; kx < p->kw; kx++, x0 += p->dw)
            EK_ROLLED for (int r = 0; r < EK_DW_F32_ANY; r++) {
            const int ix = x0 + EK_MIN(r, count - 1) * p->sw;
            *next++ = inside && ix >= 0 && ix < p->iw ? row + (ptrdiff_t)ix * p->ic : zeros;
        }
    }
    t->each = each, t->count = count;
    ek_dwtile_f32_any(t, w, bias, slope, p);
}

/* Steps of `size` that n is, the last perhaps not whole; none if n is negative. */
EK_KERNEL int ek_dw_f32_steps(int n, int size) { return n > 0 ? (n + size - 1) / size : 0; }

/* Row oy of the results of one image, to y, of `c` channels from c0 on. */
EK_SHARED void ek_dwconv2d_f32_row(const float *x, const float *w, const float *bias,
                                   const float *slope, float *y, ptrdiff_t added,
                                   const float *zeros, const ek_dwconv2d_f32_t *p,
                                   ek_dwtile_f32_fn *tile, int oy, int c0, int c) {
    const int y0 = oy * p->sh - p->pt, apart = p->apart, size = p->cols ? p->cols : EK_DW_F32_ANY;
    const int wide = ((size - 1) * p->sw + p->kw - 1) * p->dw, step = size * p->sw * p->dw;
    ek_dwrow_f32_t t = {.dx = (ptrdiff_t)p->dw * p->ic,
                        .c = c,
                        .c0 = c0,
                        .yx = (ptrdiff_t)apart * p->yx,
                        .added = added,
                        .from = ek_dw_f32_steps(-y0, p->dh),
                        .past = EK_MIN(ek_dw_f32_steps(p->ih - y0, p->dh), p->kh)};
    EK_ROLLED for (int ky = t.from; ky < EK_MIN(t.past, EK_DW_F32_LINES); ky++) {
        const int iy = y0 + ky * p->dh;
        t.row[ky] = (ptrdiff_t)(p->ring ? iy % p->ring : iy) * p->iw * p->ic;
    }
    x += c0 / (p->c / p->ic), bias += c0, slope = slope ? slope + c0 : slope,
                                          w += (ptrdiff_t)c0 * p->kh * p->kw;
    EK_ROLLED for (int phase = 0; phase < EK_MIN(apart, p->ow); phase++) {
        const int n = (p->ow - 1 - phase) / apart + 1;
        EK_ROLLED for (int i = 0; i < n; i += t.count * size) {
            const int at =
                p->cols ? EK_MIN(i, n - size) : i; /* the last tile computes some results again */
            const int ox = phase + at * apart, x0 = ox * p->sw - p->pl,
                      beyond = x0 + wide - (p->iw - 1);
            t.y = y + (ptrdiff_t)ox * p->yx + c0;
            if (!p->cols) {
                ek_dwconv2d_f32_any(x, w, bias, slope, zeros, p, &t, oy, ox, EK_MIN(n - i, size));
                t.count = 1;
                continue;
            }
            t.x = x + (ptrdiff_t)x0 * p->ic;
            t.left = ek_dw_f32_steps(-x0, p->dw), t.right = ek_dw_f32_steps(beyond, p->dw);
            t.count = t.left | t.right ? 1 : EK_MIN(-beyond / step, (n - size - at) / size) + 1;
            tile(&t, w, bias, slope, p);
        }
    }
}

/* What the rows [from, to) of results read, and the rows before them did not, and what they write.
 */
EK_SHARED void ek_dwconv2d_f32_touch(const float *x, const float *y, const ek_dwconv2d_f32_t *p,
                                     int from, int to, int first) {
    const int rows = (p->kh - 1) * p->dh + 1, y0 = from * p->sh - p->pt,
              known = first ? 0 : EK_MAX(rows - p->sh, 0);
    const int low = EK_CLAMP(y0 + known, 0, p->ih),
              high = EK_CLAMP(y0 + (to - from - 1) * p->sh + rows, low, p->ih);
    const ptrdiff_t in = (ptrdiff_t)p->iw * p->ic, out = (ptrdiff_t)p->ow * p->yx;
    if (p->touch & 1) ek_touch_f32(x + low * in, (high - low) * in);
    if (p->touch & 2) ek_touch_f32(y, (to - from) * out - p->yx + p->c);
}

/* Rows [from, to) of some channels of one image, to y. added: from y to what is added. */
EK_SHARED void ek_dwconv2d_f32_rows(const float *x, const float *w, const float *bias,
                                    const float *slope, float *y, ptrdiff_t added,
                                    const float *zeros, const ek_dwconv2d_f32_t *p,
                                    ek_dwtile_f32_fn *tile, int from, int to, ek_share_t channels) {
    EK_ROLLED for (int c0 = channels.from, c = p->chunk; c0 < channels.to; c0 += c) {
        c = EK_MIN(c, channels.to - c0);
        float *py = y;
        EK_ROLLED for (int oy = from; oy < to; oy++, py += (ptrdiff_t)p->ow * p->yx) {
            ek_dwconv2d_f32_row(x, w, bias, slope, py, added, zeros, p, tile, oy, c0, c);
            if (p->after && c0 + c == channels.to)
                ek_after_f32(p->after, py + channels.from, p->yx, p->ow,
                             channels.to - channels.from, &p->coef);
        }
    }
}

/* added: null, or as y. zeros: room for c, of this part alone. */
EK_SHARED void ek_dwconv2d_f32_simd(const float *x, const float *w, const float *bias,
                                    const float *slope, const float *added, float *y, float *zeros,
                                    const ek_dwconv2d_f32_t *p, ek_dwtile_f32_fn *tile, int part,
                                    int parts) {
    enum { TOUCHED = 4, LINE = 16 }; /* rows that are fetched at once; channels of a cache line */
    const int rows = p->by_channels ? 1 : parts, columns = p->by_channels ? parts : 1;
    const ek_share_t share = ek_share(p->n * p->oh, 1, p->by_channels ? 0 : part, rows);
    const ek_share_t channels = ek_share(p->c, LINE, p->by_channels ? part : 0, columns);
    if (!p->cols) memset(zeros, 0, (size_t)p->c * sizeof(float));
    EK_ROLLED for (int b = share.from, to; b < share.to; b = to) {
        const int image = b / p->oh, oy = b % p->oh;
        const float *px = x + (ptrdiff_t)image * p->ih * p->iw * p->ic;
        float *py = y + (ptrdiff_t)b * p->ow * p->yx;
        to = EK_MIN(p->touch ? b + TOUCHED : share.to, EK_MIN(share.to, (image + 1) * p->oh));
        if (p->touch && columns == 1)
            ek_dwconv2d_f32_touch(px, py, p, oy, oy + to - b, b == share.from || oy == 0);
        ek_dwconv2d_f32_rows(px, w, bias, slope, py, added ? added - y : 0, zeros, p, tile, oy,
                             oy + to - b, channels);
    }
}

#endif
