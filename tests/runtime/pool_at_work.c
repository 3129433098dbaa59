/* Pools of 1 to 4 threads, two at a time, with much and little to do, awake and asleep: every part is computed once. */
#define _POSIX_C_SOURCE 200809L
#include "ek_thread_pool.h"
#include <stdio.h>
#include <stdlib.h>

enum { N = 4096 };
typedef struct {
    int from[N], to[N], n;
} job;

static void add_one(const void *context, int part, int parts)
{
    job *j = *(job *const *)context; /* parts write what no other part does */
    for (int i = j->n * part / parts; i < j->n * (part + 1) / parts; i++) j->to[i] = j->from[i] + 1;
}

static void check(ek_threads *pool, job *j, int rounds, int n)
{
    j->n = n;
    for (int i = 0; i < n; i++) j->from[i] = i;
    for (int r = 0; r < rounds; r++) {
        pool->share(pool, add_one, &j);
        for (int i = 0; i < n; i++) {
            if (j->to[i] != j->from[i] + 1) printf("round %d: %d is %d\n", r, j->from[i], j->to[i]), exit(1);
            j->from[i] = j->to[i], j->to[i] = -1;
        }
    }
}

int main(void)
{
    static _Alignas(64) unsigned char memory[2][EK_POOL_BYTES];
    static job jobs[2];
    const struct timespec pause = { 0, 2000000 };
    if (ek_pool_start(memory[0], 0) || ek_pool_start(memory[0], EK_MAX_THREADS + 1) || ek_pool_start(memory[0] + 1, 2))
        return 2;
    for (int threads = 1; threads <= EK_MAX_THREADS; threads++) {
        for (int again = 0; again < 20; again++) { /* ended before and after they began to wait */
            ek_pool_stop(ek_pool_start(memory[0], threads));
        }
        ek_threads *a = ek_pool_start(memory[0], threads), *b = ek_pool_start(memory[1], 3);
        if (!a || !b || a->parts != threads) return 3;
        check(a, &jobs[0], 300, 64);
        check(b, &jobs[1], 300, 3);
        for (int i = 0; i < 10; i++) {
            nanosleep(&pause, NULL); /* all sleep */
            check(a, &jobs[0], 2, N);
            check(b, &jobs[1], 2, N);
        }
        ek_pool_stop(a);
        check(b, &jobs[1], 20, N);
        ek_pool_stop(b);
    }
    puts("fine");
    return 0;
}
