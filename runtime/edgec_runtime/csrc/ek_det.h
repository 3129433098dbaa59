/* Determinants, by elimination with pivots in double. */
#ifndef EK_DET_H
#define EK_DET_H
#include "ek_base.h"

EK_KERNEL void ek_det_f32(const float *x, float *y, double *a, int count, int n) {
    for (int m = 0; m < count; m++, x += n * n) {
        double det = 1.0;
        for (int i = 0; i < n * n; i++) {
            a[i] = x[i];
            if (a[i] != a[i]) det = a[i]; /* no pivot of 0 makes 0 of it */
        }
        for (int c = 0; c < n && det != 0.0; c++) {
            int best = c;
            for (int r = c + 1; r < n; r++)
                if (fabs(a[r * n + c]) > fabs(a[best * n + c])) best = r;
            if (best != c) {
                det = -det;
                for (int k = 0; k < n; k++) {
                    const double t = a[c * n + k];
                    a[c * n + k] = a[best * n + k];
                    a[best * n + k] = t;
                }
            }
            det *= a[c * n + c];
            for (int r = c + 1; r < n && det != 0.0; r++) {
                const double f = a[r * n + c] / a[c * n + c];
                for (int k = c; k < n; k++) a[r * n + k] -= f * a[c * n + k];
            }
        }
        y[m] = (float)det;
    }
}

#endif
