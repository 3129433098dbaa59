/* The inner part of float convolutions and matrix products: a tile of windows by channels that
 * stays in registers.
 *
 * Weights come in panels, [panels][taps of a window][channels of a panel]: two vectors of channels,
 * or one in the last panel where that is enough. The last panel is padded with zeros, and so are
 * bias and slopes. */
#ifndef EK_TILE_F32_SIMD_H
#define EK_TILE_F32_SIMD_H
#include "ek_epilogue.h"
#include "ek_simd.h"

#if defined(__AVX512F__)
enum { EK_F32_ROWS = 14 }; /* of the largest tile, which leaves registers for weights */
#elif defined(__AVX2__)
enum { EK_F32_ROWS = 6 };
#else
enum { EK_F32_ROWS = 8 };
#endif

enum { EK_PANEL_F32 = 2 * EK_VL };              /* channels of a panel */
enum { EK_F32_SUMS = EK_MAX(EK_F32_ROWS, 10) }; /* windows by partial sums of a tile */

/* Reads one float of each line of n, in order. A tile reads and writes many places in turn, more
 * than a core follows to fetch ahead; memory that is beyond the caches is better fetched in one
 * stream before. */
EK_SHARED void ek_touch_f32(const float *x, ptrdiff_t n) {
    const volatile float *at = x;
    EK_ROLLED for (ptrdiff_t i = 0; i < n; i += 16)(void) at[i];
}

/* Where a tile reads and writes; distances in floats. A window is runs_y * runs_x runs of adjacent
 * floats. */
typedef struct {
    int runs_y, runs_x, run;
    ptrdiff_t dy, dx, sx; /* between runs, and between windows */
    ptrdiff_t yx;         /* between results; those of the operand that is added lie likewise */
    int todo;             /* EK_DO_* */
    float low, high, low_sum, high_sum;
    const float *bias, *slope;
} ek_tile_f32_t;

/* `count` windows from x, tile after tile, by the panel w. y: the first result, added likewise:
 * channel `o` of the bias; `cols` channels are wanted. All windows of the last tile are read. */
typedef void ek_tile_f32_fn(const float *x, const float *w, const float *added, float *y,
                            const ek_tile_f32_t *t, int o, int count, int cols);

#define EK_EACH_F32(r, i) \
    EK_UNROLL for (int r = 0; r < MR; r++) EK_UNROLL for (int i = 0; i < NV; i++)

/* What is loaded after the sums of a row is not loaded before: so many registers there are not. */
#define EK_IN_TURN_F32(REGISTERS, R) \
    EK_UNROLL for (int i = 0; i < NV; i++) __asm__ volatile("" : REGISTERS(acc[R][i]) : : "memory");
#if defined(__aarch64__)
#define EK_ROW_IN_TURN_F32(R)
#define EK_RUN_IN_TURN_F32 EK_UNROLL for (int r = 0; r < MR * PS; r++) EK_IN_TURN_F32("+w", r)
#else
#define EK_ROW_IN_TURN_F32(R) EK_IN_TURN_F32("+v", R)
#define EK_RUN_IN_TURN_F32
#endif
/* The sums of one tap: x[r] times the weights of NV vectors of channels. */
#define EK_TAP_F32(PART, X)                                                          \
    {                                                                                \
        ek_vf b_[2];                                                                 \
        EK_UNROLL for (int i = 0; i < NV; i++) b_[i] = ek_vf_load(w + i * EK_VL);    \
        w += NV * EK_VL;                                                             \
        EK_UNROLL for (int r = 0; r < MR; r++) {                                     \
            EK_UNROLL for (int i = 0; i < NV; i++) acc[r * PS + (PART) % PS][i] = X; \
            EK_ROW_IN_TURN_F32(r *PS + (PART) % PS)                                  \
        }                                                                            \
    }
/* The sums of the taps of one step, EK_STEP_F32 from x[r] + K on: the one at J is a lane of a
 * vector that is loaded once, where the core multiplies by lanes. */
#define EK_LANE_F32(K, J) \
    EK_TAP_F32(J, EK_FMA_LANE_F32(acc[r * PS + (J) % PS][i], b_[i], a_[r], row[r] + (K), J))
#define EK_TAPS_F32(K)                                                               \
    {                                                                                \
        ek_vf a_[EK_F32_ROWS];                                                       \
        EK_UNROLL for (int r = 0; r < MR; r++) a_[r] = EK_STEP_OF_F32(row[r] + (K)); \
        (void)a_;                                                                    \
        EK_LANES_F32(EK_LANE_F32, K)                                                 \
    }
/* The same of the last tap of a step alone. */
#define EK_LAST_TAP_F32(K)                                                           \
    {                                                                                \
        ek_vf a_[EK_F32_ROWS];                                                       \
        EK_UNROLL for (int r = 0; r < MR; r++) a_[r] = EK_STEP_OF_F32(row[r] + (K)); \
        (void)a_;                                                                    \
        EK_LANE_F32(K, EK_STEP_F32 - 1)                                              \
    }
/* The same of the first four taps of a step alone. */
#define EK_FOUR_TAPS_F32(K)                                                          \
    {                                                                                \
        ek_vf a_[EK_F32_ROWS];                                                       \
        EK_UNROLL for (int r = 0; r < MR; r++) a_[r] = EK_FOUR_OF_F32(row[r] + (K)); \
        (void)a_;                                                                    \
        EK_LANE_F32(K, 0) EK_LANE_F32(K, 1) EK_LANE_F32(K, 2) EK_LANE_F32(K, 3)      \
    }

/* Sums of more than EK_TERMS_F32 terms are kept in `total` and begun anew, so that what a sum loses
 * by rounding does not grow with its length; 0: there is no need. The error of a sum of n terms is
 * at most about n units of its last place, and that of sums of sums the sum of both (N. J. Higham,
 * The Accuracy of Floating Point Summation, SIAM J. Sci. Comput. 14, 1993). */
#define EK_KEEP_SUMS_F32                                                      \
    if (EK_TERMS_F32 > 0) {                                                   \
        if (kept) EK_UNROLL for (int r = 0; r < MR * PS; r++) {               \
                EK_UNROLL for (int i = 0; i < NV; i++) acc[r][i] =            \
                    acc[r][i] + ek_vf_load(total[r][i]);                      \
            }                                                                 \
        EK_UNROLL for (int r = 0; r < MR * PS; r++) {                         \
            EK_UNROLL for (int i = 0; i < NV; i++) {                          \
                ek_vf_store(total[r][i], acc[r][i]);                          \
                acc[r][i] = ek_vf_set(0.0f);                                  \
            }                                                                 \
        }                                                                     \
        kept = 1;                                                             \
        /* Else the compiler holds them in registers, which the sums need. */ \
        __asm__ volatile("" : : "r"(total) : "memory");                       \
    }

/* The sums of MR windows by NV vectors of channels; those of few windows are of every PS-th tap,
 * added at the end, so that no addition waits for the one before. RUN: floats of a run and SX:
 * between windows, where the compiler may know them, else 0; FLAT: whether a window is one run. */
EK_KERNEL void ek_tile_f32_sums(const float *x, const float *w, const ek_tile_f32_t *t, int o,
                                ek_vf acc[][2], const int MR, const int NV, const int PS,
                                const int RUN, const int SX, const int FLAT) {
    const float *row[EK_F32_ROWS];
    EK_UNROLL for (int r = 0; r < MR; r++) row[r] = SX ? x + r * SX : r ? row[r - 1] + t->sx : x;
    EK_UNROLL for (int i = 0; i < NV; i++) {
        /* Beside a bias, halves of products lose bits: it is added last. */
        const ek_vf bias = ek_vf_load(t->bias + o + i * EK_VL);
        const ek_vf first = EK_TERMS_F32 > 0 ? ek_vf_set(0.0f) : bias;
        EK_UNROLL for (int r = 0; r < MR * PS; r++) acc[r][i] = r % PS ? ek_vf_set(0.0f) : first;
    }
    const ptrdiff_t dy = t->dy, dx = t->dx;
    const int steps = t->run / EK_STEP_F32, rest = t->run % EK_STEP_F32, runs_x = t->runs_x;
    float total[EK_F32_SUMS][2][EK_TERMS_F32 > 0 ? EK_VL : 1];
    const int keeps = EK_TERMS_F32 > 0 && (RUN ? RUN : t->runs_y * runs_x * t->run) > EK_TERMS_F32;
    int terms = EK_TERMS_F32, kept = 0; /* terms that a sum may still have; whether total is set */
    ptrdiff_t start = 0, at, k = 0;
    int ky = FLAT ? 1 : t->runs_y;
    if (ky) EK_ROLLED do { /* a phase of a transposed one may have no taps */
            int kx = FLAT ? 1 : runs_x;
            at = start;
            EK_ROLLED do {
                if (RUN) {
                    EK_UNROLL for (int f = 0; f < RUN / EK_STEP_F32; f++) {
                        EK_TAPS_F32(at + EK_STEP_F32 * f)
                        EK_RUN_IN_TURN_F32
                    }
                    if (RUN % EK_STEP_F32 == 1) EK_LAST_TAP_F32(at + RUN - EK_STEP_F32)
                } else {
                    int left = steps;
                    k = at;
                    if (left) EK_ROLLED do {
                            int some = left; /* steps before the sums are kept */
                            if (keeps && terms < EK_STEP_F32) {
                                EK_KEEP_SUMS_F32
                                terms = EK_TERMS_F32;
                            }
                            if (keeps) some = EK_MIN(left, terms / EK_STEP_F32);
                            left -= some, terms -= some * EK_STEP_F32;
                            EK_ROLLED do { EK_TAPS_F32(k) k += EK_STEP_F32; }
                            while (--some);
                        }
                    while (left);
                    left = rest;
                    if (EK_STEP_F32 > 4 && left >= 4) {
                        EK_FOUR_TAPS_F32(k)
                        k += 4, left -= 4, terms -= 4;
                    }
                    if (left) EK_ROLLED do {
                            EK_TAP_F32(0, ek_vf_fma(b_[i], ek_vf_set(row[r][k]), acc[r * PS][i]))
                            k++, terms--;
                        }
                    while (--left);
                }
                at += dx;
            }
            while (--kx);
            start += dy;
        }
    while (--ky);
    if (kept) {
        EK_UNROLL for (int r = 0; r < MR * PS; r++) {
            EK_UNROLL for (int i = 0; i < NV; i++) acc[r][i] = acc[r][i] + ek_vf_load(total[r][i]);
        }
    }
    EK_UNROLL for (int j = PS / 2; j > 0; j /= 2) {
        EK_UNROLL for (int r = 0; r < MR; r++) {
            EK_UNROLL for (int s = 0; s < j; s++) {
                EK_UNROLL for (int i = 0; i < NV; i++) acc[r * PS + s][i] =
                    acc[r * PS + s][i] + acc[r * PS + s + j][i];
            }
        }
    }
    if (EK_TERMS_F32 > 0) {
        EK_UNROLL for (int i = 0; i < NV; i++) {
            const ek_vf bias = ek_vf_load(t->bias + o + i * EK_VL);
            EK_UNROLL for (int r = 0; r < MR; r++) acc[r * PS][i] = acc[r * PS][i] + bias;
        }
    }
}

#define EK_SUM_F32 acc[r * PS][i]
#define EK_BOUND_F32(STEP, EXTREME, BOUND)                          \
    if (t->todo & (STEP)) {                                         \
        const ek_vf bound_ = ek_vf_set(BOUND);                      \
        EK_EACH_F32(r, i) EK_SUM_F32 = EXTREME(EK_SUM_F32, bound_); \
    }

/* Between bounds of 0 and more. On Arm NaN with a sign, which no arithmetic makes there, becomes
 * the lower one: a maximum of floats would take 2.6 % of a network of such clamps on the A72. */
EK_KERNEL ek_vf ek_vf_clamp(ek_vf v, ek_vf low, ek_vf high) {
    return ek_vf_min(ek_vf_at_least(v, low), high);
}
/* NaN of either sign stays in one of both bounds. */
EK_KERNEL ek_vf ek_vf_prelu(ek_vf v, ek_vf slope) {
    const ek_vf zero = ek_vf_set(0);
    return ek_vf_fma(ek_vf_at_most(v, zero), slope, ek_vf_at_least(v, zero));
}
EK_KERNEL ek_vf ek_vf_hard_swish(ek_vf v) {
    const ek_vf part = ek_vf_fma(v, ek_vf_set(1.0f / 6), ek_vf_set(0.5f));
    return v * ek_vf_at_most(ek_vf_at_least(part, ek_vf_set(0)), ek_vf_set(1));
}

/* Where masks cost nothing: those of a vector that lie within the result. */
EK_KERNEL ek_vf ek_vf_part_load(const float *p, ek_vmask some) {
    return EK_MASKS ? ek_vf_load_some(p, some, ek_vf_set(0)) : ek_vf_load(p);
}
EK_KERNEL void ek_vf_part_store(float *p, ek_vf v, ek_vmask some) {
    if (EK_MASKS)
        ek_vf_store_some(p, v, some);
    else
        ek_vf_store(p, v);
}
EK_KERNEL void ek_row_f32(float *to, const float *from, int n) {
    EK_ROLLED for (int i = 0; i < n; i += EK_VL)
        ek_vf_store_n(to + i, ek_vf_load_n(from + i, n - i), n - i);
}
/* n floats of the row of a tile. */
EK_KERNEL void ek_tile_f32_row(float *to, const float *from, int n, const int NV) {
    EK_UNROLL for (int i = 0; i < NV; i++)
        ek_vf_store_n(to + i * EK_VL, ek_vf_load(from + i * EK_VL), EK_MAX(n - i * EK_VL, 0));
}

/* What follows the sums. added: of the first window, `yx` floats between windows. */
EK_KERNEL void ek_tile_f32_finish(const float *added, ptrdiff_t yx, const ek_tile_f32_t *t, int o,
                                  ek_vf acc[][2], const ek_vmask *some, const int MR, const int NV,
                                  const int PS) {
    EK_BOUND_F32(EK_DO_LOW | EK_DO_HIGH, ek_vf_max, t->low)
    EK_BOUND_F32(EK_DO_LOW | EK_DO_HIGH, ek_vf_min, t->high)
    if (!(t->todo & ~(EK_DO_LOW | EK_DO_HIGH))) return;
    if (t->todo & EK_DO_ADD) EK_UNROLL for (int r = 0; r < MR; r++, added += yx) {
            EK_UNROLL for (int i = 0; i < NV; i++) EK_SUM_F32 +=
                ek_vf_part_load(added + i * EK_VL, some[i]);
        }
    EK_BOUND_F32(EK_DO_LOW_SUM, ek_vf_max, t->low_sum)
    EK_BOUND_F32(EK_DO_HIGH_SUM, ek_vf_min, t->high_sum)
    if (t->todo & EK_DO_PRELU) {
        EK_UNROLL for (int i = 0; i < NV; i++) {
            const ek_vf slope = ek_vf_load(t->slope + o + i * EK_VL);
            EK_UNROLL for (int r = 0; r < MR; r++) EK_SUM_F32 = ek_vf_prelu(EK_SUM_F32, slope);
        }
    }
    if (t->todo & EK_DO_HARD_SWISH) EK_EACH_F32(r, i) EK_SUM_F32 = ek_vf_hard_swish(EK_SUM_F32);
}

/* END: EK_END_*, what todo is known to be. */
EK_KERNEL void ek_tile_f32(const float *x, const float *w, const float *added, float *y,
                           const ek_tile_f32_t *t, int o, int count, int cols, const int MR,
                           const int NV, const int PS, const int END, const int RUN, const int SX,
                           const int FLAT) {
    const int width = NV * EK_VL, apart = END == EK_END_ANY && t->todo & EK_DO_ADD;
    ek_vmask some[2];
    EK_UNROLL for (int i = 0; i < NV; i++) some[i] = ek_vmask_of(cols - i * EK_VL);
    EK_ROLLED for (; count > 0; count -= MR) {
        ek_vf acc[EK_F32_SUMS][2];
        float edge[EK_F32_ROWS *
                   EK_PANEL_F32]; /* a tile that is not whole goes by way of one that is */
        ek_tile_f32_sums(x, w, t, o, acc, MR, NV, PS, RUN, SX, FLAT);
        const ek_vf low = ek_vf_set(t->low), high = ek_vf_set(t->high);
        if (END == EK_END_LOW) EK_EACH_F32(r, i) EK_SUM_F32 = ek_vf_max(EK_SUM_F32, low);
        if (END == EK_END_BOTH) EK_EACH_F32(r, i) EK_SUM_F32 = ek_vf_clamp(EK_SUM_F32, low, high);
        const int rows = EK_MIN(count, MR), whole = rows == MR && (EK_MASKS || cols == width);
        const ptrdiff_t yx = whole ? t->yx : width;
        float *to = whole ? y : edge;
        if (END == EK_END_ANY && t->todo) {
            if (apart && !whole)
                EK_ROLLED for (int r = 0; r < rows; r++)
                    ek_row_f32(edge + r * width, added + r * t->yx, cols);
            ek_tile_f32_finish(whole ? added : edge, yx, t, o, acc, some, MR, NV, PS);
        }
        if (EK_MASKS && cols < width) {
            EK_UNROLL for (int r = 0; r < MR; r++, to += yx) {
                EK_UNROLL for (int i = 0; i < NV; i++)
                    ek_vf_part_store(to + i * EK_VL, EK_SUM_F32, some[i]);
            }
        } else {
            EK_UNROLL for (int r = 0; r < MR; r++, to += yx) {
                EK_UNROLL for (int i = 0; i < NV; i++) ek_vf_store(to + i * EK_VL, EK_SUM_F32);
            }
        }
        if (!whole)
            EK_ROLLED for (int r = 0; r < rows; r++)
                ek_tile_f32_row(y + r * t->yx, edge + r * width, cols, NV);
        x += MR * (SX ? SX : t->sx), y += MR * t->yx;
        if (apart) added += MR * t->yx;
    }
}

/* One function for each size, emitted where it is used: windows x vectors, what is done to sums
 * (nothing: whatever todo says), and what is known of the windows: 1x1 of 8 and 16 channels, and
 * 3x3 of 3 channels with stride 2. */
#define EK_TILE_F32(NAME, ...)                                                            \
    EK_SHARED void ek_tile_f32_##NAME(const float *x, const float *w, const float *added, \
                                      float *y, const ek_tile_f32_t *t, int o, int count, \
                                      int cols) {                                         \
        ek_tile_f32(x, w, added, y, t, o, count, cols, __VA_ARGS__);                      \
    }
#define EK_ENDS_F32(SIZE, KNOWN, MR, NV, PS, ...)                        \
    EK_TILE_F32(SIZE##KNOWN, MR, NV, PS, EK_END_ANY, __VA_ARGS__)        \
    EK_TILE_F32(SIZE##_sum##KNOWN, MR, NV, PS, EK_END_NONE, __VA_ARGS__) \
    EK_TILE_F32(SIZE##_low##KNOWN, MR, NV, PS, EK_END_LOW, __VA_ARGS__)  \
    EK_TILE_F32(SIZE##_both##KNOWN, MR, NV, PS, EK_END_BOTH, __VA_ARGS__)
/* The products of an image cancel out: two partial sums of halves lose a quarter of one. */
#define EK_RGB_SUMS_F32(MR, PS) (EK_TERMS_F32 > 0 && (MR) <= 5 ? EK_MAX(2, PS) : (PS))
#define EK_KNOWN_F32(SIZE, MR, NV, PS)                \
    EK_ENDS_F32(SIZE, , MR, NV, PS, 0, 0, 0)          \
    EK_ENDS_F32(SIZE, _flat8, MR, NV, PS, 8, 8, 1)    \
    EK_ENDS_F32(SIZE, _flat16, MR, NV, PS, 16, 16, 1) \
    EK_ENDS_F32(SIZE, _rgb2, MR, NV, EK_RGB_SUMS_F32(MR, PS), 9, 6, 0)
#define EK_TILES_F32(MR, PS)        \
    EK_KNOWN_F32(MR##x1, MR, 1, PS) \
    EK_KNOWN_F32(MR##x2, MR, 2, PS)
EK_TILES_F32(1, 4)
EK_TILES_F32(2, 2)
EK_TILES_F32(3, 2)
EK_TILES_F32(4, 1)
EK_TILES_F32(5, 1)
EK_TILES_F32(6, 1)
#if !defined(__AVX2__) || defined(__AVX512F__)
EK_TILES_F32(7, 1)
EK_TILES_F32(8, 1)
#endif
#if defined(__AVX512F__)
EK_TILES_F32(10, 1)
EK_TILES_F32(12, 1)
EK_TILES_F32(14, 1)
#endif

#endif
