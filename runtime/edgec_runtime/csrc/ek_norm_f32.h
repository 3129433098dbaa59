/* Normalisations of tensors of floats, channels last. Elements of all types are
 * computed as floats. */
#ifndef EK_NORM_F32_H
#define EK_NORM_F32_H
#include "ek_norm.h"

/* For each channel of one image the mean, over the pixels and the channels of its group, of d and,
 * unless null, of its square. centre: null for zeros. */
EK_KERNEL void ek_norm_sums_f32(const float *x, const double *centre, double *sum, double *square,
                                const ek_instance_norm_t *p) {
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

/* Channels from..to of one image, all in double: for what overflows in float. */
EK_SHARED void ek_norm_wide_f32(const float *x, const float *scale, const float *bias, float *y,
                                int from, int to, const ek_instance_norm_t *p) {
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
                                    void *memory, const ek_instance_norm_t *p) {
    double *centre = memory, *shift = centre + p->c, *factor = shift + p->c;
    const ptrdiff_t image = (ptrdiff_t)p->pixels * p->c;
    for (int b = 0; b < p->n; b++, x += image, y += image) {
        ek_norm_sums_f32(x, NULL, centre, NULL, p);
        ek_norm_sums_f32(x, centre, shift, factor, p);
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

/* The mean of d over a row and, unless null, of its squares. */
EK_KERNEL double ek_row_mean_f32(const float *x, int n, float centre, double *square) {
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
        const float centre = (float)ek_row_mean_f32(x, p->n, 0, NULL);
        const double shift = ek_row_mean_f32(x, p->n, centre, &square);
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
