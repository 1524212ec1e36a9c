/* run.c - runs a program in a process of its own and compares it with the model; see run.h. */
#include "run.h"

#include <dirent.h>
#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>
#include <manta/node.h>
#include <manta/stream.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const soak_program *running;

_Noreturn void soak_wrong(const char *format, ...)
{
    char line[256];
    va_list ap;
    int op = atomic_load(&soak_shared->op);
    size_t n = 0, size = sizeof soak_shared->what;

    if (op < running->n) {
        soak_op_print(&running->op[op], line, sizeof line);
        n = (size_t)snprintf(soak_shared->what, size, "at `%s`: ", line);
    }
    va_start(ap, format);
    vsnprintf(soak_shared->what + n, size - n, format, ap);
    va_end(ap);
    _exit(1); /* and the node ends with us */
}

/* ---- slots ---- */

soak_slot *soak_slot_of(soak_run *r, const soak_op *op, int i, soak_holds holds)
{
    soak_slot *s = i < op->n_args ? &r->slots[op->args[i]] : NULL;

    return s && s->holds == holds ? s : NULL;
}

soak_slot *soak_slot_fill(soak_run *r, const soak_op *op, soak_holds holds, int n)
{
    soak_slot *s = &r->slots[op->id];

    soak_slot_clear(s);
    s->holds = holds;
    s->n = n;
    if (holds == SOAK_VALUES) {
        s->refs = calloc((size_t)n, sizeof *s->refs);
        s->expect = calloc((size_t)n, sizeof *s->expect);
    } else if (holds == SOAK_ACTORS) {
        s->actors = calloc((size_t)n, sizeof *s->actors);
        s->calls = calloc((size_t)n, sizeof *s->calls);
    }
    return s;
}

void soak_slot_clear(soak_slot *s)
{
    if (s->holds == SOAK_VALUES) manta_release_all(s->refs, (size_t)s->n);
    if (s->holds == SOAK_ACTORS)
        for (int i = 0; i < s->n; i++) manta_actor_release(s->actors[i]);
    if (s->holds == SOAK_ITEMS) manta_stream_close(s->stream);
    free(s->refs);
    free(s->expect);
    free(s->actors);
    free(s->calls);
    *s = (soak_slot){0};
}

/* ---- comparing ---- */

static unsigned allowed_failures(const soak_run *r, const soak_expect *e)
{
    const unsigned died = MANTA_ON(MANTA_EDIED), unknown = MANTA_ON(MANTA_EUNKNOWN);
    unsigned may = e->failures;

    bool loses_makers = r->kills > 0 || (!soak_is_strict && (r->ends > 0 || r->doomed));
    if (r->kills > e->retries || (e->fragile && loses_makers)) may |= died;
    if ((r->kills > 0 && e->mortal) || (e->depends & r->doomed)) may |= died | unknown;
    if (e->others & r->ended) may |= died;
    if (e->depends & r->cancelled) may |= MANTA_ON(MANTA_ECANCELLED);
    if (r->small_store || r->few_files) may |= MANTA_ON(MANTA_ENOSPC);
    return may;
}

void soak_check_failure(const soak_run *r, const soak_expect *e, manta_status st, const char *what)
{
    if (!(allowed_failures(r, e) & MANTA_ON(st)))
        soak_wrong("%s: status %d, which it cannot have: %s", what, st, manta_error_text());
    if (!manta_error_text()[0]) soak_wrong("%s: status %d without a sentence", what, st);
}

static void check_bytes(const soak_expect *e, const void *at, int64_t n)
{
    if (n != e->size) soak_wrong("%lld bytes instead of %lld", (long long)n, (long long)e->size);
    if (soak_digest_of(at, n) != soak_digest(e->tag, e->size))
        soak_wrong("other bytes than it should have, of %lld", (long long)n);
}

static void check_refs(soak_run *r, const soak_expect *e, const manta_ref *refs, size_t n)
{
    if (n != (size_t)e->refs) soak_wrong("%zu references instead of %d", n, e->refs);
    for (size_t i = 0; i < n; i++) {
        soak_expect one = *e;
        one.tag = SOAK_PART(e->tag, i);
        one.refs = 0;
        one.is_array = false;
        (void)soak_check(r, refs[i], &one, MANTA_FOREVER);
    }
}

bool soak_check(soak_run *r, manta_ref ref, const soak_expect *e, int64_t timeout_ms)
{
    const void *at;
    const manta_ref *refs;
    size_t n;
    manta_array a;

    if (e->needs_core && (timeout_ms == MANTA_FOREVER || e->refs > 0)) soak_let_go(r);
    manta_status st = e->refs > 0   ? manta_get_refs(ref, &refs, &n, timeout_ms)
                      : e->is_array ? manta_get_array(ref, &a, timeout_ms)
                                    : manta_get_bytes(ref, &at, &n, timeout_ms);
    if (st == MANTA_ETIMEDOUT && timeout_ms >= 0) return false;
    if (st) {
        manta_failure f;
        soak_check_failure(r, e, st, "the value");
        manta_failure_get(ref, &f);
        /* An object for which there is no room now is well, and may be read later. */
        bool is_well = r->small_store && st == MANTA_ENOSPC && f.kind == MANTA_FAILURE_NONE;
        if (!is_well && (f.kind == MANTA_FAILURE_NONE || f.code != st))
            soak_wrong("get says %d, the failure is of kind %d and code %d", st, f.kind, f.code);
        return true;
    }
    if (e->must_fail) soak_wrong("a value where a failure was expected");
    if (e->refs > 0)
        check_refs(r, e, refs, n);
    else if (e->is_array)
        check_bytes(e, a.data, a.ndim == 1 ? a.shape[0] : -1);
    else
        check_bytes(e, at, (int64_t)n);
    return true;
}

/* ---- cores that are held ---- */

void soak_let_go(soak_run *r)
{
    atomic_store(&soak_shared->may_end, r->round);
    for (int i = 0; i < r->n_holds; i++) {
        manta_status st = manta_get(r->holds[i], MANTA_FOREVER);
        soak_expect e = soak_expect_of(0);
        if (st) soak_check_failure(r, &e, st, "a call that held a core");
    }
    manta_release_all(r->holds, (size_t)r->n_holds);
    r->n_holds = 0;
}

/* ---- from the beginning to the end ---- */

static void (*const actions[SOAK_KINDS])(soak_run *r, const soak_op *op) = {
    [SOAK_PUT] = soak_do_put,       [SOAK_CALL] = soak_do_call,
    [SOAK_GET] = soak_do_get,       [SOAK_WAIT] = soak_do_wait,
    [SOAK_DROP] = soak_do_drop,     [SOAK_CANCEL] = soak_do_cancel,
    [SOAK_KILL] = soak_do_kill,     [SOAK_ZYGOTE] = soak_do_zygote,
    [SOAK_ACTOR] = soak_do_actor,   [SOAK_READY] = soak_do_ready,
    [SOAK_METHOD] = soak_do_method, [SOAK_COUNT] = soak_do_count,
    [SOAK_VIA] = soak_do_via,       [SOAK_FIND] = soak_do_find,
    [SOAK_END] = soak_do_end,       [SOAK_KILL_ACTOR] = soak_do_kill_actor,
    [SOAK_LEAVE] = soak_do_leave,   [SOAK_STREAM] = soak_do_stream,
    [SOAK_NEXT] = soak_do_next,     [SOAK_CLOSE] = soak_do_close,
    [SOAK_QUEUE] = soak_do_queue,   [SOAK_MAP] = soak_do_map,
    [SOAK_GROUP] = soak_do_group,   [SOAK_HOLD] = soak_do_hold,
    [SOAK_FREE] = soak_do_free,     [SOAK_THREADS] = soak_do_threads,
};

static int count_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    if (!d) soak_wrong("/proc/self/fd cannot be read");
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void check_maps(void)
{
    char line[512];
    FILE *f = fopen("/proc/self/maps", "r");

    if (!f) soak_wrong("/proc/self/maps cannot be read");
    while (fgets(line, sizeof line, f))
        if (strstr(line, "memfd:")) soak_wrong("memory is still there after the shutdown: %s", line);
    fclose(f);
}

/* Whether a node with these limits could be started; with few files it may say that it cannot. */
static bool start_node(soak_run *r, const soak_op *node, const char *folder)
{
    char resources[32];
    manta_node_options o = {.num_cpus = r->cores, .resources = resources, .address = "local"};
    manta_node_info info;

    snprintf(resources, sizeof resources, "token=%d", r->tokens);
    o.in_process = r->inside;
    o.memory_floor = 1; /* the model does not know what else the machine does */
    o.store_memory = (uint64_t)node->f[SOAK_STORE] << 10;
    o.spill_limit = (uint64_t)node->f[SOAK_SPILL] << 10;
    o.spill_folder = folder;
    if (r->few_files) {
        rlim_t n = (rlim_t)node->f[SOAK_FILES];
        if (setrlimit(RLIMIT_NOFILE, &(struct rlimit){n, n})) soak_wrong("setrlimit");
    }
    manta_status st = manta_init(NULL, NULL, &o);
    if (st && r->few_files && manta_error_text()[0]) return false;
    if (st) soak_wrong("the node does not start: status %d: %s", st, manta_error_text());
    if (r->inside) return true;
    if (manta_node_get(&info)) soak_wrong("the node says nothing: %s", manta_error_text());
    atomic_store(&soak_shared->daemon, info.daemon_pid);
    return true;
}

static void end_slots(soak_run *r)
{
    soak_let_go(r);
    for (int id = 0; id < SOAK_SLOTS; id++) {
        soak_slot *s = &r->slots[id];
        soak_op next = {.kind = SOAK_NEXT, .f = {[SOAK_N] = s->n + 1}, .n_args = 1, .args = {id}};
        if (s->holds == SOAK_ITEMS && id % 2) soak_do_next(r, &next);
        for (int i = 0; s->holds == SOAK_VALUES && i < s->n; i++)
            (void)soak_check(r, s->refs[i], &s->expect[i], MANTA_FOREVER);
        soak_slot_clear(s);
    }
}

/* All that the node has can be had at once: nobody holds any of it, or all give it back. */
static void check_all_is_free(const soak_run *r)
{
    char resources[32];
    manta_placement_group g;

    snprintf(resources, sizeof resources, "token=%d", r->tokens);
    manta_bundle all = {.num_cpus = r->cores, .resources = resources};
    if (manta_placement_group_new(&all, 1, MANTA_PLACEMENT_PACK, NULL, &g) ||
        manta_placement_group_wait(g, MANTA_FOREVER))
        soak_wrong("a group of all resources: %s", manta_error_text());
    manta_placement_group_remove(g);
}

/* Nobody waits, nothing is held, no object is left. Those who let go say so on their own
 * ways to the daemon, so it is asked until it is so; the program's deadline is the limit. */
static void check_nothing_waits(const soak_run *r)
{
    char address[16];
    manta_view *v;
    manta_node_info info;

    snprintf(address, sizeof address, "%d", atomic_load(&soak_shared->daemon));
    for (bool done = false; !done;) {
        /* What has come for a program is looked at while it waits for something. */
        if (!soak_is_strict && manta_node_get(&info))
            soak_wrong("the node says nothing: %s", manta_error_text());
        if (manta_view_take(address, MANTA_VIEW_ACTORS, 0, &v))
            soak_wrong("no view of the node: %s", manta_error_text());
        uint64_t actors = v->all_actors;
        done = v->waiting == 0 && v->all_objects == 0 && actors == 0 && v->store_spilled == 0;
        for (int i = 0; i < v->n_amounts; i++) done = done && v->amounts[i].used == 0;
        snprintf(soak_shared->what, sizeof soak_shared->what,
                 "at the end %llu wait, %llu objects, %llu actors, %llu bytes on disk, or resources are left",
                 (unsigned long long)v->waiting, (unsigned long long)v->all_objects,
                 (unsigned long long)actors, (unsigned long long)v->store_spilled);
        /* The program keeps a lease that it has no use for until somebody asks. */
        if (!done && v->leases > 0) check_all_is_free(r);
        manta_view_free(v);
        if (!done) usleep(2000);
    }
    soak_shared->what[0] = 0;
}

void soak_program_run(const soak_program *p, const char *folder)
{
    static soak_run r;
    const soak_op *node = &p->op[0];

    running = r.program = p;
    r.cores = node->f[SOAK_CPUS] > 0 ? (int)node->f[SOAK_CPUS] : 1;
    r.tokens = node->f[SOAK_TOKENS] > 0 ? (int)node->f[SOAK_TOKENS] : 1;
    r.actor_cores = node->f[SOAK_ACTOR_CPUS] < r.cores ? (int)node->f[SOAK_ACTOR_CPUS] : r.cores - 1;
    r.inside = node->f[SOAK_INSIDE] != 0;
    r.small_store = node->f[SOAK_STORE] > 0;
    r.few_files = node->f[SOAK_FILES] > 0;
    int files = count_files();
    if (!start_node(&r, node, folder)) {
        atomic_store(&soak_shared->refused, true);
        _exit(0);
    }
    for (int i = 1; i < p->n; i++) {
        atomic_store(&soak_shared->op, i);
        actions[p->op[i].kind](&r, &p->op[i]);
    }
    atomic_store(&soak_shared->op, p->n);
    end_slots(&r);
    free(r.holds);
    if (!r.inside) check_all_is_free(&r);
    if (!r.inside) check_nothing_waits(&r);
    manta_shutdown();
    check_maps();
    if (count_files() != files) soak_wrong("%d open files before, %d after", files, count_files());
    _exit(0);
}
