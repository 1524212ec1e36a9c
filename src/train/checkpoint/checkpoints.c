/* checkpoints.c - a folder of checkpoints: what is there, what is added, what goes,
 * and what is found again. checkpoints_writer.c writes those of a session in the
 * background; checkpoints_part.h says which thread has what.
 *
 * Order on disk: the new one is committed (checkpoint.h) before any older one
 * is let go; a failure to remove is told in the log and tried again with the
 * next. */
#include "train/checkpoint/checkpoints_part.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/sys.h"
#include "train/checkpoint/retention.h"

void blobs_release(blobs *b)
{
    for (size_t i = 0; i < b->n; i++) {
        mem_free(b->at[i].name);
        buf_release(&b->at[i].data);
    }
    vec_release(b);
}

const char *checkpoints_folder(const manta_checkpoints *m)
{
    return m->folder;
}

/* ---- what is there ---- */

static void entry_release(checkpoints_entry *e)
{
    mem_free(e->path);
    manifest_release(&e->m);
}

static void forget_entries(manta_checkpoints *m)
{
    for (size_t i = 0; i < m->entries.n; i++) entry_release(&m->entries.at[i]);
    vec_clear(&m->entries);
}

static int by_sequence(const void *a, const void *b)
{
    const checkpoints_entry *x = a, *y = b;

    return x->m.info.sequence < y->m.info.sequence ? -1 : x->m.info.sequence > y->m.info.sequence;
}

/* Reads the folder again. Those whose manifest is damaged keep their number
 * and are named by whoever wants to open one. */
static manta_status look_at_folder(manta_checkpoints *m)
{
    file_names names = {0};
    manta_status st = storage_list(m->folder, &names);

    if (st) return st;
    forget_entries(m);
    for (size_t i = 0; i < names.n; i++) {
        int64_t sequence = checkpoint_sequence(names.at[i]);
        checkpoints_entry e = {0};
        char *path;
        if (checkpoint_is_litter(names.at[i]) && !m->read_only) {
            path = mem_printf("%s/%s", m->folder, names.at[i]);
            if (storage_remove_tree(path)) log_warn("an unfinished checkpoint stays", LOG_STR("path", path));
            mem_free(path);
        }
        if (sequence < 0) continue;
        if (sequence > m->last) m->last = sequence;
        path = mem_printf("%s/%s", m->folder, names.at[i]);
        if ((st = checkpoint_manifest(path, &e.m))) {
            manifest_release(&e.m);
            e.damaged = true;
            e.unread = st != MANTA_ECORRUPT && st != MANTA_ENOENT;
            if (e.unread) log_warn("a checkpoint cannot be read", LOG_STR("why", manta_error_text()));
        }
        e.m.info.sequence = sequence;
        e.path = path;
        vec_push(&m->entries, e);
    }
    file_names_release(&names);
    if (m->entries.n) qsort(m->entries.at, m->entries.n, sizeof *m->entries.at, by_sequence);
    return MANTA_OK;
}

manta_status checkpoints_check(const manta_checkpoints_options *o)
{
    if (o->keep < 0)
        return manta_fail(MANTA_EINVAL, "%d checkpoints to keep, expected 0 (all) or more", o->keep);
    if (o->order && strcmp(o->order, "max") != 0 && strcmp(o->order, "min") != 0)
        return manta_fail(MANTA_EINVAL, "order of checkpoints '%s', expected max or min", o->order);
    return MANTA_OK;
}

manta_status manta_checkpoints_open(const char *folder, const manta_checkpoints_options *o,
                                    manta_checkpoints **out)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(out);

    static const manta_checkpoints_options none;
    manta_checkpoints *m;
    char *path;
    manta_status st;

    if (!o) o = &none;
    TRY(checkpoints_check(o));
    m = mem_new(sizeof *m);
    path = mem_printf("%s/.lock", folder);
    mutex_init(&m->guard);
    cond_init(&m->changed);
    m->folder = mem_strdup(folder);
    m->keep = o->keep;
    m->read_only = o->read_only;
    if (o->score) m->score = mem_strdup(o->score);
    if (o->order) m->order = mem_strdup(o->order);
    if (!m->read_only && (st = storage_make(folder))) goto out;
    if (!m->read_only && (st = storage_lock(path, &m->lock))) goto out;
    if ((st = look_at_folder(m))) goto out;
    *out = m;
    m = NULL;
out:
    mem_free(path);
    manta_checkpoints_close(m);
    return st;
}

/* ---- one more, and what goes for it ---- */

static double score_of(const manta_checkpoints *m, const checkpoints_entry *e)
{
    return m->score ? manta_metrics_get(&e->m.info.metrics, m->score) : 0;
}

static void let_go(manta_checkpoints *m, size_t i)
{
    if (checkpoint_remove(m->entries.at[i].path)) {
        log_warn("an old checkpoint could not be removed", LOG_STR("why", manta_error_text()));
        return;
    }
    entry_release(&m->entries.at[i]);
    vec_remove(&m->entries, i);
}

/* Lets go what need not stay, now that the latest stands. */
static void prune_old(manta_checkpoints *m)
{
    retention_item *items = mem_new((m->entries.n + 1) * sizeof *items);
    bool greater = m->score && manifest_greater_is_better(m->score, m->order);
    int n = 0;

    for (size_t i = 0; i < m->entries.n; i++) {
        if (!m->entries.at[i].damaged) items[n++] = (retention_item){.score = score_of(m, &m->entries.at[i])};
    }
    retention_choose(items, n, m->keep, m->score != NULL, greater);
    for (size_t i = m->entries.n; m->keep > 0 && i-- > 0;) {
        if (m->entries.at[i].unread) continue;
        if (m->entries.at[i].damaged || !items[--n].stays) let_go(m, i);
    }
    mem_free(items);
}

/* Takes what was committed under r's number into the list. */
static void note_committed(manta_checkpoints *m, manifest *done)
{
    checkpoints_entry e = {.path = checkpoint_path(m->folder, done->info.sequence), .m = *done};

    memset(done, 0, sizeof *done);
    vec_push(&m->entries, e);
    m->added = true;
    prune_old(m);
    if (m->hooks.after) m->hooks.after(m->hooks.ctx);
}

void checkpoints_on_commit(manta_checkpoints *m, checkpoints_hooks hooks)
{
    m->hooks = hooks;
}

/* Removes what was begun; the sentence of the failure stays. */
static void abandon_temp(const char *temp)
{
    manta_error why;

    manta_error_get(&why);
    if (storage_remove_tree(temp)) log_debug("an unfinished checkpoint stays", LOG_STR("path", temp));
    (void)!manta_error_raise(&why);
}

/* A name that is in place but perhaps not on the disk is neither counted nor
 * a reason to remove the one before. */
manta_status checkpoints_make(manta_checkpoints *m, manifest *made, checkpoints_fill *fill, const void *ctx)
{
    char *temp = NULL;
    manta_status st;

    if ((st = checkpoint_begin(m->folder, made->info.sequence, &temp))) return st;
    if (!(st = fill(ctx, temp, made))) {
        if (m->hooks.before) m->hooks.before(m->hooks.ctx);
        st = checkpoint_commit(m->folder, temp, made);
    }
    if (st && st != MANTA_EUNKNOWN) abandon_temp(temp);
    if (!st) note_committed(m, made);
    mem_free(temp);
    return st;
}

/* ---- closing ---- */

/* A name that was mistyped would go unnoticed: the latest are kept then. */
static void say_unscored(const manta_checkpoints *m)
{
    bool some = false;

    if (!m->score || !m->added) return;
    for (size_t i = 0; i < m->entries.n && !some; i++) {
        const manta_metrics *has = &m->entries.at[i].m.info.metrics;
        for (int k = 0; k < has->n; k++) some |= !strcmp(has->name[k], m->score);
    }
    if (!some)
        log_warn("no checkpoint has the metric by which the best were to be kept; the latest were",
                 LOG_STR("metric", m->score), LOG_STR("folder", m->folder));
}

void manta_checkpoints_close(manta_checkpoints *m)
{
    if (!m) return;
    if (m->started) {
        mutex_lock(&m->guard);
        m->leave = true;
        cond_broadcast(&m->changed);
        mutex_unlock(&m->guard);
        thread_join(&m->thread);
    }
    say_unscored(m);
    for (int i = 0; i < 2; i++) mem_try_free(m->spare[i]);
    forget_entries(m);
    vec_release(&m->entries);
    storage_unlock(m->lock);
    mutex_release(&m->guard);
    cond_release(&m->changed);
    mem_free(m->folder);
    mem_free(m->score);
    mem_free(m->order);
    mem_free(m);
}

/* ---- folders of the user's ---- */

typedef struct given {
    const char *folder;
    file_sum state; /* of CHECKPOINT_STATE in it; size 0: not known */
} given;

/* Moves what is below the folder's `name`, of the file system, to to/name in the storage, and
 * sums it up. */
static manta_status gather_files(const given *g, const char *to, const char *name, manifest *m)
{
    const char *from = g->folder;
    char *source = mem_printf("%s%s%s", from, *name ? "/" : "", name);
    char *target = mem_printf("%s%s%s", to, *name ? "/" : "", name);
    file_names names = {0};
    file_info info;
    file_sum sum = g->state;
    manta_status st = file_look(source, &info);

    if (st) goto out;
    if (!info.is_folder) {
        bool known = sum.size && sum.size == info.size && !strcmp(name, CHECKPOINT_STATE);
        if (!(st = storage_take(source, target, known ? NULL : &sum))) manifest_add(m, name, sum);
        goto out;
    }
    if (*name && (st = storage_make(target))) goto out;
    if ((st = file_list(source, &names))) goto out;
    for (size_t i = 0; i < names.n && !st; i++) {
        char *inner = mem_printf("%s%s%s", name, *name ? "/" : "", names.at[i]);
        st = gather_files(g, to, inner, m);
        mem_free(inner);
    }
    if (!st && *name) st = storage_sync(target);
    if (!st && os->rmdir(source)) st = file_fail(errno, "removing", source);
out:
    file_names_release(&names);
    mem_free(source);
    mem_free(target);
    return st;
}

static manta_status add_checkpoint(manta_checkpoints *m, const manta_checkpoint_info *info,
                                   checkpoints_fill *fill, const void *ctx)
{
    static const manta_checkpoint_info nothing;
    manifest made = {0};
    manta_status st;

    checkpoints_await(m);
    manifest_init(&made, info ? info : &nothing);
    made.info.sequence = ++m->last;
    st = checkpoints_make(m, &made, fill, ctx);
    manifest_release(&made);
    return st;
}

static manta_status fill_from_folder(const void *ctx, const char *temp, manifest *made)
{
    return gather_files(ctx, temp, "", made);
}

manta_status checkpoints_add(manta_checkpoints *m, const char *folder, const manta_checkpoint_info *info,
                             file_sum state)
{
    file_info there;

    TRY(file_look(folder, &there));
    if (!there.is_folder)
        return manta_fail(MANTA_EINVAL, "%s is a file, expected a folder of a checkpoint's files", folder);
    TRY(checkpoint_check_folder(folder));
    return add_checkpoint(m, info, fill_from_folder, &(given){folder, state});
}

manta_status manta_checkpoints_add(manta_checkpoints *m, const char *folder,
                                   const manta_checkpoint_info *info)
{
    REFUSE_NULL(m);
    REFUSE_NULL(folder);
    return checkpoints_add(m, folder, info, (file_sum){0});
}

typedef struct dictionary {
    int n;
    const manta_column *arrays;
} dictionary;

static manta_status fill_with_arrays(const void *ctx, const char *temp, manifest *made)
{
    const dictionary *d = ctx;
    file_sum sum = {0};

    TRY(checkpoint_write_arrays(d->n, d->arrays, temp, &sum));
    manifest_add(made, CHECKPOINT_STATE, sum);
    return MANTA_OK;
}

manta_status manta_checkpoints_add_arrays(manta_checkpoints *m, int n, const manta_column *arrays,
                                          const manta_checkpoint_info *info)
{
    REFUSE_NULL(m);
    REFUSE_ARRAY(n, arrays);
    return add_checkpoint(m, info, fill_with_arrays, &(dictionary){n, arrays});
}

/* ---- reading ---- */

int manta_checkpoints_count(manta_checkpoints *m)
{
    REFUSE_NULL_OR(m, 0);

    int n = 0;

    checkpoints_await(m);
    for (size_t i = 0; i < m->entries.n; i++) n += !m->entries.at[i].damaged;
    return n;
}

bool manta_checkpoints_at(manta_checkpoints *m, int i, const char **path, const manta_checkpoint_info **info)
{
    REFUSE_NULL_OR(m, false);

    checkpoints_await(m);
    for (size_t k = 0; k < m->entries.n; k++) {
        if (m->entries.at[k].damaged || i--) continue;
        if (path) *path = m->entries.at[k].path;
        if (info) *info = &m->entries.at[k].m.info;
        return true;
    }
    return false;
}

static manta_status none_there(const manta_checkpoints *m)
{
    return manta_fail(MANTA_ENOENT, "%s holds no checkpoint", m->folder);
}

manta_status manta_checkpoints_latest(manta_checkpoints *m, manta_checkpoint **out, char **damaged)
{
    REFUSE_NULL(m);
    REFUSE_NULL(out);

    char *first = NULL;
    manta_status st = MANTA_ENOENT;

    checkpoints_await(m);
    for (size_t i = m->entries.n; i-- > 0 && st;) {
        st = manta_checkpoint_open(m->entries.at[i].path, out);
        if (!st) break;
        if (st == MANTA_ECORRUPT || st == MANTA_ENOENT) m->entries.at[i].damaged = true;
        if (!damaged) log_warn("a checkpoint is passed over", LOG_STR("why", manta_error_text()));
        if (!first) first = strdup(manta_error_text());
    }
    if (st && first) {
        st = manta_fail(MANTA_ECORRUPT, "%s: no checkpoint is whole; of the latest: %s", m->folder, first);
    } else if (st) {
        st = none_there(m);
    }
    if (damaged) {
        *damaged = first;
    } else {
        free(first);
    }
    return st;
}

manta_status manta_checkpoints_best(manta_checkpoints *m, const char *score, const char *order,
                                    manta_checkpoint **out)
{
    REFUSE_NULL(m);
    REFUSE_NULL(score);
    REFUSE_NULL(out);

    bool greater = manifest_greater_is_better(score, order);
    bool *tried;
    manta_status st;

    checkpoints_await(m);
    tried = mem_new(m->entries.n + 1);
    st = none_there(m);
    for (;;) {
        size_t best = m->entries.n;
        for (size_t i = 0; i < m->entries.n; i++) {
            double value = manta_metrics_get(&m->entries.at[i].m.info.metrics, score);
            if (tried[i] || m->entries.at[i].damaged || isnan(value)) continue;
            if (best == m->entries.n ||
                retention_is_better(value, manta_metrics_get(&m->entries.at[best].m.info.metrics, score),
                                    greater))
                best = i;
        }
        if (best == m->entries.n || !(st = manta_checkpoint_open(m->entries.at[best].path, out))) break;
        log_warn("a checkpoint is passed over", LOG_STR("why", manta_error_text()));
        tried[best] = true;
    }
    mem_free(tried);
    return st;
}

manta_status manta_checkpoints_clear(manta_checkpoints *m)
{
    REFUSE_NULL(m);

    char *path = mem_printf("%s/.lock", m->folder);
    manta_status st = MANTA_OK;

    checkpoints_await(m);
    for (size_t i = 0; i < m->entries.n && !st; i++) st = checkpoint_remove(m->entries.at[i].path);
    forget_entries(m);
    if (!st && !storage_remove(path) && storage_remove_empty(m->folder))
        log_debug("the folder of checkpoints stays", LOG_STR("why", manta_error_text())); /* others use it */
    mem_free(path);
    return st;
}
