/* Boxes out of what a network says of anchors or of grid cells: thresholds, decoding, and
 * suppression of those that overlap.  The same as tasks/detection.py computes. */
#ifndef EK_BOXES_H
#define EK_BOXES_H
#include "ek_base.h"

enum { EK_XYWH, EK_XYXY, EK_YXYX, EK_YXHW };
enum { EK_ONE_CLASS, EK_ALL_CLASSES, EK_WEIGHTED, EK_KEEP_ALL };
enum { EK_AS_IS, EK_SIGMOID, EK_SOFTMAX };

/* Element (row, column) of the boxes is at row * box_row + column * box_next, of the scores
 * likewise.  anchored: boxes count from anchors; objectness, class_column, angle_column: a column
 * or -1; first: the first class that is one; several: a row is a box of each class that is sure
 * enough; candidates: how many boxes of a class are compared, 0 for all; ends: x and y at which
 * boxes are cut off, 0 for nowhere. */
typedef struct {
    int rows, box_row, box_next, score_row, score_next;
    int order, anchored, exponential, box_column, score_column, classes, first, objectness,
        activation;
    int class_column, several;
    int points, point_column, point_numbers, angle_column;
    float scales[4], width, height; /* pixels of the input in one unit of x and of y */
    float ends[2];
    float threshold, iou;
    int suppression, candidates, limit;
} ek_boxes_t;

typedef struct {
    float score;
    int row, class_;
} ek_candidate_t;

EK_KERNEL float ek_boxes_sure(ek_boxes_t b, float x) {
    return b.activation == EK_SIGMOID ? 1 / (1 + expf(-x)) : x;
}

/* What softmax needs of all scores of a row: the largest, and the sum of the exponentials. */
typedef struct {
    float most, sum;
} ek_exponentials_t;

EK_KERNEL ek_exponentials_t ek_boxes_exponentials(ek_boxes_t b, const float *row) {
    ek_exponentials_t e = {-INFINITY, 0};
    if (b.activation != EK_SOFTMAX) return e;
    for (int c = 0; c < b.classes; c++)
        e.most = EK_MAX(e.most, row[(b.score_column + c) * b.score_next]);
    for (int c = 0; c < b.classes; c++)
        e.sum += expf(row[(b.score_column + c) * b.score_next] - e.most);
    return e;
}

/* The probability of a class of a row. */
EK_KERNEL float ek_boxes_score(ek_boxes_t b, ek_exponentials_t e, const float *row, int class_) {
    const float x = row[(b.score_column + class_) * b.score_next];
    return b.activation == EK_SOFTMAX ? expf(x - e.most) / e.sum : ek_boxes_sure(b, x);
}

/* The best class of a row, and its probability. */
EK_KERNEL ek_candidate_t ek_boxes_best(ek_boxes_t b, ek_exponentials_t e, const float *row, int i) {
    float most = -INFINITY;
    int best = b.first;
    for (int c = b.first; c < b.classes; c++) {
        const float x = row[(b.score_column + c) * b.score_next];
        if (x > most) most = x, best = c;
    }
    return (ek_candidate_t){ek_boxes_score(b, e, row, best), i, best - b.first};
}

/* A class that the network says itself. */
EK_KERNEL int ek_boxes_given(ek_boxes_t b, const float *row) {
    const float given = row[b.class_column * b.score_next];
    return given >= 0 && given <= 65535 ? (int)given : 0;
}

/* The candidates of a row, to the end of those that there are; returns their new number. */
EK_KERNEL int ek_boxes_candidates(ek_boxes_t b, const float *scores, int i,
                                  ek_candidate_t *candidates, int n) {
    const float *row = scores + (size_t)i * b.score_row;
    const float sure = b.objectness < 0 ? 1 : ek_boxes_sure(b, row[b.objectness * b.score_next]);
    if (!(sure >= b.threshold)) return n; /* a probability makes it no larger */
    const ek_exponentials_t e = ek_boxes_exponentials(b, row);
    ek_candidate_t best = ek_boxes_best(b, e, row, i);
    if (!b.several) {
        if (b.class_column >= 0) best.class_ = ek_boxes_given(b, row);
        best.score *= sure;
        candidates[n] = best;
        return n + (best.score >= b.threshold);
    }
    if (!(best.score * sure >= b.threshold)) return n;
    for (int c = b.first; c < b.classes; c++) {
        const float score = ek_boxes_score(b, e, row, c) * sure;
        candidates[n] = (ek_candidate_t){score, i, c - b.first};
        n += score >= b.threshold;
    }
    return n;
}

/* Orders of candidates: by score, equal scores row by row or class by class; or class by class, and
 * by score in each. */
enum { EK_SCORE_ROW, EK_SCORE_CLASS, EK_CLASS_SCORE };

EK_KERNEL int ek_boxes_after(ek_candidate_t a, ek_candidate_t b, int order) {
    if (order == EK_CLASS_SCORE && a.class_ != b.class_) return a.class_ > b.class_;
    if (a.score != b.score) return a.score < b.score;
    if (order == EK_SCORE_CLASS && a.class_ != b.class_) return a.class_ > b.class_;
    return a.row > b.row || (a.row == b.row && a.class_ > b.class_);
}

/* Heap sort, the best first. */
EK_SHARED void ek_boxes_sort(ek_candidate_t *c, int n, int order) {
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
            if (child + 1 < end && ek_boxes_after(c[child + 1], c[child], order)) child++;
            if (!ek_boxes_after(c[child], one, order)) break;
            c[at] = c[child];
        }
        c[at] = one;
    }
}

/* The best candidates of each class, to the front; returns their number. */
EK_KERNEL int ek_boxes_best_of_each_class(ek_boxes_t b, ek_candidate_t *c, int n) {
    int left = 0, class_ = -1, rank = 0;
    ek_boxes_sort(c, n, EK_CLASS_SCORE);
    for (int i = 0; i < n; i++) {
        rank = c[i].class_ == class_ ? rank + 1 : 0;
        class_ = c[i].class_;
        if (rank < b.candidates) c[left++] = c[i];
    }
    return left;
}

/* x1, y1, x2, y2, score, class, row and points of a candidate. */
enum { EK_ROW_COLUMNS = 7 };

EK_KERNEL void ek_boxes_decode(ek_boxes_t b, const float *boxes, const float *anchors,
                               ek_candidate_t c, float *out) {
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
    for (int i = 0; i < 4; i++) {
        const float end = b.ends[i & 1], x = v[i] * (i & 1 ? b.height : b.width);
        out[i] = end > 0 ? EK_MIN(EK_MAX(x, 0), end) : x;
    }
    out[4] = c.score, out[5] = (float)c.class_, out[6] = (float)c.row;
    for (int p = 0; p < 2 * b.points; p++) {
        const float x = row[(b.point_column + p / 2 * b.point_numbers + (p & 1)) * b.box_next];
        const float at = b.anchored ? a[p & 1] + x / b.scales[p & 1] * a[2 + (p & 1)] : x;
        out[EK_ROW_COLUMNS + p] = at * (p & 1 ? b.height : b.width);
    }
}

/* Intersection over union. */
EK_KERNEL float ek_boxes_overlap(const float *a, const float *b) {
    const float w = EK_MINIMUM(a[2], b[2]) - EK_MAXIMUM(a[0], b[0]),
                h = EK_MINIMUM(a[3], b[3]) - EK_MAXIMUM(a[1], b[1]);
    const float inside = EK_MAX(w, 0) * EK_MAX(h, 0);
    const float all = (b[2] - b[0]) * (b[3] - b[1]) + (a[2] - a[0]) * (a[3] - a[1]) - inside;
    return all > 0 ? inside / all : 0;
}

/* A box that is turned as a normal distribution: its mean, the variances of x and of y, and their
 * covariance. */
typedef struct {
    float x, y, xx, yy, xy;
} ek_normal_t;

EK_KERNEL ek_normal_t ek_boxes_normal(ek_boxes_t b, const float *boxes, const float *found) {
    const float angle = boxes[(size_t)found[6] * b.box_row + b.angle_column * b.box_next];
    const float w = found[2] - found[0], h = found[3] - found[1], wide = w * w / 12,
                high = h * h / 12;
    const float cosine = cosf(angle), sine = sinf(angle);
    return (ek_normal_t){(found[0] + found[2]) / 2, (found[1] + found[3]) / 2,
                         wide * cosine * cosine + high * sine * sine,
                         wide * sine * sine + high * cosine * cosine,
                         (wide - high) * cosine * sine};
}

/* 1 less the Hellinger distance (tasks/overlap.py says where that is from). */
EK_KERNEL float ek_boxes_turned_overlap(ek_normal_t m, ek_normal_t n) {
    const float tiny = 1e-7f, a = m.xx + n.xx, b = m.yy + n.yy, c = m.xy + n.xy,
                determinant = a * b - c * c;
    const float dx = n.x - m.x, dy = m.y - n.y;
    const float apart = (a * dy * dy + b * dx * dx) / (determinant + tiny) / 4 +
                        c * dx * dy / (determinant + tiny) / 2;
    const float own = EK_MAX(m.xx * m.yy - m.xy * m.xy, 0) * EK_MAX(n.xx * n.yy - n.xy * n.xy, 0);
    const float shape = logf(determinant / (4 * sqrtf(own) + tiny) + tiny) / 2;
    const float distance = EK_MIN(EK_MAX(apart + shape, tiny), 100);
    return 1 - sqrtf(1 - expf(-distance) + tiny);
}

/* Floats of a found box. */
EK_KERNEL int ek_boxes_width(ek_boxes_t b) { return EK_ROW_COLUMNS + 2 * b.points; }

/* Of n boxes in order of their scores, those that are left, to the front; gone: n bytes. */
EK_KERNEL int ek_boxes_suppress(ek_boxes_t b, const float *boxes, float *found, uint8_t *gone,
                                int n) {
    const int wide = ek_boxes_width(b);
    int left = 0;
    memset(gone, 0, (size_t)n);
    for (int i = 0; i < n && left < b.limit; i++) {
        if (gone[i]) continue;
        float one[EK_ROW_COLUMNS + 2 * 64], mean[EK_ROW_COLUMNS + 2 * 64],
            weight = found[(size_t)i * wide + 4];
        memcpy(one, found + (size_t)i * wide, (size_t)wide * 4);
        for (int k = 0; k < wide; k++) mean[k] = one[k] * weight;
        const ek_normal_t normal =
            b.angle_column < 0 ? (ek_normal_t){0} : ek_boxes_normal(b, boxes, one);
        for (int j = i + 1; j < n && b.suppression != EK_KEEP_ALL; j++) {
            const float *other = found + (size_t)j * wide;
            if (gone[j] || (b.suppression == EK_ONE_CLASS && other[5] != one[5])) continue;
            const float common =
                b.angle_column < 0
                    ? ek_boxes_overlap(one, other)
                    : ek_boxes_turned_overlap(normal, ek_boxes_normal(b, boxes, other));
            if (!(common > b.iou)) continue;
            gone[j] = 1;
            weight += other[4];
            for (int k = 0; k < wide; k++) mean[k] += other[k] * other[4];
        }
        for (int k = 0; k < wide && b.suppression == EK_WEIGHTED; k++)
            if (k < 4 || k >= EK_ROW_COLUMNS) one[k] = mean[k] / weight;
        memcpy(found + (size_t)left++ * wide, one, (size_t)wide * 4);
    }
    return left;
}

/* How many boxes there are, the best first, in `found`, which has room for as many as there are
 * rows, or pairs of a row and a class where a row may be several.  candidates and gone: scratch for
 * as many. */
EK_KERNEL int ek_boxes_f32(ek_boxes_t b, const float *boxes, const float *scores,
                           const float *anchors, ek_candidate_t *candidates, uint8_t *gone,
                           float *found) {
    int n = 0;
    for (int i = 0; i < b.rows; i++) n = ek_boxes_candidates(b, scores, i, candidates, n);
    if (b.candidates) n = ek_boxes_best_of_each_class(b, candidates, n);
    ek_boxes_sort(candidates, n, b.candidates ? EK_SCORE_CLASS : EK_SCORE_ROW);
    for (int i = 0; i < n; i++)
        ek_boxes_decode(b, boxes, anchors, candidates[i], found + (size_t)i * ek_boxes_width(b));
    return ek_boxes_suppress(b, boxes, found, gone, n);
}
#endif
