/* lines.c - see lines.h. */
#include "launch/lines.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "os/sys.h"

enum { AT_ONCE = 4096 /* PIPE_BUF: a pipe that poll() calls writable takes so much */, LONGEST = 65536 };

static bool can_write(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};

    return os->poll(&p, 1, 0) > 0;
}

void sink_write(sink *s)
{
    size_t done = 0;

    while (done < s->waiting.n && !s->lost && can_write(s->fd)) {
        size_t left = s->waiting.n - done;
        ssize_t n = os->write(s->fd, s->waiting.at + done, left < AT_ONCE ? left : AT_ONCE);
        if (n < 0 && errno != EINTR && errno != EAGAIN) s->lost = true;
        if (n > 0) done += (size_t)n;
        if (n < 0 && errno == EAGAIN) break;
    }
    if (s->lost) done = s->waiting.n;
    if (!done) return;
    memmove(s->waiting.at, s->waiting.at + done, s->waiting.n - done);
    buf_cut(&s->waiting, s->waiting.n - done);
}

static void send_line(lines *l, const char *data, size_t n)
{
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
