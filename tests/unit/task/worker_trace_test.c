/* worker_trace_test.c - what a worker does, seen by a reader that runs beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/shm.h"
#include "os/thread.h"
#include "task/worker_trace.h"

#define TURNS 2000

typedef struct pair {
    worker_trace *writer;
    const worker_trace *reader;
    output_words words;
    int out[2], err[2], write_ends[2];
} pair;

static void pair_open(pair *p)
{
    int fd;

    memset(p, 0, sizeof *p);
    assert_int_equal(shm_new("test-trace", worker_trace_size(), &fd), MANTA_OK);
    assert_int_equal(worker_trace_open(fd, &p->writer), MANTA_OK);
    assert_int_equal(worker_trace_map(fd, &p->reader), MANTA_OK);
    close(fd);
    assert_int_equal(pipe2(p->out, O_NONBLOCK), 0);
    assert_int_equal(pipe2(p->err, 0), 0);
    p->write_ends[0] = p->out[1];
    p->write_ends[1] = p->err[1];
}

static void pair_close(pair *p)
{
    worker_trace_close(p->reader);
    worker_trace_close(p->writer);
    int fds[4] = {p->out[0], p->out[1], p->err[0], p->err[1]};
    for (int i = 0; i < 4; i++) close(fds[i]);
}

/* ---- the ring of calls ---- */

static void the_last_calls_are_kept(void **state)
{
    pair p;
    worker_trace_calls calls = {0};
    worker_trace_call now;
    (void)state;

    pair_open(&p);
    worker_trace_history(p.reader, &calls);
    assert_int_equal(calls.n, 0);
    assert_false(worker_trace_now(p.reader, &now));
    for (int i = 0; i < 3000; i++) {
        worker_trace_begin(p.writer, i % 2 ? "odd" : "even", (uint64_t)i + 1, 10 * i + 1);
        assert_true(worker_trace_now(p.reader, &now));
        assert_string_equal(now.name, i % 2 ? "odd" : "even");
        worker_trace_end(p.writer, i % 2 ? "odd" : "even", (uint64_t)i + 1, 10 * i + 1, 10 * i + 5,
                         i % 3 == 0);
        assert_false(worker_trace_now(p.reader, &now));
    }
    assert_int_equal(worker_trace_count(p.reader), 3000);
    worker_trace_history(p.reader, &calls);
    assert_true(calls.n >= WORKER_TRACE_CALLS - 1); /* one is given up: the worker may be writing it */
    for (size_t i = 0; i < calls.n; i++) {
        uint64_t task = 3000 - calls.n + i + 1;
        assert_int_equal(calls.at[i].task, task);
        assert_string_equal(calls.at[i].name, task % 2 ? "even" : "odd");
        assert_int_equal(calls.at[i].end_ns - calls.at[i].begin_ns, 4);
        assert_int_equal(calls.at[i].failed, (task - 1) % 3 == 0);
    }
    vec_release(&calls);
    pair_close(&p);
}

static void long_names_are_cut(void **state)
{
    pair p;
    worker_trace_call now;
    (void)state;

    pair_open(&p);
    worker_trace_begin(p.writer, "a_function_with_a_name_that_is_longer_than_what_is_kept", 1, 1);
    assert_true(worker_trace_now(p.reader, &now));
    assert_int_equal(strlen(now.name), WORKER_TRACE_NAME - 1);
    pair_close(&p);
}

static void functions_of_a_language_are_shown_by_their_label(void **state)
{
    static const char *const names[][2] = {
        {"py.0123456789abcdef0123456789abcdef.average", "average"},
        {"py.add", "add"},
        {"py.", ""},
        {"py.0123456789abcdef0123456789abcdef.", "0123456789abcdef0123456789abcdef"},
        {"python", "python"}};
    pair p;
    worker_trace_call now;
    char label[WORKER_TRACE_NAME];
    uint64_t mark = 0;
    (void)state;

    pair_open(&p);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        worker_trace_begin(p.writer, names[i][0], i + 1, 1);
        assert_true(worker_trace_now(p.reader, &now));
        assert_memory_equal(now.name, names[i][1], strnlen(names[i][1], WORKER_TRACE_NAME - 1));
        worker_trace_end(p.writer, names[i][0], i + 1, 1, 2, false);
    }
    assert_true(worker_trace_label(p.writer, &p.words, p.write_ends, names[0][0], false));
    assert_int_equal(worker_trace_label_at(p.reader, 0, 0, 1, &mark, label), 1);
    assert_string_equal(label, "average");
    pair_close(&p);
}

static void nothing_happens_without_a_trace(void **state)
{
    (void)state;
    worker_trace_begin(NULL, "f", 1, 1);
    worker_trace_end(NULL, "f", 1, 1, 2, false);
    assert_true(worker_trace_label(NULL, NULL, NULL, "f", false));
}

/* ---- labels ---- */

/* Prints lines that name their own label, in turns of different length; some
 * turns print nothing. */
static void print_turns(void *arg)
{
    pair *p = arg;
    char line[64];

    for (int i = 0; i < TURNS; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i % 7);
        while (!worker_trace_label(p->writer, &p->words, p->write_ends, name, false)) sched_yield();
        for (int k = 0; k < i % 4; k++) {
            int n = snprintf(line, sizeof line, "%s\n", name);
            ssize_t done = 0;
            while (done < n) {
                ssize_t got = write(p->out[1], line + done, (size_t)(n - done));
                if (got > 0) done += got;
                if (got < 0) sched_yield();
            }
        }
    }
    close(p->out[1]);
    p->out[1] = -1;
}

/* What output.c does, without showing anything. */
static void every_byte_has_its_label(void **state)
{
    pair p;
    thread_id id;
    uint64_t taken[2] = {0}, mark = 0, marks = 0;
    char chunk[1000], line[64];
    size_t in_line = 0, lines = 0;
    (void)state;

    pair_open(&p);
    assert_int_equal(thread_start(&id, "printer", print_turns, &p), MANTA_OK);
    for (;;) {
        struct pollfd wait = {.fd = p.out[0], .events = POLLIN};
        assert_int_equal(poll(&wait, 1, -1), 1); /* a reader is busy only while there is something */
        atomic_fetch_add(&p.words.busy, 1);
        ssize_t n = read(p.out[0], chunk, sizeof chunk);
        if (n > 0) atomic_store(&p.words.taken[0], taken[0] + (uint64_t)n);
        atomic_fetch_add(&p.words.busy, 1);
        if (n == 0) break;
        if (n < 0) continue;
        if (mark < marks) mark = marks; /* those are the worker's to write over */
        for (ssize_t done = 0; done < n;) {
            char label[WORKER_TRACE_NAME];
            size_t part = worker_trace_label_at(p.reader, 0, taken[0], (size_t)(n - done), &mark, label);
            for (size_t i = 0; i < part; i++) {
                char c = chunk[done + (ssize_t)i];
                if (c != '\n') {
                    line[in_line++] = c;
                    continue;
                }
                line[in_line] = 0;
                assert_string_equal(line, label);
                in_line = 0;
                lines++;
            }
            done += (ssize_t)part;
            taken[0] += part;
        }
        marks = worker_trace_marks_passed(p.reader, marks, taken);
        atomic_store(&p.words.marks, marks);
    }
    thread_join(&id);
    size_t expected = 0;
    for (int i = 0; i < TURNS; i++) expected += (size_t)(i % 4);
    assert_int_equal(lines, expected);
    pair_close(&p);
}

/* A reader that is far behind makes the writer wait, or give up on the names. */
static void a_reader_that_does_not_come(void **state)
{
    pair p;
    char name[16];
    int i = 0;
    (void)state;

    pair_open(&p);
    for (; i < 100; i++) {
        snprintf(name, sizeof name, "f%d", i);
        if (!worker_trace_label(p.writer, &p.words, p.write_ends, name, false)) break;
        assert_int_equal(write(p.out[1], "x", 1), 1);
    }
    assert_int_equal(i, WORKER_TRACE_MARKS + 1);
    assert_true(worker_trace_label(p.writer, &p.words, p.write_ends, name, true));
    pair_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_calls_are_kept),
        cmocka_unit_test(long_names_are_cut),
        cmocka_unit_test(nothing_happens_without_a_trace),
        cmocka_unit_test(every_byte_has_its_label),
        cmocka_unit_test(a_reader_that_does_not_come),
        cmocka_unit_test(functions_of_a_language_are_shown_by_their_label),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
