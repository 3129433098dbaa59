/* Ops of generated code whose results threads share (ek_threads of ek_model.h). */
#ifndef EK_SHARE_H
#define EK_SHARE_H
#include "ek_base.h"
#include "ek_model.h"

/* What a run was given. */
typedef struct {
    unsigned char *m;
    const unsigned char *w;
    const void *const *in;
    void *const *out;
} ek_run_t;

/* The same names in a shared op as in one that is not. */
#define EK_OF_RUN(context)                                              \
    unsigned char *m = ((const ek_run_t *)(context))->m;                \
    const unsigned char *restrict w = ((const ek_run_t *)(context))->w; \
    const void *const *in = ((const ek_run_t *)(context))->in;          \
    void *const *out = ((const ek_run_t *)(context))->out;              \
    (void)m, (void)w, (void)in, (void)out

/* All parts of an op; without threads it is one. */
static inline void ek_on_threads(ek_threads *threads, ek_work *work, const ek_run_t *run) {
    if (threads)
        threads->share(threads, work, run);
    else
        work(run, 0, 1);
}

#endif
