/* app_base.h - what every part of the program uses: errors, the clock, memory, the end. */
#ifndef APP_BASE_H
#define APP_BASE_H
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_JOB = 1,   /* the camera or the network failed */
    EXIT_INPUT = 2, /* the caller must change something */
    MAX_SIDE = 8192 /* width and height of a frame */
};

__attribute__((noreturn, format(printf, 3, 4))) static void fail(int code, const char *hint,
                                                                 const char *what, ...) {
    va_list args;
    fputs("error: ", stderr);
    va_start(args, what);
    vfprintf(stderr, what, args);
    va_end(args);
    fprintf(stderr, "\n  hint: %s\n", hint);
    _exit(code); /* other threads may be at work: nothing of theirs is torn down */
}

/* Zeros, aligned to 64 bytes. */
static void *memory(size_t bytes) {
    const size_t whole = (bytes / 64 + 1) * 64;
    void *p = aligned_alloc(64, whole);
    if (!p) fail(EXIT_JOB, "use smaller frames", "the system gives no %zu bytes of memory", bytes);
    return memset(p, 0, whole);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* A pipe that has a byte from the first SIGINT or SIGTERM on: whoever waits by poll() wakes. */
static int stop_pipe[2];
static volatile sig_atomic_t stopping;

static void on_signal(int number) {
    const int before = errno;
    (void)number;
    stopping = 1;
    if (write(stop_pipe[1], "", 1) < 0) stopping = 1; /* the pipe is full: it is readable */
    errno = before;
}

static void catch_signals(void) {
    struct sigaction end = {.sa_handler = on_signal}, ignore = {.sa_handler = SIG_IGN};
    if (pipe(stop_pipe)) fail(EXIT_JOB, "try again", "no pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) fcntl(stop_pipe[i], F_SETFL, O_NONBLOCK);
    sigaction(SIGINT, &end, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
}

/* Waits until fd can be read. 1: it can; 0: the program shall end; -1: that time has passed. */
static int wait_for(int fd, double until_ms) {
    for (;;) {
        struct pollfd fds[2] = {{.fd = stop_pipe[0], .events = POLLIN},
                                {.fd = fd, .events = POLLIN}};
        const double left = until_ms - now_ms();
        if (stopping) return 0;
        if (left <= 0) return -1;
        const int ready = poll(fds, 2, left < 1e6 ? (int)left + 1 : 1000000);
        if (ready < 0 && errno != EINTR)
            fail(EXIT_JOB, "try again", "cannot wait for a frame: %s", strerror(errno));
        if (stopping) return 0;
        if (ready > 0 && fds[1].revents) return 1;
    }
}

/* A text that grows. */
struct text {
    char *data;
    size_t used, room;
};

static void text_room(struct text *t, size_t more) {
    if (t->used + more <= t->room) return;
    t->room = 2 * (t->used + more);
    t->data = realloc(t->data, t->room);
    if (!t->data)
        fail(EXIT_JOB, "end other programs", "the system gives no %zu bytes of memory", t->room);
}

static void text_bytes(struct text *t, const void *bytes, size_t count) {
    text_room(t, count + 1);
    memcpy(t->data + t->used, bytes, count);
    t->used += count;
    t->data[t->used] = 0;
}

__attribute__((format(printf, 2, 3))) static void text_add(struct text *t, const char *format,
                                                           ...) {
    va_list args;
    va_start(args, format);
    const int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    text_room(t, (size_t)count + 1);
    va_start(args, format);
    t->used += (size_t)vsnprintf(t->data + t->used, (size_t)count + 1, format, args);
    va_end(args);
}

#endif
