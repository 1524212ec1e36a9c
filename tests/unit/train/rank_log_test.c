/* What the processes of a run say: bounded, in parts, stamped, shown, and read back. */
#include "group_fixture.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <manta/callback.h>
#include <manta/run.h>

#include "base/buf.h"
#include "base/log.h"
#include "format/scratch.h"
#include "os/fault.h"
#include "os/file.h"
#include "train/log/rank_logs.h"

enum { SHARE = 4096, PARTS = 3 };

static const rank_log_bound small = {SHARE * PARTS, PARTS};

/* An empty RUN with a log folder; its path. */
static const char *fresh_run(void)
{
    if (!access(scratch_path("run"), F_OK)) assert_int_equal(scratch_remove(scratch_path("run")), 0);
    assert_ok(file_mkdirs(scratch_path("run/log")));
    return scratch_path("run");
}

static char *log_folder(void)
{
    static char path[200];

    snprintf(path, sizeof path, "%s/run/log", scratch_dir);
    return path;
}

/* Bytes of all files in the folder of logs. */
static uint64_t log_bytes(int *n)
{
    file_names names = {0};
    uint64_t sum = 0;

    assert_ok(file_list(log_folder(), &names));
    *n = (int)names.n;
    for (size_t i = 0; i < names.n; i++) {
        char *path = mem_printf("%s/%s", log_folder(), names.at[i]);
        file_info info;
        assert_ok(file_stat(path, &info));
        sum += info.size;
        mem_free(path);
    }
    file_names_release(&names);
    return sum;
}

static void read_more(manta_run_log_reader *in, buf *out)
{
    const char *text;
    size_t n;

    do {
        assert_ok(manta_run_log_read(in, &text, &n));
        buf_add(out, text, n);
    } while (n);
}

/* All that a rank has said, as a reader gets it. Released by the caller. */
static buf read_all(int rank)
{
    manta_run_log_reader *in;
    buf all = {0};

    assert_ok(manta_run_log_open(scratch_path("run"), "rank", rank, &in));
    read_more(in, &all);
    manta_run_log_close(in);
    return all;
}

/* The numbers behind "line " are in order, without a gap; the first and the last. */
static void check_lines(const char *text, int *first, int *last)
{
    *first = *last = -1;
    for (const char *at = text; (at = strstr(at, "line ")); at++) {
        int k = atoi(at + 5);
        if (*last >= 0 && k != *last + 1) fail_msg("line %d after %d", k, *last);
        if (*first < 0) *first = k;
        *last = k;
    }
}

static void write_line(rank_log *l, int i)
{
    char text[64];
    int n = snprintf(text, sizeof text, "line %d of a loop that never ends\n", i);

    assert_ok(rank_log_write(l, text, (size_t)n));
}

/* ---- parts ---- */

static void names_of_parts(void **state)
{
    (void)state;
    assert_int_equal(rank_log_number("rank-3.000012.txt", "rank", 3), 12);
    assert_int_equal(rank_log_number("rank-3.1234567.txt", "rank", 3), 1234567);
    for (int i = 0; i < 9; i++) {
        static const char *const none[] = {"rank-3.txt",
                                           "rank-3.9223372036854775807.txt", /* there is none behind it */
                                           "rank-31.000001.txt",
                                           "rank-3.000001.tx",
                                           "server-3.00001.txt",
                                           "rank-3.-1.txt",
                                           "rank-3. 1.txt",
                                           "rank-3.99999999999999999999.txt",
                                           ""};
        assert_int_equal(rank_log_number(none[i], "rank", 3), 0);
    }
}

static void a_log_does_not_grow_for_ever(void **state)
{
    int first, last, files;
    rank_log *l;
    buf all;

    (void)state;
    fresh_run();
    for (int opened = 0; opened < 2; opened++) { /* and goes on where it was */
        assert_ok(rank_log_open(log_folder(), "rank", 0, small, &l));
        for (int i = 0; i < 2000; i++) {
            write_line(l, opened * 2000 + i);
            assert_true(log_bytes(&files) <= SHARE * PARTS);
            assert_true(files <= PARTS);
        }
        rank_log_close(l);
    }
    assert_int_equal(files, PARTS);
    all = read_all(0);
    check_lines(buf_text(&all), &first, &last);
    assert_int_equal(last, 3999);
    assert_true(first > 3000 && last - first > SHARE * (PARTS - 1) / 40);
    assert_non_null(
        strstr(buf_text(&all), "this log is kept to 0.01172 MiB: what was said before rank-0.0000"));
    buf_release(&all);
}

/* A process that died while it cut a part has left a file; its successor removes it. */
static void what_a_death_leaves_is_swept(void **state)
{
    int files;
    rank_log *l;

    (void)state;
    fresh_run();
    assert_ok(file_replace(scratch_path("run/log/.rank-1.000001.txt.77-1.manta-tmp"), "x", 1));
    assert_ok(file_replace(scratch_path("run/log/.rank-12.000001.txt.77-1.manta-tmp"), "x", 1));
    assert_ok(rank_log_open(log_folder(), "rank", 1, small, &l));
    rank_log_close(l);
    (void)log_bytes(&files);
    assert_int_equal(files, 2); /* its own, and another rank's business */
}

static void without_a_bound_it_is_one_file(void **state)
{
    int first, last, files;
    rank_log *l;
    buf all;

    (void)state;
    fresh_run();
    assert_ok(rank_log_open(log_folder(), "rank", 0, (rank_log_bound){.parts = 4}, &l));
    for (int i = 0; i < 2000; i++) write_line(l, i);
    rank_log_close(l);
    (void)log_bytes(&files);
    assert_int_equal(files, 1);
    all = read_all(0);
    check_lines(buf_text(&all), &first, &last);
    assert_true(first == 0 && last == 1999 && all.n > 65536);
    buf_release(&all);
}

/* A reader at any pace misses nothing but what was dropped before it came there. */
static void a_reader_follows_across_parts(void **state)
{
    (void)state;
    for (int pace = 1; pace < 700; pace = pace * 2 + 1) {
        manta_run_log_reader *in;
        rank_log *l;
        int first, last;
        buf all = {0};
        const char *run = fresh_run();
        assert_int_equal(manta_run_log_open(run, "rank", 2, &in), MANTA_ENOENT);
        assert_ok(rank_log_open(log_folder(), "rank", 2, small, &l));
        assert_ok(manta_run_log_open(scratch_path("run"), "rank", 2, &in));
        for (int i = 0; i < 3000; i++) {
            write_line(l, i);
            if (i % pace == 0) read_more(in, &all);
        }
        read_more(in, &all);
        if (pace < SHARE * (PARTS - 1) / 40) {
            check_lines(buf_text(&all), &first, &last);
            assert_true(first == 0 && last == 2999);
        } else {
            assert_non_null(strstr(buf_text(&all), "line 2999 "));
            assert_non_null(strstr(buf_text(&all), "is gone\n"));
        }
        rank_log_close(l);
        manta_run_log_close(in);
        buf_release(&all);
    }
}

/* The n-th call fails, whichever it is: what was accepted is there, in its order. */
static void a_disk_that_fails(void **state)
{
    enum { LINES = 230 }; /* two parts and a bit: nothing is dropped */
    int hits = 1;

    (void)state;
    for (int n = 1; hits; n++) {
        bool accepted[LINES];
        const char *at;
        rank_log *l;
        buf all;
        fresh_run();
        assert_ok(rank_log_open(log_folder(), "rank", 0, small, &l));
        fault_begin((fault_plan){.at = n, .err = ENOSPC});
        for (int i = 0; i < LINES; i++) {
            char text[64];
            int size = snprintf(text, sizeof text, "line %d of a loop that never ends\n", i);
            accepted[i] = !rank_log_write(l, text, (size_t)size);
        }
        hits = (int)fault_end();
        rank_log_close(l);
        all = read_all(0);
        at = buf_text(&all);
        for (int i = 0; i < LINES; i++) {
            char *end;
            if (!accepted[i]) continue;
            at = strstr(at, "line ");
            assert_non_null(at);
            assert_int_equal(strtol(at + 5, &end, 10), i);
            at = end;
        }
        assert_null(strstr(at, "line "));
        buf_release(&all);
    }
}

/* ---- a process that prints ---- */

static void print_much(int lines)
{
    for (int i = 0; i < lines; i++) {
        printf("line %d of a loop that never ends\n", i);
        if (i % 500 == 499) rank_log_settle(); /* as the thread does */
    }
    fprintf(stderr, "the end\n");
    rank_log_settle();
}

static void in_a_process(void (*fn)(int), int arg, rank_log_bound bound)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (!pid) {
        rank_log_take_over(log_folder(), "rank", 0, bound);
        fn(arg);
        fflush(stdout);
        _exit(0);
    }
    assert_true(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
}

static void what_a_process_prints_is_bounded(void **state)
{
    long last = -1;
    int files;
    buf all;

    (void)state;
    fresh_run();
    in_a_process(print_much, 3000, small);
    assert_true(log_bytes(&files) <= SHARE * PARTS + 200);
    assert_true(files > 1 && files <= PARTS);
    all = read_all(0);
    for (const char *at = buf_text(&all); (at = strstr(at, "\nline ")); at++) {
        assert_true(strtol(at + 6, NULL, 10) > last);
        last = strtol(at + 6, NULL, 10);
    }
    assert_int_equal(last, 2999);
    assert_non_null(strstr(buf_text(&all), "the end\n"));
    assert_non_null(strstr(buf_text(&all), "bytes were said here faster than they could be kept\n"));
    buf_release(&all);
}

/* The thread alone bounds it: it is waited for by what it does, first a name for
 * the part, then a stream that is the new file. */
static void print_until_turned(int lines)
{
    char *part = rank_log_part(log_folder(), "rank", 0, 1), *path = rank_log_path(log_folder(), "rank", 0);
    struct stat stream, file;

    (void)lines;
    for (int i = 0; access(part, F_OK); i++) printf("line %d\n", i);
    while (stat(path, &file) || fstat(STDOUT_FILENO, &stream) || file.st_ino != stream.st_ino) sched_yield();
    printf("in the next\n");
    mem_free(part);
    mem_free(path);
}

static void a_thread_watches(void **state)
{
    int files;
    char *path = rank_log_path(log_folder(), "rank", 0);
    void *text;
    size_t n;

    (void)state;
    fresh_run();
    in_a_process(print_until_turned, 0, small);
    (void)log_bytes(&files);
    assert_true(files >= 2);
    assert_ok(file_read(path, 1 << 30, &text, &n));
    assert_non_null(strstr(text, "in the next\n"));
    mem_try_free(text);
    mem_free(path);
}

/* What the program itself has put in place of a stream stays. */
static void print_elsewhere(int lines)
{
    FILE *f = freopen(scratch_path("elsewhere"), "w", stdout);

    assert_non_null(f);
    for (int i = 0; i < lines; i++) fprintf(stderr, "line %d of a loop that never ends\n", i);
    rank_log_settle();
    printf("mine\n");
}

static void a_stream_of_the_programs_own(void **state)
{
    void *text;
    size_t n;

    (void)state;
    fresh_run();
    in_a_process(print_elsewhere, 1000, small);
    assert_ok(file_read(scratch_path("elsewhere"), 100, &text, &n));
    assert_string_equal(text, "mine\n");
    mem_try_free(text);
}

/* ---- through the driver ---- */

/* Starts a process of rank 0 that says what `fn` says, and waits for its end. */
static void speak_as(rank_logs *l, void (*fn)(void))
{
    rank_log_task t;
    pid_t pid;
    int status;

    assert_ok(rank_logs_expect(l, "rank", 0, &t));
    pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        rank_logs_follow(log_folder(), &t, "rank", 0);
        fn();
        fflush(stdout);
        _exit(0);
    }
    assert_true(waitpid(pid, &status, 0) == pid);
}

static void two_lines(void)
{
    printf("on standard output\n");
    fprintf(stderr, "on standard error\n\n");
}

static void dies_within_a_line(void)
{
    fprintf(stderr, "cut off");
    raise(SIGKILL);
}

static void logs_loudly(void)
{
    log_debug("a debug record");
    log_warn("a warning");
}

static rank_logs *new_logs(manta_logging_config c)
{
    rank_logs *l;

    fresh_run();
    assert_ok(rank_logs_new(log_folder(), &c, &l));
    return l;
}

static char *said(void)
{
    char *path = rank_log_path(log_folder(), "rank", 0);
    void *text = NULL;
    size_t n;
    manta_status st = file_read(path, 1 << 20, &text, &n);

    assert_true(st == MANTA_OK || st == MANTA_ENOENT);
    mem_free(path);
    return text;
}

/* What follows the time that a line begins with; NULL: it begins with none. */
static const char *after_time(const char *line)
{
    struct tm tm;
    const char *at = strptime(line, "%Y-%m-%dT%H:%M:%S", &tm);
    int n = 0;

    return at && sscanf(at, ".%*3[0-9]Z%n", &n) == 0 && n == 5 ? at + n : NULL;
}

static void lines_are_stamped(void **state)
{
    rank_logs *l = new_logs((manta_logging_config){.stamp = true});
    char *text, *line;
    int n = 0;

    (void)state;
    speak_as(l, two_lines);
    speak_as(l, dies_within_a_line);
    assert_ok(rank_logs_add(l, "rank", 0, "it died,\nand so on"));
    speak_as(l, two_lines);
    rank_logs_free(l);
    text = said();
    for (char *at = text; (line = strsep(&at, "\n")) && *line; n++) {
        static const char *const lines[] = {
            "on standard output", "on standard error", "", "cut off", "it died, and so on",
            "on standard output", "on standard error", ""};
        char *bar = strstr(line, " rank 0 | ");
        assert_in_range(n, 0, 7);
        assert_true(bar && bar == after_time(line));
        assert_string_equal(bar + 10, lines[n]);
    }
    assert_int_equal(n, 8);
    mem_try_free(text);
}

/* What comes out of our standard error while fn() runs. Owned by the caller. */
static char *shown_by(manta_logging_config c, void (*fn)(void))
{
    FILE *f = tmpfile();
    int saved = dup(STDERR_FILENO);
    rank_logs *l = new_logs(c);
    char *text = calloc(1, 1 << 16);
    size_t n;

    assert_true(f && saved >= 0 && text && dup2(fileno(f), STDERR_FILENO) >= 0);
    speak_as(l, fn);
    rank_logs_free(l);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(f);
    n = fread(text, 1, (1 << 16) - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void lines_are_shown(void **state)
{
    char *shown, *kept;

    (void)state;
    shown = shown_by((manta_logging_config){.to = MANTA_LOG_TO_BOTH}, two_lines);
    kept = said();
    assert_string_equal(shown, "rank 0 | on standard output\nrank 0 | on standard error\nrank 0 | \n");
    assert_string_equal(kept, "on standard output\non standard error\n\n");
    free(shown);
    mem_try_free(kept);
    shown = shown_by((manta_logging_config){.to = MANTA_LOG_TO_OUTPUT, .stamp = true}, two_lines);
    kept = said();
    assert_null(kept);
    assert_ptr_equal(after_time(shown), strstr(shown, " rank 0 | on standard output\n"));
    free(shown);
    shown = shown_by((manta_logging_config){0}, two_lines);
    kept = said();
    assert_string_equal(shown, "");
    assert_string_equal(kept, "on standard output\non standard error\n\n");
    free(shown);
    mem_try_free(kept);
}

static void a_pipe_is_bounded_to_the_byte(void **state)
{
    rank_logs *l = new_logs((manta_logging_config){.stamp = true, .max_size = SHARE * PARTS, .parts = PARTS});
    int first, last, files;
    rank_log_task t;
    buf all;

    (void)state;
    assert_ok(rank_logs_expect(l, "rank", 0, &t));
    for (int i = 0; i < 2000; i++) dprintf(t.pipe, "line %d of a loop that never ends\n", i);
    rank_logs_settle(l);
    rank_logs_free(l);
    assert_true(log_bytes(&files) <= SHARE * PARTS);
    assert_int_equal(files, PARTS);
    all = read_all(0);
    check_lines(buf_text(&all), &first, &last);
    assert_true(first > 0 && last == 1999);
    buf_release(&all);
}

static void a_line_without_an_end_is_cut(void **state)
{
    rank_logs *l = new_logs((manta_logging_config){.stamp = true});
    rank_log_task t;
    char *text, much[1000];

    (void)state;
    memset(much, 'x', sizeof much);
    assert_ok(rank_logs_expect(l, "rank", 0, &t));
    for (int i = 0; i < 300; i++) assert_int_equal(write(t.pipe, much, sizeof much), sizeof much);
    rank_logs_free(l);
    text = said();
    assert_true(strlen(text) > 300000 && strlen(text) < 300400);
    mem_try_free(text);
}

static void every_run_has_a_level(void **state)
{
    static const struct {
        const char *level;
        bool debug, warning;
    } cases[] = {{NULL, false, true}, {"debug", true, true}, {"error", false, false}, {"off", false, false}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int stamp = 0; stamp < 2; stamp++) {
            rank_logs *l = new_logs((manta_logging_config){.level = cases[i].level, .stamp = stamp});
            char *text;
            speak_as(l, logs_loudly);
            rank_logs_free(l);
            text = said();
            assert_true((text && strstr(text, "a debug record")) == cases[i].debug);
            assert_true((text && strstr(text, "a warning")) == cases[i].warning);
            assert_false(log_enabled(MANTA_LOG_LEVEL_INFO)); /* ours is as it was */
            mem_try_free(text);
        }
    }
}

static void what_cannot_be(void **state)
{
    static const struct {
        manta_logging_config c;
        const char *why;
    } cases[] = {{{.level = "loud"}, "no log level is called \"loud\""},
                 {{.to = (manta_log_to)3}, "expected file, output or both"},
                 {{.parts = 1}, "in 1 parts, expected 2 to"},
                 {{.max_size = -3}, "max_size of a log is -3, expected 0 or more, or MANTA_NONE"},
                 {{.max_size = 10000, .parts = 4}, "expected 4096 bytes a part or more"}};
    manta_run *r;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(
            manta_run_open(
                &(manta_run_options){.storage = scratch_dir, .name = "never", .logging = cases[i].c}, &r),
            MANTA_EINVAL);
        assert_error_says(cases[i].why);
    }
    assert_int_not_equal(access(scratch_path("never"), F_OK), 0);
}

/* ---- a fit ---- */

static manta_status speak(manta_sample *s, void *user)
{
    static _Atomic int said_it;

    for (int i = 0; i < 2; i++)
        memcpy(s->out[i].array.data, s->in[i].array.data, i ? sizeof(int64_t) : SIDE * SIDE * sizeof(float));
    if (getpid() == *(pid_t *)user || atomic_exchange(&said_it, 1)) return MANTA_OK;
    printf("said by a worker\n");
    log_debug("recorded by a worker");
    return MANTA_OK;
}

/* Two workers of a run whose level, stamp and place are its own. */
static void a_fit_follows_its_run(void **state)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    pid_t self = getpid();
    manta_model *m = residual_model((manta_regularizer){0});
    manta_dataset *d = manta_dataset_map(dataset(), speak, &self, 1, 0, NULL);
    manta_callback *c;
    manta_optimizer opt;
    manta_session *s;
    manta_run *r;

    (void)state;
    if (!access(scratch_path("run"), F_OK)) assert_int_equal(scratch_remove(scratch_path("run")), 0);
    assert_ok(manta_optimizer_named("sgd", &opt));
    assert_ok(manta_run_open(&(manta_run_options){.storage = scratch_dir,
                                                  .name = "run",
                                                  .logging = {.level = "debug", .stamp = true}},
                             &r));
    c = manta_run_recorder(r, NULL);
    assert_ok(manta_session_open(m,
                                 &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &cross_entropy},
                                 &(manta_session_options){.seed = 42, .workers = 2, .threads = 1}, &s));
    assert_ok(manta_fit(
        s, d, &(manta_fit_options){.epochs = 1, .global_batch = 32, .n_callbacks = 1, .callbacks = &c},
        NULL));
    assert_int_equal(log_own_level(), -1);
    for (int rank = 0; rank < 2; rank++) { /* all is there when the fit has returned */
        buf all = read_all(rank);
        char bar[32];
        snprintf(bar, sizeof bar, " rank %d | said by a worker\n", rank);
        assert_non_null(strstr(buf_text(&all), bar));
        assert_non_null(strstr(buf_text(&all), "recorded by a worker"));
        buf_release(&all);
    }
    assert_ok(manta_run_finish(r, "done", NULL, NULL));
    manta_callback_free(c);
    manta_run_close(r);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
}

static int setup(void **state)
{
    make_data();
    unsetenv("MANTA_LOG");
    return scratch_setup_quick(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_parts),
        cmocka_unit_test(a_log_does_not_grow_for_ever),
        cmocka_unit_test(what_a_death_leaves_is_swept),
        cmocka_unit_test(without_a_bound_it_is_one_file),
        cmocka_unit_test(a_reader_follows_across_parts),
        cmocka_unit_test(a_disk_that_fails),
        cmocka_unit_test(what_a_process_prints_is_bounded),
        cmocka_unit_test(a_thread_watches),
        cmocka_unit_test(a_stream_of_the_programs_own),
        cmocka_unit_test(lines_are_stamped),
        cmocka_unit_test(lines_are_shown),
        cmocka_unit_test(a_pipe_is_bounded_to_the_byte),
        cmocka_unit_test(a_line_without_an_end_is_cut),
        cmocka_unit_test(every_run_has_a_level),
        cmocka_unit_test(what_cannot_be),
        cmocka_unit_test(a_fit_follows_its_run),
    };

    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
