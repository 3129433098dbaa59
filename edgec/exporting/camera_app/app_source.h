/* app_source.h - gives frames: of a camera by V4L2, always its newest, or of a file of raw frames.
 */
#ifndef APP_SOURCE_H
#define APP_SOURCE_H
#include "app_base.h"
#include "ek_frame.h"

#include <linux/videodev2.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

enum {
    BUFFERS = 4,     /* of the driver, which are mapped */
    SILENT_MS = 5000 /* without a frame a camera counts as gone */
};

/* A format of frames: V4L2's four characters, ek_frame.h's number, bytes of a pixel in the first
 * plane, whether two pixels of a row and of a column share colours. */
struct pixels {
    const char *name;
    int format, bytes;
    bool is_shared_across, is_shared_down;
};

/* The best first. */
static const struct pixels all_pixels[] = {
    {"YUYV", EK_YUYV, 2, true, false}, {"NV12", EK_NV12, 1, true, true},
    {"YU12", EK_NV12, 1, true, true},  {"RGB3", EK_RGB, 3, false, false},
    {"BGR3", EK_BGR, 3, false, false}, {"GREY", EK_GRAY, 1, false, false},
};
enum { PIXELS = sizeof all_pixels / sizeof *all_pixels };
#define PIXELS_TEXT "YUYV, NV12, YU12, RGB3, BGR3 and GREY"

struct source {
    const char *path; /* of the camera or file */
    int fd, width, height;
    const struct pixels *pixels;
    size_t stride, bytes;   /* of a row of the first plane, of a frame */
    uint8_t *colours;       /* of YU12: its two planes become NV12's one */
    uint8_t *frame;         /* of a file */
    uint8_t *maps[BUFFERS]; /* of a camera */
    size_t lengths[BUFFERS];
    int buffers, in_use; /* the driver's buffer that the last frame is in; -1: none */
};

static const struct pixels *pixels_named(const char *name) {
    for (int i = 0; i < PIXELS; i++)
        if (!strcmp(all_pixels[i].name, name)) return &all_pixels[i];
    return NULL;
}

/* Says how long a frame is, whose rows have `stride` bytes. */
static void source_sizes(struct source *s, size_t stride) {
    const struct pixels *p = s->pixels;
    if ((p->is_shared_across && s->width % 2) || (p->is_shared_down && s->height % 2))
        fail(EXIT_INPUT, "give even sides", "%s frames of %d x %d share colours between pixels",
             p->name, s->width, s->height);
    s->stride = stride;
    s->bytes = stride * (size_t)s->height * (p->is_shared_down ? 3 : 2) / 2;
    if (!strcmp(p->name, "YU12")) s->colours = memory(stride * (size_t)s->height / 2);
}

/* The frame that these bytes are. */
static ek_frame_t source_frame(const struct source *s, const uint8_t *data) {
    const size_t plane = s->stride * (size_t)s->height, half = s->stride / 2;
    ek_frame_t frame = {.format = s->pixels->format, .width = s->width, .height = s->height};
    frame.planes[0] = data, frame.planes[1] = data + plane;
    frame.strides[0] = frame.strides[1] = (int64_t)s->stride;
    if (s->colours) {
        const uint8_t *u = data + plane, *v = u + half * (size_t)(s->height / 2);
        for (size_t i = 0; i < half * (size_t)(s->height / 2); i++)
            s->colours[2 * i] = u[i], s->colours[2 * i + 1] = v[i];
        frame.planes[1] = s->colours;
        frame.strides[1] = (int64_t)(2 * half);
    }
    return frame;
}

/* ---- a file
 * ------------------------------------------------------------
 */

static struct source source_of_file(const char *path, const struct pixels *pixels, int width,
                                    int height) {
    struct source s = {
        .path = path, .width = width, .height = height, .pixels = pixels, .in_use = -1};
    const bool is_stdin = !strcmp(path, "-");
    source_sizes(&s, (size_t)width * (size_t)pixels->bytes);
    s.fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s.fd < 0) fail(EXIT_INPUT, "check the path", "cannot read %s: %s", path, strerror(errno));
    s.frame = memory(s.bytes);
    return s;
}

/* 0: the file or the program ends. */
static int source_read(struct source *s, ek_frame_t *frame) {
    size_t have = 0;
    while (have < s->bytes) {
        if (!wait_for(s->fd, INFINITY)) return 0;
        const ssize_t n = read(s->fd, s->frame + have, s->bytes - have);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0)
            fail(EXIT_INPUT, "is it a file?", "cannot read %s: %s", s->path, strerror(errno));
        if (n == 0 && have)
            fail(EXIT_INPUT, "check --format", "%s ends within a frame, which has %zu bytes",
                 s->path, s->bytes);
        if (n == 0) return 0;
        have += (size_t)n;
    }
    *frame = source_frame(s, s->frame);
    return 1;
}

/* ---- a camera
 * ------------------------------------------------------------
 */

static int camera_ask(int fd, unsigned long request, void *argument) {
    int result;
    do result = ioctl(fd, request, argument);
    while (result < 0 && errno == EINTR && !stopping);
    return result;
}

static uint32_t camera_code(const char *name) {
    return v4l2_fourcc((uint32_t)name[0], (uint32_t)name[1], (uint32_t)name[2], (uint32_t)name[3]);
}

/* The best of the camera's formats, or the one that is asked for. */
static const struct pixels *camera_pixels(const struct source *s, const struct pixels *wanted) {
    char names[256] = "nothing";
    int best = PIXELS;
    size_t used = 0;
    for (uint32_t i = 0;; i++) {
        struct v4l2_fmtdesc d = {.index = i, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE};
        if (camera_ask(s->fd, VIDIOC_ENUM_FMT, &d)) break;
        for (int k = 0; k < PIXELS; k++)
            if (camera_code(all_pixels[k].name) == d.pixelformat &&
                (!wanted || wanted == &all_pixels[k]))
                best = EK_MIN(best, k);
        if (used + 8 >= sizeof names) continue;
        if (used) used += (size_t)snprintf(names + used, sizeof names - used, ", ");
        for (int k = 0; k < 4; k++) {
            const char c = (char)(d.pixelformat >> (8 * k) & 127);
            names[used++] = c > ' ' && c < 127 ? c : '?';
        }
        names[used] = 0;
    }
    if (best == PIXELS)
        fail(EXIT_INPUT,
             "let another program decode: ffmpeg -i CAMERA -f rawvideo -pix_fmt yuyv422 - | app "
             "--frames - --format 640x480:YUYV",
             "%s gives %s; this program reads %s", s->path, names,
             wanted ? wanted->name : PIXELS_TEXT);
    return &all_pixels[best];
}

static void camera_map(struct source *s) {
    const char *hint = "end the other program that has the camera, or plug it in again";
    struct v4l2_requestbuffers request = {
        .count = BUFFERS, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP};
    if (camera_ask(s->fd, VIDIOC_REQBUFS, &request))
        fail(EXIT_JOB, hint, "%s does not stream: %s", s->path, strerror(errno));
    s->buffers = EK_MIN((int)request.count, BUFFERS);
    for (int i = 0; i < s->buffers; i++) {
        struct v4l2_buffer b = {
            .index = (uint32_t)i, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP};
        if (camera_ask(s->fd, VIDIOC_QUERYBUF, &b))
            fail(EXIT_JOB, hint, "%s does not stream: %s", s->path, strerror(errno));
        if (b.length < s->bytes)
            fail(EXIT_JOB, "use another --format", "%s has buffers of %u bytes for frames of %zu",
                 s->path, b.length, s->bytes);
        void *map =
            mmap(NULL, b.length, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, (off_t)b.m.offset);
        if (map == MAP_FAILED || camera_ask(s->fd, VIDIOC_QBUF, &b))
            fail(EXIT_JOB, hint, "%s does not stream: %s", s->path, strerror(errno));
        s->maps[i] = map, s->lengths[i] = b.length;
    }
    int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;
    if (!s->buffers || camera_ask(s->fd, VIDIOC_STREAMON, &type))
        fail(EXIT_JOB, hint, "%s does not stream: %s", s->path, strerror(errno));
}

static struct source source_of_camera(const char *path, const struct pixels *wanted, int width,
                                      int height) {
    struct source s = {.path = path, .in_use = -1};
    struct v4l2_capability can = {.capabilities = 0};
    s.fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (s.fd < 0)
        fail(EXIT_JOB,
             errno == EACCES ? "sudo usermod -aG video $USER, then log in again" : "plug it in",
             "cannot open %s: %s", path, strerror(errno));
    const bool answers = !camera_ask(s.fd, VIDIOC_QUERYCAP, &can);
    const uint32_t bits =
        can.capabilities & V4L2_CAP_DEVICE_CAPS ? can.device_caps : can.capabilities;
    if (!answers || !(bits & V4L2_CAP_VIDEO_CAPTURE) || !(bits & V4L2_CAP_STREAMING))
        fail(EXIT_INPUT, "v4l2-ctl --list-devices shows which is what", "%s is not a camera", path);
    s.pixels = camera_pixels(&s, wanted);
    struct v4l2_format format = {.type = V4L2_BUF_TYPE_VIDEO_CAPTURE};
    format.fmt.pix.width = (uint32_t)width, format.fmt.pix.height = (uint32_t)height;
    format.fmt.pix.pixelformat = camera_code(s.pixels->name);
    format.fmt.pix.field = V4L2_FIELD_NONE; /* whole frames */
    if (camera_ask(s.fd, VIDIOC_S_FMT, &format) ||
        format.fmt.pix.pixelformat != camera_code(s.pixels->name))
        fail(EXIT_JOB, "end the other program that has the camera", "%s refuses %s: %s", path,
             s.pixels->name, strerror(errno));
    s.width = (int)format.fmt.pix.width, s.height = (int)format.fmt.pix.height;
    if (s.width < 1 || s.height < 1 || s.width > MAX_SIDE || s.height > MAX_SIDE)
        fail(EXIT_INPUT, "use another --format", "%s gives frames of %d x %d", path, s.width,
             s.height);
    source_sizes(
        &s, EK_MAX(format.fmt.pix.bytesperline, (uint32_t)s.width * (uint32_t)s.pixels->bytes));
    camera_map(&s);
    return s;
}

static void camera_return(struct source *s, int index) {
    struct v4l2_buffer b = {
        .index = (uint32_t)index, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP};
    if (camera_ask(s->fd, VIDIOC_QBUF, &b))
        fail(EXIT_JOB, "plug it in again", "%s is gone: %s", s->path, strerror(errno));
}

/* The newest frame, and how many were left out for it; 0: the program ends. The frame is there
 * until the next call. */
static int camera_next(struct source *s, ek_frame_t *frame, long *left_out) {
    const double until = now_ms() + SILENT_MS;
    if (s->in_use >= 0) camera_return(s, s->in_use);
    s->in_use = -1;
    while (s->in_use < 0) {
        const int ready = wait_for(s->fd, until);
        if (!ready) return 0;
        if (ready < 0)
            fail(EXIT_JOB, "plug it in again", "%s gave no frame in %d s", s->path,
                 SILENT_MS / 1000);
        struct v4l2_buffer b;
        for (;;) { /* all that there are: the last one is the newest */
            b = (struct v4l2_buffer){.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
                                     .memory = V4L2_MEMORY_MMAP};
            if (camera_ask(s->fd, VIDIOC_DQBUF, &b)) break;
            const bool is_whole = !(b.flags & V4L2_BUF_FLAG_ERROR) && b.bytesused >= s->bytes;
            if (is_whole && s->in_use >= 0) camera_return(s, s->in_use), ++*left_out;
            if (is_whole)
                s->in_use = (int)b.index;
            else
                camera_return(s, (int)b.index);
        }
        if (errno != EAGAIN && errno != EINTR)
            fail(EXIT_JOB, "plug it in again", "%s is gone: %s", s->path, strerror(errno));
    }
    *frame = source_frame(s, s->maps[s->in_use]);
    return 1;
}

static int source_next(struct source *s, ek_frame_t *frame, long *left_out) {
    return s->buffers ? camera_next(s, frame, left_out) : source_read(s, frame);
}

static void source_close(struct source *s) {
    for (int i = 0; i < s->buffers; i++) munmap(s->maps[i], s->lengths[i]);
    close(s->fd);
}

#endif
