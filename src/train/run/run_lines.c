/* run_lines.c - a file of lines, piece by piece. */
#include "train/run/run_lines.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "train/storage/storage.h"

enum { PIECE = 1 << 20, LINE_MOST = 1 << 20 };

/* ---- reading ---- */

/* Gives the lines that end in a piece; `rest` is the start of the one that does not. */
static manta_status take_piece(const char *piece, size_t n, buf *rest, run_line_fn *fn, void *ctx)
{
    for (size_t at = 0; at < n;) {
        const char *line = piece + at, *end = memchr(line, '\n', n - at);
        size_t length = end ? (size_t)(end - line) : n - at;
        at += length + (end != NULL);
        if (end && !rest->n) {
            TRY(fn(ctx, line, length));
            continue;
        }
        if (rest->n < LINE_MOST) buf_add(rest, line, length);
        if (!end) continue;
        TRY(fn(ctx, rest->at, rest->n));
        buf_cut(rest, 0);
    }
    return MANTA_OK;
}

manta_status run_lines_each(const char *path, run_line_fn *fn, void *ctx, bool *cut)
{
    char *piece = mem_new(PIECE);
    buf rest = {0};
    size_t n = 0;
    manta_status st = MANTA_OK;

    for (uint64_t at = 0; !st; at += n) {
        if ((st = storage_read_at(path, at, piece, PIECE, &n)) || !n) break;
        st = take_piece(piece, n, &rest, fn, ctx);
    }
    *cut = rest.n > 0;
    buf_release(&rest);
    mem_free(piece);
    return st;
}

/* ---- cutting back ---- */

typedef struct cutting {
    const char *path;
    run_keep_fn *keep;
    void *ctx;
    uint64_t head; /* bytes of the lines before the first that goes */
    file_writer *w; /* what stays, once one has gone; NULL: none has */
} cutting;

/* The first that goes: from here on what stays is written elsewhere, the head first. */
static manta_status begin_cut(cutting *c)
{
    char *piece;
    size_t n = 0;
    manta_status st = MANTA_OK;

    TRY(storage_create(c->path, &c->w));
    piece = mem_new(PIECE);
    for (uint64_t at = 0; at < c->head && !st; at += n) {
        size_t most = c->head - at < PIECE ? (size_t)(c->head - at) : PIECE;
        if ((st = storage_read_at(c->path, at, piece, most, &n))) break;
        st = n ? file_writer_write(c->w, piece, n)
               : manta_fail(MANTA_EIO, "reading %s: it has become shorter since it was begun", c->path);
    }
    mem_free(piece);
    return st;
}

static manta_status cut_line(void *ctx, const char *line, size_t n)
{
    cutting *c = ctx;
    bool stays = c->keep(c->ctx, line, n);

    if (!c->w && !stays) return begin_cut(c);
    if (!c->w) c->head += n + 1;
    if (!c->w || !stays) return MANTA_OK;
    TRY(file_writer_write(c->w, line, n));
    return file_writer_write(c->w, "\n", 1);
}

manta_status run_lines_keep(const char *path, run_keep_fn *keep, void *ctx)
{
    cutting c = {.path = path, .keep = keep, .ctx = ctx};
    bool cut;
    manta_status st = run_lines_each(path, cut_line, &c, &cut);

    if (!st && cut && !c.w) st = begin_cut(&c);
    if (!st && c.w) st = file_writer_commit(c.w);
    file_writer_free(c.w);
    return st;
}
