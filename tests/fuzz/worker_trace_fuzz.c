/* worker_trace_fuzz.c - a worker's trace as those see it who look at a worker: memory that another
 * process writes, whatever it likes. An input is a row of patches: how long (one
 * byte), where (two bytes, in eights), and the bytes. After each, everything that
 * can be read is read, as output.c and node_query.c do. */
#include <unistd.h>

#include "fuzz.h"
#include "os/shm.h"
#include "os/socket.h"
#include "task/worker_trace.h"

static void must_end(const char name[WORKER_TRACE_NAME])
{
    if (strnlen(name, WORKER_TRACE_NAME) == WORKER_TRACE_NAME) abort();
}

/* What output.c knows of the two streams of a worker. */
typedef struct reader {
    uint64_t taken[2], mark[2], marks;
} reader;

static void read_labels(const worker_trace *d, reader *x, int stream, size_t n)
{
    char label[WORKER_TRACE_NAME];

    if (x->mark[stream] < x->marks) x->mark[stream] = x->marks;
    for (size_t done = 0; done < n;) {
        size_t part = worker_trace_label_at(d, stream, x->taken[stream], n - done, &x->mark[stream], label);
        if (part == 0 || part > n - done) abort();
        must_end(label);
        done += part;
        x->taken[stream] += part;
    }
    x->marks = worker_trace_marks_passed(d, x->marks, x->taken);
}

static void read_calls(const worker_trace *d)
{
    worker_trace_call now;
    worker_trace_calls calls = {0};

    (void)worker_trace_now(d, &now);
    must_end(now.name);
    worker_trace_history(d, &calls);
    if (calls.n > WORKER_TRACE_CALLS || calls.n > worker_trace_count(d)) abort();
    for (size_t i = 0; i < calls.n; i++) must_end(calls.at[i].name);
    vec_release(&calls);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    int fd;
    void *at;
    const worker_trace *d;
    reader x = {0};

    if (shm_new("fuzz", worker_trace_size(), &fd) || shm_map(fd, worker_trace_size(), true, &at) ||
        worker_trace_map(fd, &d))
        abort();
    while (size > 3) {
        size_t n = data[0], offset = (data[1] | (size_t)data[2] << 8) * 8;
        data += 3;
        size -= 3;
        if (n > size) n = size;
        if (offset > worker_trace_size() - n) offset = worker_trace_size() - n;
        memcpy((char *)at + offset, data, n);
        data += n;
        size -= n;
        read_calls(d);
        read_labels(d, &x, (int)(n & 1), 1 + n * 100);
    }
    worker_trace_close(d);
    shm_unmap(at, worker_trace_size());
    socket_close_all(&fd, 1);
    fuzz_balance(live);
    return 0;
}
