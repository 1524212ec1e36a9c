/* task.c - the public calls of manta/task.h: each takes the lock, does its
 * work through the other files of this folder, and gives it back. */
#include <manta/task.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/cpu.h"
#include "os/socket.h"
#include "os/spawn.h"
#include "os/sys.h"
#include "task/runtime.h"

#define STOP_LIMIT_MS 1000
#define PRESTART_MOST 4
#define FLOOR_MOST    (256u << 20)
#define MOST_LOST     8 /* times that a get waits for an object that was lost */

/* ---- start and end ---- */

/* Reads "name=amount,..." into the resources behind cpu and gpu. */
static manta_status name_resources(const char *text, node_config *c)
{
    int n = SCHED_NAMED;
    while (text && *text) {
        const char *eq = strchr(text, '=');
        char *end = NULL;
        if (!eq || eq == text || (size_t)(eq - text) >= sizeof c->names[0])
            return manta_fail(MANTA_EINVAL, "resources \"%s\": name=amount is expected", text);
        double x = strtod(eq + 1, &end);
        if (end == eq + 1 || (*end && *end != ',') || !(x >= 0) || x > 1e12)
            return manta_fail(MANTA_EINVAL, "resources \"%s\": no amount", text);
        if (n == SCHED_RESOURCES)
            return manta_fail(MANTA_EINVAL, "more than %d kinds of resources", SCHED_RESOURCES - SCHED_NAMED);
        memcpy(c->names[n], text, (size_t)(eq - text));
        c->total.amount[n++] = (int64_t)(x * SCHED_UNIT + 0.5);
        text = *end ? end + 1 : end;
    }
    return MANTA_OK;
}

manta_status node_config_of(const manta_node_options *o, node_config *c)
{
    int cores = o && o->num_cpus > 0 ? o->num_cpus : cpu_cores();
    *c = (node_config){.prestart = cores < PRESTART_MOST ? cores : PRESTART_MOST};
    c->total.amount[0] = (int64_t)cores * SCHED_UNIT;
    if (o && o->num_gpus > SCHED_DEVICES)
        return manta_fail(MANTA_EINVAL, "%d gpus: at most %d", o->num_gpus, SCHED_DEVICES);
    c->total.amount[SCHED_GPU] = (int64_t)(o && o->num_gpus > 0 ? o->num_gpus : 0) * SCHED_UNIT;
    memcpy(c->names[0], "cpu", 4);
    memcpy(c->names[1], "gpu", 4);
    memcpy(c->names[2], "memory", 7);
    c->plain_output = o && o->plain_output;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    c->store_limit = o && o->store_memory ? o->store_memory : memory / 10 * 3;
    const char *tmp = getenv("TMPDIR"), *folder = o && o->spill_folder ? o->spill_folder
                                                  : tmp && *tmp        ? tmp
                                                                       : "/var/tmp";
    if (strlen(folder) >= sizeof c->spill_folder)
        return manta_fail(MANTA_EINVAL, "spill_folder: a path of more than %zu bytes",
                          sizeof c->spill_folder - 1);
    memcpy(c->spill_folder, folder, strlen(folder));
    rebuild_limit =
        o && o->lineage_memory ? (size_t)o->lineage_memory : (size_t)64 << 20; /* workers are forks */
    c->spill_limit = !*folder ? 0 : o && o->spill_limit ? o->spill_limit : UINT64_MAX;
    c->worker_memory = o ? o->worker_memory : 0;
    c->memory_floor = o && o->memory_floor ? o->memory_floor : memory / 100;
    if (!(o && o->memory_floor) && c->memory_floor > FLOOR_MOST) c->memory_floor = FLOOR_MOST;
    c->total.amount[2] = (int64_t)(o && o->memory ? o->memory : memory / 10 * 7) * SCHED_UNIT;
    return o ? name_resources(o->resources, c) : MANTA_OK;
}

/* A program that ends without manta_shutdown() leaves nothing either way; this
 * lets it also wait for its keeper, so that not even a zombie is left to
 * whoever adopts it. Children forked by the program have no part in it. */
static bool exit_is_watched;

static void at_exit(void)
{
    if (rt && rt->owner == getpid()) manta_shutdown();
}

/* Joins the node that the options, the environment or `manta start` name, or
 * starts one; manta/task.h has the rule. */
static manta_status open_node(const manta_node_options *o, const node_config *c, pid_t *keeper, int *fd,
                              int *keeper_pidfd, bool *joined)
{
    const char *address = o && o->address ? o->address : getenv("MANTA_ADDRESS");
    bool own = o && (o->num_cpus > 0 || o->num_gpus > 0 || o->memory || o->resources || o->store_memory ||
                     o->spill_folder || o->spill_limit || o->worker_memory || o->memory_floor);
    char path[DOOR_PATH];
    int door = -1;
    manta_status st = MANTA_ENOENT;
    if (address && !address[0]) address = NULL;
    node_remember_files();
    if (address && strcmp(address, "local") != 0) {
        if (own)
            return manta_fail(MANTA_EINVAL,
                              "cores, devices, resources and memory are those of the node at %s: "
                              "give them to manta start, or set the address to local",
                              address);
        TRY(strcmp(address, "auto") == 0 ? door_connect_main(path, &door)
                                         : door_connect(address, path, &door));
        st = MANTA_OK;
    } else if (!address && !own) {
        st = door_connect_main(path, &door);
    }
    if (st) return node_start(c, keeper, fd, keeper_pidfd);
    TRY(node_join(c, door, keeper, keeper_pidfd));
    *fd = door;
    *joined = true;
    return MANTA_OK;
}

manta_status manta_init(int *argc, char ***argv, const manta_node_options *options)
{
    node_config c;
    int fd = -1, keeper_pidfd = -1;
    pid_t keeper = 0;
    (void)argc;
    (void)argv;
    if (rt) return manta_fail(MANTA_EEXIST, "manta_init() was called before");
    TRY(node_config_of(options, &c));
    if (options && options->name_space) {
        char full[PROTO_NAME];
        TRY(actor_full_name(options->name_space, "", full));
        snprintf(rt_space, sizeof rt_space, "%s", options->name_space);
    }
    memcpy(c.space, rt_space, sizeof c.space);
    if (options && options->log_level) TRY(log_level_named(options->log_level));
    const char *address = options && options->address ? options->address : getenv("MANTA_ADDRESS");
    if ((options && options->in_process) || (address && !strcmp(address, "in-process"))) {
        TRY(runtime_open_local());
        rt->total = c.total;
        memcpy(rt->names, c.names, sizeof rt->names);
        rt->node = 1;
        return MANTA_OK;
    }
    bool joined = false;
    TRY(open_node(options, &c, &keeper, &fd, &keeper_pidfd, &joined));
    manta_status st = runtime_open(fd, keeper_pidfd, NULL);
    rt->keeper = keeper;
    rt->joined = joined;
    rt->owner = getpid();
    if (!exit_is_watched) exit_is_watched = atexit(at_exit) == 0;
    if (st) {
        manta_error e;
        manta_error_get(&e);
        if (joined) {
            spawn_signal(keeper_pidfd, SIGKILL); /* its steward ends the rest */
        } else {
            os->kill(keeper, SIGKILL);
            spawn_wait(keeper);
        }
        runtime_close();
        return manta_error_raise(&e);
    }
    return MANTA_OK;
}

/* Leaves a node that goes on. Its detached actors stay, and with them the
 * processes that could start them again; otherwise nothing of ours is left. */
static void leave(void)
{
    reply r;
    struct pollfd p = {.fd = rt->keeper_pidfd, .events = POLLIN};
    mutex_lock(&rt->lock);
    manta_status st = rt->is_dead ? MANTA_EDIED : rt_request(rt_request_begin(PROTO_SHUTDOWN), &r);
    mutex_unlock(&rt->lock);
    if (!st && r.id) return;
    if (socket_poll(&p, 1, STOP_LIMIT_MS) <= 0) spawn_signal(p.fd, SIGKILL); /* its steward ends the rest */
}

void manta_shutdown(void)
{
    if (!rt || rt->is_worker) return;
    if (rt->joined) {
        leave();
    } else if (!rt->is_local) {
        mutex_lock(&rt->lock);
        (void)rt_request_begin(PROTO_SHUTDOWN);
        rt_tell();
        struct pollfd p = {.fd = rt->keeper_pidfd, .events = POLLIN};
        pid_t keeper = rt->keeper, daemon = rt->daemon;
        mutex_unlock(&rt->lock);
        /* A daemon that does not end (it may be stopped) is killed, which its
         * keeper answers by ending all the rest. */
        if (socket_poll(&p, 1, STOP_LIMIT_MS) <= 0) os->kill(daemon, SIGKILL);
        if (socket_poll(&p, 1, STOP_LIMIT_MS) <= 0) spawn_signal(p.fd, SIGKILL);
        spawn_wait(keeper);
    }
    runtime_close();
}

bool manta_is_initialized(void)
{
    return rt != NULL;
}

/* ---- calls ---- */

manta_arg manta_str(const char *s)
{
    manta_arg a = {.kind = MANTA_KIND_STR};
    a.as.bytes.at = s;
    a.as.bytes.n = s ? strlen(s) : 0;
    return a;
}

void manta_submit(const char *name, const manta_task_options *options, int n_args, const manta_arg *args,
                  int results, manta_ref *out)
{
    for (int i = 0; i < results; i++) out[i].id = 0;
    if (!rt) {
        (void)rt_none();
        return;
    }
    mutex_lock(&rt->lock);
    call_submit(name, options, NULL, n_args, args, results, out);
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

manta_ref manta_submit_one(const char *name, const manta_task_options *options, int n_args,
                           const manta_arg *args)
{
    manta_ref r;
    manta_submit(name, options, n_args, args + 1, 1, &r);
    return r;
}

/* ---- objects ---- */

/* A reference that only carries this thread's last error. */
static manta_ref failed_ref(manta_failure_kind kind, manta_status st)
{
    manta_failure f = failure_here(kind, st, NULL);
    object *o = object_new(object_id(1));
    o->refs = 1;
    object_fail(o, &f);
    return (manta_ref){o->id};
}

manta_ref manta_put(manta_arg arg)
{
    value v;
    object *o;
    manta_ref r = {0};
    if (!rt) {
        (void)rt_none();
        return r;
    }
    mutex_lock(&rt->lock);
    manta_status st =
        arg.kind == MANTA_KIND_REF
            ? manta_fail(MANTA_EINVAL, "a reference is an object already; put manta_refs() to keep it as one")
            : value_of(&arg, &v);
    if (!st) st = object_make(&arg, &v, &o);
    if (st) {
        r = failed_ref(st == MANTA_ENOSPC ? MANTA_FAILED_FULL : MANTA_FAILED_SUBMIT, st);
    } else {
        o->refs = 1;
        r.id = o->id;
    }
    mutex_unlock(&rt->lock);
    return r;
}

manta_status manta_create(manta_dtype dtype, int ndim, const int64_t *dims, manta_array *out, manta_ref *ref)
{
    value v;
    void *at = NULL;
    if (!rt) return rt_none();
    if (ndim < 0 || ndim > MANTA_MAX_DIMS) return manta_fail(MANTA_EINVAL, "%d dimensions", ndim);
    manta_array a = manta_array_of(dtype, ndim, dims, NULL);
    manta_arg arg = manta_elements(&a);
    TRY(value_of(&arg, &v));
    mutex_lock(&rt->lock);
    manta_status st = store_take(rt->store, (size_t)v.size, &v.place, &at);
    if (!st) {
        object *o = object_new(object_id(1));
        v.at = at;
        o->v = v;
        o->is_own = o->unsealed = true;
        o->refs = 1;
        ref->id = o->id;
        *out = manta_array_of(dtype, ndim, dims, at);
    }
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_seal(manta_ref ref)
{
    manta_status st = MANTA_OK;
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (!o || !o->unsealed)
        st = manta_fail(MANTA_EINVAL, "there is nothing to seal");
    else {
        o->unsealed = false;
        o->state = OBJECT_READY;
        object_sealed(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

static bool object_settled(void *ctx)
{
    const object *o = ctx;
    return o->state != OBJECT_PENDING;
}

static manta_status timed_out(const object *o, int64_t timeout_ms)
{
    const call *c = o->maker;
    if (c)
        return manta_fail(MANTA_ETIMEDOUT, "no result of %s after %lld ms (%s)", c->fn->name,
                          (long long)timeout_ms,
                          c->missing   ? "it waits for its arguments"
                          : c->is_sent ? "it was sent to a worker"
                                       : "it waits for a worker");
    return manta_fail(MANTA_ETIMEDOUT, "no object after %lld ms", (long long)timeout_ms);
}

/* Waits for an object and, with `map`, makes its bytes readable; with the lock
 * held. *out is pinned until object_unpin(). */
static manta_status await(manta_ref ref, int64_t timeout_ms, bool map, object **out)
{
    object *o = object_find(ref.id);
    if (!o) return manta_fail(MANTA_EINVAL, "a reference that is none, or was released");
    if (o->unsealed) return manta_fail(MANTA_EINVAL, "the object is not sealed");
    o->pins++;
    manta_status st;
    for (int tries = 0;; tries++) {
        st = MANTA_OK;
        if (o->state == OBJECT_PENDING) {
            object_want(o);
            st = rt_await(object_settled, o, timeout_ms);
            if (st == MANTA_ETIMEDOUT) st = timed_out(o, timeout_ms);
        }
        if (!st && o->state == OBJECT_FAILED) st = failure_raise(o->failure);
        if (st || !map) break;
        st = object_map(o);
        if (!st || tries == MOST_LOST || !rebuild_missed(o, st)) break;
    }
    if (st)
        object_unpin(o);
    else
        *out = o;
    return st;
}

/* The value of an object of one kind (NONE: of any). */
static manta_status get(manta_ref ref, manta_kind kind, int64_t timeout_ms, value *out)
{
    object *o = NULL;
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = await(ref, timeout_ms, kind != MANTA_KIND_NONE, &o);
    if (!st) {
        *out = o->v;
        if (kind != MANTA_KIND_NONE && o->v.kind != kind)
            st = manta_fail(MANTA_EINVAL, "the object is %s, not %s", value_kind_name(o->v.kind),
                            value_kind_name(kind));
        else
            o->is_read = o->is_read || kind != MANTA_KIND_NONE;
        object_unmap(o); /* when it is of another kind */
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_get(manta_ref ref, int64_t timeout_ms)
{
    value v;
    return get(ref, MANTA_KIND_NONE, timeout_ms, &v);
}

manta_status manta_get_f64(manta_ref ref, double *out, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_F64, timeout_ms, &v));
    memcpy(out, &v.word, 8);
    return MANTA_OK;
}

manta_status manta_get_i64(manta_ref ref, int64_t *out, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_I64, timeout_ms, &v));
    *out = (int64_t)v.word;
    return MANTA_OK;
}

manta_status manta_get_bool(manta_ref ref, bool *out, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_BOOL, timeout_ms, &v));
    *out = v.word != 0;
    return MANTA_OK;
}

manta_status manta_get_str(manta_ref ref, const char **out, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_STR, timeout_ms, &v));
    *out = v.at;
    return MANTA_OK;
}

manta_status manta_get_bytes(manta_ref ref, const void **at, size_t *n, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_BYTES, timeout_ms, &v));
    *at = v.at;
    *n = (size_t)v.size;
    return MANTA_OK;
}

manta_status manta_get_array(manta_ref ref, manta_array *out, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_ARRAY, timeout_ms, &v));
    *out = manta_array_of(v.dtype, v.ndim, v.shape, (void *)(uintptr_t)v.at);
    return MANTA_OK;
}

manta_status manta_get_copy(manta_ref ref, manta_array *out, int64_t timeout_ms)
{
    object *o = NULL;
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = await(ref, timeout_ms, true, &o);
    if (st) goto out;
    o->kept++; /* the copying is done without the lock */
    value v = o->v;
    mutex_unlock(&rt->lock);
    void *copy = NULL;
    if (v.kind != MANTA_KIND_ARRAY)
        st = manta_fail(MANTA_EINVAL, "the object is %s, not %s", value_kind_name(v.kind),
                        value_kind_name(MANTA_KIND_ARRAY));
    else if (!(copy = malloc(v.size ? (size_t)v.size : 1)))
        st = manta_fail(MANTA_ENOMEM, "no memory for a copy of %llu bytes", (unsigned long long)v.size);
    else if (v.size > 0)
        memcpy(copy, v.at, (size_t)v.size);
    if (!st) *out = manta_array_of(v.dtype, v.ndim, v.shape, copy);
    mutex_lock(&rt->lock);
    o->kept--;
    object_unmap(o);
    object_unpin(o);
out:
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_get_refs(manta_ref ref, const manta_ref **out, size_t *n, int64_t timeout_ms)
{
    value v = {0};
    TRY(get(ref, MANTA_KIND_REFS, timeout_ms, &v));
    *out = v.at;
    *n = (size_t)v.size / sizeof(manta_ref);
    return MANTA_OK;
}

/* ---- many at once ---- */

typedef struct many {
    object **at;
    size_t n, want;
    size_t from; /* those before it are ready (manta_get_all) */
} many;

/* The objects of n references, in an array to be freed. */
static manta_status find_all(const manta_ref *refs, size_t n, object ***out)
{
    object **at = mem_new((n + 1) * sizeof *at);
    for (size_t i = 0; i < n; i++) {
        if ((at[i] = object_find(refs[i].id)) && !at[i]->unsealed) continue;
        mem_free(at);
        return manta_fail(MANTA_EINVAL, "reference %zu is none, was released, or is not sealed", i);
    }
    *out = at;
    return MANTA_OK;
}

/* They stay while we wait, and the daemon is asked for those it has to bring. */
static void pin_all(const many *m)
{
    for (size_t i = 0; i < m->n; i++) {
        m->at[i]->pins++;
        object_want(m->at[i]);
    }
}

static void unpin_all(const many *m)
{
    for (size_t i = 0; i < m->n; i++) object_unpin(m->at[i]);
}

static bool all_ready(void *ctx)
{
    many *m = ctx;
    for (; m->from < m->n; m->from++) {
        if (m->at[m->from]->state == OBJECT_FAILED) return true; /* no need to wait for the others */
        if (m->at[m->from]->state == OBJECT_PENDING) return false;
    }
    return true;
}

static bool some_ready(void *ctx)
{
    const many *m = ctx;
    size_t ready = 0;
    for (size_t i = 0; i < m->n && ready < m->want; i++) ready += m->at[i]->state != OBJECT_PENDING;
    return ready >= m->want;
}

static manta_status get_all(const manta_ref *refs, size_t n, int64_t timeout_ms)
{
    many m = {.n = n};
    manta_status st = MANTA_OK;
    TRY(find_all(refs, n, &m.at));
    pin_all(&m);
    st = rt_await(all_ready, &m, timeout_ms);
    if (st == MANTA_ETIMEDOUT)
        st = timed_out(m.at[m.from], timeout_ms);
    else if (!st && m.from < n)
        st = failure_raise(m.at[m.from]->failure);
    unpin_all(&m);
    mem_free(m.at);
    return st;
}

manta_status manta_get_all(const manta_ref *refs, size_t n, int64_t timeout_ms)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = get_all(refs, n, timeout_ms);
    mutex_unlock(&rt->lock);
    return st;
}

static manta_status refuse_duplicates(const many *m)
{
    bool twice = false;
    for (size_t i = 0; i < m->n; i++) {
        twice = twice || m->at[i]->marked;
        m->at[i]->marked = true;
    }
    for (size_t i = 0; i < m->n; i++) m->at[i]->marked = false;
    return twice ? manta_fail(MANTA_EINVAL, "the same reference twice") : MANTA_OK;
}

static manta_status wait_some(const manta_ref *refs, size_t n, size_t want, int64_t timeout_ms, bool *ready,
                              size_t *n_ready)
{
    many m = {.n = n, .want = want};
    size_t found = 0;
    TRY(find_all(refs, n, &m.at));
    manta_status st = refuse_duplicates(&m);
    if (!st && !some_ready(&m)) {
        pin_all(&m);
        st = rt_await(some_ready, &m, timeout_ms);
        if (st == MANTA_ETIMEDOUT) st = MANTA_OK; /* fewer are an answer too */
    } else {
        for (size_t i = 0; i < n; i++) m.at[i]->pins++;
    }
    for (size_t i = 0; i < n && !st; i++) {
        ready[i] = found < want && m.at[i]->state != OBJECT_PENDING;
        found += ready[i];
    }
    if (!st && n_ready) *n_ready = found;
    unpin_all(&m); /* another thread may have released one meanwhile */
    mem_free(m.at);
    return st;
}

manta_status manta_wait(const manta_ref *refs, size_t n, size_t num_returns, int64_t timeout_ms, bool *ready,
                        size_t *n_ready)
{
    if (!rt) return rt_none();
    if (num_returns > n)
        return manta_fail(MANTA_EINVAL, "%zu of %zu references are to be awaited", num_returns, n);
    mutex_lock(&rt->lock);
    manta_status st = wait_some(refs, n, num_returns, timeout_ms, ready, n_ready);
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_pin(manta_ref ref)
{
    object *o = NULL;
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = await(ref, 0, true, &o);
    if (!st) {
        o->kept++;
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

void manta_unpin(manta_ref ref)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o && o->kept > 0 && --o->kept == 0) object_unmap(o);
    mutex_unlock(&rt->lock);
}

manta_status manta_retain(manta_ref ref)
{
    manta_status st = MANTA_OK;
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o)
        o->refs++;
    else
        st = manta_fail(MANTA_EINVAL, "a reference that is none, or was released");
    mutex_unlock(&rt->lock);
    return st;
}

void manta_release_all(const manta_ref *refs, size_t n)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    for (size_t i = 0; i < n; i++) {
        object *o = object_find(refs[i].id);
        if (o) object_unref(o);
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

void manta_release(manta_ref ref)
{
    manta_release_all(&ref, 1);
}

manta_status manta_cancel(manta_ref ref, unsigned how)
{
    manta_status st = MANTA_OK;
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (!o)
        st = manta_fail(MANTA_EINVAL, "a reference that is none, or was released");
    else if (o->maker && !call_cancel(o->maker, how))
        st = manta_fail(MANTA_EINVAL, "a call of an actor cannot be forced to end without ending the actor");
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return st;
}

void manta_failure_get(manta_ref ref, manta_failure *out)
{
    *out = (manta_failure){0};
    if (!rt) return;
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o && o->state == OBJECT_FAILED) *out = *o->failure;
    mutex_unlock(&rt->lock);
}

/* ---- actors ---- */

/* The constructor's call as bytes, its arguments resolved as far as they are
 * there; what it refers to goes to *inner. *done arguments are held once more. */
static manta_status encode_constructor(const char *name, uint64_t id, int n, const manta_arg *args, buf *b,
                                       manta_ref *inner, uint64_t *n_inner, int *done)
{
    proto_begin(b, PROTO_CALL);
    wire_put_u64(b, 0);
    wire_put_u64(b, id);
    wire_put_u32(b, 0);
    wire_put_u32(b, 0);
    wire_put_text(b, name);
    wire_put_text(b, "");
    wire_put_u32(b, (uint32_t)n);
    for (int i = 0; i < n; i++) {
        object *o = NULL;
        value v;
        if (args[i].kind == MANTA_KIND_REF) {
            manta_status st = await((manta_ref){args[i].as.id}, 0, false, &o);
            if (st == MANTA_ETIMEDOUT) { /* not there yet: the constructor's process waits for it */
                o = object_find(args[i].as.id);
                o->pins++;
                st = MANTA_OK;
            }
            if (st) return st;
        } else {
            TRY(value_of(&args[i], &v));
            TRY(object_make(&args[i], &v, &o));
            o->pins++;
        }
        if (o->state == OBJECT_PENDING) {
            object_export(o);
            inner[(*n_inner)++].id = o->id;
        } else if (o->v.place.segment || o->v.kind == MANTA_KIND_REFS) {
            object_export(o);
            inner[(*n_inner)++].id = o->id;
        } else if (o->v.kind == MANTA_KIND_ACTOR) {
            inner[(*n_inner)++].id = o->v.word;
        }
        if (o->state == OBJECT_PENDING)
            value_put_ref(b, o->id);
        else
            value_put(b, &o->v);
        if (b->n > RING_MESSAGE) {
            object_unpin(o);
            return manta_fail(MANTA_EINVAL, "the small arguments of %s are too many", name);
        }
        o->refs++; /* until the daemon has been told that the actor contains it */
        object_unpin(o);
        if (args[i].kind != MANTA_KIND_REF) inner[n + i].id = o->id;
        *done = i + 1;
    }
    return MANTA_OK;
}

static manta_status start_actor(const char *name, const manta_task_options *o, int n, const manta_arg *args,
                                uint64_t *out)
{
    sched_shape amount;
    manta_failure_kind kind;
    buf bytes = {0};
    char full[PROTO_NAME] = "";
    uint64_t n_inner = 0, id = *out;
    manta_ref *inner = mem_new((size_t)n * 2 * sizeof *inner + 8);
    manta_status st = shape_of(o, true, &amount, &kind);
    if (!st && strlen(name) > 63) st = manta_fail(MANTA_EINVAL, "a name of more than 63 bytes");
    bool named = o && o->name;
    if (!st && named) st = actor_full_name(o->name_space, o->name, full);
    if (!st && named && rt->is_local) {
        actor_link *taken = actor_named(full);
        if (taken && o->get_if_exists) {
            *out = taken->id;
            mem_free(inner);
            return MANTA_OK;
        }
        if (taken) st = manta_fail(MANTA_EEXIST, "an actor is called %s already", full);
    }
    int done = 0;
    if (!st) st = encode_constructor(name, id, n, args, &bytes, inner, &n_inner, &done);
    if (!st && rt->is_local) {
        buf answer = {0};
        incoming *in = incoming_of(NULL, bytes.at, bytes.n);
        exec_run(in, &answer);
        incoming_free(in);
        buf_release(&answer);
    } else if (!st) {
        reply r;
        uint64_t request = rt_request_begin(PROTO_ACTOR_NEW);
        if (!named) memset(rt->out.at + 8, 0, 8); /* no answer is awaited */
        wire_put_u64(&rt->out, id);
        wire_put_u32(&rt->out, (o && o->detached ? PROTO_ACTOR_DETACHED : 0u) |
                                   (o && o->get_if_exists ? PROTO_ACTOR_GET : 0u) |
                                   (o && o->fail_away ? PROTO_ACTOR_AWAY : 0u));
        wire_put_u32(&rt->out, (uint32_t)(o ? o->max_restarts == MANTA_UNLIMITED ? -1 : o->max_restarts : 0));
        wire_put_u32(&rt->out, (uint32_t)(o ? o->max_task_retries : 0));
        wire_put_u32(&rt->out, (uint32_t)(o && o->max_concurrency > 1 ? o->max_concurrency : 1));
        wire_put_u32(&rt->out, (uint32_t)(o && o->max_pending_calls > 0 ? o->max_pending_calls : 0));
        buf_add(&rt->out, &amount, sizeof amount);
        wire_put_text(&rt->out, full);
        wire_put_bytes(&rt->out, bytes.at, bytes.n);
        wire_put_u64(&rt->out, n_inner);
        buf_add(&rt->out, inner, (size_t)n_inner * 8);
        if (named) {
            st = rt_request(request, &r);
            if (!st) *out = r.id;
        } else {
            rt_tell();
        }
    }
    for (int i = 0; i < done; i++) {
        object *obj = object_find(args[i].kind == MANTA_KIND_REF ? args[i].as.id : inner[n + i].id);
        if (obj) object_unref(obj);
    }
    mem_free(inner);
    buf_release(&bytes);
    return st;
}

manta_actor manta_actor_start(const char *constructor, const manta_task_options *options, int n_args,
                              const manta_arg *args)
{
    manta_actor a = {0};
    if (!rt) {
        (void)rt_none();
        return a;
    }
    mutex_lock(&rt->lock);
    uint64_t id = object_id(1), made = id;
    manta_status st =
        rt->is_dead ? failure_raise(&rt->death) : start_actor(constructor, options, n_args, args, &made);
    object *handle = object_find(made);
    if (!handle) handle = object_new(made);
    handle->refs++;
    if (!st) handle->held++; /* the daemon counted it for us */
    handle->exported = true;
    handle->state = OBJECT_READY;
    a.id = made;
    actor_link *link = actor_find_link(made);
    link->retries = options ? options->max_task_retries : 0;
    link->most_pending = options ? options->max_pending_calls : 0;
    link->fail_away = options && options->fail_away;
    if (!st && rt->is_local && made == id) {
        char full[PROTO_NAME];
        link->group = options ? options->group.id : 0;
        if (options && options->name && !actor_full_name(options->name_space, options->name, full))
            link->name = mem_strdup(full);
    }
    if (st) {
        manta_failure f = failure_here(MANTA_FAILED_ACTOR, st, constructor);
        actor_died(made, &f);
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return a;
}

void manta_actor_submit_with(manta_actor actor, const char *method, const manta_task_options *options,
                             int n_args, const manta_arg *args, int results, manta_ref *out)
{
    for (int i = 0; i < results; i++) out[i].id = 0;
    if (!rt) {
        (void)rt_none();
        return;
    }
    mutex_lock(&rt->lock);
    if (!object_find(actor.id)) {
        for (int i = 0; i < results; i++)
            out[i] = failed_ref(MANTA_FAILED_SUBMIT,
                                manta_fail(MANTA_EINVAL, "an actor that is none, or was released"));
    } else {
        call_submit(method, options, actor_find_link(actor.id), n_args, args, results, out);
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

void manta_actor_submit(manta_actor actor, const char *method, int n_args, const manta_arg *args, int results,
                        manta_ref *out)
{
    manta_actor_submit_with(actor, method, NULL, n_args, args, results, out);
}

manta_ref manta_actor_submit_one_with(manta_actor actor, const char *method,
                                      const manta_task_options *options, int n_args, const manta_arg *args)
{
    manta_ref r;
    manta_actor_submit_with(actor, method, options, n_args, args, 1, &r);
    return r;
}

manta_ref manta_actor_submit_one(manta_actor actor, const char *method, int n_args, const manta_arg *args)
{
    manta_ref r;
    manta_actor_submit(actor, method, n_args, args, 1, &r);
    return r;
}

manta_status manta_actor_ready(manta_actor actor, int64_t timeout_ms)
{
    manta_ref r = manta_actor_submit_one(actor, "manta.ready", 0, NULL);
    manta_status st = manta_get(r, timeout_ms);
    manta_release(r);
    return st;
}

manta_status manta_actor_find(const char *name, manta_actor *out)
{
    return manta_actor_find_in(NULL, name, out);
}

manta_status manta_actor_find_in(const char *name_space, const char *name, manta_actor *out)
{
    reply r;
    char full[PROTO_NAME];
    if (!rt) return rt_none();
    TRY(actor_full_name(name_space, name, full));
    mutex_lock(&rt->lock);
    if (rt->is_local) {
        const actor_link *a = actor_named(full);
        if (a) {
            object_find(a->id)->refs++;
            out->id = a->id;
        }
        mutex_unlock(&rt->lock);
        return a ? MANTA_OK : manta_fail(MANTA_ENOENT, "no actor is called %s", full);
    }
    uint64_t request = rt_request_begin(PROTO_ACTOR_FIND);
    wire_put_text(&rt->out, full);
    manta_status st = rt->is_dead ? failure_raise(&rt->death) : rt_request(request, &r);
    if (!st) {
        object *handle = object_find(r.id);
        if (!handle) handle = object_new(r.id);
        handle->exported = true;
        handle->state = OBJECT_READY;
        handle->held++;
        handle->refs++;
        out->id = r.id;
    }
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_actor_end(manta_actor actor)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    /* A call like others, so that it comes behind those made before. */
    manta_ref r;
    manta_status st = MANTA_OK;
    if (!rt->is_local && map_u64_find(&rt->selves, actor.id)) { /* from inside */
        proto_begin(&rt->out, PROTO_ACTOR_KILL);
        wire_put_u64(&rt->out, actor.id);
        wire_put_u32(&rt->out, PROTO_KILL_END);
        rt_tell();
    } else if (object_find(actor.id)) {
        call_submit("manta.end", NULL, actor_find_link(actor.id), 0, NULL, 1, &r);
        object_unref(object_find(r.id));
    } else {
        st = manta_fail(MANTA_EINVAL, "an actor that is none, or was released");
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_actor_kill(manta_actor actor, bool no_restart)
{
    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    buf *b = proto_begin(&rt->out, PROTO_ACTOR_KILL);
    wire_put_u64(b, actor.id);
    wire_put_u32(b, no_restart ? PROTO_KILL : PROTO_KILL_RESTART);
    rt_tell();
    /* Calls made from now on must not reach the process that is about to die. */
    if (object_find(actor.id)) {
        actor_link *a = actor_find_link(actor.id);
        manta_failure f = failure_make(MANTA_FAILED_ACTOR, MANTA_EDIED, NULL, a->pid, "the actor was killed");
        if (no_restart)
            actor_died(actor.id, &f);
        else if (a->state == ACTOR_AT)
            a->state = ACTOR_LOST;
    }
    mutex_unlock(&rt->lock);
    return MANTA_OK;
}

void manta_actor_release(manta_actor actor)
{
    manta_release((manta_ref){actor.id});
}

int manta_actor_pid(manta_actor actor)
{
    int pid = 0;
    if (!rt) return 0;
    mutex_lock(&rt->lock);
    if (object_find(actor.id)) pid = actor_find_link(actor.id)->pid;
    mutex_unlock(&rt->lock);
    return pid;
}

/* ---- the node ---- */

manta_status manta_node_get(manta_node_info *out)
{
    reply r;
    if (!rt) return rt_none();
    *out = (manta_node_info){0};
    if (rt->is_local) {
        info_amounts(&rt->total, &rt->total, out);
        out->tasks_done = rt->done;
        return MANTA_OK;
    }
    mutex_lock(&rt->lock);
    uint64_t request = rt_request_begin(PROTO_INFO);
    manta_status st = rt->is_dead ? failure_raise(&rt->death) : rt_request(request, &r);
    if (!st) {
        *out = r.info;
        out->tasks_done = rt->done;
    }
    mutex_unlock(&rt->lock);
    return st;
}
