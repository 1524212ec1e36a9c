/* block.c - what a person has to read at once: a head, and labelled lines under it. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "base/block.h"

void manta_block_add(manta_block *b, const char *fmt, ...)
{
    size_t n = strlen(b->text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(b->text + n, sizeof b->text - n, fmt, args);
    va_end(args);
    (void)manta_printable(b->text + n, ""); /* a file or a worker may have said it */
}

void manta_block_line(manta_block *b, const char *label)
{
    REFUSE_NULL_AND_RETURN(b);

    size_t n = strlen(b->text);

    snprintf(b->text + n, sizeof b->text - n, "\n  %-6s ", label);
}

static bool is_coloured(void)
{
    const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");

    if (!isatty(STDERR_FILENO) || (no_colour && *no_colour)) return false;
    return term && *term && strcmp(term, "dumb") != 0;
}

void block_put(const manta_block *b, buf *out)
{
    bool colour = is_coloured();
    size_t head = strcspn(b->text, "\n");

    buf_printf(out, "%smanta: %.*s%s%s\n", colour ? "\033[1;31m" : "", (int)head, b->text,
               colour ? "\033[0m" : "", b->text + head);
}

void manta_block_show(const manta_block *b)
{
    REFUSE_NULL_AND_RETURN(b);

    int saved_errno = errno;
    buf whole = {0};

    block_put(b, &whole);
    for (size_t at = 0; at < whole.n;) { /* one write, unless a pipe is full */
        ssize_t n = write(STDERR_FILENO, whole.at + at, whole.n - at);
        if (n < 0 && errno == EAGAIN && poll(&(struct pollfd){STDERR_FILENO, POLLOUT, 0}, 1, 1000) > 0)
            continue;
        if (n < 0 && errno != EINTR) break; /* there is nowhere to say so */
        if (n > 0) at += (size_t)n;
    }
    buf_release(&whole);
    errno = saved_errno;
}

const char *manta_shell_word(const char *word, char *out, size_t size)
{
    REFUSE_NULL_OR(word, NULL);
    REFUSE_NULL_OR(out, NULL);

    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=+,:@%";
    size_t at = 0;

    if (*word && !word[strspn(word, plain)]) {
        snprintf(out, size, "%s", word);
        return out;
    }
    if (size < 8) return "";
    out[at++] = '\'';
    for (; *word && at + 6 < size; word++) {
        if (*word == '\'') {
            memcpy(out + at, "'\\''", 4);
            at += 4;
        } else {
            out[at++] = *word;
        }
    }
    out[at++] = '\'';
    out[at] = '\0';
    return out;
}
