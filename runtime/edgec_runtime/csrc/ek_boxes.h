/* Boxes out of what a network says of anchors or of grid cells: thresholds, decoding, and suppression of those that
 * overlap.  The same as tasks/detection.py computes. */
#ifndef EK_BOXES_H
#define EK_BOXES_H
#include "ek_base.h"

enum { EK_XYWH, EK_XYXY, EK_YXYX, EK_YXHW };
enum { EK_ONE_CLASS, EK_ALL_CLASSES, EK_WEIGHTED, EK_KEEP_ALL };
enum { EK_AS_IS, EK_SIGMOID, EK_SOFTMAX };

/* Element (row, column) of the boxes is at row * box_row + column * box_next, of the scores likewise.  anchored: boxes
 * count from anchors; objectness: a column or -1; first: the first class that is one. */
typedef struct {
    int rows, box_row, box_next, score_row, score_next;
    int order, anchored, exponential, box_column, score_column, classes, first, objectness, activation;
    int points, point_column;
    float scales[4], width, height; /* pixels of the input in one unit of x and of y */
    float threshold, iou;
    int suppression, limit;
} ek_boxes_t;

typedef struct {
    float score;
    int row, class_;
} ek_candidate_t;

EK_KERNEL float ek_boxes_sure(ek_boxes_t b, float x) { return b.activation == EK_SIGMOID ? 1 / (1 + expf(-x)) : x; }

/* The best class of a row, and its score. */
EK_KERNEL ek_candidate_t ek_boxes_best(ek_boxes_t b, const float *row, int i) {
    ek_candidate_t best = {-INFINITY, i, 0};
    for (int c = b.first; c < b.classes; c++) {
        const float x = row[(b.score_column + c) * b.score_next];
        if (x > best.score) best.score = x, best.class_ = c - b.first;
    }
    if (b.activation == EK_SOFTMAX) {
        float most = -INFINITY, sum = 0;
        for (int c = 0; c < b.classes; c++) most = EK_MAX(most, row[(b.score_column + c) * b.score_next]);
        for (int c = 0; c < b.classes; c++) sum += expf(row[(b.score_column + c) * b.score_next] - most);
        best.score = expf(best.score - most) / sum;
    } else {
        best.score = ek_boxes_sure(b, best.score);
    }
    return best;
}

EK_KERNEL int ek_boxes_after(ek_candidate_t a, ek_candidate_t b) {
    return a.score < b.score || (a.score == b.score && a.row > b.row);
}

/* Heap sort, the best first. */
EK_SHARED void ek_boxes_sort(ek_candidate_t *c, int n) {
    for (int start = n / 2, end = n; end > 1;) {
        ek_candidate_t one;
        if (start > 0) {
            one = c[--start];
        } else {
            one = c[--end];
            c[end] = c[0];
        }
        int at = start;
        for (int child; (child = 2 * at + 1) < end; at = child) {
            if (child + 1 < end && ek_boxes_after(c[child + 1], c[child])) child++;
            if (!ek_boxes_after(c[child], one)) break;
            c[at] = c[child];
        }
        c[at] = one;
    }
}

/* x1, y1, x2, y2, score, class and points of a candidate. */
EK_KERNEL void ek_boxes_decode(ek_boxes_t b, const float *boxes, const float *anchors, ek_candidate_t c, float *out) {
    const float *row = boxes + (size_t)c.row * b.box_row, *a = anchors + (size_t)c.row * 4;
    const int turned = b.order == EK_YXYX || b.order == EK_YXHW;
    float v[4];
    for (int i = 0; i < 4; i++) v[i] = row[(b.box_column + (turned ? i ^ 1 : i)) * b.box_next];
    if (b.order == EK_XYWH || b.order == EK_YXHW) {
        if (b.anchored)
            for (int i = 0; i < 2; i++) {
                const float side = v[2 + i] / b.scales[2 + i];
                v[i] = a[i] + v[i] / b.scales[i] * a[2 + i];
                v[2 + i] = (b.exponential ? expf(side) : side) * a[2 + i];
            }
        for (int i = 0; i < 2; i++) {
            const float half = v[2 + i] / 2, middle = v[i];
            v[i] = middle - half, v[2 + i] = middle + half;
        }
    }
    for (int i = 0; i < 4; i++) out[i] = v[i] * (i & 1 ? b.height : b.width);
    out[4] = c.score, out[5] = (float)c.class_;
    for (int p = 0; p < 2 * b.points; p++) {
        const float x = row[(b.point_column + p) * b.box_next];
        const float at = b.anchored ? a[p & 1] + x / b.scales[p & 1] * a[2 + (p & 1)] : x;
        out[6 + p] = at * (p & 1 ? b.height : b.width);
    }
}

/* Intersection over union. */
EK_KERNEL float ek_boxes_overlap(const float *a, const float *b) {
    const float w = EK_MIN(a[2], b[2]) - EK_MAX(a[0], b[0]), h = EK_MIN(a[3], b[3]) - EK_MAX(a[1], b[1]);
    const float inside = EK_MAX(w, 0) * EK_MAX(h, 0);
    const float all = (b[2] - b[0]) * (b[3] - b[1]) + (a[2] - a[0]) * (a[3] - a[1]) - inside;
    return all > 0 ? inside / all : 0;
}

/* Floats of a found box. */
EK_KERNEL int ek_boxes_width(ek_boxes_t b) { return 6 + 2 * b.points; }

/* Of n boxes in order of their scores, those that are left, to the front; gone: n bytes. */
EK_KERNEL int ek_boxes_suppress(ek_boxes_t b, float *found, uint8_t *gone, int n) {
    const int wide = ek_boxes_width(b);
    int left = 0;
    memset(gone, 0, (size_t)n);
    for (int i = 0; i < n && left < b.limit; i++) {
        if (gone[i]) continue;
        float one[6 + 2 * 64], mean[6 + 2 * 64], weight = found[(size_t)i * wide + 4];
        memcpy(one, found + (size_t)i * wide, (size_t)wide * 4);
        for (int k = 0; k < wide; k++) mean[k] = one[k] * weight;
        for (int j = i + 1; j < n && b.suppression != EK_KEEP_ALL; j++) {
            const float *other = found + (size_t)j * wide;
            if (gone[j] || (b.suppression == EK_ONE_CLASS && other[5] != one[5])) continue;
            if (!(ek_boxes_overlap(one, other) > b.iou)) continue;
            gone[j] = 1;
            weight += other[4];
            for (int k = 0; k < wide; k++) mean[k] += other[k] * other[4];
        }
        for (int k = 0; k < wide && b.suppression == EK_WEIGHTED; k++)
            if (k != 4 && k != 5) one[k] = mean[k] / weight;
        memcpy(found + (size_t)left++ * wide, one, (size_t)wide * 4);
    }
    return left;
}

/* How many boxes there are, the best first, in `found`, which has room for as many as there are rows.  candidates and
 * gone: scratch for as many. */
EK_KERNEL int ek_boxes_f32(ek_boxes_t b, const float *boxes, const float *scores, const float *anchors,
                           ek_candidate_t *candidates, uint8_t *gone, float *found) {
    int n = 0;
    for (int i = 0; i < b.rows; i++) {
        const float *row = scores + (size_t)i * b.score_row;
        const float sure = b.objectness < 0 ? 1 : ek_boxes_sure(b, row[b.objectness * b.score_next]);
        if (!(sure >= b.threshold)) continue; /* a probability makes it no larger */
        candidates[n] = ek_boxes_best(b, row, i);
        candidates[n].score *= sure;
        if (candidates[n].score >= b.threshold) n++;
    }
    ek_boxes_sort(candidates, n);
    for (int i = 0; i < n; i++)
        ek_boxes_decode(b, boxes, anchors, candidates[i], found + (size_t)i * ek_boxes_width(b));
    return ek_boxes_suppress(b, found, gone, n);
}
#endif
