/* checkpoints.c - a folder of checkpoints, written in the background.
 *
 * save() copies the state into a buffer of its own, at the speed of memory,
 * and returns. One thread writes: `writing` is in its hands, `pending` is the
 * next. Two buffers go round, made once.
 *
 * Order on disk: the new one is committed (checkpoint.h) before any older one
 * is let go; a failure to remove is told in the log and tried again with the
 * next.
 *
 * Threads: `guard` guards all below it in the structure; the list of known
 * checkpoints is the caller's thread's until a save, then the writer's, and is
 * looked at by the caller after waiting only. */
#include "train/checkpoint/checkpoints.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/sys.h"
#include "os/thread.h"
#include "train/checkpoint/retention.h"
#include "train/storage/storage.h"

typedef struct request {
    const manta_session *s;
    void *state; /* one of the buffers */
    size_t size;
    manifest m; /* info */
    blobs extra;
    bool must;
} request;

typedef struct entry {
    char *path;
    manifest m;
    bool damaged; /* not to be used; goes when another stands, unless */
    bool unread; /* it could not be looked at: it may be whole, and stays */
} entry;

struct manta_checkpoints {
    char *folder, *score, *order;
    int keep;
    bool read_only;
    bool added; /* a checkpoint, since it was opened */
    checkpoints_hooks hooks;
    storage_held *lock;
    VEC(entry) entries; /* by sequence */
    int64_t last; /* greatest sequence seen, damaged ones included */
    bool started;
    thread_id thread;
    mutex guard;
    cond changed;
    bool leave;
    request *pending, *writing;
    size_t expected; /* size of the buffer that the thread makes first; 0: there it is */
    void *spare[2]; /* buffers not in use */
    size_t spare_size[2];
    manta_error failure; /* code 0: none untold */
    int64_t failing; /* checkpoints in a row that could not be written; the writer's */
};

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

static void entry_release(entry *e)
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
    const entry *x = a, *y = b;

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
        entry e = {0};
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

/* ---- the writer ---- */

static void request_free(request *r)
{
    if (!r) return;
    manifest_release(&r->m);
    blobs_release(&r->extra);
    mem_free(r);
}

static double score_of(const manta_checkpoints *m, const entry *e)
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
    entry e = {.path = checkpoint_path(m->folder, done->info.sequence), .m = *done};

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

/* Puts the files of a checkpoint into its folder, and into its manifest. */
typedef manta_status fill_fn(const void *ctx, const char *temp, manifest *made);

/* A name that is in place but perhaps not on the disk is neither counted nor
 * a reason to remove the one before. */
static manta_status make_checkpoint(manta_checkpoints *m, manifest *made, fill_fn *fill, const void *ctx)
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

static manta_status fill_with_state(const void *ctx, const char *temp, manifest *made)
{
    const request *r = ctx;
    file_sum sum = {0};

    TRY(checkpoint_write_state(r->s, r->state, &r->extra, temp, &sum));
    manifest_add(made, CHECKPOINT_STATE, sum);
    return MANTA_OK;
}

static void note_failure(manta_checkpoints *m, const char *path)
{
    manta_error e;

    manta_error_get(&e);
    if (!m->failing++) /* said once, until one can be written again */
        log_warn("a checkpoint could not be written", LOG_STR("path", path), LOG_STR("why", e.text));
    mutex_lock(&m->guard);
    if (!m->failure.code) m->failure = e;
    mutex_unlock(&m->guard);
}

static void note_success(manta_checkpoints *m)
{
    if (m->failing)
        log_warn("checkpoints can be written again", LOG_STR("path", m->folder), LOG_INT("lost", m->failing));
    m->failing = 0;
}

static void give_back(manta_checkpoints *m, void *state, size_t size) /* under guard */
{
    int i = m->spare[0] ? 1 : 0;

    if (m->spare[i]) {
        mem_try_free(state);
        return;
    }
    m->spare[i] = state;
    m->spare_size[i] = size;
}

/* Under guard. Without memory for it, who saves says so. */
static void make_expected(manta_checkpoints *m)
{
    size_t size = m->expected;
    void *at;

    mutex_unlock(&m->guard);
    if ((at = mem_try_raw(size))) mem_touch(at, size);
    mutex_lock(&m->guard);
    if (at) give_back(m, at, size);
    m->expected = 0;
    cond_broadcast(&m->changed);
}

static void write_all(void *arg)
{
    manta_checkpoints *m = arg;

    thread_nice(19); /* the training comes first */
    mutex_lock(&m->guard);
    if (m->expected) make_expected(m);
    for (;;) {
        request *r = m->pending;
        if (!r && m->leave) break;
        if (!r) {
            (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
            continue;
        }
        m->writing = r;
        m->pending = NULL;
        cond_broadcast(&m->changed);
        mutex_unlock(&m->guard);
        if (make_checkpoint(m, &r->m, fill_with_state, r)) {
            note_failure(m, m->folder);
        } else {
            note_success(m);
        }
        mutex_lock(&m->guard);
        give_back(m, r->state, r->size);
        request_free(r);
        m->writing = NULL;
        cond_broadcast(&m->changed);
    }
    mutex_unlock(&m->guard);
}

void checkpoints_await(manta_checkpoints *m)
{
    mutex_lock(&m->guard);
    while (m->pending || m->writing) (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
    mutex_unlock(&m->guard);
}

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

/* ---- saving ---- */

static manta_status start_thread(manta_checkpoints *m)
{
    if (!m->started) TRY(thread_start(&m->thread, "checkpoints", write_all, m));
    m->started = true;
    return MANTA_OK;
}

void checkpoints_expect(manta_checkpoints *m, const manta_session *s)
{
    if (m->started) return;
    m->expected = s->l.state_size;
    if (start_thread(m)) m->expected = 0; /* who saves says why */
}

/* A buffer for a state of `size`; NULL when memory is gone. Under guard. */
static void *take_buffer(manta_checkpoints *m, size_t size)
{
    while (m->expected) (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
    for (int i = 0; i < 2; i++) {
        void *at = m->spare[i];
        if (!at) continue;
        m->spare[i] = NULL;
        if (m->spare_size[i] == size) return at;
        mem_try_free(at);
    }
    return mem_try_raw(size);
}

/* Makes the place of the one that waits free. Under guard. */
static void make_room(manta_checkpoints *m, bool must)
{
    while (m->pending && (m->pending->must || must)) (void)cond_wait(&m->changed, &m->guard, CLOCK_NEVER);
    if (!m->pending) return;
    give_back(m, m->pending->state, m->pending->size);
    request_free(m->pending);
    m->pending = NULL;
}

manta_status checkpoints_save(manta_checkpoints *m, const manta_session *s, const manta_checkpoint_info *info,
                              blobs *extra, bool must)
{
    request *r = mem_new(sizeof *r);
    manta_status st;

    r->extra = *extra;
    *extra = (blobs){0};
    r->s = s;
    r->size = s->l.state_size;
    r->must = must;
    mutex_lock(&m->guard);
    make_room(m, must);
    r->state = take_buffer(m, r->size);
    mutex_unlock(&m->guard);
    if (!r->state) {
        request_free(r);
        return manta_fail(MANTA_ENOMEM,
                          "a checkpoint is written from a copy, and there is no memory for %zu bytes",
                          s->l.state_size);
    }
    memcpy(r->state, s->state, r->size);
    manifest_init(&r->m, info);
    r->m.info.sequence = ++m->last;
    if ((st = start_thread(m))) {
        mem_try_free(r->state);
        request_free(r);
        return st;
    }
    mutex_lock(&m->guard);
    m->pending = r;
    cond_broadcast(&m->changed);
    mutex_unlock(&m->guard);
    return MANTA_OK;
}

manta_status manta_checkpoints_save(manta_checkpoints *m, const manta_session *s,
                                    const manta_checkpoint_info *info, bool must)
{
    REFUSE_NULL(m);
    REFUSE_NULL(s);

    manta_checkpoint_info here = {0};
    const run_state *run = layout_run(&s->l, s->state);
    blobs none = {0};

    if (!info) {
        here.epoch = run->epoch;
        here.step = run->step;
        here.iterations = run->calls;
        info = &here;
    }
    return checkpoints_save(m, s, info, &none, must);
}

manta_status manta_checkpoints_failure(manta_checkpoints *m)
{
    REFUSE_NULL(m);

    manta_error e;

    mutex_lock(&m->guard);
    e = m->failure;
    m->failure.code = MANTA_OK;
    mutex_unlock(&m->guard);
    return e.code ? manta_error_raise(&e) : MANTA_OK;
}

manta_status manta_checkpoints_wait(manta_checkpoints *m)
{
    REFUSE_NULL(m);

    checkpoints_await(m);
    return manta_checkpoints_failure(m);
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

static manta_status add_checkpoint(manta_checkpoints *m, const manta_checkpoint_info *info, fill_fn *fill,
                                   const void *ctx)
{
    static const manta_checkpoint_info nothing;
    manifest made = {0};
    manta_status st;

    checkpoints_await(m);
    manifest_init(&made, info ? info : &nothing);
    made.info.sequence = ++m->last;
    st = make_checkpoint(m, &made, fill, ctx);
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
