/* stick_firmware.h - gives a Coral USB Accelerator its firmware.
 *
 * It starts as a loader, which takes one by DFU (Device Firmware Upgrade 1.1, usb.org) and comes
 * back as another device after a reset of its port.  The firmware is found by its first bytes and
 * its CRC-32 in any libedgetpu of the machine, in edgec's cache, or in the file that
 * EDGEC_EDGETPU_FIRMWARE names.  Only program_stick.h includes it. */
#ifndef STICK_FIRMWARE_H
#define STICK_FIRMWARE_H
#include "program_weights.h"
#include "stick_file.h"
#include "stick_usb.h"

#include <glob.h>

enum {
    DFU_DOWNLOAD = 1, /* requests of DFU 1.1, table 3.2 */
    DFU_UPLOAD,
    DFU_GET_STATUS,
    DFU_CLEAR_STATUS,
    DFU_ABORT = 6,
    DFU_IDLE = 2, /* states, table 6.2 */
    DFU_DOWNLOAD_IDLE = 5,
    DFU_ERROR = 10,
    DFU_FUNCTIONAL = 0x21, /* a descriptor */
    DFU_OUT = 0x21,        /* request types: to the interface and from it */
    DFU_IN = 0xA1,
    DFU_MOST_BLOCK = 4096
};

/* A file's bytes in memory; data is NULL where there is none. */
struct mapped {
    const uint8_t *data;
    size_t size;
};

static struct mapped map_file(const char *path) {
    struct stat s;
    struct mapped m = {NULL, 0};
    /* A pipe without a writer is not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return m;
    if (!fstat(fd, &s) && S_ISREG(s.st_mode) && s.st_size > 0) {
        void *data = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data != MAP_FAILED) m = (struct mapped){data, (size_t)s.st_size};
    }
    close(fd);
    return m;
}

/* Where the firmware stands in some bytes, or NULL. */
static const uint8_t *firmware_in(const struct stick_file *f, struct mapped m) {
    for (size_t at = 0; at + f->firmware_bytes <= m.size; at++)
        if (m.data[at] == f->firmware_start[0] &&
            !memcmp(m.data + at, f->firmware_start, sizeof f->firmware_start) &&
            crc32_of(m.data + at, f->firmware_bytes) == f->firmware_crc32)
            return m.data + at;
    return NULL;
}

static const uint8_t *firmware_in_file(const struct stick_file *f, const char *path) {
    static struct mapped m; /* stays for the stick's next start */
    if (m.data) munmap((void *)(uintptr_t)m.data, m.size);
    m = map_file(path);
    return firmware_in(f, m);
}

static const uint8_t *firmware_in_files(const struct stick_file *f, const char *pattern) {
    glob_t files;
    const uint8_t *found = NULL;
    if (glob(pattern, 0, NULL, &files)) return NULL;
    for (size_t i = 0; i < files.gl_pathc && !found; i++)
        found = firmware_in_file(f, files.gl_pathv[i]);
    globfree(&files);
    return found;
}

/* The firmware, or NULL.  given: the file that it has to be in, or NULL. */
static const uint8_t *find_firmware(const struct stick_file *f, const char *given) {
    static const uint8_t *found;
    const char *cache = getenv("EDGEC_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char path[EK_PATH_CHARS];
    if (found) return found;
    if (given) return found = firmware_in_file(f, given);
    const char *place = stick_at(f, f->firmware_places), *end = place + f->firmware_places.n;
    for (; place < end && !found; place += strlen(place) + 1) {
        int n = *place == '/'     ? snprintf(path, sizeof path, "%s", place)
                : cache && *cache ? snprintf(path, sizeof path, "%s/%s", cache, place)
                : xdg && *xdg
                    ? snprintf(path, sizeof path, "%s/edgec/%s", xdg, place)
                    : snprintf(path, sizeof path, "%s/.cache/edgec/%s", home ? home : "", place);
        if (n < (int)sizeof path) found = firmware_in_files(f, path);
    }
    return found;
}

/* ---- DFU
 * ------------------------------------------------------------
 */

static enum usb_result dfu_refused(const char *what, int number) {
    return usb_fault(USB_STALLED, "it refuses its firmware: %s %d", what, number);
}

/* The state, after the pause that the loader asks for. */
static enum usb_result dfu_state(const struct usb *u, int *status, int *state) {
    uint8_t answer[6] = {0};
    int n = 0;
    enum usb_result r = usb_control(u, (uint16_t[]){DFU_IN, DFU_GET_STATUS, 0, 0}, answer, 6, &n);
    if (r) return r;
    if (n != 6) return dfu_refused("bytes of its status:", n);
    int ms = answer[1] | answer[2] << 8 | answer[3] << 16;
    usb_pause(ms < USB_TIMEOUT_MS ? ms : USB_TIMEOUT_MS);
    *status = answer[0], *state = answer[4];
    return USB_DONE;
}

/* The size of a block, from the configuration's descriptors. */
static enum usb_result dfu_block(const struct usb *u, uint32_t *block) {
    uint8_t d[512];
    int n = 0;
    enum usb_result r = usb_control(u, (uint16_t[]){0x80, 6, 0x0200, 0}, d, sizeof d, &n);
    if (r) return r;
    for (int at = 0; at + 7 <= n && d[at]; at += d[at])
        if (d[at + 1] == DFU_FUNCTIONAL) {
            *block = (uint32_t)(d[at + 5] | d[at + 6] << 8);
            if (*block > DFU_MOST_BLOCK) *block = DFU_MOST_BLOCK;
            if (*block) return USB_DONE;
        }
    return dfu_refused("descriptors of a loader:", 0);
}

/* Sends the firmware in blocks; an empty one ends it. */
static enum usb_result dfu_download(const struct usb *u, const uint8_t *data, uint32_t size,
                                    uint32_t block) {
    int status = 0, state = 0;
    enum usb_result r = dfu_state(u, &status, &state);
    /* Another program has failed, or was ended while it sent or read firmware. */
    const uint16_t request = state == DFU_ERROR ? DFU_CLEAR_STATUS : DFU_ABORT;
    if (!r && state != DFU_IDLE)
        r = usb_control(u, (uint16_t[]){DFU_OUT, request, 0, 0}, NULL, 0, NULL);
    for (uint32_t number = 0, at = 0, n = 1; !r && n; number++, at += n) {
        n = size - at < block ? size - at : block;
        r = usb_control(u, (uint16_t[]){DFU_OUT, DFU_DOWNLOAD, (uint16_t)number, 0},
                        (void *)(uintptr_t)(data + at), n, NULL);
        if (!r) r = dfu_state(u, &status, &state);
        if (!r && (status || state != (n ? DFU_DOWNLOAD_IDLE : DFU_IDLE)))
            r = dfu_refused("state", state);
    }
    return r;
}

/* Reads the firmware back. */
static enum usb_result dfu_verify(const struct usb *u, const uint8_t *data, uint32_t size,
                                  uint32_t block) {
    uint8_t back[DFU_MOST_BLOCK];
    for (uint32_t number = 0, at = 0; at < size; number++, at += block) {
        uint32_t n = size - at < block ? size - at : block;
        int got = 0;
        enum usb_result r = usb_control(u, (uint16_t[]){DFU_IN, DFU_UPLOAD, (uint16_t)number, 0},
                                        back, block, &got);
        if (r) return r;
        if (got < (int)n || memcmp(back, data + at, n))
            return dfu_refused("it returned other bytes in block", (int)number);
    }
    return USB_DONE;
}

/* Gives a loader its firmware and resets the port; it comes back as another device. */
static enum usb_result give_firmware(const struct stick_file *f, const struct usb_device *d) {
    static struct usb u;
    uint32_t block = 0;
    const char *given = getenv("EDGEC_EDGETPU_FIRMWARE");
    if (given && !*given) given = NULL;
    const uint8_t *data = find_firmware(f, given);
    if (!data && given)
        return usb_fault(USB_STALLED,
                         "%.90s does not have its firmware; name a libedgetpu with "
                         "EDGEC_EDGETPU_FIRMWARE",
                         given);
    if (!data)
        return usb_fault(USB_STALLED, "its firmware is in no libedgetpu of this machine; name a "
                                      "file with EDGEC_EDGETPU_FIRMWARE");
    enum usb_result r = usb_open(&u, d);
    if (r) return r;
    r = dfu_block(&u, &block);
    if (!r) r = dfu_download(&u, data, f->firmware_bytes, block);
    if (!r) r = dfu_verify(&u, data, f->firmware_bytes, block);
    /* A loader with the firmware starts it, another one starts anew. */
    usb_ioctl(&u, USBDEVFS_RESET, NULL);
    usb_close(&u);
    return r;
}

#endif
