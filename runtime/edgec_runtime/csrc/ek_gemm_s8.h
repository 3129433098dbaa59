/* Int8 convolutions, fully connected layers and matrix products as one packed GEMM: the loops that
 * all cores share.
 *
 * A window of the image is `taps` pointers with `run` elements behind each: one pointer for each
 * row of the kernel, or for each tap where these do not lie side by side; only windows of a few
 * bytes in a row are gathered, a row of them at a time, so that little is padded. Rows of the image
 * are read where they are; those alone that need padding (or another type, see `load`) are copied
 * to a ring of line buffers as windows reach them. 1x1 kernels of stride 1 see their pixels as an
 * image of rows as long as the schedule likes.
 *
 * A tile computes mr windows times nr channels; each core has its own (csrc/dot, csrc/neon,
 * csrc/avx2, csrc/vnni). Channels come in panels of nr: the tables of a panel and its weights,
 * packed by edgec/schedule/gemm_s8 in the order in which the tile reads them. */
#ifndef EK_GEMM_S8_H
#define EK_GEMM_S8_H
#include "ek_fixed_point.h"

/* How sums become int8: what the tables of a panel are, each nr long, one behind the other. */
enum {
    EK_GEMM_FAST,  /* as the tile has it; it may count on what edgec/schedule/gemm_s8 proves of the
                      tables */
    EK_GEMM_LAW,   /* int32 bias, multiplier, shift: any shift, ek_multiply itself */
    EK_GEMM_SCALE, /* int32 bias, double scale: one rounding, ties away from zero */
    EK_GEMM_EVEN,  /* int32 bias, float scale, int32 y_zero: ek_even, as the tile has it */
};

typedef struct {
    /* of the tile */
    int taps, run; /* pointers of a window; elements read behind each, padded to the tile's unit */
    int step;      /* bytes from window to window behind a pointer */
    int y_step;    /* bytes from window to window of the result */
    int finish;    /* one of EK_GEMM_* */
    int w_zero;    /* sums are of x * (w - w_zero): the tile subtracts w_zero times the sum of x */
    int x_zero, y_zero, low, high;
    /* of the image */
    int n, ih, iw, ic, size; /* ic: elements from pixel to pixel; size: elements of the whole */
    int oh, ow,
        windows; /* rows of windows, windows in a row; together (the last row may be shorter) */
    int sh, dh, pt,
        pl; /* rows from window to window and from tap to tap, padding (negative: cut off) */
    int kh, tap_bytes;      /* rows of taps; bytes from tap to tap in a row */
    int gather, gather_run; /* bytes from window to window of those gathered, of a row of taps (at
                               most 16); or 0 */
    int x_step;             /* bytes from window to window of a row of the image */
    int y_row, y_image;     /* bytes from row to row of the result and from image to image */
    int group_ic, group_oc; /* input elements from group to group, output channels of a group */
    int phase_h, phase_w,
        kw; /* of a transposed convolution: its stride; columns of taps of a phase. Else 1, 1 */
    /* of the schedule */
    int mr, nr, panel_bytes;
    int panels, group_panels; /* of all groups, of one */
    int band, cols; /* a block: rows and windows in a row that see a panel before the next one;
                       cols: of mr */
    int by_panels;  /* threads share the panels first, not the rows */
    int element;    /* bytes of an element as the tile reads it: 1, or what `load` makes of it */
    int buffered;   /* all rows pass through line buffers: columns are padded, or `load` is given */
    int slots,
        slot_rows; /* line buffers; image row r is held in buffer (r + pt) / slot_rows % slots */
    int zero_rows; /* of padding before them: 1 where windows reach above or below the image, else 0
                    */
    int slot_bytes, gather_bytes,
        scratch_bytes; /* of a line buffer, slack included; gathered windows; one part */
} ek_gemm_s8_t;

/* The tile over a row: results of `windows` (at least mr) windows, `channels` (at most nr)
 * channels.
 *
 * Element k < run of tap t of window i is at taps[t] + at + i * p->step, all of them readable;
 * those behind the real run are whatever lies there, and their weights are w_zero, so that they add
 * nothing. Padded pixels hold x_zero: the bias of the panel holds -x_zero * sum(w - w_zero), and
 * the sum is over x itself. Channel c of window i goes to y[i * p->y_step + c]; nothing else is
 * written. panel: aligned to 8 bytes: its bias and other tables in 16 * nr bytes, then its weights.
 * The tile works out FAST and EVEN itself, and hands sums with the bias to ek_gemm_s8_law or
 * ek_gemm_s8_scale for the others. */
typedef void ek_gemm_s8_row_t(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel,
                              int8_t *y, int channels, const ek_gemm_s8_t *p, int windows);

/* n elements of a row as the tile reads them (p->element bytes each); writes no others. */
typedef void ek_gemm_s8_load_t(void *to, const int8_t *from, ptrdiff_t n);

/* Rows of nr sums (bias included) to int8 by EK_GEMM_LAW, for tiles that have no faster way. */
EK_SHARED void ek_gemm_s8_law(const int32_t *sums, int rows, const unsigned char *panel, int8_t *y,
                              int channels, const ek_gemm_s8_t *p) {
    const int32_t *multiplier = (const int32_t *)(const void *)panel + p->nr,
                  *shift = multiplier + p->nr;
    EK_NO_UNROLL for (int r = 0; r < rows; r++, sums += p->nr, y += p->y_step)
        EK_NO_UNROLL for (int c = 0; c < channels; c++) {
        const int32_t v = ek_multiply(sums[c], multiplier[c], shift[c]) + p->y_zero;
        y[c] = (int8_t)EK_CLAMP(v, p->low, p->high);
    }
}

/* The same by EK_GEMM_SCALE. */
EK_SHARED void ek_gemm_s8_scale(const int32_t *sums, int rows, const unsigned char *panel,
                                int8_t *y, int channels, const ek_gemm_s8_t *p) {
    const void *scales = (const int32_t *)(const void *)panel + p->nr;
    const double *scale = scales;
    EK_NO_UNROLL for (int r = 0; r < rows; r++, sums += p->nr, y += p->y_step)
        EK_NO_UNROLL for (int c = 0; c < channels; c++) {
        const double v = round((double)sums[c] * scale[c]) + p->y_zero;
        y[c] = (int8_t)EK_CLAMP(v, p->low, p->high);
    }
}

/* n elements of padding. */
EK_SHARED void ek_gemm_s8_fill(unsigned char *to, ptrdiff_t n, const ek_gemm_s8_t *p,
                               ek_gemm_s8_load_t *load) {
    int8_t zeros[64];
    memset(zeros, p->x_zero, sizeof zeros);
    if (!load)
        memset(to, p->x_zero, (size_t)n);
    else
        EK_NO_UNROLL for (ptrdiff_t i = 0; i < n; i += 64)
            load(to + i * p->element, zeros, EK_MIN(n - i, 64));
}

/* The buffers of one part: pointers of a band, image row held by each slot, a row of padding,
 * slots, gathered rows. */
typedef struct {
    const int8_t **taps;
    int *held;
    unsigned char *zeros, *slot, *gathered;
} ek_gemm_s8_buffers_t;

EK_KERNEL ek_gemm_s8_buffers_t ek_gemm_s8_start(unsigned char *scratch, const ek_gemm_s8_t *p,
                                                ek_gemm_s8_load_t *load) {
    ek_gemm_s8_buffers_t b;
    b.taps = (const int8_t **)(void *)scratch;
    b.held = (int *)(void *)(b.taps + (p->band * p->taps + (p->gather ? p->kh : 0) + 7) / 8 * 8);
    b.zeros = (unsigned char *)(b.held + (p->slots + 15) / 16 * 16);
    b.slot = b.zeros + p->zero_rows * p->slot_bytes;
    b.gathered = b.slot + (ptrdiff_t)p->slots * p->slot_bytes;
    EK_NO_UNROLL for (int i = 0; i < p->slots; i++) b.held[i] = -1;
    const ptrdiff_t lines = p->slots + p->zero_rows;
    if (p->slots) ek_gemm_s8_fill(b.zeros, lines * (p->slot_bytes / p->element), p, load);
    return b;
}

/* Where the first column of windows of an image row is; a row outside the image is padding. */
EK_KERNEL const int8_t *ek_gemm_s8_line(const int8_t *x, int image, int iy, int windows,
                                        const ek_gemm_s8_t *p, ek_gemm_s8_load_t *load,
                                        const ek_gemm_s8_buffers_t *b) {
    if (iy < 0 || iy >= p->ih) return (const int8_t *)b->zeros;
    const int row = image * p->ih + iy, bytes = p->iw * p->ic;
    const ptrdiff_t size = p->size, from = (ptrdiff_t)row * bytes;
    const ptrdiff_t past = from - (ptrdiff_t)p->pl * p->ic + (ptrdiff_t)(windows - 1) * p->x_step +
                           (p->taps / p->kh - 1) * p->tap_bytes +
                           (p->panels / p->group_panels - 1) * p->group_ic;
    if (!p->buffered && past + p->run <= size) return x + from - (ptrdiff_t)p->pl * p->ic;
    const int s = (iy + p->pt) / p->slot_rows % p->slots;
    unsigned char *slot = b->slot + (ptrdiff_t)s * p->slot_bytes;
    if (b->held[s] != row) {
        const int left = EK_MAX(p->pl, 0) * p->ic, cut = EK_MAX(-p->pl, 0) * p->ic;
        const ptrdiff_t room = p->slot_bytes / p->element - left;
        const ptrdiff_t n = EK_MAX(0, EK_MIN(EK_MIN(bytes - cut, size - from - cut), room));
        if (load)
            load(slot + left * p->element, x + from + cut, n);
        else
            memcpy(slot + left, x + from + cut, (size_t)n);
        b->held[s] = row;
    }
    return (const int8_t *)slot;
}

/* Windows that begin in `lines`, each as one run. Copies 16 bytes, and then over what was too many.
 */
EK_KERNEL const int8_t *ek_gemm_s8_gather(const int8_t *const *lines, unsigned char *to,
                                          int windows, const ek_gemm_s8_t *p) {
    const int8_t *first = (const int8_t *)to, *a = lines[0], *b = lines[1];
    const ptrdiff_t next = p->gather, step = p->x_step, run = p->gather_run;
    if (p->kh == 3) {
        const int8_t *c = lines[2];
        for (int i = 0; i < windows; i++, to += next, a += step, b += step, c += step) {
            memcpy(to, a, 16);
            memcpy(to + run, b, 16);
            memcpy(to + 2 * run, c, 16);
        }
    } else {
        EK_NO_UNROLL for (ptrdiff_t i = 0; i < windows; i++, to += next)
            EK_NO_UNROLL for (int ky = 0; ky < p->kh; ky++)
                memcpy(to + ky * run, lines[ky] + i * step, 16);
    }
    return first;
}

/* Reads a byte of each cache line, one after the other, as prefetchers like it: panels write a few
 * bytes of a line each, a pixel further each time. */
EK_SHARED void ek_gemm_s8_touch(const int8_t *y, ptrdiff_t bytes) {
    const volatile int8_t *x = y;
    ptrdiff_t i = 0;
    for (; i + 192 <= bytes; i += 256)
        (void)x[i], (void)x[i + 64], (void)x[i + 128], (void)x[i + 192];
    EK_NO_UNROLL for (; i <= bytes; i += 64)(void) x[i];
}

/* All panels of [panel, past) over a block: rows of windows from `first`, each with its pointers.
 */
EK_KERNEL void ek_gemm_s8_block(const int8_t *const *taps, const unsigned char *w, int8_t *y,
                                const ek_gemm_s8_t *p, ek_gemm_s8_row_t *row, int rows, int windows,
                                int panel, int past) {
    for (int c = 0; c < windows; c += p->cols) {
        const int n = EK_MAX(EK_MIN(windows - c, p->cols), p->mr), first = EK_MIN(c, windows - n);
        for (int r = 0; past - panel == p->panels && r < rows;
             r++) /* else other threads write there too */
            ek_gemm_s8_touch(y + (ptrdiff_t)r * p->y_row + (ptrdiff_t)first * p->y_step,
                             (ptrdiff_t)(n - 1) * p->y_step);
        for (int i = panel; i < past; i++) {
            const int group = i / p->group_panels, o = (i - group * p->group_panels) * p->nr;
            const int channels = EK_MIN(p->group_oc - o, p->nr);
            const ptrdiff_t at = (ptrdiff_t)group * p->group_ic * p->element;
            for (int r = 0; r < rows; r++) {
                int8_t *to = y + (ptrdiff_t)r * p->y_row + group * p->group_oc + o;
                row(taps + r * p->taps, at + (ptrdiff_t)first * p->step,
                    w + (ptrdiff_t)i * p->panel_bytes, to + (ptrdiff_t)first * p->y_step, channels,
                    p, n);
            }
        }
    }
}

/* One convolution: part `part` of it. */
EK_SHARED void ek_gemm_s8_phase(const int8_t *x, const unsigned char *w, int8_t *y,
                                const ek_gemm_s8_t *p, unsigned char *scratch,
                                ek_gemm_s8_row_t *row, ek_gemm_s8_load_t *load, int part,
                                int parts) {
    const ek_gemm_s8_buffers_t b = ek_gemm_s8_start(scratch, p, load);
    const int bands = (p->oh + p->band - 1) / p->band, blocks = p->n * bands,
              per_row = p->gather ? 1 : p->taps / p->kh;
    for (int block = 0; block < blocks; block++) {
        const ek_range_t panels = ek_share_of(block, blocks, p->panels, p->by_panels, part, parts);
        if (panels.from >= panels.to) continue;
        const int image = block / bands, top = block % bands * p->band,
                  rows = EK_MIN(p->band, p->oh - top);
        const int windows = EK_MIN(p->ow, p->windows - top * p->ow);
        const int8_t **tap = b.taps;
        for (int r = 0; r < rows; r++) {
            EK_NO_UNROLL for (int ky = 0; ky < p->kh; ky++) {
                const int iy = (top + r) * p->sh - p->pt + ky * p->dh;
                const int8_t *line = ek_gemm_s8_line(x, image, iy, windows, p, load, &b);
                EK_NO_UNROLL for (int kx = 0; kx < per_row; kx++) tap[ky * per_row + kx] =
                    line + kx * p->tap_bytes;
            }
            if (p->gather)
                *tap =
                    ek_gemm_s8_gather(tap, b.gathered + (ptrdiff_t)r * p->gather_bytes, windows, p);
            tap += p->taps;
        }
        int8_t *out = y + (ptrdiff_t)image * p->y_image + (ptrdiff_t)top * p->y_row;
        ek_gemm_s8_block(b.taps, w, out, p, row, rows, windows, panels.from, panels.to);
    }
}

/* x: image [n,ih,iw,ic]; panels: of each phase; y: as p->y_step, y_row and y_image say; scratch:
 * the buffers, of this part alone. Each row has at least mr windows. Rows and columns of the result
 * of a transposed convolution that are phase_h and phase_w apart are a convolution of stride 1 by
 * some of the taps. */
EK_SHARED void ek_gemm_s8(const int8_t *x, const void *panels, int8_t *y, const ek_gemm_s8_t *p,
                          void *scratch, ek_gemm_s8_row_t *row, ek_gemm_s8_load_t *load, int part,
                          int parts) {
    const unsigned char *w = panels;
    if (p->phase_h * p->phase_w == 1) {
        ek_gemm_s8_phase(x, w, y, p, scratch, row, load, part, parts);
        return;
    }
    for (int a = 0; a < p->phase_h; a++)
        for (int b = 0; b < p->phase_w; b++, w += (ptrdiff_t)p->panels * p->panel_bytes) {
            ek_gemm_s8_t q = *p;
            q.oh = (p->oh - a + p->phase_h - 1) / p->phase_h,
            q.ow = (p->ow - b + p->phase_w - 1) / p->phase_w;
            q.pt = p->kh - 1 - (a + p->pt) / p->phase_h,
            q.pl = p->kw - 1 - (b + p->pl) / p->phase_w;
            q.windows = q.oh * q.ow;
            int8_t *to = y + (ptrdiff_t)a * (p->y_row / p->phase_h) +
                         (ptrdiff_t)b * (p->y_step / p->phase_w);
            ek_gemm_s8_phase(x, w, to, &q, scratch, row, load, part, parts);
        }
}

/* The tiles of a row, by a tile (always inline) of mr windows: the last overlaps the one before it.
 */
#define EK_GEMM_S8_TILES(TILE, mr, channels, ...)                                         \
    for (int c = 0; c < windows; c += (mr)) {                                             \
        const ptrdiff_t i = EK_MIN(c, windows - (mr));                                    \
        TILE(taps, at + i * p->step, panel, y + i * p->y_step, channels, p, __VA_ARGS__); \
    }

/* The whole product by a tile over a row. */
#define EK_GEMM_S8_WHOLE(NAME, ROW, LOAD)                                                      \
    EK_KERNEL void NAME(const int8_t *x, const void *panels, int8_t *y, const ek_gemm_s8_t *p, \
                        void *scratch, int part, int parts) {                                  \
        ek_gemm_s8(x, panels, y, p, scratch, ROW, LOAD, part, parts);                          \
    }

/* From TILE(taps, at, panel, y, channels, p, ...): ROW, the tile over a row, and NAME, the whole
 * product. */
#define EK_GEMM_S8(NAME, ROW, LOAD, TILE, ...)                                              \
    EK_SHARED void ROW(const int8_t *const *taps, ptrdiff_t at, const unsigned char *panel, \
                       int8_t *y, int channels, const ek_gemm_s8_t *p, int windows){        \
        EK_GEMM_S8_TILES(TILE, p -> mr, channels, __VA_ARGS__)} EK_GEMM_S8_WHOLE(NAME, ROW, LOAD)

#endif
