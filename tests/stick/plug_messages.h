/* What the plugs of the stick have in common: the stick's socket, and numbers of USB/IP
 * messages, which are big-endian (Documentation/usb/usbip_protocol.rst). */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

static uint32_t number_at(const unsigned char *data)
{
    uint32_t n;
    memcpy(&n, data, 4);
    return ntohl(n);
}

static void put(unsigned char *data, uint32_t n)
{
    n = htonl(n);
    memcpy(data, &n, 4);
}

static int all_sent(int s, const void *data, size_t size)
{
    for (const char *at = data; size;) {
        ssize_t n = send(s, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        at += n, size -= (size_t)n;
    }
    return 1;
}

/* Sends a message and the bytes that follow it, together if they go. */
static int both_sent(int s, const void *message, size_t size, const void *data, size_t more)
{
    struct iovec parts[2] = {{(void *)message, size}, {(void *)data, more}};
    struct msghdr whole = {.msg_iov = parts, .msg_iovlen = more ? 2 : 1};
    ssize_t n;
    do n = sendmsg(s, &whole, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0) return 0;
    size_t sent = (size_t)n, rest = sent > size ? sent - size : 0;
    return (sent >= size || all_sent(s, (const char *)message + sent, size - sent)) &&
           (rest == more || all_sent(s, (const char *)data + rest, more - rest));
}

static int all_received(int s, void *data, size_t size)
{
    for (char *at = data; size;) {
        ssize_t n = recv(s, at, size, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return 0;
        at += n, size -= (size_t)n;
    }
    return 1;
}

/* Returns a socket that is connected to the stick at a Unix socket, or -1. */
static int connected(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || strlen(path) >= sizeof address.sun_path) return -1;
    strcpy(address.sun_path, path);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s >= 0 && connect(s, (struct sockaddr *)&address, sizeof address)) {
        /* usbfs_plug.c has a close of its own */
        syscall(SYS_close, s);
        return -1;
    }
    return s;
}
