/* worker_trace.c - see worker_trace.h. */
#include "task/worker_trace.h"

#include <string.h>
#include <sys/ioctl.h>

#include "os/shm.h"

typedef struct mark {
    uint64_t at[2]; /* positions of the two streams */
    char name[(WORKER_TRACE_NAME + 7) / 8 * 8];
} mark;

#define NAME_WORDS ((WORKER_TRACE_NAME + 7) / 8)

/* A name that changes while others read it: they look at the number before and
 * after. */
typedef struct live_name {
    _Atomic uint32_t seq; /* odd while it changes */
    _Atomic uint64_t word[NAME_WORDS];
} live_name;

struct worker_trace {
    live_name name, label; /* of the call that runs; of what is printed */
    _Atomic uint64_t task;
    _Atomic int64_t since_ns; /* 0: nothing runs */
    _Atomic uint64_t n_calls, n_marks;
    uint64_t marked[2]; /* positions of the last mark */
    mark marks[WORKER_TRACE_MARKS];
    worker_trace_call calls[WORKER_TRACE_CALLS];
};

size_t worker_trace_size(void)
{
    return shm_round(sizeof(worker_trace));
}

static manta_status map_trace(int fd, bool writable, void **out)
{
    size_t size;

    TRY(shm_size(fd, &size));
    if (size != worker_trace_size())
        return manta_fail(MANTA_ECORRUPT, "a worker's trace has %zu bytes, expected %zu", size,
                          worker_trace_size());
    return shm_map(fd, size, writable, out);
}

manta_status worker_trace_open(int fd, worker_trace **out)
{
    void *at;

    TRY(map_trace(fd, true, &at));
    if (!shm_is_sealed(fd)) TRY(shm_seal_writes(fd));
    *out = at;
    return MANTA_OK;
}

manta_status worker_trace_map(int fd, const worker_trace **out)
{
    void *at;

    TRY(map_trace(fd, false, &at));
    *out = at;
    return MANTA_OK;
}

void worker_trace_close(const worker_trace *r)
{
    shm_unmap((void *)(uintptr_t)r, worker_trace_size());
}

/* ---- the worker ---- */

static void copy_name(char to[WORKER_TRACE_NAME], const char *from)
{
    size_t n = strnlen(from, WORKER_TRACE_NAME - 1);

    for (size_t i = 0; i < WORKER_TRACE_NAME; i++) to[i] = i < n ? from[i] : (char)0;
}

static void set_name(live_name *to, const char *from)
{
    char text[8 * NAME_WORDS] = {0};

    copy_name(text, from);
    atomic_fetch_add_explicit(&to->seq, 1, memory_order_seq_cst);
    for (int i = 0; i < NAME_WORDS; i++) {
        uint64_t x;
        memcpy(&x, text + (ptrdiff_t)8 * i, 8);
        atomic_store_explicit(&to->word[i], x, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&to->seq, 1, memory_order_seq_cst);
}

/* What the words are now; by their writer they are never torn. */
static void copy_words(const live_name *from, char to[8 * NAME_WORDS])
{
    for (int i = 0; i < NAME_WORDS; i++) {
        uint64_t x = atomic_load_explicit(&from->word[i], memory_order_relaxed);
        memcpy(to + (ptrdiff_t)8 * i, &x, 8);
    }
    to[WORKER_TRACE_NAME - 1] = 0;
}

/* What people are shown of a function's name. Those of a language are called by a key of 32 digits:
 * "py.KEY.label", and its methods "py.label". */
static const char *shown_name(const char *name)
{
    if (strncmp(name, "py.", 3) != 0) return name;
    return strlen(name) > 36 && name[35] == '.' ? name + 36 : name + 3;
}

static bool is_name(const live_name *have, const char *name)
{
    char text[8 * NAME_WORDS];

    copy_words(have, text);
    return !strncmp(text, name, WORKER_TRACE_NAME - 1);
}

void worker_trace_begin(worker_trace *r, const char *name, uint64_t task, int64_t now_ns)
{
    if (!r) return;
    name = shown_name(name);
    if (!is_name(&r->name, name)) set_name(&r->name, name);
    atomic_store_explicit(&r->task, task, memory_order_relaxed);
    atomic_store_explicit(&r->since_ns, now_ns, memory_order_release);
}

void worker_trace_end(worker_trace *r, const char *name, uint64_t task, int64_t begin_ns, int64_t end_ns,
                      bool failed)
{
    if (!r) return;
    uint64_t n = atomic_load_explicit(&r->n_calls, memory_order_relaxed);
    worker_trace_call *c = &r->calls[n % WORKER_TRACE_CALLS];
    c->task = task;
    c->begin_ns = begin_ns;
    c->end_ns = end_ns;
    c->failed = failed;
    copy_name(c->name, shown_name(name));
    atomic_store_explicit(&r->n_calls, n + 1, memory_order_release);
    atomic_store_explicit(&r->since_ns, 0, memory_order_release);
}

/* How far the streams are: taken out, and still in the pipes. False: the reader
 * is just taking. */
static bool output_positions(const output_words *w, const int pipes[2], uint64_t at[2])
{
    uint32_t busy = atomic_load(&w->busy);

    if (busy & 1) return false;
    for (int i = 0; i < 2; i++) {
        int left = 0;
        if (ioctl(pipes[i], FIONREAD, &left) || left < 0) left = 0;
        at[i] = atomic_load(&w->taken[i]) + (uint64_t)left;
    }
    return atomic_load(&w->busy) == busy;
}

bool worker_trace_label(worker_trace *r, const output_words *w, const int pipes[2], const char *label,
                        bool give_up)
{
    uint64_t at[2];

    label = shown_name(label);
    if (!r || is_name(&r->label, label)) return true;
    if (atomic_load_explicit(&r->label.word[0], memory_order_relaxed) && !give_up) {
        if (!output_positions(w, pipes, at)) return false;
        if (at[0] != r->marked[0] || at[1] != r->marked[1]) {
            uint64_t n = atomic_load_explicit(&r->n_marks, memory_order_relaxed);
            if (n - atomic_load(&w->marks) >= WORKER_TRACE_MARKS) return false;
            mark *m = &r->marks[n % WORKER_TRACE_MARKS];
            memcpy(m->at, at, sizeof at);
            copy_words(&r->label, m->name);
            memcpy(r->marked, at, sizeof at);
            atomic_store(&r->n_marks, n + 1);
        }
    }
    set_name(&r->label, label);
    return true;
}

/* ---- readers ---- */

static void get_name(const live_name *from, char to[WORKER_TRACE_NAME])
{
    char text[8 * NAME_WORDS];

    for (int i = 0; i < 1000; i++) {
        uint32_t before = atomic_load(&from->seq);
        copy_words(from, text);
        atomic_thread_fence(memory_order_seq_cst);
        if (!(before & 1) && atomic_load(&from->seq) == before) break;
    }
    memcpy(to, text, WORKER_TRACE_NAME);
}

bool worker_trace_now(const worker_trace *r, worker_trace_call *out)
{
    *out = (worker_trace_call){0};
    for (int i = 0; i < 100; i++) {
        out->begin_ns = atomic_load(&r->since_ns);
        out->task = atomic_load(&r->task);
        get_name(&r->name, out->name);
        if (atomic_load(&r->since_ns) == out->begin_ns) break;
    }
    return out->begin_ns != 0;
}

uint64_t worker_trace_count(const worker_trace *r)
{
    return atomic_load(&r->n_calls);
}

void worker_trace_history(const worker_trace *r, worker_trace_calls *out)
{
    uint64_t n = atomic_load(&r->n_calls), first = n > WORKER_TRACE_CALLS ? n - WORKER_TRACE_CALLS : 0;
    size_t at = out->n;

    for (uint64_t i = first; i < n; i++) {
        worker_trace_call c = r->calls[i % WORKER_TRACE_CALLS];
        c.name[WORKER_TRACE_NAME - 1] = 0;
        vec_push(out, c);
    }
    atomic_thread_fence(memory_order_seq_cst);
    /* The worker went on: what it may have written over meanwhile is left out. */
    uint64_t now = atomic_load(&r->n_calls) + 1;
    uint64_t lost =
        now > WORKER_TRACE_CALLS && now - WORKER_TRACE_CALLS > first ? now - WORKER_TRACE_CALLS - first : 0;
    if (lost > n - first) lost = n - first;
    if (lost == 0) return;
    memmove(out->at + at, out->at + at + lost, (size_t)(n - first - lost) * sizeof *out->at);
    out->n -= (size_t)lost;
}

static mark mark_at(const worker_trace *r, uint64_t i)
{
    mark m = r->marks[i % WORKER_TRACE_MARKS];

    m.name[WORKER_TRACE_NAME - 1] = 0;
    return m;
}

size_t worker_trace_label_at(const worker_trace *r, int stream, uint64_t at, size_t n, uint64_t *from,
                             char label[WORKER_TRACE_NAME])
{
    for (;;) {
        uint64_t marks = atomic_load(&r->n_marks);
        if (marks - *from > WORKER_TRACE_MARKS) *from = marks; /* a number that cannot be */
        for (; *from < marks; ++*from) {
            mark m = mark_at(r, *from);
            if (m.at[stream] <= at) continue;
            memcpy(label, m.name, WORKER_TRACE_NAME);
            return m.at[stream] - at < n ? (size_t)(m.at[stream] - at) : n;
        }
        get_name(&r->label, label);
        /* A mark that came meanwhile was left before the label changed. */
        if (atomic_load(&r->n_marks) == marks) return n;
    }
}

uint64_t worker_trace_marks_passed(const worker_trace *r, uint64_t from, const uint64_t taken[2])
{
    uint64_t marks = atomic_load(&r->n_marks);

    while (from < marks && marks - from <= WORKER_TRACE_MARKS) {
        mark m = mark_at(r, from);
        if (m.at[0] > taken[0] || m.at[1] > taken[1]) break;
        from++;
    }
    return from;
}
