/* trace.c - timed spans in the format that Chrome's tracing and Perfetto read. */
#include "train/session/trace.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/file.h"

enum { MOST_SPANS = 1 << 20 };

typedef struct span {
    const char *name, *kind;
    bool backward;
    int64_t begin_ns, end_ns;
} span;

struct trace {
    char *path;
    VEC(span) spans;
};

trace *trace_new(const char *path)
{
    trace *t = mem_new(sizeof *t);

    t->path = mem_strdup(path);
    return t;
}

void trace_span(trace *t, const char *name, const char *kind, bool backward, int64_t begin_ns, int64_t end_ns)
{
    if (t->spans.n >= MOST_SPANS) return;
    vec_push(&t->spans, (span){name, kind, backward, begin_ns, end_ns});
}

manta_status trace_write(const trace *t)
{
    buf b = {0};
    int64_t zero = t->spans.n ? t->spans.at[0].begin_ns : 0;
    manta_status st;

    buf_add_text(&b, "{\"traceEvents\":[\n");
    for (size_t i = 0; i < t->spans.n; i++) {
        const span *x = &t->spans.at[i];
        buf_printf(
            &b,
            "%s{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f}",
            i ? ",\n" : "", x->name, x->kind, x->backward ? 2 : 1, (double)(x->begin_ns - zero) / 1e3,
            (double)(x->end_ns - x->begin_ns) / 1e3);
    }
    buf_add_text(&b, "\n],\"displayTimeUnit\":\"ms\"}\n");
    st = file_replace(t->path, b.at, b.n);
    buf_release(&b);
    return st;
}

void trace_free(trace *t)
{
    if (!t) return;
    vec_release(&t->spans);
    mem_free(t->path);
    mem_free(t);
}
