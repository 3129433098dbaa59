/* The driver of programs (csrc/program_stick.h) as a library for the tests. */
#define _DEFAULT_SOURCE
#include "program_stick.h"

int driver_prepare(const char *path, const char *graph, int patience_ms, int least_ms)
{
    stick.patience = patience_ms, stick.least_patience = least_ms;
    return stick_prepare(path, graph, 0);
}

/* Looks for a stick as a program does at its start; whether it is open. */
int driver_connect(void)
{
    stick_connect();
    return stick.usb.fd >= 0;
}

/* One inference; 0: the twin has to run. now: a lost stick is looked for without a pause. */
int driver_run(int segment, const void *const *in, void *const *out, int now)
{
    if (now) stick.look_at = 0;
    stick_between();
    return stick_run(segment, in, out);
}

void driver_counts(int counts[3])
{
    counts[0] = stick.opened, counts[1] = stick.lost, counts[2] = stick.recovered;
}

const char *driver_fault(void)
{
    return usb_why;
}

/* Switches the stick off, and forgets all that is known of it. */
void driver_stop(void)
{
    stick_stop();
    usb_close(&stick.usb);
    *stick.booting.node = 0;
    stick.opened = stick.lost = stick.recovered = 0;
    usb_why[0] = 0;
    memset(stick.states, 0, stick.file->models.n * sizeof *stick.states);
}
