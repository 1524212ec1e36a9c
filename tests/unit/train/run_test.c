/* The folder of a run: its record when clocks jump, when numbers are none, when
 * ranks keep a pace of their own, and when the disk fails. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/mem.h"
#include "format/scratch.h"
#include "ok.h"
#include "os/fault.h"
#include "train/checkpoint/run_config.h"
#include "train/run/run_folder.h"

static manta_metrics metric(const char *name, double value)
{
    manta_metrics m = {.n = 1};

    snprintf(m.name[0], sizeof m.name[0], "%s", name);
    m.value[0] = value;
    return m;
}

static manta_run *open_run(const char *name, bool resume)
{
    manta_run *r;

    assert_ok(
        manta_run_open(&(manta_run_options){.storage = scratch_dir, .name = name, .resume = resume}, &r));
    return r;
}

static void report(manta_run *r, int64_t epoch, int64_t step, int rank, double value)
{
    manta_metrics m = metric("loss", value);

    assert_ok(manta_run_report(r, epoch, step, rank, &m));
}

/* ---- time ---- */

static int64_t wall = INT64_C(1700000000000000000), now = 1;

static int64_t fake_wall(void)
{
    return wall;
}

static int64_t fake_now(void)
{
    return now += 1000;
}

/* A clock that is set back by ten years in the middle: the record stays in the
 * order in which it was written, and the last line is the last. */
static void a_clock_that_jumps(void **state)
{
    static const clock_source fake = {fake_now, fake_wall};
    manta_run_series *s;
    manta_run_info info;
    manta_run *r;
    int n;

    (void)state;
    clock_replace(&fake);
    r = open_run("clock", false);
    report(r, 1, 1, 0, 4);
    wall -= INT64_C(315576000) * 1000000000;
    report(r, 2, 2, 0, 3);
    wall += INT64_C(315576000) * 1000000000 * 2;
    report(r, 3, 3, 0, 2);
    wall = 0;
    report(r, 4, 4, 0, 1);
    assert_ok(manta_run_finish(r, "done", NULL, NULL));
    manta_run_close(r);
    clock_replace(NULL);
    assert_ok(manta_run_read(scratch_path("clock"), &info));
    assert_string_equal(info.status, "done");
    assert_int_equal(info.epoch, 4);
    assert_true(manta_metrics_get(&info.metrics, "loss") == 1);
    assert_ok(manta_run_history(scratch_path("clock"), &s, &n));
    assert_int_equal(n, 1);
    assert_int_equal(s[0].n, 4);
    for (int i = 0; i < 4; i++) {
        const manta_run_point *p = &s[0].points[i];
        assert_true(p->epoch == i + 1 && p->value == 4 - i);
        assert_true(p->time_s >= (i ? p[-1].time_s : info.began_s));
    }
    manta_run_history_free(s, n);
    assert_int_equal(manta_run_stop(scratch_path("clock"), 1000), MANTA_ENOENT);
}

/* ---- words ---- */

/* A path that some would see cut short is none for anybody. */
static void a_path_beyond_bounds(void **state)
{
    char storage[1100];
    manta_run *r;

    (void)state;
    snprintf(storage, sizeof storage, "%s", scratch_path("deep"));
    for (size_t n = strlen(storage); n < 990; n += 10) memcpy(storage + n, "/abcdefghi", 11);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            manta_run_open(&(manta_run_options){.storage = storage, .name = i ? NULL : "12345678901"}, &r),
            MANTA_EINVAL);
        assert_error_says("expected up to 1000");
        strcat(storage, "/abcdefghi/abcdefghi"); /* the numbered one: the storage itself */
    }
    assert_int_not_equal(access(scratch_path("deep"), F_OK), 0);
}

/* What a file system calls its files may be in an error; it is not lost for that. */
static void an_error_of_any_bytes(void **state)
{
    manta_run *r = open_run("bytes", false);
    manta_run_info info;

    (void)state;
    assert_ok(manta_run_report(r, 1, 1, 0, NULL));
    assert_ok(manta_run_finish(r, "failed", NULL, "opening caf\xe9: gone"));
    manta_run_close(r);
    assert_ok(manta_run_read(scratch_path("bytes"), &info));
    assert_string_equal(info.status, "failed");
    assert_string_equal(info.error, "opening caf?: gone");
}

/* ---- numbers ---- */

static void numbers_that_are_none(void **state)
{
    static const double values[4] = {1, NAN, INFINITY, -INFINITY};
    manta_run *r = open_run("nan", false);
    manta_run_series *s;
    int n;

    (void)state;
    for (int i = 0; i < 4; i++) report(r, i + 1, i + 1, 0, values[i]);
    assert_ok(manta_run_finish(r, "done", NULL, NULL));
    manta_run_close(r);
    assert_ok(manta_run_history(scratch_path("nan"), &s, &n));
    assert_int_equal(s[0].n, 4);
    assert_true(s[0].points[0].value == 1);
    for (int i = 1; i < 4; i++) assert_true(isnan(s[0].points[i].value)); /* JSON knows no others */
    manta_run_history_free(s, n);
}

/* ---- taken up ---- */

static void add_checkpoint(manta_run *r, const char *counts, int64_t epoch)
{
    manta_note notes[2] = {{RUN_REPORTS, counts}, {RUN_WORKERS, "2"}};
    manta_checkpoint_info info = {.epoch = epoch, .n_notes = 2, .notes = notes};
    char folder[256];

    snprintf(folder, sizeof folder, "%s/part", scratch_dir);
    assert_int_equal(mkdir(folder, 0777), 0);
    assert_ok(manta_checkpoints_add(manta_run_checkpoints(r), folder, &info));
}

static int count_lines(const char *path, const char *with)
{
    char line[1000];
    FILE *f = fopen(path, "r");
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) n += strstr(line, with) != NULL;
    fclose(f);
    return n;
}

/* Rank 1 is far ahead of rank 0 and of the checkpoint; a last line is cut off. */
static void each_rank_keeps_its_own(void **state)
{
    manta_run *r = open_run("pace", false);
    char path[256];
    FILE *f;

    (void)state;
    for (int i = 1; i <= 7; i++) report(r, i, i, 1, i);
    report(r, 1, 1, 0, 1);
    report(r, 2, 2, 0, 2);
    add_checkpoint(r, "2,5", 2);
    report(r, 3, 3, 0, 3);
    manta_run_close(r); /* as if killed: no result */
    snprintf(path, sizeof path, "%s", scratch_path("pace/metrics.jsonl"));
    assert_non_null(f = fopen(path, "a"));
    fputs("{\"epoch\":4,\"st", f);
    fclose(f);
    r = open_run("pace", true);
    assert_non_null(manta_run_start(r));
    assert_int_equal(run_reports(manta_run_start(r), 0), 2);
    assert_int_equal(run_reports(manta_run_start(r), 1), 5);
    assert_int_equal(run_reports(manta_run_start(r), 2), 0);
    assert_int_equal(count_lines(path, "\"rank\":0,"), 2);
    assert_int_equal(count_lines(path, "\"rank\":1,"), 5);
    assert_int_equal(count_lines(path, ""), 7);
    report(r, 3, 3, 0, 3);
    assert_int_equal(count_lines(path, "\"rank\":0,"), 3);
    manta_run_close(r);
}

static void report_at(manta_run *r, int64_t epoch, int64_t step, int64_t at, int rank)
{
    manta_metrics m = metric("loss", (double)step);

    assert_ok(run_report(r, (run_place){epoch, step, at}, rank, &m));
}

/* What a rank reported behind the checkpoint, but of a place before it, it does not
 * report again; what is of a later place, or of none, it does. */
static void a_late_report_stays(void **state)
{
    manta_run *r = open_run("late", false);
    char path[256];

    (void)state;
    snprintf(path, sizeof path, "%s", scratch_path("late/metrics.jsonl"));
    for (int i = 1; i <= 3; i++) report_at(r, i, i, 0, 0);
    report_at(r, 2, 1, 0, 1);
    add_checkpoint(r, "3,1,1", 3);
    report_at(r, 3, 2, 0, 1); /* kept */
    report_at(r, 3, 3, 1, 1); /* a step further */
    report_at(r, 4, 4, 0, 1);
    report_at(r, 3, 4, 0, 0); /* rank 0's are counted alone */
    report(r, 1, 1, 2, 1);
    report(r, 2, 2, 2, 1); /* does not say where */
    manta_run_close(r);
    r = open_run("late", true);
    assert_int_equal(run_kept(r, 0), 3);
    assert_int_equal(run_kept(r, 1), 2);
    assert_int_equal(run_kept(r, 2), 1);
    assert_int_equal(run_kept(r, 3), 0);
    assert_int_equal(count_lines(path, ""), 3 + 2 + 1);
    manta_run_close(r);
}

/* A record of many pieces, and one line in it that is longer than any memory. */
static void a_long_record(void **state)
{
    enum { KEPT = 20000, ALL = 25000 };
    manta_run *r = open_run("long", false);
    manta_run_info info;
    char path[256];
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s", scratch_path("long/metrics.jsonl"));
    for (int i = 1; i <= ALL; i++) {
        report(r, i, i, 1, i);
        if (i == KEPT) add_checkpoint(r, "0,20000", 0);
    }
    report(r, 7, 1, 0, 7);
    manta_run_close(r);
    assert_non_null(f = fopen(path, "r+"));
    assert_int_equal(fseeko(f, (off_t)1 << 30, SEEK_END), 0);
    fputs("\n{\"epoch\":8,\"step\":2,\"rank\":0}\n", f);
    assert_int_equal(fclose(f), 0);
    assert_ok(manta_run_read(scratch_path("long"), &info));
    assert_int_equal(info.epoch, 8);
    r = open_run("long", true);
    assert_int_equal(run_kept(r, 1), KEPT);
    assert_int_equal(count_lines(path, ""), KEPT);
    assert_int_equal(count_lines(path, "\"step\":20000,"), 1);
    assert_int_equal(count_lines(path, "\"step\":1,"), 1);
    report(r, 1, 1, 0, 1);
    manta_run_close(r);
    assert_ok(manta_run_read(scratch_path("long"), &info));
    assert_int_equal(info.epoch, 1);
}

/* A line that a flipped bit has broken is left out; those behind it stay. */
static void a_damaged_line(void **state)
{
    manta_run *r = open_run("bit", false);
    char path[256];
    FILE *f;

    (void)state;
    snprintf(path, sizeof path, "%s", scratch_path("bit/metrics.jsonl"));
    for (int i = 1; i <= 4; i++) report(r, i, i, 0, i);
    add_checkpoint(r, "4,0", 4);
    manta_run_close(r);
    assert_non_null(f = fopen(path, "r+"));
    assert_int_equal(fseek(f, 120, SEEK_SET), 0); /* in the second */
    fputc('"', f);
    fclose(f);
    r = open_run("bit", true);
    assert_int_equal(count_lines(path, ""), 3);
    assert_int_equal(count_lines(path, "\"step\":4,"), 1);
    assert_int_equal(run_kept(r, 0), 4);
    manta_run_close(r);
}

/* ---- what was asked for ---- */

/* Every bit of a sealed configuration: what is read is what was sealed, or nothing
 * that would pass for it. */
static void every_bit_of_a_configuration(void **state)
{
    static const char config[] = "{\"model\": \"mlp\", \"seed\": \"7\", \"rate\": \"1e-2\", \"flag\": true}";
    char *sealed = run_config_seal(config), *back = NULL, *whole = NULL;

    (void)state;
    assert_ok(run_config_unseal("c", sealed, &whole));
    assert_null(strstr(whole, "check"));
    for (size_t bit = 0; bit < strlen(sealed) * 8; bit++) {
        sealed[bit / 8] = (char)(sealed[bit / 8] ^ (1 << bit % 8));
        if (!run_config_unseal("c", sealed, &back)) { /* the same, no JSON, or with a name nobody knows */
            json_t *o = json_loads(sealed, JSON_REJECT_DUPLICATES, NULL);
            assert_true(!strcmp(back, whole) || !strcmp(back, sealed));
            if (strcmp(back, whole) != 0) assert_null(json_object_get(o, "check"));
            json_decref(o);
            free(back);
        }
        sealed[bit / 8] = (char)(sealed[bit / 8] ^ (1 << bit % 8));
    }
    free(whole);
    mem_free(sealed);
    sealed = run_config_seal("no object");
    assert_string_equal(sealed, "no object\n");
    mem_free(sealed);
    assert_ok(run_config_unseal("c", "{}", &back)); /* of a run that kept none */
    assert_string_equal(back, "{}");
    free(back);
}

/* ---- storage that fails ---- */

/* Every system call of opening a run fails once, then all from there on: it is a
 * sentence, and the next who comes finds nothing that is in the way. */
static void a_disk_that_fails(void **state)
{
    (void)state;
    for (int sticky = 0; sticky < 2; sticky++) {
        for (int n = 1;; n++) {
            manta_run *r = NULL;
            char name[32];
            manta_status st;
            int64_t hits;
            snprintf(name, sizeof name, "fails-%d-%d", sticky, n);
            fault_begin((fault_plan){.at = n, .err = sticky ? EROFS : EIO, .sticky = sticky});
            st = manta_run_open(&(manta_run_options){.storage = scratch_dir, .name = name, .resume = true},
                                &r);
            hits = fault_end();
            if (st) {
                assert_null(r);
                assert_true(*manta_error_text());
            } else {
                report(r, 1, 1, 0, 1); /* what failed did not matter */
                assert_ok(manta_run_finish(r, "done", NULL, NULL));
            }
            manta_run_close(r);
            if (!hits) break;
            r = open_run(name, true);
            report(r, 2, 2, 0, 1);
            assert_ok(manta_run_finish(r, "done", NULL, NULL));
            manta_run_close(r);
            assert_true(n < 1000);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_clock_that_jumps),
                                       cmocka_unit_test(an_error_of_any_bytes),
                                       cmocka_unit_test(a_path_beyond_bounds),
                                       cmocka_unit_test(numbers_that_are_none),
                                       cmocka_unit_test(each_rank_keeps_its_own),
                                       cmocka_unit_test(a_late_report_stays),
                                       cmocka_unit_test(a_long_record),
                                       cmocka_unit_test(a_damaged_line),
                                       cmocka_unit_test(every_bit_of_a_configuration),
                                       cmocka_unit_test(a_disk_that_fails)};

    return cmocka_run_group_tests(tests, scratch_setup_quick, scratch_teardown);
}
