/* app_result.h - makes JSON of what the network has put out: boxes, classes, or figures of its
 * outputs. */
#ifndef APP_RESULT_H
#define APP_RESULT_H
#include "app_input.h"
#include "ek_model.h"

/* An output as real numbers, in memory of its own that stays; NULL: elements of another type. */
struct reals {
    float *data;
    size_t count;
};

static struct reals reals_of(int position) {
    static float *stores[NET_OUTPUTS];
    const ek_tensor *t = &edgec_model.tensors[edgec_model.outputs[position]];
    const float scale = NET_SCALES[position];
    const int zero = NET_ZERO_POINTS[position];
    const bool is_float = !strcmp(t->dtype, "<f4"), is_signed = !strcmp(t->dtype, "|i1");
    if (!is_float && !is_signed && strcmp(t->dtype, "|u1")) return (struct reals){NULL, 0};
    if (is_float) return (struct reals){t->data, t->bytes / sizeof(float)};
    if (!stores[position]) stores[position] = memory(t->bytes * sizeof(float));
    const uint8_t *from = t->data;
    for (size_t i = 0; i < t->bytes; i++)
        stores[position][i] =
            (float)((is_signed ? (int)(int8_t)from[i] : (int)from[i]) - zero) * scale;
    return (struct reals){stores[position], t->bytes};
}

#if NET_KIND == KIND_PICKED || NET_KIND == KIND_GIVEN || NET_KIND == KIND_CLASSES
/* Labels are JSON's strings already. */
static void result_label(struct text *t, int number, float score) {
    if (number >= 0 && number < NET_LABEL_COUNT)
        text_add(t, "{\"label\":%s", NET_LABELS[number]);
    else
        text_add(t, "{\"label\":\"class %d\"", number);
    text_add(t, ",\"class\":%d,\"score\":%.4f", number, (double)score);
}
#endif

#if NET_KIND == KIND_PICKED || NET_KIND == KIND_GIVEN
/* corners: x1, y1, x2, y2 in pixels of the input. */
static void result_box(struct text *t, const struct input *in, const float *corners, float score,
                       int number) {
    const double x1 = input_x(in, corners[0]), x2 = input_x(in, corners[2]);
    const double y1 = input_y(in, corners[1]), y2 = input_y(in, corners[3]);
    if (t->data[t->used - 1] != '[') text_add(t, ",");
    result_label(t, number, score);
    text_add(t, ",\"box\":[%.2f,%.2f,%.2f,%.2f]}", least(x1, x2), least(y1, y2), most(x1, x2),
             most(y1, y2));
}
#endif

#if NET_KIND == KIND_PICKED
int edgec_boxes(const float *boxes, const float *scores, const float *anchors, void *candidates,
                void *gone, float *found);

/* The boxes of a network that leaves it to others to pick them: vision.c does. */
static void result_add(struct text *t, const struct input *in) {
    static int32_t candidates[3 * NET_MOST];
    static uint8_t gone[NET_MOST];
    static float rows[(size_t)NET_MOST * NET_BOX_NUMBERS];
    const float *boxes = reals_of(NET_BOXES).data;
    const float *scores = NET_SCORES == NET_BOXES ? boxes : reals_of(NET_SCORES).data;
    const int count = edgec_boxes(boxes, scores, NET_ANCHORS, candidates, gone, rows);
    text_add(t, "\"boxes\":[");
    for (int i = 0; i < count; i++) {
        const float *r = rows + (size_t)i * NET_BOX_NUMBERS;
        result_box(t, in, r, r[4], (int)r[5]);
    }
    text_add(t, "]");
}
#endif

#if NET_KIND == KIND_GIVEN
/* The boxes of a network that picks them itself, the best first. */
static void result_add(struct text *t, const struct input *in) {
    const float *boxes = reals_of(NET_BOXES).data, *classes = reals_of(NET_CLASSES).data;
    const struct reals scores = reals_of(NET_SCORES);
    size_t count = scores.count, told = 0;
    if (NET_COUNT >= 0) {
        const float said = reals_of(NET_COUNT >= 0 ? NET_COUNT : 0).data[0];
        if (!(said > 0))
            count = 0;
        else if (said < (float)count)
            count = (size_t)said;
    }
    text_add(t, "\"boxes\":[");
    for (size_t i = 0; i < count && told < NET_LIMIT; i++) {
        if (!(scores.data[i] >= NET_THRESHOLD)) continue;
        const float *b = boxes + 4 * i;
        const float a = b[NET_ORDER[0]] * NET_UNIT_X, c = b[NET_ORDER[2]] * NET_UNIT_X;
        const float d = b[NET_ORDER[1]] * NET_UNIT_Y, e = b[NET_ORDER[3]] * NET_UNIT_Y;
        const float corners[] = {a, d, c, e};
        const float around[] = {a - c / 2, d - e / 2, a + c / 2, d + e / 2};
        result_box(t, in, NET_CENTRES ? around : corners, scores.data[i], (int)classes[i]);
        told++;
    }
    text_add(t, "]");
}
#endif

#if NET_KIND == KIND_CLASSES
/* Probabilities of all classes, in `to`. */
static void result_probabilities(struct reals scores, float *to) {
    float low = INFINITY, high = -INFINITY, sum = 0;
    for (size_t i = 0; i < scores.count; i++) {
        low = EK_MINIMUM(low, scores.data[i]);
        high = EK_MAXIMUM(high, scores.data[i]);
    }
    const bool is_softmax = NET_ACTIVATION == ACTIVATION_SOFTMAX ||
                            (NET_ACTIVATION == ACTIVATION_AUTO && !(low >= 0 && high <= 1));
    for (size_t i = 0; i < scores.count; i++) {
        const float x = scores.data[i];
        to[i] = is_softmax                             ? expf(x - high)
                : NET_ACTIVATION == ACTIVATION_SIGMOID ? 1 / (1 + expf(-x))
                                                       : x;
        sum += to[i];
    }
    for (size_t i = 0; is_softmax && i < scores.count; i++) to[i] /= sum;
}

/* The most probable classes, the best first. */
static void result_add(struct text *t, const struct input *in) {
    static float *values;
    const struct reals scores = reals_of(NET_SCORES);
    (void)in;
    if (!values) values = memory(scores.count * sizeof *values);
    result_probabilities(scores, values);
    text_add(t, "\"classes\":[");
    for (size_t told = 0; told < NET_LIMIT; told++) {
        size_t best = scores.count;
        for (size_t i = 0; i < scores.count; i++)
            if (values[i] >= NET_THRESHOLD && (best == scores.count || values[i] > values[best]))
                best = i;
        if (best == scores.count) break;
        if (told) text_add(t, ",");
        result_label(t, (int)best, values[best]);
        text_add(t, "}");
        values[best] = -INFINITY; /* told */
    }
    text_add(t, "]");
}
#endif

#if NET_KIND == KIND_TENSORS
/* Shape, least, greatest and mean number of each output: nobody said what they mean. */
static void result_add(struct text *t, const struct input *in) {
    (void)in;
    text_add(t, "\"outputs\":[");
    for (int i = 0; i < NET_OUTPUTS; i++) {
        const ek_tensor *tensor = &edgec_model.tensors[edgec_model.outputs[i]];
        const struct reals values = reals_of(i);
        double low = INFINITY, high = -INFINITY, sum = 0;
        text_add(t, "%s{\"name\":%s,\"shape\":[", i ? "," : "", NET_OUTPUT_NAMES[i]);
        for (int k = 0; k < tensor->rank; k++) text_add(t, "%s%d", k ? "," : "", tensor->shape[k]);
        text_add(t, "]");
        for (size_t k = 0; k < values.count; k++) {
            low = least(low, (double)values.data[k]), high = most(high, (double)values.data[k]);
            sum += (double)values.data[k];
        }
        if (values.count && isfinite(sum))
            text_add(t, ",\"min\":%.6g,\"max\":%.6g,\"mean\":%.6g", low, high,
                     sum / (double)values.count);
        text_add(t, "}");
    }
    text_add(t, "]");
}
#endif

#endif
