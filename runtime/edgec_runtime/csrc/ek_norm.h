/* What the normalisations of ek_norm_f32.h have in common, whatever the elements are. */
#ifndef EK_NORM_H
#define EK_NORM_H
#include "ek_base.h"

/* y = x * k + b for each channel. */
#define EK_SCALE_CHANNELS(NAME, T)                                                   \
    EK_KERNEL void NAME(const T *x, const T *k, const T *b, T *y, int rows, int c) { \
        for (int i = 0; i < rows; i++, x += c, y += c)                               \
            for (int j = 0; j < c; j++) y[j] = x[j] * k[j] + b[j];                   \
    }
EK_SCALE_CHANNELS(ek_scale_channels_f32, float)
#if defined(EK_ELEMENT_F16)
EK_SCALE_CHANNELS(ek_scale_channels_f16, ek_half)
#endif

/* `group` channels are normalised together. */
typedef struct {
    int n, pixels, c, group;
    float eps;
} ek_instance_norm_t;

enum {
    EK_NORM_RUN = 64
}; /* elements whose sum fits a float; the sums of runs are added in double */

/* Means and variances are those of the corrected two-pass algorithm (Chan, Golub and LeVeque, The
 * American Statistician 37, 1983): the first pass gives a centre, a float near the mean; with d = x
 * - centre the second gives
 *
 *     mean = centre + shift,  shift = sum(d) / n,  variance = sum(d^2) / n - shift^2
 *
 * so that neither loses digits where the mean is much larger than the deviation, and the result is
 * that of the exact mean: (x - mean) * k = d * k - shift * k. Where floats overflow on the way,
 * ek_norm_wide_f32 does all in double. */

/* The sums of channels from..to become the means of their groups, which all channels of a group
 * then have. square: null where only the sums are wanted. */
EK_KERNEL void ek_norm_group_means(double *sum, double *square, int from, int to,
                                   const ek_instance_norm_t *p) {
    const double n = (double)p->pixels * p->group;
    for (int g = from; g < to; g += p->group) {
        double total = 0, total_square = 0;
        for (int j = g; j < g + p->group; j++) {
            total += sum[j];
            if (square) total_square += square[j];
        }
        for (int j = g; j < g + p->group; j++) {
            sum[j] = total / n;
            if (square) square[j] = total_square / n;
        }
    }
}

/* 1 / sqrt(variance + eps) from the means of d and of its square. Rounding may take a variance of
 * zero below it. */
EK_KERNEL double ek_norm_factor(double shift, double square, float eps) {
    const double variance = square - shift * shift;
    return 1 / sqrt(EK_MAX(variance, 0.0) + eps);
}

EK_KERNEL bool ek_norm_overflows(const double *means, int from, int to) {
    for (int j = from; j < to; j++)
        if (!isfinite(means[j])) return true;
    return false;
}

typedef float ek_norm_float_t; /* for elements of any type */

/* Rows of n elements, each normalised by itself. */
typedef struct {
    int rows, n;
    float eps;
} ek_layer_norm_t;

#endif
