/* Normalisations of float tensors, channels last. */
#ifndef EK_NORM_H
#define EK_NORM_H
#include "ek_base.h"

/* y = x * k + b for each channel. */
EK_KERNEL void ek_scale_channels_f32(const float *x, const float *k, const float *b, float *y,
                                     int rows, int c) {
    for (int i = 0; i < rows; i++, x += c, y += c)
        for (int j = 0; j < c; j++) y[j] = x[j] * k[j] + b[j];
}

/* `group` channels are normalised together. */
typedef struct {
    int n, pixels, c, group;
    float eps;
} ek_norm_t;

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
                                   const ek_norm_t *p) {
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

/* For each channel of one image the mean, over the pixels and the channels of its group, of d and,
 * unless null, of its square. centre: null for zeros. */
EK_KERNEL void ek_norm_sums(const float *x, const double *centre, double *sum, double *square,
                            const ek_norm_t *p) {
    for (int first = 0; first < p->c; first += EK_LANES) {
        const int lanes = EK_MIN(EK_LANES, p->c - first);
        float from_centre[EK_LANES] = {0};
        for (int j = 0; j < lanes; j++) {
            if (centre) from_centre[j] = (float)centre[first + j];
            sum[first + j] = 0;
            if (square) square[first + j] = 0;
        }
        for (int from = 0; from < p->pixels; from += EK_NORM_RUN) {
            const int to = EK_MIN(from + EK_NORM_RUN, p->pixels);
            float run[EK_LANES] = {0}, run_square[EK_LANES] = {0};
            for (int i = from; i < to; i++) {
                const float *pixel = x + (ptrdiff_t)i * p->c + first;
                for (int j = 0; j < lanes; j++) {
                    const float d = pixel[j] - from_centre[j];
                    run[j] += d;
                    run_square[j] += d * d;
                }
            }
            for (int j = 0; j < lanes; j++) {
                sum[first + j] += (double)run[j];
                if (square) square[first + j] += (double)run_square[j];
            }
        }
    }
    ek_norm_group_means(sum, square, 0, p->c, p);
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

/* Channels from..to of one image, all in double: for what overflows in float. */
EK_SHARED void ek_norm_wide_f32(const float *x, const float *scale, const float *bias, float *y,
                                int from, int to, const ek_norm_t *p) {
    const double n = (double)p->pixels * p->group;
    for (int g = from; g < to; g += p->group) {
        double mean = 0, square = 0;
        for (int i = 0; i < p->pixels; i++)
            for (int j = g; j < g + p->group; j++) mean += (double)x[(ptrdiff_t)i * p->c + j];
        mean /= n;
        for (int i = 0; i < p->pixels; i++)
            for (int j = g; j < g + p->group; j++) {
                const double d = (double)x[(ptrdiff_t)i * p->c + j] - mean;
                square += d * d;
            }
        const double k = ek_norm_factor(0, square / n, p->eps);
        for (int i = 0; i < p->pixels; i++)
            for (int j = g; j < g + p->group; j++) {
                const ptrdiff_t at = (ptrdiff_t)i * p->c + j;
                y[at] = (float)(((double)x[at] - mean) * k * (double)scale[j] + (double)bias[j]);
            }
    }
}

/* `memory` holds 3 * c doubles. */
EK_KERNEL void ek_instance_norm_f32(const float *x, const float *scale, const float *bias, float *y,
                                    void *memory, const ek_norm_t *p) {
    double *centre = memory, *shift = centre + p->c, *factor = shift + p->c;
    const ptrdiff_t image = (ptrdiff_t)p->pixels * p->c;
    for (int b = 0; b < p->n; b++, x += image, y += image) {
        ek_norm_sums(x, NULL, centre, NULL, p);
        ek_norm_sums(x, centre, shift, factor, p);
        if (ek_norm_overflows(factor, 0, p->c)) {
            ek_norm_wide_f32(x, scale, bias, y, 0, p->c, p);
            continue;
        }
        for (int j = 0; j < p->c; j++) {
            factor[j] = (double)scale[j] * ek_norm_factor(shift[j], factor[j], p->eps);
            shift[j] = (double)bias[j] - shift[j] * factor[j];
        }
        for (ptrdiff_t i = 0; i < image; i += p->c)
            for (int j = 0; j < p->c; j++)
                y[i + j] = (x[i + j] - (float)centre[j]) * (float)factor[j] + (float)shift[j];
    }
}

/* Rows of n elements, each normalised by itself. */
typedef struct {
    int rows, n;
    float eps;
} ek_layer_norm_t;

/* The mean of d over a row and, unless null, of its squares. */
EK_KERNEL double ek_row_mean(const float *x, int n, float centre, double *square) {
    double sum = 0, sum_square = 0;
    for (int from = 0; from < n; from += EK_NORM_RUN) {
        const int to = EK_MIN(from + EK_NORM_RUN, n);
        float run = 0, run_square = 0;
        for (int i = from; i < to; i++) {
            const float d = x[i] - centre;
            run += d;
            run_square += d * d;
        }
        sum += (double)run;
        sum_square += (double)run_square;
    }
    if (square) *square = sum_square / n;
    return sum / n;
}

/* One row, all in double: for what overflows in float. */
EK_SHARED void ek_layer_norm_wide_f32(const float *x, const float *scale, const float *bias,
                                      float *y, int n, float eps) {
    double mean = 0, square = 0;
    for (int i = 0; i < n; i++) mean += (double)x[i];
    mean /= n;
    for (int i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double k = ek_norm_factor(0, square / n, eps);
    for (int i = 0; i < n; i++)
        y[i] = (float)(((double)x[i] - mean) * k * (double)scale[i] + (double)bias[i]);
}

EK_KERNEL void ek_layer_norm_f32(const float *x, const float *scale, const float *bias, float *y,
                                 const ek_layer_norm_t *p) {
    for (int r = 0; r < p->rows; r++, x += p->n, y += p->n) {
        double square;
        const float centre = (float)ek_row_mean(x, p->n, 0, NULL);
        const double shift = ek_row_mean(x, p->n, centre, &square);
        if (!isfinite(square)) {
            ek_layer_norm_wide_f32(x, scale, bias, y, p->n, p->eps);
            continue;
        }
        const double factor = ek_norm_factor(shift, square, p->eps);
        const float k = (float)factor, moved = (float)(-shift * factor);
        for (int i = 0; i < p->n; i++) y[i] = ((x[i] - centre) * k + moved) * scale[i] + bias[i];
    }
}

#endif
