/* ek_thread_pool.h - threads that share the larger ops of a model: POSIX threads, C11 atomics, no
 * malloc, no globals.
 *
 * model.c includes it where the code is for several threads. Every part but the first is offered to
 * a thread of its own; who takes it, that thread or the caller who is through with his, computes
 * it. So a thread that the system does not run costs nothing but its help. Whoever waits spins
 * first, since ops follow each other closely, then sleeps. */
#ifndef EK_THREAD_POOL_H
#define EK_THREAD_POOL_H
#include "ek_denormals.h"
#include "ek_model.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

enum {
    EK_CACHE_LINE = 64,
    EK_SPIN_NS =
        100000, /* for so long, before sleeping: more than most ops that one thread computes take */
    EK_SPINS = 64,             /* between two looks at the clock */
    EK_STACK_BYTES = 512 << 10 /* of a thread: kernels take some 20 KB, musl would give 128 */
};

typedef struct ek_pool ek_pool;

/* What becomes of a part. One value for each worker says all, so that few cache lines go from core
 * to core. */
enum {
    EK_IDLE,    /* there is none; the worker spins */
    EK_ASLEEP,  /* there is none; the worker sleeps */
    EK_OFFERED, /* it is to be taken */
    EK_TAKEN,   /* its worker computes it */
    EK_AWAITED, /* the same, and the caller sleeps until it is done */
    EK_ENDS     /* there will be none */
};

/* One thread; a cache line of its own, so that no other thread's waiting slows it. */
typedef struct {
    _Alignas(EK_CACHE_LINE) atomic_int state;
    int part;
    ek_work *work; /* of the part */
    const void *context;
    ek_pool *pool;
    pthread_t thread;
} ek_worker;

struct ek_pool {
    ek_threads base; /* what a run is given */
    int workers;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    ek_worker worker[EK_MAX_THREADS - 1];
};
_Static_assert(sizeof(ek_pool) <= EK_POOL_BYTES, "EK_POOL_BYTES is too small");

static inline void ek_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield" ::: "memory");
#endif
}

static inline int64_t ek_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until the state is no more `now`; `sleeping` is what it is while who awaits that sleeps. */
static void ek_await(ek_worker *w, int now, int sleeping) {
    const int64_t start = ek_now_ns();
    do
        for (int i = 0; i < EK_SPINS; i++) {
            if (atomic_load_explicit(&w->state, memory_order_acquire) != now) return;
            ek_pause();
        }
    while (ek_now_ns() - start < EK_SPIN_NS);
    pthread_mutex_lock(&w->pool->lock);
    if (atomic_compare_exchange_strong(&w->state, &now, sleeping))
        while (atomic_load(&w->state) == sleeping)
            pthread_cond_wait(&w->pool->wake, &w->pool->lock);
    pthread_mutex_unlock(&w->pool->lock);
}

/* A new state, and no sleep for who slept in the old one. */
static inline void ek_tell(ek_worker *w, int state) {
    const int before = atomic_exchange(&w->state, state);
    if (before != EK_ASLEEP && before != EK_AWAITED) return;
    pthread_mutex_lock(&w->pool->lock);
    pthread_cond_broadcast(&w->pool->wake);
    pthread_mutex_unlock(&w->pool->lock);
}

static void *ek_worker_main(void *worker) {
    ek_worker *w = worker;
    for (;;) {
        int offered = EK_OFFERED;
        ek_await(w, EK_IDLE, EK_ASLEEP);
        if (atomic_load(&w->state) == EK_ENDS) return NULL;
        if (!atomic_compare_exchange_strong(&w->state, &offered, EK_TAKEN))
            continue; /* the caller was faster */
        w->work(w->context, w->part, w->pool->base.parts);
        ek_tell(w, EK_IDLE);
    }
}

static void ek_pool_share(ek_threads *threads, ek_work *work, const void *context) {
    ek_pool *p = (ek_pool *)threads;
    for (int i = 0; i < p->workers; i++) {
        p->worker[i].work = work, p->worker[i].context = context;
        ek_tell(&p->worker[i], EK_OFFERED);
    }
    work(context, 0, p->base.parts);
    for (int i = 0; i < p->workers; i++) {
        int offered = EK_OFFERED; /* looked at first: a try would take the line from the worker */
        if (atomic_load(&p->worker[i].state) == offered &&
            atomic_compare_exchange_strong(&p->worker[i].state, &offered, EK_IDLE))
            work(context, p->worker[i].part, p->base.parts);
    }
    for (int i = 0; i < p->workers; i++) ek_await(&p->worker[i], EK_TAKEN, EK_AWAITED);
}

static void ek_pool_stop(ek_threads *threads) {
    ek_pool *p = (ek_pool *)threads;
    for (int i = 0; i < p->workers; i++) ek_tell(&p->worker[i], EK_ENDS);
    for (int i = 0; i < p->workers; i++) pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
}

/* NULL where the system gives no threads. Signals go to the threads that the program has already.
 */
static ek_threads *ek_pool_start(void *memory, int threads) {
    ek_pool *p = memory;
    sigset_t all, before;
    pthread_attr_t attr;
    if (threads < 1 || threads > EK_MAX_THREADS || (uintptr_t)memory % EK_CACHE_LINE) return NULL;
    *p = (ek_pool){.base = {threads, ek_pool_share}};
    if (pthread_mutex_init(&p->lock, NULL)) return NULL;
    if (pthread_cond_init(&p->wake, NULL)) {
        pthread_mutex_destroy(&p->lock);
        return NULL;
    }
    const int described = !pthread_attr_init(&attr);
    if (described)
        (void)pthread_attr_setstacksize(&attr, EK_STACK_BYTES); /* else the system's own */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int started = 1; started && p->workers < threads - 1;) {
        ek_worker *w = &p->worker[p->workers];
        w->pool = p, w->part = p->workers + 1;
        started = !pthread_create(&w->thread, described ? &attr : NULL, ek_worker_main, w);
        p->workers += started;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (described) pthread_attr_destroy(&attr);
    if (p->workers == threads - 1) return &p->base;
    ek_pool_stop(&p->base);
    return NULL;
}

#endif
