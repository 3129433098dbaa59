/* busy.c - work for the stages of make stream-check: a core is busy with it, and nobody else's lock is held. */
#include <time.h>

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void until(clockid_t clock, double ms) {
    const double end = now(clock) + ms;
    while (now(clock) < end) {
    }
}

/* So many ms of a core's time: two of them on one core take twice as long. */
void busy_compute(double ms);
void busy_compute(double ms) { until(CLOCK_THREAD_CPUTIME_ID, ms); }

/* Until so many ms have passed, asking all the time, as a driver does that polls its device. */
void busy_wait(double ms);
void busy_wait(double ms) { until(CLOCK_MONOTONIC, ms); }
