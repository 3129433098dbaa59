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

enum { EK_NORM_RUN = 64 }; /* pixels whose sum fits a float; the sums of runs are added in double */

/* Sums of (x - centre), or of its square, over the pixels of one image, for EK_LANES channels from `first` on. */
EK_KERNEL void ek_norm_sums(const float *x, const double *centre, double *sum, const ek_norm_t *p, int first, int square) {
    const int lanes = EK_MIN(EK_LANES, p->c - first);
    for (int j = 0; j < lanes; j++) sum[j] = 0;
    for (int from = 0; from < p->pixels; from += EK_NORM_RUN) {
        const int to = EK_MIN(from + EK_NORM_RUN, p->pixels);
        float run[EK_LANES] = {0};
        for (int i = from; i < to; i++) {
            const float *pixel = x + (ptrdiff_t)i * p->c + first;
            for (int j = 0; j < lanes; j++) {
                const float d = pixel[j] - (square ? (float)centre[j] : 0);
                run[j] += square ? d * d : d;
            }
        }
        for (int j = 0; j < lanes; j++) sum[j] += run[j];
    }
}

/* The mean of each group's entries, in all of its channels. */
EK_KERNEL void ek_norm_share(double *sum, const ek_norm_t *p) {
    for (int from = 0; from < p->c; from += p->group) {
        double total = 0;
        for (int j = from; j < from + p->group; j++) total += sum[j];
        for (int j = from; j < from + p->group; j++) sum[j] = total / ((double)p->pixels * p->group);
    }
}

/* `memory` holds c doubles. */
EK_KERNEL void ek_instance_norm_f32(const float *x, const float *scale, const float *bias, float *y, void *memory,
                                    const ek_norm_t *p) {
    double *mean = memory;
    for (int b = 0; b < p->n; b++, x += (ptrdiff_t)p->pixels * p->c, y += (ptrdiff_t)p->pixels * p->c) {
        for (int j = 0; j < p->c; j += EK_LANES) ek_norm_sums(x, mean, mean + j, p, j, 0);
        ek_norm_share(mean, p);
    }
    (void)scale, (void)bias, (void)y;
}

#endif
