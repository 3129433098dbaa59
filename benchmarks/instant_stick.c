/* A stick that answers at once and computes nothing, for bench_stick_calls.py: it takes any bytes
 * in the number that a program sends, and gives outputs and events in their order.
 *
 *     instant_stick SOCKET DEVICES IMPORT DESCRIPTOR ROUTE...
 *
 * DEVICES, IMPORT and DESCRIPTOR are files with the answers to USB/IP's list and import and to the
 * request of the device's descriptor.  ROUTE is what follows the opening: o and a number of bytes
 * that come, i and a number that are given, e for an event; after a word "again" it repeats.
 * Messages: Documentation/usb/usbip_protocol.rst of Linux. */
#define _GNU_SOURCE
#include <stdio.h>

#include "../tests/stick/plug_messages.h"

enum { QUEUE = 256, LARGEST = 4 << 20, POWER = 0x1a318, TAKEN_BACK = -104 };

struct waiting {
    uint32_t number[QUEUE], length[QUEUE];
    int n;
};

static struct {
    uint32_t address;
    uint64_t value;
} registers[4096];
static int n_registers, step, first, steps, client, events; /* events: not taken yet */
static char **route;
static uint32_t whole, left; /* bytes of the present step, those that have not crossed */
static struct waiting waiting[4]; /* for endpoints 81, 82, 83 */
static unsigned char room[LARGEST], pattern[LARGEST], descriptor[18];

static void answer(uint32_t number, uint32_t command, int status, uint32_t actual,
                   const void *data, size_t size)
{
    unsigned char head[48] = {0};
    put(head, command), put(head + 4, number), put(head + 20, (uint32_t)status);
    if (command == 3) put(head + 24, actual);
    if (!both_sent(client, head, sizeof head, data, size)) exit(1);
}

static void go_to(int where)
{
    step = where < steps ? where : first;
    if (!strcmp(route[step], "again")) first = ++step;
    whole = left = (uint32_t)atol(route[step] + 1);
}

static uint32_t taken(struct waiting *w, uint32_t *length)
{
    uint32_t number = w->number[0];
    *length = w->length[0];
    w->n--;
    memmove(w->number, w->number + 1, (size_t)w->n * sizeof *w->number);
    memmove(w->length, w->length + 1, (size_t)w->n * sizeof *w->length);
    return number;
}

/* Gives what can be given. */
static void advance(void)
{
    static const unsigned char event[16] = {[12] = 4};
    uint32_t length;
    for (;;) {
        char what = route[step][0];
        if (events && waiting[2].n) {
            uint32_t number = taken(&waiting[2], &length);
            answer(number, 3, 0, sizeof event, event, sizeof event);
            events--;
            continue;
        }
        if (what == 'e') events++;
        else if (what == 'i' && waiting[1].n) {
            uint32_t number = taken(&waiting[1], &length), n = length < left ? length : left;
            answer(number, 3, 0, n, pattern + (whole - left), n);
            if (left -= n) continue;
        } else if (what != 'o' || left) return;
        go_to(step + 1);
    }
}

static uint64_t *value_at(uint32_t address)
{
    for (int i = 0; i < n_registers; i++)
        if (registers[i].address == address) return &registers[i].value;
    registers[n_registers].address = address;
    return &registers[n_registers++].value;
}

static void controlled(uint32_t number, const unsigned char *setup, const void *data, int inwards)
{
    uint32_t address = setup[2] | setup[3] << 8 | setup[4] << 16 | (uint32_t)setup[5] << 24;
    size_t size = setup[6] | setup[7] << 8;
    uint64_t *value = value_at(address);
    int is_register = setup[0] == 0x40 || setup[0] == 0xC0;
    if (is_register && !inwards) {
        *value = 0;
        memcpy(value, data, size < 8 ? size : 8);
        if (address == POWER) *value &= ~0x300ull;
        if (address == POWER && (*value >> 22 & 3) == 3) *value |= 0x200, events = 0, go_to(0);
    }
    if (size > sizeof descriptor) size = sizeof descriptor;
    if (is_register && size > sizeof *value) size = sizeof *value;
    const void *given = is_register ? (void *)value : descriptor;
    answer(number, 3, 0, (uint32_t)size, given, inwards ? size : 0);
}

static void taken_back(uint32_t number, uint32_t which)
{
    for (struct waiting *w = waiting; w < waiting + 4; w++)
        for (int i = 0; i < w->n; i++)
            if (w->number[i] == which) {
                w->n--;
                memmove(w->number + i, w->number + i + 1, (size_t)(w->n - i) * sizeof *w->number);
                memmove(w->length + i, w->length + i + 1, (size_t)(w->n - i) * sizeof *w->length);
                answer(number, 4, TAKEN_BACK, 0, NULL, 0);
                return;
            }
    answer(number, 4, 0, 0, NULL, 0);
}

static void transferred(void)
{
    unsigned char head[48];
    while (all_received(client, head, sizeof head)) {
        uint32_t number = number_at(head + 4), endpoint = number_at(head + 16),
                 length = number_at(head + 24);
        int inwards = (int)number_at(head + 12);
        if (number_at(head) == 2) {
            taken_back(number, number_at(head + 20));
            continue;
        }
        if (!inwards && (length > LARGEST || !all_received(client, room, length))) return;
        if (endpoint == 0) controlled(number, head + 40, room, inwards);
        else if (!inwards) {
            answer(number, 3, 0, length, NULL, 0);
            if (route[step][0] != 'o' || length > left) {
                fprintf(stderr, "%u bytes come at %s\n", length, route[step]);
                exit(1);
            }
            left -= length;
        } else {
            struct waiting *w = &waiting[endpoint & 3];
            if (w->n == QUEUE) exit(1);
            w->number[w->n] = number, w->length[w->n++] = length;
        }
        advance();
    }
}

static int file(const char *path, unsigned char *data, int most)
{
    FILE *f = fopen(path, "rb");
    int n = f ? (int)fread(data, 1, (size_t)most, f) : 0;
    if (f) fclose(f);
    return n;
}

int main(int n, char **words)
{
    static unsigned char devices[4096], import[4096];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (n < 6 || strlen(words[1]) >= sizeof address.sun_path) return 2;
    int of_devices = file(words[2], devices, sizeof devices),
        of_import = file(words[3], import, sizeof import);
    for (int i = 0; i < LARGEST; i++) pattern[i] = (unsigned char)(7 * i);
    file(words[4], descriptor, sizeof descriptor);
    route = words + 5, steps = n - 5;
    strcpy(address.sun_path, words[1]);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (s < 0 || bind(s, (struct sockaddr *)&address, sizeof address) || listen(s, 4)) return 1;
    while ((client = accept(s, NULL, NULL)) >= 0) {
        unsigned char request[8], busid[32];
        if (all_received(client, request, sizeof request) && request[3] == 5)
            all_sent(client, devices, (size_t)of_devices);
        else if (all_received(client, busid, sizeof busid) &&
                 all_sent(client, import, (size_t)of_import)) {
            memset(waiting, 0, sizeof waiting);
            go_to(0);
            transferred();
        }
        close(client);
    }
    return 0;
}
