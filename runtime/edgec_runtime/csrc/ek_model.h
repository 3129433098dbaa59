/* ek_model.h - what a compiled model looks like from C.
 *
 * A program (main.c, or your own) links the generated files and walks `edgec_model`.  A host that
 * loads libmodel.so calls `edgec_<segment>_run` directly and brings its own buffers.  Nothing here
 * allocates.
 *
 * Constants are not in the code but in the bundle's weights file, which the caller maps or reads,
 * and checks, once (program_weights.h does).  Nobody writes to it, so any number of threads may
 * share it.
 *
 * A run uses the caller's thread alone, unless it is given an `ek_threads` (below).
 */
#ifndef EK_MODEL_H
#define EK_MODEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EK_MAX_RANK = 8,
    EK_MAX_PORTS = 256, /* inputs, and outputs, of a segment that ek_infer can run */
    EK_TOO_MANY_PORTS = -1,
    EK_MAX_THREADS = 4,
    EK_POOL_BYTES = 1024 /* of a pool of threads */
};

/* Part `part` of the `parts` into which an op is split. */
typedef void ek_work(const void *context, int part, int parts);

/* Who computes the parts of the larger ops: the pool of edgec_threads_start, or threads that you
 * have already.  share calls work(context, i, parts) for each i from 0 to parts - 1, in any order,
 * at the same time or not, and returns when all have returned.  The result is the same, bit for
 * bit, whatever `parts` is.  For one run at a time. */
typedef struct ek_threads ek_threads;
struct ek_threads {
    int parts; /* 1 to ek_model.threads */
    void (*share)(ek_threads *threads, ek_work *work, const void *context);
};

/* A pool of `threads` threads, the caller's among them, in EK_POOL_BYTES of memory that is aligned
 * to 64 bytes; NULL where the system gives none.  Any number of pools may be there.  Only where
 * ek_model.threads is more than 1. */
ek_threads *edgec_threads_start(void *memory, int threads);
/* Ends the threads; the memory is the caller's again.  Not during a run. */
void edgec_threads_stop(ek_threads *threads);

/* One tensor that crosses a segment border, dense, row-major, little-endian. */
typedef struct {
    const char *name;
    const char *dtype; /* numpy's descr: "<f4", "<f2", "<f8", "|i1", "|u1", "<i2", ..., "|b1" */
    int rank;          /* 0 (a scalar) to EK_MAX_RANK */
    int shape[EK_MAX_RANK]; /* the first `rank` entries */
    size_t bytes;
    void *data; /* the program's static buffer; NULL in the shared library */
} ek_tensor;

/* One generated C file.  Also the segments placed on the Edge TPU have one: the bit-identical twin
 * of their .tflite. */
typedef struct {
    const char *name;
    const char *place; /* "cpu" or "edgetpu" */
    int n_inputs, n_outputs;
    const int *inputs, *outputs; /* indices into ek_model.tensors */
    size_t arena_bytes;
    void *arena; /* the program's scratch for it, which segments may share; NULL in the shared
                    library */
    /* in[i] and out[i] point to tensors inputs[i] and outputs[i].  arena: `arena_bytes` of scratch.
     * weights: the address of the weights file's content.  Both are aligned to 64 bytes.  Returns 0
     * when all went well. */
    int (*run)(void *arena, const void *weights, const void *const *in, void *const *out);
    /* The same, by the same functions, one for each of n_ops operations: mark(context, i) is called
     * before each, and mark(context, n_ops) after the last.  NULL where there is none. */
    int n_ops;
    int (*profile)(void *arena, const void *weights, const void *const *in, void *const *out,
                   void (*mark)(void *, int), void *context);
    /* Either, with the larger ops shared: threads may be NULL (no op is), so may mark.  Not 0 where
     * threads->parts is more than ek_model.threads, for which the arena has room.  NULL in code for
     * one thread. */
    int (*run_on)(ek_threads *threads, void *arena, const void *weights, const void *const *in,
                  void *const *out, void (*mark)(void *, int), void *context);
} ek_segment;

/* What a model keeps between inferences: the tensor `input` is at each what the tensor `output` was
 * at the one before. Neither is among the model's inputs and outputs. */
typedef struct {
    int input, output;   /* indices into ek_model.tensors */
    const void *initial; /* the input's bytes at the first inference; NULL: zeros, and in the shared
                            library */
} ek_state;

/* Segments are in execution order: each reads model inputs and what earlier ones wrote. */
typedef struct {
    const char *name;
    int n_tensors;
    const ek_tensor *tensors;
    int n_segments;
    const ek_segment *segments;
    int n_inputs, n_outputs;
    const int *inputs, *outputs; /* indices into tensors */
    size_t weights_bytes;   /* of the weights file; 0: there is none, and weights may be NULL */
    uint32_t weights_crc32; /* of its content, as zlib has it */
    int threads;            /* the most that the code is for */
    ek_threads *(*start)(
        void *memory, int threads); /* edgec_threads_start and _stop; NULL in code for one thread */
    void (*stop)(ek_threads *threads);
    int n_state;
    const ek_state *state;
    const char
        *graph; /* sha256 of the graph that it was made of, as the bundle's manifest has it */
    uint32_t constants_crc32; /* of the constants of its segments for the Edge TPU */
} ek_model;

extern const ek_model edgec_model;

/* In the library alone: what it was made for, as JSON (docs/bundle.md), for who compares it with a
 * manifest before a run. */
extern const char edgec_made_for[];

/* One inference in the program's own buffers: model.c was compiled with -DEK_PROGRAM.  Before it,
 * write the inputs to m->tensors[m->inputs[i]].data; after it, the outputs are in
 * m->tensors[m->outputs[i]].data.  weights: the content of the weights file, at an address that is
 * a multiple of 64.  0: all went well; else what a segment returned, or EK_TOO_MANY_PORTS.  State
 * is kept for the next inference, unless this one failed.  One at a time: threads that each want
 * inferences load the library, with buffers of their own. ek_infer_on: larger ops are shared among
 * these threads; NULL: none. */
static inline int ek_infer_on(const ek_model *m, ek_threads *threads, const void *weights) {
    for (int s = 0; s < m->n_segments; s++) {
        const ek_segment *g = &m->segments[s];
        const void *in[EK_MAX_PORTS];
        void *out[EK_MAX_PORTS];
        if (g->n_inputs > EK_MAX_PORTS || g->n_outputs > EK_MAX_PORTS) return EK_TOO_MANY_PORTS;
        for (int i = 0; i < g->n_inputs; i++) in[i] = m->tensors[g->inputs[i]].data;
        for (int i = 0; i < g->n_outputs; i++) out[i] = m->tensors[g->outputs[i]].data;
        int code = threads ? g->run_on(threads, g->arena, weights, in, out, NULL, NULL)
                           : g->run(g->arena, weights, in, out);
        if (code) return code;
    }
    for (int i = 0; i < m->n_state; i++) {
        const ek_tensor *from = &m->tensors[m->state[i].output];
        memcpy(m->tensors[m->state[i].input].data, from->data, from->bytes);
    }
    return 0;
}
/* Lets the next ek_infer be the first one: state is what the model begins with, as it is when the
 * program starts. */
static inline void ek_reset(const ek_model *m) {
    for (int i = 0; i < m->n_state; i++) {
        const ek_tensor *t = &m->tensors[m->state[i].input];
        if (m->state[i].initial)
            memcpy(t->data, m->state[i].initial, t->bytes);
        else
            memset(t->data, 0, t->bytes);
    }
}
static inline int ek_infer(const ek_model *m, const void *weights) {
    return ek_infer_on(m, NULL, weights);
}

#ifdef __cplusplus
}
#endif
#endif
