/* failure.c - see failure.h. */
#include "task/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "task/incoming.h"
#include "task/limits.h"

/* ---- counting ---- */

static failure *failure_new(manta_failure_kind kind, manta_status code)
{
    failure *f = mem_new(sizeof *f);

    atomic_init(&f->refs, 1);
    f->is.kind = kind;
    f->is.code = code;
    return f;
}

failure *failure_ref(failure *f)
{
    if (f) atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void failure_let_go(failure *f)
{
    if (atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) > 1) return;
    payload_unref(f->payload);
    mem_free(f);
}

void failure_told_free(failure_told *t)
{
    failure_unref(t->f);
    mem_free(t);
}

/* ---- making ---- */

static void set_place(manta_failure *f, const char *name, int pid)
{
    snprintf(f->function, sizeof f->function, "%s", name ? name : "");
    snprintf(f->chain, sizeof f->chain, "%s", f->function);
    if (gethostname(f->host, sizeof f->host - 1)) f->host[0] = 0;
    f->pid = pid;
}

failure *failure_make(manta_failure_kind kind, manta_status code, const char *name, int pid, const char *fmt,
                      ...)
{
    failure *f = failure_new(kind, code);
    va_list ap;

    set_place(&f->is, name, pid);
    va_start(ap, fmt);
    vsnprintf(f->is.text, sizeof f->is.text, fmt, ap);
    va_end(ap);
    return f;
}

failure *failure_memory(const char *name, int pid, const proto_memory *m)
{
    const double mib = 1024 * 1024;
    const char *while_it = name ? " while it ran " : "", *what = name ? name : "";

    if (m->why == LIMITS_OWN)
        return failure_make(MANTA_FAILURE_MEMORY, MANTA_ENOMEM, name, pid,
                            "process %d was ended%s%s: it had %.1f MiB of memory, and its limit is %.1f MiB",
                            pid, while_it, what, (double)m->used / mib, (double)m->limit / mib);
    return failure_make(MANTA_FAILURE_MEMORY, MANTA_ENOMEM, name, pid,
                        "process %d was ended%s%s: the machine had %.1f MiB of memory left, and it had most, "
                        "%.1f MiB",
                        pid, while_it, what, (double)m->limit / mib, (double)m->used / mib);
}

failure *failure_as(const failure *f, manta_failure_kind kind, manta_status code)
{
    failure *x = failure_new(kind, code);

    x->is = f->is;
    x->payload = payload_ref(f->payload);
    x->is.kind = kind;
    x->is.code = code;
    return x;
}

/* `name` called what failed: its name goes in front. What is too long keeps
 * both ends. */
static void chain_add(manta_failure *f, const char *name)
{
    char chain[sizeof f->chain];
    int n = snprintf(chain, sizeof chain, "%s > %s", name, f->chain);

    if (n >= (int)sizeof chain) {
        const char *last = strrchr(f->chain, '>');
        snprintf(chain, sizeof chain, "%.60s > ... > %.60s", name, last ? last + 2 : f->chain);
    }
    memcpy(f->chain, chain, sizeof chain);
}

failure *failure_here(manta_failure_kind kind, manta_status code, const char *name)
{
    const failure_told *told = rt_current ? rt_current->told : NULL;

    /* The function passes on what a call of its own told it. */
    if (kind == MANTA_FAILURE_TASK && told && told->f->is.code == code && told->f->is.chain[0] &&
        !strcmp(told->said, manta_error_text())) {
        failure *f = failure_as(told->f, kind, code);
        chain_add(&f->is, name);
        return f;
    }
    return failure_make(kind, code, name, (int)getpid(), "%s", manta_error_text());
}

manta_status failure_raise(failure *f)
{
    if (f->is.kind == MANTA_FAILURE_TASK)
        (void)!manta_fail(f->is.code, "%s (in %s, process %d on %s)", f->is.text, f->is.chain, f->is.pid,
                          f->is.host);
    else
        (void)!manta_fail(f->is.code, "%s", f->is.text);
    if (!rt_current) return f->is.code;
    if (!rt_current->told) rt_current->told = mem_new(sizeof *rt_current->told);
    failure_told *told = rt_current->told;
    failure_ref(f); /* before the other goes: it may be the same */
    failure_unref(told->f);
    told->f = f;
    snprintf(told->said, sizeof told->said, "%s", manta_error_text());
    return f->is.code;
}

/* ---- in messages ---- */

void failure_put(buf *b, const failure *f)
{
    failure_put_held(b, f, false);
}

void failure_put_held(buf *b, const failure *f, bool held)
{
    wire_put_u32(b, (uint32_t)f->is.kind);
    wire_put_u32(b, (uint32_t)f->is.code);
    wire_put_u32(b, (uint32_t)f->is.pid);
    wire_put_text(b, f->is.function);
    wire_put_text(b, f->is.host);
    wire_put_text(b, f->is.chain);
    wire_put_text(b, f->is.text);
    payload_put(b, f->payload, held);
}

size_t failure_length(const failure *f)
{
    const manta_failure *is = &f->is;

    return 48 + strlen(is->function) + strlen(is->host) + strlen(is->chain) + strlen(is->text) +
           payload_length(f->payload);
}

failure *failure_take(wire *w)
{
    failure *f = failure_new((manta_failure_kind)wire_u32(w), MANTA_OK);
    manta_failure *is = &f->is;

    is->code = (manta_status)wire_u32(w);
    is->pid = (int)wire_u32(w);
    wire_text(w, is->function, sizeof is->function);
    wire_text(w, is->host, sizeof is->host);
    wire_text(w, is->chain, sizeof is->chain);
    wire_text(w, is->text, sizeof is->text);
    f->payload = payload_take(w);
    if ((unsigned)is->code > MANTA_EINTERRUPTED || is->code == MANTA_OK) is->code = MANTA_EINTERNAL;
    if (is->kind == MANTA_FAILURE_NONE || (unsigned)is->kind > MANTA_FAILURE_PLACEMENT_GROUP)
        is->kind = MANTA_FAILURE_TASK;
    return f;
}

failure *failure_adopt(failure *f)
{
    if (payload_adopt(f->payload)) return f;
    payload_unref(f->payload);
    f->payload = NULL;
    return f;
}
