/* events_test.c - event files: the bytes that TensorBoard documents, the files
 * that TensorFlow, Keras and PyTorch wrote, restarts, kills and full disks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <manta/events.h>
#include <manta/layer.h>

#include "base/clock.h"
#include "base/mem.h"
#include "format/codec/input.h"
#include "format/codec/proto.h"
#include "format/codec/record.h"
#include "format/image/picture.h"
#include "format/tensorboard/events.h"
#include "ok.h"
#include "os/fault.h"
#include "scratch.h"

#define GOLDEN MANTA_SOURCE_DIR "/tests/golden/files/tensorboard/"

static int64_t wall = 1000000000; /* 1 s */

static int64_t fixed_wall(void)
{
    return wall;
}

static int64_t fixed_now(void)
{
    return 0;
}

static const clock_source fixed = {.now_ns = fixed_now, .wall_ns = fixed_wall};

static const manta_events_tag *find(const manta_events_log *l, const char *name)
{
    static manta_events_tag t;

    for (int i = 0; i < manta_events_tags(l); i++) {
        t = manta_events_tag_at(l, i);
        if (!strcmp(t.name, name)) return &t;
    }
    return NULL;
}

/* ---- bytes ----------------------------------------------------------------------------- */

static void records_have_tensorboards_bytes(void **state)
{
    (void)state;
    static const char expected[] =
        "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a"
        "1a00000000000000129bd82d09000000000000f03f10032a0d0a0b0a046c6f7373150000003f7fb84377";
    const char *folder = scratch_path("vectors");
    manta_events *e = NULL;
    input in = {0};
    char hex[400] = "";

    clock_replace(&fixed);
    assert_int_equal(manta_events_open(folder, NULL, &e), MANTA_OK);
    assert_int_equal(manta_events_scalar(e, "loss", 3, 0.5), MANTA_OK);
    clock_replace(NULL);
    assert_int_equal(input_read(manta_events_path(e), &in), MANTA_OK);
    for (size_t i = 0; i < in.size; i++) snprintf(hex + 2 * i, 3, "%02x", in.data[i]);
    assert_string_equal(hex, expected);
    input_release(&in);
    manta_events_close(e);
}

/* The tensor form of a scalar, which TensorFlow 2 writes. */
static void a_scalar_in_tensor_form_is_read(void **state)
{
    (void)state;
    static const uint8_t record[] = {
        0x2e, 0,    0,    0,    0,    0,    0,    0,    0xc5, 0xcb, 0x57, 0xfa, 0x09, 0,    0,    0,
        0,    0,    0,    0xf0, 0x3f, 0x10, 0x03, 0x2a, 0x21, 0x0a, 0x1f, 0x0a, 0x04, 0x6c, 0x6f, 0x73,
        0x73, 0x42, 0x0a, 0x08, 0x01, 0x12, 0x00, 0x22, 0x04, 0x00, 0x00, 0x00, 0x3f, 0x4a, 0x0b, 0x0a,
        0x09, 0x0a, 0x07, 0x73, 0x63, 0x61, 0x6c, 0x61, 0x72, 0x73, 0xd2, 0xb9, 0x30, 0x24};
    manta_events_log *l = NULL;

    assert_int_equal(events_read_bytes("vector", record, sizeof record, &l), MANTA_OK);
    const manta_events_tag *t = find(l, "loss");
    assert_non_null(t);
    assert_int_equal(t->kind, MANTA_EVENTS_SCALAR);
    assert_string_equal(t->plugin, "scalars");
    assert_int_equal(t->count, 1);
    assert_true(t->points[0].step == 3 && t->points[0].value == 0.5 && t->points[0].wall_s == 1.0);
    manta_events_log_free(l);
}

/* ---- what others wrote ------------------------------------------------------------------ */

static void recorded_folders_are_read(void **state)
{
    (void)state;
    static const char *const folders[] = {"tf",  "torch", "torch/hp", "keras/train", "keras/validation",
                                          "root"};
    static const char *const scalars[] = {"loss", "loss", NULL, "epoch_loss", NULL, NULL};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        manta_events_log *l = NULL;
        char path[600];
        snprintf(path, sizeof path, GOLDEN "%s", folders[i]);
        assert_ok(manta_events_read(path, &l));
        assert_true(manta_events_records(l) >= 2);
        assert_null(manta_events_damage(l));
        assert_true(manta_events_tags(l) > 0);
        if (scalars[i]) {
            const manta_events_tag *t = find(l, scalars[i]);
            assert_non_null(t);
            assert_int_equal(t->kind, MANTA_EVENTS_SCALAR);
            assert_true(t->count > 0);
            assert_true(isfinite(t->points[0].value) && t->points[0].wall_s > 1.7e9);
        }
        manta_events_log_free(l);
    }
}

/* ---- what we write ---------------------------------------------------------------------- */

/* The fields of the last record of a file, in `in`. */
static proto_reader last_event(const manta_events *e, input *in)
{
    const uint8_t *data = NULL, *d;
    size_t n = 0, k;

    assert_int_equal(input_read(manta_events_path(e), in), MANTA_OK);
    record_reader r = {.data = in->data, .size = in->size};
    while (record_next(&r, &d, &k) == RECORD_GIVEN) {
        data = d;
        n = k;
    }
    assert_int_equal(r.at, r.size);
    return proto_read(data, n);
}

static proto_field field(proto_reader r, uint32_t number)
{
    proto_field f, found = {0};

    while (proto_next(&r, &f) == PROTO_FIELD) {
        if (f.number == number) found = f;
    }
    if (!found.number) fail_msg("no field %u", number);
    return found;
}

static proto_reader inside(proto_reader r, uint32_t number)
{
    proto_field f = field(r, number);

    return proto_inside(&f);
}

static void a_histogram_counts_every_value(void **state)
{
    (void)state;
    manta_events *e = NULL;
    float v[303];
    input in = {0};

    for (int i = 0; i < 300; i++) v[i] = (float)i / 299.0f * 3 - 1; /* -1 .. 2 */
    v[300] = NAN;
    v[301] = INFINITY;
    v[302] = -INFINITY;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){303}, v);
    assert_int_equal(manta_events_open(scratch_path("histogram"), NULL, &e), MANTA_OK);
    assert_int_equal(manta_events_histogram(e, "w", 2, &a), MANTA_OK);
    proto_reader h = inside(inside(inside(last_event(e, &in), 5), 1), 5);
    proto_field low = field(h, 1), high = field(h, 2), num = field(h, 3), sum = field(h, 4),
                limits = field(h, 6), counts = field(h, 7);
    assert_true(proto_double(&low) == -1 && proto_double(&high) == 2 && proto_double(&num) == 300);
    assert_true(fabs(proto_double(&sum) - 150) < 1e-4);
    assert_int_equal(limits.n, 30 * 8);
    assert_int_equal(counts.n, 30 * 8);
    double limit, count, total = 0, before = -1;
    for (int i = 0; i < 30; i++) {
        memcpy(&limit, limits.at + 8 * i, 8);
        memcpy(&count, counts.at + 8 * i, 8);
        assert_true(limit > before && count >= 9 && count <= 11);
        before = limit;
        total += count;
    }
    assert_true(limit == 2 && total == 300);
    input_release(&in);
    /* all the same, and nothing at all */
    for (int i = 0; i < 303; i++) v[i] = 7;
    assert_int_equal(manta_events_histogram(e, "w", 3, &a), MANTA_OK);
    h = inside(inside(inside(last_event(e, &in), 5), 1), 5);
    counts = field(h, 7);
    assert_int_equal(counts.n, 8);
    memcpy(&count, counts.at, 8);
    assert_true(count == 303);
    input_release(&in);
    a.shape[0] = 0;
    assert_int_equal(manta_events_histogram(e, "w", 4, &a), MANTA_OK);
    h = inside(inside(inside(last_event(e, &in), 5), 1), 5);
    assert_int_equal(field(h, 7).n, 0);
    input_release(&in);
    manta_events_close(e);
}

static void an_image_is_written_as_png(void **state)
{
    (void)state;
    manta_events *e = NULL;
    input in = {0};
    picture p = {0};
    float v[2 * 2 * 3 * 3];
    uint8_t expected[36];

    for (int i = 0; i < 36; i++) {
        expected[i] = (uint8_t)(i * 7);
        v[i] = (float)expected[i] / 255.0f;
    }
    v[0] = -1;
    v[1] = 2;
    v[2] = NAN;
    expected[0] = 0;
    expected[1] = 255;
    expected[2] = 0;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){2, 2, 3, 3}, v);
    assert_int_equal(manta_events_open(scratch_path("image"), NULL, &e), MANTA_OK);
    assert_int_equal(manta_events_image(e, "x", 1, &a), MANTA_OK);
    proto_reader values = inside(last_event(e, &in), 5);
    proto_field f;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(proto_next(&values, &f), PROTO_FIELD);
        proto_reader value = proto_inside(&f);
        f = field(value, 1);
        assert_true(proto_is_text(&f, i ? "x/1" : "x/0"));
        proto_reader image = inside(value, 4);
        assert_true(field(image, 1).value == 2 && field(image, 2).value == 3 && field(image, 3).value == 3);
        f = field(image, 4);
        assert_int_equal(picture_decode("png", f.at, f.n, 3, &p), MANTA_OK);
        assert_true(p.height == 2 && p.width == 3 && p.channels == 3);
        assert_memory_equal(p.data, expected + 18 * i, 18);
        picture_release(&p);
    }
    input_release(&in);
    a = manta_array_of(MANTA_DTYPE_F32, 3, (int64_t[]){2, 2, 2}, v);
    assert_int_equal(manta_events_image(e, "x", 1, &a), MANTA_EINVAL);
    a = manta_array_of(MANTA_DTYPE_I64, 2, (int64_t[]){1, 1}, v);
    assert_int_equal(manta_events_image(e, "x", 1, &a), MANTA_EINVAL);
    manta_events_close(e);
}

static void all_kinds_are_read_back(void **state)
{
    (void)state;
    const char *folder = scratch_path("kinds");
    manta_model *m = NULL;
    manta_events *e = NULL;
    manta_events_log *l = NULL;
    input in = {0};
    float v[4] = {1, 2, 3, 4};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 2}, v);
    const manta_hparam h[] = {{"lr", MANTA_HPARAM_NUMBER, 0.1, NULL},
                              {"optimizer", MANTA_HPARAM_TEXT, 0, "adam"},
                              {"augment", MANTA_HPARAM_BOOL, 1, NULL}};
    const char *metrics[] = {"loss"}, *tags[] = {"loss", "accuracy"};

    assert_int_equal(manta_zoo("mnist-cnn", &m), MANTA_OK);
    assert_int_equal(manta_events_open(folder, NULL, &e), MANTA_OK);
    assert_int_equal(manta_events_hparams(e, 3, h, 1, metrics), MANTA_OK);
    assert_int_equal(manta_events_graph(e, m), MANTA_OK);
    proto_reader graph = inside(last_event(e, &in), 4);
    proto_field f;
    int nodes = 0;
    while (proto_next(&graph, &f) == PROTO_FIELD) nodes += f.number == 1;
    assert_true(nodes > manta_model_variables(m) + manta_model_inputs(m));
    input_release(&in);
    assert_int_equal(manta_events_scalars(e, 1, 2, tags, (double[]){0.5, 0.9}), MANTA_OK);
    assert_int_equal(manta_events_histogram(e, "kernel", 1, &a), MANTA_OK);
    assert_int_equal(manta_events_text(e, "notes", 1, "first"), MANTA_OK);
    assert_int_equal(manta_events_text(e, "notes", 2, "second \xe2\x82\xac"), MANTA_OK);
    a.dtype = MANTA_DTYPE_U8;
    assert_int_equal(manta_events_image(e, "digit", 1, &a), MANTA_OK);
    assert_int_equal(manta_events_hparams_end(e, true), MANTA_OK);
    assert_int_equal(manta_events_flush(e), MANTA_OK);
    manta_events_close(e);
    manta_model_free(m);

    assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
    assert_int_equal(manta_events_records(l), 9);
    assert_true(manta_events_has_graph(l));
    static const struct {
        const char *tag;
        manta_events_kind kind;
        int count;
    } expected[] = {{"_hparams_/experiment", MANTA_EVENTS_HPARAMS, 1},
                    {"_hparams_/session_start_info", MANTA_EVENTS_HPARAMS, 1},
                    {"_hparams_/session_end_info", MANTA_EVENTS_HPARAMS, 1},
                    {"loss", MANTA_EVENTS_SCALAR, 1},
                    {"accuracy", MANTA_EVENTS_SCALAR, 1},
                    {"kernel", MANTA_EVENTS_HISTOGRAM, 1},
                    {"notes", MANTA_EVENTS_TEXT, 2},
                    {"digit", MANTA_EVENTS_IMAGE, 1}};
    assert_int_equal(manta_events_tags(l), 8);
    for (size_t i = 0; i < 8; i++) {
        const manta_events_tag *t = find(l, expected[i].tag);
        assert_non_null(t);
        assert_int_equal(t->kind, expected[i].kind);
        assert_int_equal(t->count, expected[i].count);
    }
    assert_string_equal(find(l, "notes")->text, "second \xe2\x82\xac");
    assert_true(fabs(find(l, "accuracy")->points[0].value - 0.9) < 1e-6);
    manta_events_log_free(l);
}

static void text_that_is_no_utf8_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xff",    "a\x80", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
                                      "\xe2\x82"};
    manta_events *e = NULL;
    input before = {0}, after = {0};

    assert_int_equal(manta_events_open(scratch_path("text"), NULL, &e), MANTA_OK);
    assert_int_equal(input_read(manta_events_path(e), &before), MANTA_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(manta_events_scalar(e, bad[i], 0, 1), MANTA_EINVAL);
        assert_int_equal(manta_events_text(e, "t", 0, bad[i]), MANTA_EINVAL);
    }
    assert_int_equal(manta_events_scalar(e, "", 0, 1), MANTA_EINVAL);
    assert_int_equal(input_read(manta_events_path(e), &after), MANTA_OK);
    assert_int_equal(before.size, after.size);
    input_release(&before);
    input_release(&after);
    manta_events_close(e);
}

/* ---- restarts --------------------------------------------------------------------------- */

/* Steps 1..10, then from a checkpoint at 6 on to 12: every step once, and the
 * second file sorts last although the clock went back. */
static void a_restart_leaves_every_step_once(void **state)
{
    (void)state;
    const char *folder = scratch_path("restart");
    manta_events *e = NULL;
    manta_events_log *l = NULL;

    wall = 1700000000 * INT64_C(1000000000);
    clock_replace(&fixed);
    assert_int_equal(manta_events_open(folder, NULL, &e), MANTA_OK);
    for (int i = 1; i <= 10; i++) assert_int_equal(manta_events_scalar(e, "loss", i, i), MANTA_OK);
    char first[600];
    snprintf(first, sizeof first, "%s", manta_events_path(e));
    manta_events_close(e);
    wall -= 50 * INT64_C(1000000000);
    assert_int_equal(manta_events_open(folder, &(manta_events_options){.first_step = 7}, &e), MANTA_OK);
    assert_true(strcmp(manta_events_path(e), first) > 0);
    for (int i = 7; i <= 12; i++) assert_int_equal(manta_events_scalar(e, "loss", i, 100 + i), MANTA_OK);
    manta_events_close(e);
    clock_replace(NULL);
    assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
    const manta_events_tag *t = find(l, "loss");
    assert_int_equal(t->count, 12);
    assert_int_equal(manta_events_purged(l), 4);
    for (int i = 1; i <= 12; i++) {
        assert_int_equal(t->points[i - 1].step, i);
        assert_true(t->points[i - 1].value == (i < 7 ? i : 100 + i));
    }
    manta_events_log_free(l);
}

/* Begun again from step 0: nothing of the first attempt is left. */
static void beginning_again_leaves_nothing_of_the_first_attempt(void **state)
{
    (void)state;
    const char *folder = scratch_path("again");
    manta_events *e = NULL;
    manta_events_log *l = NULL;

    for (int k = 0; k < 2; k++) {
        assert_int_equal(manta_events_open(folder, &(manta_events_options){.restart = true}, &e), MANTA_OK);
        for (int i = 0; i < 5; i++) assert_int_equal(manta_events_scalar(e, "loss", i, k), MANTA_OK);
        manta_events_close(e);
    }
    assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
    assert_int_equal(find(l, "loss")->count, 5);
    assert_true(find(l, "loss")->points[0].value == 1);
    manta_events_log_free(l);
}

/* Without a version record a step that goes back deletes what its own tags have beyond it. */
static void a_step_that_goes_back_purges_without_a_version(void **state)
{
    (void)state;
    static const int steps[] = {1, 2, 3, 2, 3};
    buf b = {0};
    manta_events_log *l = NULL;

    for (int i = 0; i < 5; i++) {
        size_t r = record_begin(&b), s, v;
        proto_add_double(&b, 1, 1);
        proto_add_int(&b, 2, steps[i]);
        s = proto_begin(&b, 5);
        v = proto_begin(&b, 1);
        proto_add_text(&b, 1, "a");
        proto_add_float(&b, 2, (float)i);
        proto_end(&b, v);
        if (i == 0) {
            v = proto_begin(&b, 1);
            proto_add_text(&b, 1, "other");
            proto_add_float(&b, 2, 1);
            proto_end(&b, v);
        }
        proto_end(&b, s);
        record_end(&b, r);
    }
    assert_int_equal(events_read_bytes("old", (const uint8_t *)b.at, b.n, &l), MANTA_OK);
    assert_int_equal(manta_events_purged(l), 2);
    const manta_events_tag *t = find(l, "a");
    assert_int_equal(t->count, 3);
    assert_true(t->points[1].value == 3 && t->points[2].value == 4);
    assert_int_equal(find(l, "other")->count, 1);
    manta_events_log_free(l);
    buf_release(&b);
}

/* ---- damage ----------------------------------------------------------------------------- */

static void a_file_cut_at_any_byte_is_read_to_the_cut(void **state)
{
    (void)state;
    input in = {0};
    size_t ends[64], n = 0, k;
    const uint8_t *data;

    assert_int_equal(input_read(GOLDEN "torch/events.out.tfevents.1794726366.vm.19326.0", &in), MANTA_OK);
    record_reader r = {.data = in.data, .size = in.size};
    while (record_next(&r, &data, &k) == RECORD_GIVEN) ends[n++] = r.at;
    for (size_t cut = 0; cut <= in.size; cut++) {
        manta_events_log *l = NULL;
        int64_t live = mem_live();
        size_t whole = 0;
        while (whole < n && ends[whole] <= cut) whole++;
        manta_status st = events_read_bytes("cut", in.data, cut, &l);
        if (cut > 0 && whole == 0) {
            assert_int_equal(st, MANTA_ECORRUPT);
        } else {
            assert_int_equal(st, MANTA_OK);
            assert_int_equal(manta_events_records(l), whole);
            bool at_end = cut == 0 || ends[whole - 1] == cut;
            assert_int_equal(manta_events_damage(l) == NULL, at_end);
        }
        manta_events_log_free(l);
        assert_int_equal(mem_live(), live);
    }
    input_release(&in);
}

static void a_folder_without_events_is_not_found(void **state)
{
    (void)state;
    manta_events_log *l = NULL;

    mkdir(scratch_path("empty"), 0777);
    scratch_file("empty/events.out.tfevents.1.profile-empty", "junk", 4);
    assert_int_equal(manta_events_read(scratch_path("empty"), &l), MANTA_ENOENT);
    assert_int_equal(manta_events_read(scratch_path("nowhere"), &l), MANTA_ENOENT);
    assert_int_equal(manta_events_read(scratch_file("junk", "no events at all", 16), &l), MANTA_ECORRUPT);
}

/* ---- kills and failing disks ------------------------------------------------------------- */

static os_sys deadly;
static int writes_left;

static ssize_t deadly_write(int fd, const void *b, size_t n)
{
    if (writes_left-- == 0) raise(SIGKILL);
    return os_real.write(fd, b, n);
}

/* Killed before the n-th write, for each n: what was written before is read, whole. */
static void a_kill_between_writes_leaves_whole_records(void **state)
{
    (void)state;
    enum { STEPS = 6 };

    for (int kill = 0; kill <= STEPS + 1; kill++) {
        char name[32];
        snprintf(name, sizeof name, "kill-%d", kill);
        const char *folder = scratch_path(name);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            manta_events *e = NULL;
            deadly = os_real;
            deadly.write = deadly_write;
            writes_left = kill;
            os_use(&deadly);
            if (manta_events_open(folder, NULL, &e)) _exit(1);
            for (int i = 0; i < STEPS; i++) {
                if (manta_events_scalar(e, "loss", i, i)) _exit(1);
            }
            _exit(0); /* without closing */
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(kill > STEPS ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                                 : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        manta_events_log *l = NULL;
        assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
        assert_null(manta_events_damage(l));
        assert_int_equal(manta_events_records(l), kill > STEPS ? STEPS + 1 : kill);
        manta_events_log_free(l);
    }
}

/* Killed by another process at any moment. The system may end a write where a page ends: then the record is cut
 * that nobody was told is written. */
static void a_kill_at_any_moment_costs_at_most_the_last_record(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        char name[32], byte;
        int pipe_fd[2];
        snprintf(name, sizeof name, "outside-%d", round);
        const char *folder = scratch_path(name);
        assert_int_equal(pipe(pipe_fd), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            manta_events *e = NULL;
            if (manta_events_open(folder, NULL, &e)) _exit(1);
            for (int i = 0;; i++) {
                if (manta_events_scalar(e, "loss", i, i)) _exit(1);
                if (i == 100 * round && write(pipe_fd[1], "x", 1) != 1) _exit(1);
            }
        }
        assert_int_equal(read(pipe_fd[0], &byte, 1), 1);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        close(pipe_fd[0]);
        close(pipe_fd[1]);
        manta_events_log *l = NULL;
        assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
        const char *damage = manta_events_damage(l);
        if (damage) assert_non_null(strstr(damage, "ends within a record"));
        const manta_events_tag *t = find(l, "loss");
        assert_true(t->count > 100 * round);
        for (int64_t i = 0; i < t->count; i++) assert_int_equal(t->points[i].step, i);
        manta_events_log_free(l);
    }
}

/* Any call fails once: the call that meets it says so, and the file stays one
 * that readers take whole, with what was written after it too. */
static void a_call_that_fails_once_spoils_no_record(void **state)
{
    (void)state;
    for (int64_t n = 1;; n++) {
        char name[32];
        snprintf(name, sizeof name, "fault-%d", (int)n);
        const char *folder = scratch_path(name);
        int64_t live = mem_live();
        manta_events *e = NULL;
        int written = 0;
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .short_io = true});
        manta_status st = manta_events_open(folder, NULL, &e);
        for (int i = 0; i < 4 && e; i++) {
            manta_status one = manta_events_scalar(e, "loss", i, i);
            if (one) st = one;
            written += !one;
        }
        manta_events_close(e);
        bool hit = fault_end() > 0;
        assert_int_equal(mem_live(), live);
        manta_events_log *l = NULL;
        manta_status read = manta_events_read(folder, &l);
        if (written) {
            assert_int_equal(read, MANTA_OK);
            assert_null(manta_events_damage(l));
            assert_int_equal(manta_events_records(l), written + 1);
        } else {
            assert_int_equal(read, MANTA_ENOENT); /* no file without its first record */
        }
        manta_events_log_free(l);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            assert_int_equal(written, 4);
            break;
        }
    }
}

/* A run that goes on, and any call fails once: readers see what was there before, or
 * what is kept and nothing beyond; never something between. */
static void kept_points_appear_at_once(void **state)
{
    (void)state;
    static const events_kept kept[] = {{"by-step", {.step = 3, .wall_s = 100, .value = 3}},
                                       {"by-step", {.step = 4, .wall_s = 101, .value = 4}}};
    for (int64_t n = 1;; n++) {
        char name[32];
        snprintf(name, sizeof name, "kept-%d", (int)n);
        const char *folder = scratch_path(name);
        int64_t live = mem_live();
        manta_events *e = NULL;
        manta_events_log *l = NULL;
        assert_int_equal(manta_events_open(folder, NULL, &e), MANTA_OK);
        for (int i = 0; i < 6; i++) assert_int_equal(manta_events_scalar(e, "by-step", i, i), MANTA_OK);
        manta_events_close(e);
        e = NULL;
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .short_io = true});
        manta_status st = events_open_keeping(
            folder, &(manta_events_options){.first_step = 2, .restart = true}, 2, kept, &e);
        manta_events_close(e);
        bool hit = fault_end() > 0;
        assert_int_equal(mem_live(), live);
        assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
        assert_null(manta_events_damage(l));
        const manta_events_tag *t = find(l, "by-step");
        assert_int_equal(t->count, st ? 6 : 4);
        for (int64_t i = 0; i < t->count; i++) {
            assert_int_equal(t->points[i].step, i + (!st && i > 1)); /* 0, 1, 3, 4 */
            if (!st && i > 1) assert_true(t->points[i].wall_s == 98 + (double)i);
        }
        manta_events_log_free(l);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
    }
}

/* A disk that is full and lets nothing be cut off either: no later record follows a torn one. */
static void no_record_follows_a_torn_one(void **state)
{
    (void)state;
    const char *folder = scratch_path("torn");
    manta_events *e = NULL;
    manta_events_log *l = NULL;

    assert_int_equal(manta_events_open(folder, NULL, &e), MANTA_OK);
    fault_begin((fault_plan){.at = 2, .err = ENOSPC, .sticky = true, .short_io = true});
    assert_int_equal(manta_events_scalar(e, "loss", 1, 1), MANTA_ENOSPC);
    fault_end();
    assert_int_equal(manta_events_scalar(e, "loss", 2, 2), MANTA_EIO);
    manta_events_close(e);
    assert_int_equal(manta_events_read(folder, &l), MANTA_OK);
    assert_int_equal(manta_events_records(l), 1);
    assert_non_null(manta_events_damage(l));
    manta_events_log_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_have_tensorboards_bytes),
        cmocka_unit_test(a_scalar_in_tensor_form_is_read),
        cmocka_unit_test(recorded_folders_are_read),
        cmocka_unit_test(a_histogram_counts_every_value),
        cmocka_unit_test(an_image_is_written_as_png),
        cmocka_unit_test(all_kinds_are_read_back),
        cmocka_unit_test(text_that_is_no_utf8_is_refused),
        cmocka_unit_test(a_restart_leaves_every_step_once),
        cmocka_unit_test(beginning_again_leaves_nothing_of_the_first_attempt),
        cmocka_unit_test(a_step_that_goes_back_purges_without_a_version),
        cmocka_unit_test(a_file_cut_at_any_byte_is_read_to_the_cut),
        cmocka_unit_test(a_folder_without_events_is_not_found),
        cmocka_unit_test(a_kill_between_writes_leaves_whole_records),
        cmocka_unit_test(a_kill_at_any_moment_costs_at_most_the_last_record),
        cmocka_unit_test(a_call_that_fails_once_spoils_no_record),
        cmocka_unit_test(kept_points_appear_at_once),
        cmocka_unit_test(no_record_follows_a_torn_one),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
