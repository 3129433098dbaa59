/* Boxes of a detector: decoded from anchors, the best of those that overlap. */
#ifndef EK_DETECTION_H
#define EK_DETECTION_H
#include "ek_base.h"

typedef struct {
    int boxes, classes, background,
        most; /* classes: of a row of scores, the first `background` of which are none */
    float y_scale, x_scale, h_scale, w_scale, score, overlap;
} ek_detection_t;

/* top, left, bottom, right of a box. */
EK_KERNEL void ek_detection_box(const float *box, const float *anchor, float *y,
                                const ek_detection_t *p) {
    const float cy = box[0] / p->y_scale * anchor[2] + anchor[0],
                cx = box[1] / p->x_scale * anchor[3] + anchor[1];
    const float h = 0.5f * expf(box[2] / p->h_scale) * anchor[2],
                w = 0.5f * expf(box[3] / p->w_scale) * anchor[3];
    y[0] = cy - h, y[1] = cx - w, y[2] = cy + h, y[3] = cx + w;
}

/* Intersection over union; 0 where a box has no area. */
EK_KERNEL float ek_detection_overlap(const float *a, const float *b) {
    const float of_a = (a[2] - a[0]) * (a[3] - a[1]), of_b = (b[2] - b[0]) * (b[3] - b[1]);
    if (of_a <= 0 || of_b <= 0) return 0;
    const float top = EK_MAXIMUM(a[0], b[0]), left = EK_MAXIMUM(a[1], b[1]);
    const float bottom = EK_MINIMUM(a[2], b[2]), right = EK_MINIMUM(a[3], b[3]);
    const float h = EK_MAX(bottom - top, 0.0f), w = EK_MAX(right - left, 0.0f);
    return h * w / (of_a + of_b - h * w);
}

/* The boxes by their best class, best first: each the next that overlaps none before it. Outputs
 * without one are 0. */
EK_KERNEL void ek_detection_f32(const float *boxes, const float *scores, const float *anchors,
                                float *found, float *classes, float *values, float *count,
                                const ek_detection_t *p) {
    float last = INFINITY;
    int last_at = -1, n = 0;
    for (int i = 0; i < p->most; i++) {
        for (int k = 0; k < 4; k++) found[4 * i + k] = 0;
        classes[i] = values[i] = 0;
    }
    while (n < p->most) {
        int best_at = -1, best_class = 0;
        float best = 0, box[4];
        for (int i = 0; i < p->boxes; i++) {
            const float *row = scores + (ptrdiff_t)i * p->classes + p->background;
            int own = 0;
            for (int c = 1; c < p->classes - p->background; c++) own = row[c] > row[own] ? c : own;
            const float s = row[own];
            if (!(s >= p->score) || s > last || (s == last && i <= last_at) ||
                (best_at >= 0 && s <= best))
                continue;
            ek_detection_box(boxes + 4 * (ptrdiff_t)i, anchors + 4 * (ptrdiff_t)i, box, p);
            int free = 1;
            for (int d = 0; d < n && free; d++)
                free = !(ek_detection_overlap(found + 4 * d, box) > p->overlap);
            if (free) best = s, best_at = i, best_class = own;
        }
        if (best_at < 0) break;
        ek_detection_box(boxes + 4 * (ptrdiff_t)best_at, anchors + 4 * (ptrdiff_t)best_at,
                         found + 4 * n, p);
        classes[n] = (float)best_class, values[n] = best, last = best, last_at = best_at, n++;
    }
    count[0] = (float)n;
}

typedef struct {
    int boxes, most;
    float overlap, score;
} ek_suppression_t;

/* The corners of a box, top left first. */
EK_KERNEL void ek_suppression_box(const float *x, float *y) {
    for (int k = 0; k < 2; k++)
        y[k] = EK_MINIMUM(x[k], x[k + 2]), y[k + 2] = EK_MAXIMUM(x[k], x[k + 2]);
}

/* Boxes by their scores, best first: each the next that overlaps none before it. Outputs without
 * one are 0. */
EK_KERNEL void ek_suppression_f32(const float *boxes, const float *scores, int32_t *places,
                                  float *values, int32_t *count, const ek_suppression_t *p) {
    float last = INFINITY, box[4], other[4];
    int last_at = -1, n = 0;
    for (int i = 0; i < p->most; i++) places[i] = 0, values[i] = 0;
    while (n < p->most) {
        int best_at = -1;
        for (int i = 0; i < p->boxes; i++) {
            const float s = scores[i];
            if (!(s > p->score) || s > last || (s == last && i <= last_at) ||
                (best_at >= 0 && s <= scores[best_at]))
                continue;
            best_at = i;
        }
        if (best_at < 0) break;
        last = scores[best_at], last_at = best_at;
        ek_suppression_box(boxes + 4 * (ptrdiff_t)best_at, box);
        int free = 1;
        for (int d = 0; d < n && free; d++) {
            ek_suppression_box(boxes + 4 * (ptrdiff_t)places[d], other);
            free = ek_detection_overlap(other, box) < p->overlap;
        }
        if (free) places[n] = best_at, values[n] = last, n++;
    }
    *count = n;
}

#endif
