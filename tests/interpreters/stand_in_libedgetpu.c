/* A stand-in for libedgetpu: a delegate that takes no operator, so that the interpreter's own
   kernels run. It has the functions that TFLite's load_delegate and edgetpu_c.h name, and writes a
   line to a file for each delegate that an interpreter prepares. The structure is TfLiteDelegate of
   TensorFlow Lite's C API (common.h). */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct delegate {
    void *data;
    int (*prepare)(void *context, struct delegate *self);
    int (*copy_from)(void *, struct delegate *, int, void *);
    int (*copy_to)(void *, struct delegate *, int, void *);
    void (*release)(void *, struct delegate *, int *);
    int64_t flags;
    void *builder;
} delegate;

static char device[64];
static int held = -1;

/* As with the real device, one process has it at a time, for as many delegates as it likes. */
static int is_free(void) {
    const char *path = getenv("STAND_IN_LOCK");
    if (!path || held >= 0) return 1;
    held = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (held >= 0 && !flock(held, LOCK_EX | LOCK_NB)) return 1;
    if (held >= 0) close(held);
    held = -1;
    return 0;
}

static int prepare(void *context, delegate *self) {
    (void)context, (void)self;
    const char *path = getenv("STAND_IN_LOG");
    FILE *log = path ? fopen(path, "a") : NULL;
    if (log) fprintf(log, "prepared %s\n", device), fclose(log);
    return 0;
}

delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count,
                                        void (*report)(const char *));
delegate *tflite_plugin_create_delegate(char **keys, char **values, size_t count,
                                        void (*report)(const char *)) {
    for (size_t i = 0; i < count; i++)
        if (!strcmp(keys[i], "device")) snprintf(device, sizeof device, "%s", values[i]);
    if (!strcmp(device, "usb:7") || !is_free()) {
        report("no such device, or another process has it");
        return NULL;
    }
    delegate *made = calloc(1, sizeof *made);
    if (made) made->prepare = prepare;
    return made;
}

void tflite_plugin_destroy_delegate(delegate *made);
void tflite_plugin_destroy_delegate(delegate *made) { free(made); }

const char *edgetpu_version(void);
const char *edgetpu_version(void) { return "BuildLabel(STAND-IN) RuntimeVersion(14)"; }
