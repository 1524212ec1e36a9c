/* callbacks_csv.c - the callback that writes a line of metrics for each epoch, Keras's CSVLogger.
 *
 * The first line names the columns: those that the first epoch has, in alphabetical order. A
 * metric that a later epoch lacks is written as NA; one that comes later has no column.
 *
 * The file only grows. How far it had grown is part of what a checkpoint keeps, so that a run
 * which is taken up first cuts off the lines that it will write again. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/mem.h"
#include "os/file.h"
#include "os/sys.h"
#include "train/fit/fit_context.h"

typedef struct csv {
    char *path;
    char separator;
    bool append;
    int fd;
    int64_t size; /* bytes of this run's file so far */
    bool told; /* size is a checkpoint's */
    char **keys; /* the columns after "epoch"; owned */
    int n_keys;
} csv;

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static manta_status csv_write(csv *c, const buf *line)
{
    for (size_t done = 0; done < line->n;) {
        ssize_t n = os->write(c->fd, line->at + done, line->n - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fail(errno, "writing", c->path);
        done += (size_t)n;
    }
    c->size += (int64_t)line->n;
    return MANTA_OK;
}

static manta_status csv_open(void *self, manta_fit_context *f)
{
    csv *c = self;
    bool goes_on = f->resumed && c->told;
    struct stat info;

    if (c->fd >= 0) os->close(c->fd);
    do c->fd = os->open(c->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    while (c->fd < 0 && errno == EINTR);
    if (c->fd < 0) return file_fail(errno, "opening", c->path);
    if (os->fstat(c->fd, &info)) return file_fail(errno, "looking at", c->path);
    if (!goes_on) c->size = c->append ? info.st_size : 0;
    if (c->size > info.st_size) c->size = info.st_size; /* what is lost is not made up for with zeros */
    if (c->size < info.st_size && os->ftruncate(c->fd, c->size)) return file_fail(errno, "cutting", c->path);
    c->told = false;
    return MANTA_OK;
}

static void csv_forget_keys(csv *c)
{
    for (int i = 0; i < c->n_keys; i++) mem_free(c->keys[i]);
    mem_free(c->keys);
    c->keys = NULL;
    c->n_keys = 0;
}

static void csv_learn_keys(csv *c, const manta_metrics *logs)
{
    c->keys = mem_new((size_t)(logs->n + 1) * sizeof *c->keys);
    for (; c->n_keys < logs->n; c->n_keys++) c->keys[c->n_keys] = mem_strdup(logs->name[c->n_keys]);
    if (c->n_keys) qsort(c->keys, (size_t)c->n_keys, sizeof *c->keys, by_text);
}

static manta_status csv_epoch(void *self, manta_fit_context *f)
{
    csv *c = self;
    buf line = {0};
    manta_status st;

    if (!c->keys) {
        csv_learn_keys(c, f->logs);
        if (!c->size) {
            buf_add_text(&line, "epoch");
            for (int i = 0; i < c->n_keys; i++) buf_printf(&line, "%c%s", c->separator, c->keys[i]);
            buf_add_text(&line, "\n");
        }
    }
    buf_printf(&line, "%" PRId64, f->epoch);
    for (int i = 0; i < c->n_keys; i++) {
        bool there = false;
        for (int k = 0; k < f->logs->n; k++) there |= !strcmp(f->logs->name[k], c->keys[i]);
        if (there) {
            buf_printf(&line, "%c%.17g", c->separator, manta_metrics_get(f->logs, c->keys[i]));
        } else {
            buf_printf(&line, "%cNA", c->separator);
        }
    }
    buf_add_text(&line, "\n");
    st = csv_write(c, &line);
    buf_release(&line);
    return st;
}

static manta_status csv_end(void *self, manta_fit_context *f)
{
    csv *c = self;

    (void)f;
    if (c->fd >= 0) os->close(c->fd);
    c->fd = -1;
    c->size = 0;
    csv_forget_keys(c);
    return MANTA_OK;
}

static void csv_save(void *self, void *out)
{
    const csv *c = self;

    manta_blob_put(out, &c->size, sizeof c->size);
}

static manta_status csv_load(void *self, const void *data, size_t n)
{
    csv *c = self;

    if (n != sizeof c->size)
        return manta_fail(MANTA_ECORRUPT, "the checkpoint's state of csv_logger has %zu bytes, expected %zu",
                          n, sizeof c->size);
    memcpy(&c->size, data, n);
    c->told = true;
    return c->size >= 0
               ? MANTA_OK
               : manta_fail(
                     MANTA_ECORRUPT,
                     "the checkpoint's state of csv_logger says %lld bytes of its file, expected 0 or more",
                     (long long)c->size);
}

static void csv_free(void *self)
{
    csv *c = self;

    if (c->fd >= 0) os->close(c->fd);
    csv_forget_keys(c);
    mem_free(c->path);
    mem_free(c);
}

static const manta_callback_ops csv_ops = {.name = "csv_logger",
                                           .train_begin = csv_open,
                                           .epoch_end = csv_epoch,
                                           .train_end = csv_end,
                                           .save = csv_save,
                                           .load = csv_load,
                                           .free = csv_free};

manta_callback *manta_csv_logger(const char *path, const manta_csv_logger_options *o)
{
    REFUSE_NULL_OR(path, NULL);

    csv *c = mem_new(sizeof *c);

    c->path = mem_strdup(path);
    c->separator = o && o->separator ? o->separator : ',';
    c->append = o && o->append;
    c->fd = -1;
    return manta_callback_new(&csv_ops, c);
}
