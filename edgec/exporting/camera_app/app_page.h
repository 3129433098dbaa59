/* app_page.h - a page for browsers: / draws what was found, /result is the last line, /picture.jpg
 * the next frame, /stream all frames as multipart/x-mixed-replace.
 *
 * One thread serves all clients by poll(); it encodes a frame only while somebody waits for one. */
#ifndef APP_PAGE_H
#define APP_PAGE_H
#include "app_base.h"
#include "app_jpeg.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

enum {
    CLIENTS = 16,
    REQUEST_BYTES = 2048, /* of a request; a longer one is refused */
    REQUEST_MS = 10000,   /* in which a request has come */
    STUCK_MS = 30000      /* in which a client has taken what it was sent */
};

enum wanted { REQUEST, ANSWER, PICTURE, STREAM }; /* what a client waits for, or gives */

struct client {
    int fd;
    enum wanted wanted;
    double until_ms;
    uint64_t picture; /* number of the last one that it was sent */
    size_t used, sent;
    char request[REQUEST_BYTES];
    struct text answer;
};

/* What the program gives to the page, under the lock. */
struct page {
    int listener, wake[2];
    bool is_any_address; /* as a Host, too */
    pthread_t thread;
    pthread_mutex_t lock;
    struct text result;
    uint8_t *pixels; /* of the newest picture, four bytes each */
    int width, height;
    uint64_t picture; /* its number, from 1 */
    bool is_wanted;   /* somebody waits for one */
};

static const char page_html[] =
    "<!doctype html><html lang=en><meta charset=utf-8><title>edgec</title>\n"
    "<meta name=viewport content='width=device-width'>\n"
    "<style>body{font:16px sans-serif;margin:1em;background:#222;color:#eee}\n"
    "div{position:relative;display:inline-block}img{display:block;max-width:100%}\n"
    "canvas{position:absolute;left:0;top:0;width:100%;height:100%}</style>\n"
    "<h1></h1><div><img src=stream alt='the camera'><canvas></canvas></div><pre></pre><script>\n"
    "const one = n => document.querySelector(n), img = one('img'), canvas = one('canvas');\n"
    "async function tell() {\n"
    "  try {\n"
    "    const r = await (await fetch('result')).json(), c = canvas.getContext('2d');\n"
    "    canvas.width = img.naturalWidth; canvas.height = img.naturalHeight;\n"
    "    c.lineWidth = 2; c.strokeStyle = c.fillStyle = '#4f4'; c.font = '16px sans-serif';\n"
    "    for (const {label, score, box: [x, y, a, b]} of r.boxes || []) {\n"
    "      c.strokeRect(x, y, a - x, b - y);\n"
    "      c.fillText(`${label} ${Math.round(100 * score)}%`, x + 4, y + 16);\n"
    "    }\n"
    "    one('h1').textContent = `frame ${r.frame}, ${r.ms} ms`;\n"
    "    one('pre').textContent = r.boxes ? '' : JSON.stringify(r.classes || r.outputs, null, 1);\n"
    "  } catch (e) { one('h1').textContent = 'no answer'; }\n"
    "  setTimeout(tell, 200);\n"
    "}\n"
    "tell();</script></html>\n";

static void page_answer(struct client *c, const char *status, const char *type, const char *body,
                        size_t bytes) {
    text_add(&c->answer,
             "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
             "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
             "Connection: close\r\n\r\n",
             status, type, bytes);
    text_bytes(&c->answer, body, bytes);
    c->wanted = ANSWER;
    c->until_ms = now_ms() + STUCK_MS;
}

static void page_refuse(struct client *c, const char *status) {
    page_answer(c, status, "text/plain", status, strlen(status));
}

/* Whether a browser was told this very machine: a page elsewhere, whose name was made to mean this
 * address, shall not see the camera. */
static bool page_is_host_local(const char *request) {
    const char *host = strcasestr(request, "\r\nhost:");
    if (!host) return true; /* not a browser */
    host += strlen("\r\nhost:");
    host += strspn(host, " \t");
    struct in_addr address;
    char name[32];
    const size_t length = strcspn(host, ":\r\n \t");
    if (length >= sizeof name) return false;
    memcpy(name, host, length), name[length] = 0;
    return !strcasecmp(name, "localhost") ||
           (inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

/* Answers a request that is complete. */
static void page_serve(struct page *p, struct client *c) {
    char path[64], version[2];
    if (strlen(c->request) != c->used) /* a zero byte */
        return page_refuse(c, "400 Bad Request");
    if (sscanf(c->request, "GET %63s HTTP/1.%1[01]", path, version) != 2)
        return page_refuse(c, strncmp(c->request, "GET ", 4) ? "405 Method Not Allowed"
                                                             : "400 Bad Request");
    if (!p->is_any_address && !page_is_host_local(c->request))
        return page_refuse(c, "403 Forbidden");
    path[strcspn(path, "?")] = 0;
    if (!strcmp(path, "/"))
        return page_answer(c, "200 OK", "text/html", page_html, sizeof page_html - 1);
    if (!strcmp(path, "/result")) {
        pthread_mutex_lock(&p->lock);
        if (p->result.used)
            page_answer(c, "200 OK", "application/json", p->result.data, p->result.used);
        else
            page_refuse(c, "503 Service Unavailable");
        pthread_mutex_unlock(&p->lock);
        return;
    }
    if (strcmp(path, "/picture.jpg") && strcmp(path, "/stream"))
        return page_refuse(c, "404 Not Found");
    c->wanted = strcmp(path, "/stream") ? PICTURE : STREAM;
    c->until_ms = now_ms() + STUCK_MS;
    pthread_mutex_lock(&p->lock);
    c->picture = p->picture; /* later ones alone */
    pthread_mutex_unlock(&p->lock);
    if (c->wanted == STREAM)
        text_add(&c->answer, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n"
                             "Content-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n");
}

/* The JPEG of the newest picture, and its number; encoded outside the lock, for the network goes on
 * meanwhile.  Says whether somebody waits for a picture. */
static const struct text *page_newest(struct page *p, bool is_wanted, uint64_t *number) {
    static struct text jpeg;
    static uint8_t *own; /* pixels that the program does not write to */
    static uint64_t encoded;
    pthread_mutex_lock(&p->lock);
    const int width = p->width, height = p->height;
    const bool is_new = is_wanted && encoded != p->picture;
    p->is_wanted = is_wanted;
    *number = p->picture;
    if (is_new) {
        uint8_t *other = own;
        own = p->pixels, p->pixels = other;
    }
    pthread_mutex_unlock(&p->lock);
    if (is_new) {
        jpeg.used = 0;
        jpeg_write(&jpeg, own, width, height);
        encoded = *number;
    }
    return &jpeg;
}

/* Gives the newest picture to those that wait for one and have taken all before. */
static void page_pictures(struct page *p, struct client *clients) {
    bool is_wanted = false;
    uint64_t number;
    for (int i = 0; i < CLIENTS; i++)
        is_wanted = is_wanted || (clients[i].fd >= 0 && clients[i].wanted >= PICTURE);
    const struct text *jpeg = page_newest(p, is_wanted, &number);
    for (int i = 0; i < CLIENTS; i++) {
        struct client *c = &clients[i];
        if (c->fd < 0 || c->wanted < PICTURE) continue;
        if (number <= c->picture || c->sent < c->answer.used) continue;
        c->picture = number;
        if (c->wanted == PICTURE) {
            page_answer(c, "200 OK", "image/jpeg", jpeg->data, jpeg->used);
            continue;
        }
        c->answer.used = c->sent = 0;
        text_add(&c->answer, "--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %zu\r\n\r\n",
                 jpeg->used);
        text_bytes(&c->answer, jpeg->data, jpeg->used);
        text_bytes(&c->answer, "\r\n", 2);
        c->until_ms = now_ms() + STUCK_MS;
    }
}

static void client_close(struct client *c) {
    close(c->fd);
    free(c->answer.data);
    *c = (struct client){.fd = -1};
}

/* Reads what a client says; closes it where it has ended. */
static void client_read(struct page *p, struct client *c) {
    char ignored[256];
    const bool is_request = c->wanted == REQUEST;
    const ssize_t n = recv(c->fd, is_request ? c->request + c->used : ignored,
                           is_request ? REQUEST_BYTES - 1 - c->used : sizeof ignored, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return client_close(c);
    if (!is_request) return;
    c->used += (size_t)n;
    c->request[c->used] = 0;
    if (memmem(c->request, c->used, "\r\n\r\n", 4))
        page_serve(p, c);
    else if (c->used == REQUEST_BYTES - 1)
        page_refuse(c, "431 Request Header Fields Too Large");
}

static void client_write(struct client *c) {
    const ssize_t n = send(c->fd, c->answer.data + c->sent, c->answer.used - c->sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return client_close(c);
    c->sent += (size_t)n;
    if (c->sent == c->answer.used && c->wanted == ANSWER) {
        shutdown(c->fd, SHUT_WR); /* what the client still says is read, or it may lose this */
        c->until_ms = now_ms() + 1000;
    }
}

static void client_accept(const struct page *p, struct client *clients) {
    const int fd = accept(p->listener, NULL, NULL);
    if (fd < 0) return;
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (int i = 0; i < CLIENTS; i++)
        if (clients[i].fd < 0) {
            clients[i] = (struct client){.fd = fd, .until_ms = now_ms() + REQUEST_MS};
            return;
        }
    close(fd);
}

static void *page_run(void *of) {
    static struct client clients[CLIENTS];
    struct page *p = of;
    for (int i = 0; i < CLIENTS; i++) clients[i].fd = -1;
    for (;;) {
        struct pollfd fds[CLIENTS + 3] = {{.fd = stop_pipe[0], .events = POLLIN},
                                          {.fd = p->wake[0], .events = POLLIN},
                                          {.fd = p->listener, .events = POLLIN}};
        for (int i = 0; i < CLIENTS; i++) {
            const struct client *c = &clients[i];
            fds[i + 3].fd = c->fd; /* -1 is left out */
            fds[i + 3].events = c->sent < c->answer.used ? POLLIN | POLLOUT : POLLIN;
        }
        poll(fds, CLIENTS + 3, 500);
        if (stopping) return NULL;
        char drained[64];
        while (read(p->wake[0], drained, sizeof drained) > 0) {}
        for (int i = 0; i < CLIENTS; i++) {
            struct client *c = &clients[i];
            if (c->fd >= 0 && fds[i + 3].revents & (POLLIN | POLLHUP | POLLERR)) client_read(p, c);
            if (c->fd >= 0 && c->sent < c->answer.used) client_write(c);
            if (c->fd >= 0 && now_ms() > c->until_ms) client_close(c);
        }
        if (fds[2].revents & POLLIN) client_accept(p, clients);
        page_pictures(p, clients);
    }
}

/* Starts the page at "127.0.0.1:8080"; a port 0 is any free one. */
static void page_start(struct page *p, const char *at, bool is_any_address) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    char text[INET_ADDRSTRLEN], end;
    unsigned port;
    if (sscanf(at, "%15[0-9.]:%5u%c", text, &port, &end) != 2 || port > 65535 ||
        inet_pton(AF_INET, text, &address.sin_addr) != 1)
        fail(EXIT_INPUT, "give one, for example --page 127.0.0.1:8080",
             "--page \"%s\" is not an address and a port", at);
    if (!is_any_address && ntohl(address.sin_addr.s_addr) >> 24 != 127)
        fail(EXIT_INPUT, "use 127.0.0.1, or allow it with --any-address",
             "at %s anybody in the network may see the camera", text);
    address.sin_port = htons((uint16_t)port);
    *p = (struct page){.is_any_address = is_any_address};
    const int yes = 1;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->listener >= 0) setsockopt(p->listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&address, sizeof address) ||
        listen(p->listener, CLIENTS) ||
        getsockname(p->listener, (struct sockaddr *)&address, &length))
        fail(EXIT_INPUT, "use another port", "no page at %s: %s", at, strerror(errno));
    if (pipe(p->wake)) fail(EXIT_JOB, "try again", "no pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++) fcntl(p->wake[i], F_SETFL, O_NONBLOCK);
    pthread_mutex_init(&p->lock, NULL);
    if (pthread_create(&p->thread, NULL, page_run, p))
        fail(EXIT_JOB, "end other programs", "the system gives no thread for the page");
    fprintf(stderr, "page: http://%s:%u/\n", text, (unsigned)ntohs(address.sin_port));
}

/* Gives the page a result, and its frame where somebody waits for one. */
static void page_update(struct page *p, const struct text *result, const ek_frame_t *f) {
    pthread_mutex_lock(&p->lock);
    p->result.used = 0;
    text_bytes(&p->result, result->data, result->used);
    if (p->is_wanted) {
        if (!p->pixels) p->pixels = memory(4 * (size_t)f->width * (size_t)f->height);
        p->width = f->width, p->height = f->height, p->picture++;
        for (int y = 0; y < f->height; y++) {
            uint8_t *to = p->pixels + 4 * (size_t)y * (size_t)f->width;
            const uint8_t *from = f->planes[0] + y * f->strides[0];
            const int red = f->format == EK_BGR ? 2 : 0;
            if (f->format != EK_RGB && f->format != EK_BGR)
                ek_frame_row(f, y, 0, f->width, (uint32_t *)to);
            else
                for (int x = 0; x < f->width; x++, to += 4, from += 3)
                    to[0] = from[red], to[1] = from[1], to[2] = from[2 - red];
        }
    }
    pthread_mutex_unlock(&p->lock);
    if (write(p->wake[1], "", 1) < 0) return; /* full: it wakes anyhow */
}

#endif
