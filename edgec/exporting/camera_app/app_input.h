/* app_input.h - makes a frame the input of the network, and a place in the input one in the frame.
 *
 * The formulas of edgec_runtime/vision/resample.py and placement.py, in their order, for the same
 * bits; ek_frame.h does the work. */
#ifndef APP_INPUT_H
#define APP_INPUT_H
#include "app_base.h"
#include "ek_frame.h"
#include "network.h"

int edgec_frame_0(const ek_frame_t *frame, const ek_taps_t *down, const ek_taps_t *across, int left,
                  int top, void *scratch, void *out);

static const double WEIGHT_OF_1 = 1 << 14;

/* The part of the frame that is used, and the part of the input that it fills. */
struct placement {
    double x, y, width, height;
    int left, top, columns, rows;
};

struct input {
    int width, height; /* of the frame */
    struct placement place;
    ek_taps_t down, across;
    void *scratch;
};

static double least(double a, double b) { return a < b ? a : b; }
static double most(double a, double b) { return a > b ? a : b; }

/* The pixels of the input whose middle is in the frame; returns where the first one is in it. */
static double placement_covered(double length, int pixels, int *first, int *count) {
    const double start = NET_CENTRED ? (pixels - length) / 2 : 0.0;
    *first = (int)floor(start + 0.5);
    int end = (int)floor(start + length + 0.5);
    if (end == *first) *first = (int)floor(start), end = *first + 1;
    *count = end - *first;
    return *first - start;
}

static struct placement placement_of(int frame_width, int frame_height) {
    struct placement p = {
        .width = frame_width, .height = frame_height, .columns = NET_WIDTH, .rows = NET_HEIGHT};
    if (NET_FIT == FIT_CROP) {
        const double ratio = least(p.width / NET_WIDTH, p.height / NET_HEIGHT) * NET_CROP;
        p.x = (p.width - NET_WIDTH * ratio) / 2, p.y = (p.height - NET_HEIGHT * ratio) / 2;
        p.width = NET_WIDTH * ratio, p.height = NET_HEIGHT * ratio;
    } else if (NET_FIT == FIT_LETTERBOX) {
        const double ratio = least(NET_WIDTH / p.width, NET_HEIGHT / p.height);
        p.x = placement_covered(p.width * ratio, NET_WIDTH, &p.left, &p.columns) / ratio;
        p.y = placement_covered(p.height * ratio, NET_HEIGHT, &p.top, &p.rows) / ratio;
        p.width = p.columns / ratio, p.height = p.rows / ratio;
    }
    return p;
}

static double taps_radius(double step) {
    if (NET_FILTER == FILTER_AREA) return step / 2 + 1;
    return (NET_FILTER == FILTER_BICUBIC ? 2 : 1) * most(1.0, step);
}

static double taps_weight(int element, double low, double centre, double step) {
    if (NET_FILTER == FILTER_AREA)
        return most(least(element + 1.0, low + step) - most(element, low), 0.0);
    const double x = fabs((element + 0.5 - centre) / most(1.0, step));
    if (NET_FILTER == FILTER_BILINEAR) return most(1.0 - x, 0.0);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1.0;
    return x < 2 ? ((2.5 - 0.5 * x) * x - 4.0) * x + 2.0 : 0.0;
}

/* Integers in proportion to the weights, whose sum is WEIGHT_OF_1: running sums are rounded. */
static void taps_integers(int begin, int end, double low, double centre, double step, int16_t *to) {
    double sum = 0, running = 0, before = 0;
    for (int e = begin; e < end; e++) sum += taps_weight(e, low, centre, step);
    const double factor = WEIGHT_OF_1 / sum;
    for (int e = begin; e < end; e++) {
        running += taps_weight(e, low, centre, step);
        const double rounded = nearbyint(running * factor);
        *to++ = (int16_t)(rounded - before);
        before = rounded;
    }
}

/* Which elements of a row or column of `length` are summed for each of `count`, by which weights.
 */
static ek_taps_t taps_of(int length, double start, double extent, int count) {
    const double step = extent / count, radius = taps_radius(step);
    const bool is_nearest = NET_FILTER == FILTER_NEAREST;
    int32_t *first = memory((size_t)count * sizeof *first), most_taps = 1;
    int32_t *end = memory((size_t)count * sizeof *end);
    for (int i = 0; i < count; i++) {
        const double centre = start + (i + 0.5) * step;
        if (is_nearest) {
            first[i] = (int32_t)least(most(centre, 0), length - 1);
            end[i] = first[i] + 1;
        } else {
            first[i] = EK_MAX(0, (int)(centre - radius + 0.5));
            end[i] = EK_MIN(length, (int)(centre + radius + 0.5));
        }
        most_taps = EK_MAX(most_taps, end[i] - first[i]);
    }
    /* All get the same number; those at the end begin earlier. */
    int16_t *weights = memory((size_t)count * (size_t)most_taps * sizeof *weights);
    for (int i = 0; i < count; i++) {
        const int begin = EK_MIN(first[i], length - most_taps);
        int16_t *to = weights + (size_t)i * (size_t)most_taps + (first[i] - begin);
        if (is_nearest)
            *to = (int16_t)WEIGHT_OF_1;
        else
            taps_integers(first[i], end[i], start + i * step, start + (i + 0.5) * step, step, to);
        first[i] = begin;
    }
    free(end);
    return (ek_taps_t){count, most_taps, first, weights};
}

static struct input input_for(int width, int height) {
    struct input in = {.width = width, .height = height, .place = placement_of(width, height)};
    const struct placement *p = &in.place;
    in.down = taps_of(height, p->y, p->height, p->rows);
    in.across = taps_of(width, p->x, p->width, p->columns);
    if (in.down.most > EK_FRAME_ROWS)
        fail(EXIT_INPUT, "use a smaller --format", "frames of %d x %d are too large", width,
             height);
    const int last = in.across.first[p->columns - 1] + in.across.most;
    const size_t row = (4 * (size_t)(last - in.across.first[0]) + 64) & ~(size_t)63;
    in.scratch = memory(row * ((size_t)in.down.most + 2) + 4 * (size_t)p->columns + 128);
    return in;
}

static void input_fill(const struct input *in, const ek_frame_t *frame, void *to) {
    if (edgec_frame_0(frame, &in->down, &in->across, in->place.left, in->place.top, in->scratch,
                      to))
        fail(EXIT_JOB, "compile the model again", "a frame cannot be made the input");
}

/* A place in the input as one in the frame, within its borders. */
static inline double input_x(const struct input *in, float x) {
    const struct placement *p = &in->place;
    return least(most((x - p->left) * (p->width / p->columns) + p->x, 0), in->width);
}
static inline double input_y(const struct input *in, float y) {
    const struct placement *p = &in->place;
    return least(most((y - p->top) * (p->height / p->rows) + p->y, 0), in->height);
}

#endif
