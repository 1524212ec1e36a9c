/* diary.c - see diary.h. */
#include "task/diary.h"

#include <string.h>
#include <sys/ioctl.h>

#include "os/shm.h"

typedef struct mark {
    uint64_t at[2]; /* positions of the two streams */
    char name[(DIARY_NAME + 7) / 8 * 8];
} mark;

#define NAME_WORDS ((DIARY_NAME + 7) / 8)

/* A name that changes while others read it: they look at the number before and
 * after. */
typedef struct live_name {
    _Atomic uint32_t seq; /* odd while it changes */
    _Atomic uint64_t word[NAME_WORDS];
} live_name;

struct diary {
    live_name name, label; /* of the call that runs; of what is printed */
    _Atomic uint64_t task;
    _Atomic int64_t since_ns; /* 0: nothing runs */
    _Atomic uint64_t n_calls, n_marks;
    uint64_t marked[2]; /* positions of the last mark */
    mark marks[DIARY_MARKS];
    diary_call calls[DIARY_CALLS];
};

size_t diary_size(void)
{
    return shm_round(sizeof(diary));
}

manta_status diary_open(int fd, diary **out)
{
    size_t size;
    void *at;
    TRY(shm_size(fd, &size));
    if (size != diary_size()) return manta_fail(MANTA_ECORRUPT, "a diary of %zu bytes", size);
    TRY(shm_map(fd, size, true, &at));
    if (!shm_is_sealed(fd)) TRY(shm_seal_writes(fd));
    *out = at;
    return MANTA_OK;
}

manta_status diary_map(int fd, const diary **out)
{
    size_t size;
    void *at;
    TRY(shm_size(fd, &size));
    if (size != diary_size()) return manta_fail(MANTA_ECORRUPT, "a diary of %zu bytes", size);
    TRY(shm_map(fd, size, false, &at));
    *out = at;
    return MANTA_OK;
}

void diary_close(const diary *r)
{
    shm_unmap((void *)(uintptr_t)r, diary_size());
}

/* ---- the worker ---- */

static void copy_name(char to[DIARY_NAME], const char *from)
{
    size_t n = strnlen(from, DIARY_NAME - 1);
    for (size_t i = 0; i < DIARY_NAME; i++) to[i] = i < n ? from[i] : (char)0;
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
    to[DIARY_NAME - 1] = 0;
}

static bool is_name(const live_name *have, const char *name)
{
    char text[8 * NAME_WORDS];
    copy_words(have, text);
    return !strncmp(text, name, DIARY_NAME - 1);
}

void diary_begin(diary *r, const char *name, uint64_t task, int64_t now_ns)
{
    if (!r) return;
    if (!is_name(&r->name, name)) set_name(&r->name, name);
    atomic_store_explicit(&r->task, task, memory_order_relaxed);
    atomic_store_explicit(&r->since_ns, now_ns, memory_order_release);
}

void diary_end(diary *r, const char *name, uint64_t task, int64_t begin_ns, int64_t end_ns, bool failed)
{
    if (!r) return;
    uint64_t n = atomic_load_explicit(&r->n_calls, memory_order_relaxed);
    diary_call *c = &r->calls[n % DIARY_CALLS];
    c->task = task;
    c->begin_ns = begin_ns;
    c->end_ns = end_ns;
    c->failed = failed;
    copy_name(c->name, name);
    atomic_store_explicit(&r->n_calls, n + 1, memory_order_release);
    atomic_store_explicit(&r->since_ns, 0, memory_order_release);
}

/* How far the streams are: taken out, and still in the pipes. False: the reader
 * is just taking. */
static bool positions(const output_words *w, const int pipes[2], uint64_t at[2])
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

bool diary_label(diary *r, const output_words *w, const int pipes[2], const char *label, bool give_up)
{
    uint64_t at[2];
    if (!r || is_name(&r->label, label)) return true;
    if (atomic_load_explicit(&r->label.word[0], memory_order_relaxed) && !give_up) {
        if (!positions(w, pipes, at)) return false;
        if (at[0] != r->marked[0] || at[1] != r->marked[1]) {
            uint64_t n = atomic_load_explicit(&r->n_marks, memory_order_relaxed);
            if (n - atomic_load(&w->marks) >= DIARY_MARKS) return false;
            mark *m = &r->marks[n % DIARY_MARKS];
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

static void get_name(const live_name *from, char to[DIARY_NAME])
{
    char text[8 * NAME_WORDS];
    for (int i = 0; i < 1000; i++) {
        uint32_t before = atomic_load(&from->seq);
        copy_words(from, text);
        atomic_thread_fence(memory_order_seq_cst);
        if (!(before & 1) && atomic_load(&from->seq) == before) break;
    }
    memcpy(to, text, DIARY_NAME);
}

bool diary_now(const diary *r, diary_call *out)
{
    *out = (diary_call){0};
    for (int i = 0; i < 100; i++) {
        out->begin_ns = atomic_load(&r->since_ns);
        out->task = atomic_load(&r->task);
        get_name(&r->name, out->name);
        if (atomic_load(&r->since_ns) == out->begin_ns) break;
    }
    return out->begin_ns != 0;
}

uint64_t diary_count(const diary *r)
{
    return atomic_load(&r->n_calls);
}

void diary_history(const diary *r, diary_calls *out)
{
    uint64_t n = atomic_load(&r->n_calls), first = n > DIARY_CALLS ? n - DIARY_CALLS : 0;
    size_t at = out->n;
    for (uint64_t i = first; i < n; i++) {
        diary_call c = r->calls[i % DIARY_CALLS];
        c.name[DIARY_NAME - 1] = 0;
        vec_push(out, c);
    }
    atomic_thread_fence(memory_order_seq_cst);
    /* The worker went on: what it may have written over meanwhile is left out. */
    uint64_t now = atomic_load(&r->n_calls) + 1;
    uint64_t lost = now > DIARY_CALLS && now - DIARY_CALLS > first ? now - DIARY_CALLS - first : 0;
    if (lost > n - first) lost = n - first;
    if (lost == 0) return;
    memmove(out->at + at, out->at + at + lost, (size_t)(n - first - lost) * sizeof *out->at);
    out->n -= (size_t)lost;
}

static mark mark_at(const diary *r, uint64_t i)
{
    mark m = r->marks[i % DIARY_MARKS];
    m.name[DIARY_NAME - 1] = 0;
    return m;
}

size_t diary_label_at(const diary *r, int stream, uint64_t at, size_t n, uint64_t *from,
                      char label[DIARY_NAME])
{
    for (;;) {
        uint64_t marks = atomic_load(&r->n_marks);
        if (marks - *from > DIARY_MARKS) *from = marks; /* a number that cannot be */
        for (; *from < marks; ++*from) {
            mark m = mark_at(r, *from);
            if (m.at[stream] <= at) continue;
            memcpy(label, m.name, DIARY_NAME);
            return m.at[stream] - at < n ? (size_t)(m.at[stream] - at) : n;
        }
        get_name(&r->label, label);
        /* A mark that came meanwhile was left before the label changed. */
        if (atomic_load(&r->n_marks) == marks) return n;
    }
}

uint64_t diary_marks_passed(const diary *r, uint64_t from, const uint64_t taken[2])
{
    uint64_t marks = atomic_load(&r->n_marks);
    while (from < marks && marks - from <= DIARY_MARKS) {
        mark m = mark_at(r, from);
        if (m.at[0] > taken[0] || m.at[1] > taken[1]) break;
        from++;
    }
    return from;
}
