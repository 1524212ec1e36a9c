/* lines.c - see lines.h. */
#include "launch/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"

enum { AT_ONCE = 4096 /* PIPE_BUF: a pipe that poll() calls writable takes so much */, LONGEST = 65536 };

/* A file is never opened again: its offset, and whether it is appended to, are those of whoever opened it. */
void sink_open(sink *s, int fd)
{
    struct stat at;
    char path[64];
    int again = -1;

    *s = (sink){.fd = fd};
    if (os->fstat(fd, &at)) return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (S_ISFIFO(at.st_mode) || (S_ISCHR(at.st_mode) && isatty(fd)))
        again = os->open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
    if (again < 0) return;
    s->fd = again;
    s->own = true;
}

void sink_close(sink *s)
{
    if (s->own) os->close(s->fd);
    buf_release(&s->waiting);
    *s = (sink){.fd = -1};
}

bool sink_is_full(const sink *s)
{
    return s->waiting.n > LINES_FULL;
}

static bool can_write(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return os->poll(&p, 1, 0) > 0;
}

/* A socket does not block this once; a pipe that is not ours takes AT_ONCE when poll() says so. */
static ssize_t write_some(const sink *s, char *data, size_t n)
{
    struct iovec v = {.iov_base = data, .iov_len = n < AT_ONCE ? n : AT_ONCE};
    ssize_t done = -1;

    if (!s->own) {
        done =
            os->sendmsg(s->fd, &(struct msghdr){.msg_iov = &v, .msg_iovlen = 1}, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done >= 0 || errno != ENOTSOCK) return done;
    }
    return os->write(s->fd, v.iov_base, v.iov_len);
}

void sink_write(sink *s)
{
    size_t done = 0;

    while (done < s->waiting.n && !s->lost && can_write(s->fd)) {
        ssize_t n = write_some(s, s->waiting.at + done, s->waiting.n - done);
        if (n > 0) done += (size_t)n;
        if (n > 0 || (n < 0 && errno == EINTR)) continue;
        if (n == 0 || errno == EAGAIN) break;
        s->why = errno;
        s->lost = true;
    }
    if (s->lost) done = s->waiting.n;
    if (!done) return;
    memmove(s->waiting.at, s->waiting.at + done, s->waiting.n - done);
    buf_cut(&s->waiting, s->waiting.n - done);
}

static void send_line(lines *l, const char *data, size_t n)
{
    if (l->to->drops && sink_is_full(l->to)) {
        buf_cut(&l->begun, 0);
        return;
    }
    buf_add_text(&l->to->waiting, l->prefix);
    buf_add(&l->to->waiting, l->begun.at, l->begun.n);
    buf_add(&l->to->waiting, data, n);
    buf_add_char(&l->to->waiting, '\n');
    buf_cut(&l->begun, 0);
}

void lines_add(lines *l, const char *data, size_t n)
{
    const char *end;

    while (n && (end = memchr(data, '\n', n))) {
        size_t line = (size_t)(end - data);
        send_line(l, data, line);
        data += line + 1;
        n -= line + 1;
    }
    buf_add(&l->begun, data, n);
    if (l->begun.n > LONGEST) send_line(l, NULL, 0);
}

void lines_end(lines *l)
{
    if (l->begun.n) send_line(l, NULL, 0);
    buf_release(&l->begun);
}
