/* program_weights.h - finds the weights file of the program, checks it and maps it.  Only main.c
 * includes it. */
#ifndef PROGRAM_WEIGHTS_H
#define PROGRAM_WEIGHTS_H
#include "program_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WEIGHTS_FILE "weights.bin" /* beside the program, unless --weights names another */

/* CRC-32 as zlib has it, eight bytes at a time. */
static uint32_t crc32_of(const unsigned char *p, size_t n) {
    static uint32_t t[8][256];
    for (uint32_t i = 0; i < 256; i++) {
        t[0][i] = i;
        for (int k = 0; k < 8; k++) t[0][i] = t[0][i] >> 1 ^ (t[0][i] & 1 ? 0xEDB88320u : 0);
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++) t[k][i] = t[k - 1][i] >> 8 ^ t[0][t[k - 1][i] & 255];
    uint32_t c = ~0u;
    for (; n >= 8; n -= 8, p += 8) {
        c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        c = t[7][c & 255] ^ t[6][c >> 8 & 255] ^ t[5][c >> 16 & 255] ^ t[4][c >> 24] ^ t[3][p[4]] ^
            t[2][p[5]] ^ t[1][p[6]] ^ t[0][p[7]];
    }
    for (; n; n--) c = t[0][(c ^ *p++) & 255] ^ c >> 8;
    return ~c;
}

/* The path of a file beside the executable, which `self` (argv[0]) names where the system does not
 * tell. */
static const char *beside_program(const char *self, const char *name) {
    static char path[EK_PATH_CHARS];
    const size_t room = sizeof path - strlen(name) - 1;
    ssize_t n = readlink("/proc/self/exe", path, room - 1);
    if (n < 0) n = snprintf(path, room, "%s", self);
    while (n > 0 && (size_t)n < room && path[n - 1] != '/') n--;
    if ((size_t)n >= room) n = 0;
    memcpy(path + n, name, strlen(name) + 1);
    return path;
}

/* The content of the weights file of `m`, which is on a page of its own; NULL where the model has
 * none. given: its path, or NULL.  Mapped, not read: several processes share one copy, and the
 * system may drop its pages. */
static const unsigned char *map_weights(const ek_model *m, const char *given, const char *self) {
    static const char *other = "take the program and " WEIGHTS_FILE " from the same bundle";
    if (!m->weights_bytes) return NULL;
    const char *path = given ? given : beside_program(self, WEIGHTS_FILE);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fail(EXIT_INPUT,
             "put the bundle's " WEIGHTS_FILE
             " beside the program, or say where it is with --weights FILE",
             "cannot read the weights, %s: %s", path, strerror(errno));
    struct stat s;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode))
        fail(EXIT_INPUT, other, "the weights, %s, are not a file", path);
    if ((unsigned long long)s.st_size != m->weights_bytes)
        fail(EXIT_INPUT, other, "the weights, %s, have %lld bytes; this program wants %zu", path,
             (long long)s.st_size, m->weights_bytes);
    const unsigned char *data = mmap(NULL, m->weights_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        fail(EXIT_JOB, "is there memory left?", "cannot map the weights, %s: %s", path,
             strerror(errno));
    close(fd);
    uint32_t crc = crc32_of(data, m->weights_bytes);
    if (crc != m->weights_crc32)
        fail(EXIT_INPUT, other,
             "the weights, %s, are damaged or of another model: their CRC-32 is %08x, not %08x",
             path, (unsigned)crc, (unsigned)m->weights_crc32);
    return data;
}

#endif
