/* Normalisations of float tensors, channels last. */
#ifndef EK_NORM_H
#define EK_NORM_H
#include "ek_base.h"

/* y = x * k + b for each channel. */
EK_KERNEL void ek_scale_channels_f32(const float *x, const float *k, const float *b, float *y, int rows, int c) {
    for (int i = 0; i < rows; i++, x += c, y += c)
        for (int j = 0; j < c; j++) y[j] = x[j] * k[j] + b[j];
}

/* `group` channels are normalised together. */
typedef struct {
    int n, pixels, c, group;
    float eps;
} ek_norm_t;

enum { EK_NORM_RUN = 64 }; /* elements whose sum fits a float; the sums of runs are added in double */

/* For each channel the sum over the pixels of one image, or (with `mean`) of the squared distances from it. */
EK_KERNEL void ek_norm_sums(const float *x, const double *mean, double *sum, const ek_norm_t *p) {
    for (int first = 0; first < p->c; first += EK_LANES) {
        const int lanes = EK_MIN(EK_LANES, p->c - first);
        float centre[EK_LANES] = {0};
        for (int j = 0; j < lanes; j++) {
            if (mean) centre[j] = (float)mean[first + j];
            sum[first + j] = 0;
        }
        for (int from = 0; from < p->pixels; from += EK_NORM_RUN) {
            const int to = EK_MIN(from + EK_NORM_RUN, p->pixels);
            float run[EK_LANES] = {0};
            for (int i = from; i < to; i++) {
                const float *pixel = x + (ptrdiff_t)i * p->c + first;
                for (int j = 0; j < lanes; j++) {
                    const float d = pixel[j] - centre[j];
                    run[j] += mean ? d * d : d;
                }
            }
            for (int j = 0; j < lanes; j++) sum[first + j] += (double)run[j];
        }
    }
    /* the mean of each group's sums, in all of its channels */
    for (int from = 0; from < p->c; from += p->group) {
        double total = 0;
        for (int j = from; j < from + p->group; j++) total += sum[j];
        for (int j = from; j < from + p->group; j++) sum[j] = total / ((double)p->pixels * p->group);
    }
}

/* `memory` holds 2 * c doubles. */
EK_KERNEL void ek_instance_norm_f32(const float *x, const float *scale, const float *bias, float *y, void *memory,
                                    const ek_norm_t *p) {
    double *mean = memory, *var = mean + p->c;
    for (int b = 0; b < p->n; b++) {
        ek_norm_sums(x, NULL, mean, p);
        ek_norm_sums(x, mean, var, p);
        for (int j = 0; j < p->c; j++) var[j] = scale[j] / sqrt(var[j] + p->eps);
        for (int i = 0; i < p->pixels; i++, x += p->c, y += p->c)
            for (int j = 0; j < p->c; j++) y[j] = (x[j] - (float)mean[j]) * (float)var[j] + bias[j];
    }
}

/* Rows of n elements, each normalised by itself. */
typedef struct {
    int rows, n;
    float eps;
} ek_layer_norm_t;

/* The mean of the elements, or (around `centre`) of their squared distances. */
EK_KERNEL double ek_row_mean(const float *x, int n, float centre, int square) {
    double sum = 0;
    for (int from = 0; from < n; from += EK_NORM_RUN) {
        const int to = EK_MIN(from + EK_NORM_RUN, n);
        float run = 0;
        for (int i = from; i < to; i++) run += square ? (x[i] - centre) * (x[i] - centre) : x[i];
        sum += (double)run;
    }
    return sum / n;
}

EK_KERNEL void ek_layer_norm_f32(const float *x, const float *scale, const float *bias, float *y,
                                 const ek_layer_norm_t *p) {
    for (int r = 0; r < p->rows; r++, x += p->n, y += p->n) {
        const float mean = (float)ek_row_mean(x, p->n, 0, 0);
        const float k = (float)(1 / sqrt(ek_row_mean(x, p->n, mean, 1) + p->eps));
        for (int i = 0; i < p->n; i++) y[i] = (x[i] - mean) * k * scale[i] + bias[i];
    }
}

#endif
