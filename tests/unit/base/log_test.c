/* log_test.c - what a record looks like, who gets it, and that none mix. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ok.h"

static int64_t fixed_ns(void)
{
    return 1700000000123456789; /* 2023-11-14 22:13:20.123456789 UTC */
}

static const clock_source fixed = {fixed_ns, fixed_ns};

typedef struct catch
{
    buf lines;
    int records;
    manta_log_level last;
}
catch;

static void sink(void *ctx, manta_log_level level, const char *line, size_t n)
{
    catch *c = ctx;

    assert_int_equal(strlen(line), n);
    buf_add(&c->lines, line, n);
    c->records++;
    c->last = level;
}

static int begin(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    unsetenv("MANTA_LOG");
    log_reset();
    return 0;
}

static int end(void **state)
{
    (void)state;
    log_reset();
    clock_replace(NULL);
    return 0;
}

static void text_is_for_people(void **state)
{
    (void)state;
    catch c = {0};
    clock_replace(&fixed);
    manta_log_set_sink(sink, &c);
    log_warn("epoch done", LOG_INT("epoch", 3), LOG_F64("loss", 0.25), LOG_STR("model", "mnist-cnn"),
             LOG_STR("note", "two words"), LOG_BOOL("best", true), LOG_STR("empty", ""),
             LOG_STR("none", NULL));
    log_error("plain");
    assert_string_equal(
        buf_text(&c.lines),
        "22:13:20.123 warn  epoch done epoch=3 loss=0.25 model=mnist-cnn note=\"two words\" best=true "
        "empty=\"\" none=\"\"\n22:13:20.123 error plain\n");
    assert_int_equal(c.last, MANTA_LOG_LEVEL_ERROR);
    buf_release(&c.lines);
}

static void json_is_for_programs(void **state)
{
    (void)state;
    catch c = {0};
    char expected[400];
    clock_replace(&fixed);
    manta_log_set_sink(sink, &c);
    manta_log_set_format(MANTA_LOG_FORMAT_JSON);
    log_error("say \"hi\"", LOG_INT("i", INT64_MIN), LOG_F64("nan", NAN), LOG_F64("inf", -INFINITY),
              LOG_F64("f", 1e-7), LOG_STR("s", "a\n\t\\\x1b\x7f\xC3\xA9\xC2\x9B"),
              LOG_STR("broken", "\xFFz\xC3"), LOG_BOOL("b", false));
    snprintf(
        expected, sizeof expected,
        "{\"time\":\"2023-11-14T22:13:20.123456Z\",\"level\":\"error\",\"pid\":%ld,\"msg\":\"say "
        "\\\"hi\\\"\","
        "\"i\":-9223372036854775808,\"nan\":\"nan\",\"inf\":\"-inf\",\"f\":1e-07,"
        "\"s\":\"a\\n\\t\\\\\\u001b\\u007f\xC3\xA9\\u009b\",\"broken\":\"\\ufffdz\\ufffd\",\"b\":false}\n",
        (long)getpid());
    assert_string_equal(buf_text(&c.lines), expected);
    buf_release(&c.lines);
}

static int evaluations;

static int counted(void)
{
    return ++evaluations;
}

static void levels_let_through_what_they_say(void **state)
{
    (void)state;
    static const struct {
        const char *env;
        int expected; /* of the four levels, how many pass */
    } cases[] = {{NULL, 2},  {"", 2},      {"debug", 4}, {"info", 3},  {"warn", 2},       {"error", 1},
                 {"off", 0}, {"infox", 2}, {"inf", 2},   {",json", 2}, {"debug,json", 4}, {"debug,xml", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        catch c = {0};
        if (cases[i].env)
            setenv("MANTA_LOG", cases[i].env, 1);
        else
            unsetenv("MANTA_LOG");
        log_reset();
        manta_log_set_sink(sink, &c);
        evaluations = 0;
        log_debug("m", LOG_INT("n", counted()));
        log_info("m", LOG_INT("n", counted()));
        log_warn("m", LOG_INT("n", counted()));
        log_error("m", LOG_INT("n", counted()));
        assert_int_equal(c.records, cases[i].expected);
        assert_int_equal(evaluations, cases[i].expected); /* a silent record costs nothing */
        bool json = cases[i].env && strstr(cases[i].env, ",json");
        if (c.records) assert_int_equal(buf_text(&c.lines)[0] == '{', json);
        buf_release(&c.lines);
    }
    /* The program's word has precedence, whichever comes first. */
    catch c = {0};
    setenv("MANTA_LOG", "debug,json", 1);
    log_reset();
    manta_log_set_level(MANTA_LOG_LEVEL_OFF);
    manta_log_set_format(MANTA_LOG_FORMAT_TEXT);
    manta_log_set_sink(sink, &c);
    log_error("m");
    assert_int_equal(c.records, 0);
    manta_log_set_level(MANTA_LOG_LEVEL_DEBUG);
    log_debug("m");
    assert_int_equal(c.records, 1);
    assert_int_not_equal(buf_text(&c.lines)[0], '{');
    buf_release(&c.lines);
}

/* What works for one run logs by that run's level, and the rest of the process as before. */
static void a_thread_has_a_level_of_its_own(void **state)
{
    catch c = {0};
    manta_log_level named;
    int level = 0;

    (void)state;
    setenv("MANTA_LOG", "error,json", 1);
    log_reset();
    manta_log_set_sink(sink, &c);
    assert_int_equal(log_level_find("debug", &level), MANTA_OK);
    assert_int_equal(log_use_level(level), -1);
    log_debug("m");
    assert_int_equal(c.records, 1);
    assert_int_equal(buf_text(&c.lines)[0], '{'); /* the environment's format stays */
    manta_log_set_level(MANTA_LOG_LEVEL_OFF); /* the process's is another's business */
    log_debug("m");
    assert_int_equal(c.records, 2);
    assert_int_equal(log_use_level(MANTA_LOG_LEVEL_OFF), MANTA_LOG_LEVEL_DEBUG);
    manta_log_set_level(MANTA_LOG_LEVEL_DEBUG);
    log_error("m");
    assert_int_equal(c.records, 2);
    assert_int_equal(log_use_level(-1), MANTA_LOG_LEVEL_OFF);
    log_debug("m");
    assert_int_equal(c.records, 3);
    assert_int_equal(log_level_find("loud", &level), MANTA_EINVAL);
    assert_int_equal(manta_log_level_named("error", &named), MANTA_OK);
    assert_int_equal(named, MANTA_LOG_LEVEL_ERROR);
    assert_int_equal(manta_log_level_named("loud", &named), MANTA_EINVAL);
    assert_int_equal(manta_log_level_named("wran", &named), MANTA_EINVAL);
    assert_error_says("did you mean warn?");
    assert_int_equal(named, MANTA_LOG_LEVEL_ERROR);
    assert_error_says("debug, info, warn, error or off");
    buf_release(&c.lines);
}

enum { THREADS = 4, EACH = 200 };

static void *chatter(void *arg)
{
    char filler[300];

    memset(filler, 'a' + *(int *)arg, sizeof filler - 1);
    filler[sizeof filler - 1] = 0;
    for (int i = 0; i < EACH; i++) log_error("m", LOG_STR("filler", filler), LOG_INT("i", i));
    return NULL;
}

static void run_chatter(void)
{
    pthread_t t[THREADS];
    int ids[THREADS];

    for (int i = 0; i < THREADS; i++) {
        ids[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, chatter, &ids[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
}

/* Every line is whole: one filler of one letter, and each thread's numbers in order. */
static void check_chatter(char *text)
{
    int next[THREADS] = {0}, lines = 0;

    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        char *filler = strstr(line, "filler=");
        assert_non_null(filler);
        filler += strlen("filler=");
        int id = filler[0] - 'a', i = -1;
        assert_true(id >= 0 && id < THREADS);
        for (int k = 0; k < 299; k++) assert_int_equal(filler[k], filler[0]);
        assert_int_equal(sscanf(filler + 299, " i=%d", &i), 1);
        assert_int_equal(i, next[id]++);
    }
    assert_int_equal(lines, THREADS * EACH);
}

static void a_sink_gets_whole_records_one_at_a_time(void **state)
{
    (void)state;
    catch c = {0};
    manta_log_set_sink(sink, &c);
    run_chatter();
    manta_log_set_sink(NULL, NULL);
    assert_int_equal(c.records, THREADS * EACH);
    check_chatter(c.lines.at);
    buf_release(&c.lines);
}

static void standard_error_gets_whole_records(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fileno(f), STDERR_FILENO) >= 0);
    run_chatter();
    errno = ENOTTY;
    log_error("m", LOG_STR("filler", "last"));
    int after = errno;
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    assert_int_equal(after, ENOTTY);
    long size = (fseek(f, 0, SEEK_END), ftell(f));
    rewind(f);
    char *text = mem_new((size_t)size + 1);
    assert_int_equal(fread(text, 1, (size_t)size, f), size);
    fclose(f);
    char *last = strstr(text, "filler=last");
    assert_non_null(last);
    while (last > text && last[-1] != '\n') last--;
    *last = 0;
    check_chatter(text);
    mem_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(text_is_for_people, begin, end),
        cmocka_unit_test_setup_teardown(json_is_for_programs, begin, end),
        cmocka_unit_test_setup_teardown(levels_let_through_what_they_say, begin, end),
        cmocka_unit_test_setup_teardown(a_thread_has_a_level_of_its_own, begin, end),
        cmocka_unit_test_setup_teardown(a_sink_gets_whole_records_one_at_a_time, begin, end),
        cmocka_unit_test_setup_teardown(standard_error_gets_whole_records, begin, end),
    };

    return cmocka_run_group_tests_name("base/log", tests, NULL, NULL);
}
