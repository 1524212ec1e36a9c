/* Checkpoints: whole or not there, whatever happens while they are written. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/run.h>

#include "format/scratch.h"
#include "group_fixture.h"
#include "os/fault.h"
#include "os/file.h"
#include "power.h"
#include "train/checkpoint/checkpoints.h"
#include "train/checkpoint/retention.h"

/* A session that has state of every kind and is cheap to write. */
static manta_session *small_session(manta_model **model)
{
    manta_optimizer adam;
    manta_loss loss = {.name = "mean_squared_error"};
    manta_compile c = {.optimizer = &adam, .n_losses = 1, .losses = &loss};
    manta_model *m = manta_model_new("small");
    manta_session *s;

    assert_ok(manta_optimizer_named("adam", &adam));
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 3}));
    assert_ok(manta_model_build(m));
    assert_ok(manta_session_open(m, &c, &(manta_session_options){.threads = 1, .seed = 5}, &s));
    *model = m;
    return s;
}

static void set_all(manta_session *s, float value)
{
    float flat[64];

    for (int i = 0; i < 64; i++) flat[i] = value;
    manta_session_set_flat(s, flat);
}

static float first_of(const manta_checkpoint *c)
{
    manta_saved *saved;
    float value;

    assert_ok(manta_checkpoint_arrays(c, &saved));
    value = *(const float *)manta_saved_find(saved, "dense/kernel")->data;
    manta_saved_free(saved);
    return value;
}

/* Saves `value` as the weights and waits for it. */
static manta_status save(manta_checkpoints *m, manta_session *s, float value)
{
    manta_checkpoint_info info = {.epoch = (int64_t)value};

    info.metrics.n = 1;
    snprintf(info.metrics.name[0], sizeof info.metrics.name[0], "accuracy");
    info.metrics.value[0] = (double)value;
    set_all(s, value);
    TRY(manta_checkpoints_save(m, s, &info, true));
    return manta_checkpoints_wait(m);
}

/* The weights in the latest whole checkpoint of the folder; -1: none. */
static float latest(const char *folder)
{
    manta_checkpoints *m;
    manta_checkpoint *c;
    float value = -1;

    if (manta_checkpoints_open(folder, &(manta_checkpoints_options){.read_only = true}, &m)) return -1;
    if (!manta_checkpoints_latest(m, &c, NULL)) {
        value = first_of(c);
        manta_checkpoint_close(c);
    }
    manta_checkpoints_close(m);
    return value;
}

static int litter(const char *folder)
{
    file_names names = {0};
    int n = 0;

    assert_ok(file_list(folder, &names));
    for (size_t i = 0; i < names.n; i++) n += checkpoint_is_litter(names.at[i]);
    file_names_release(&names);
    return n;
}

/* ---- the plain case ---- */

static void saved_listed_kept(void **state)
{
    const char *folder = scratch_path("plain"), *path;
    const manta_checkpoint_info *info;
    manta_checkpoints *m, *second;
    manta_checkpoint *c;
    manta_model *model;
    manta_session *s = small_session(&model);

    (void)state;
    assert_ok(
        file_mkdirs(scratch_path("plain/checkpoint-9223372036854775807"))); /* there is none behind it */
    assert_ok(manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 2}, &m));
    assert_int_equal(manta_checkpoints_latest(m, &c, NULL), MANTA_ENOENT);
    for (int i = 1; i <= 4; i++) assert_ok(save(m, s, (float)i));
    assert_int_equal(manta_checkpoints_count(m), 2);
    assert_true(manta_checkpoints_at(m, 0, &path, &info));
    assert_int_equal(info->sequence, 3);
    assert_string_equal(strrchr(path, '/'), "/checkpoint-000003");
    assert_false(manta_checkpoints_at(m, 2, &path, &info));
    assert_int_equal(manta_checkpoints_open(folder, NULL, &second), MANTA_EBUSY);
    assert_ok(manta_checkpoints_latest(m, &c, NULL));
    assert_true(first_of(c) == 4);
    assert_true(manta_metrics_get(&manta_checkpoint_get(c)->metrics, "accuracy") == 4);
    set_all(s, 0);
    assert_ok(manta_session_from_checkpoint(s, c, false));
    float flat[64];
    manta_session_get_flat(s, flat);
    assert_true(flat[0] == 4);
    assert_ok(manta_checkpoint_copy(c, scratch_path("copy")));
    file_info copied;
    assert_ok(file_stat(scratch_path("copy/state.safetensors"), &copied));
    manta_checkpoint_close(c);
    manta_checkpoints_close(m);
    assert_true(latest(folder) == 4);
    manta_session_close(s);
    manta_model_free(model);
}

static void best_are_kept(void **state)
{
    const char *folder = scratch_path("best"), *path;
    const manta_checkpoint_info *info;
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_model *model;
    manta_session *s = small_session(&model);

    (void)state;
    assert_ok(
        manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 1, .score = "accuracy"}, &m));
    for (int i = 0; i < 4; i++) assert_ok(save(m, s, (float[]){3, 9, 5, 4}[i]));
    assert_int_equal(manta_checkpoints_count(m), 2); /* the best, and the latest */
    assert_true(manta_checkpoints_at(m, 0, &path, &info) && info->epoch == 9);
    assert_true(manta_checkpoints_at(m, 1, &path, &info) && info->epoch == 4);
    assert_ok(manta_checkpoints_best(m, "accuracy", NULL, &c));
    assert_true(first_of(c) == 9);
    manta_checkpoint_close(c);
    assert_ok(manta_checkpoints_best(m, "accuracy", "min", &c));
    assert_true(first_of(c) == 4);
    manta_checkpoint_close(c);
    assert_int_equal(manta_checkpoints_best(m, "nothing", NULL, &c), MANTA_ENOENT);
    assert_ok(manta_checkpoints_clear(m));
    manta_checkpoints_close(m);
    assert_int_not_equal(access(folder, F_OK), 0);
    manta_session_close(s);
    manta_model_free(model);
}

/* The rules alone, for every small case: never fewer than asked for, the
 * latest always, nothing better let go than kept. */
static void the_latest_and_the_best_stay(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++) {
        for (int code = 0; code < 1024; code++) {
            for (int keep = 0; keep <= n; keep++) {
                retention_item items[5];
                int kept = 0;
                for (int i = 0; i < n; i++) {
                    int digit = code >> 2 * i & 3;
                    items[i] = (retention_item){.score = digit == 3 ? (double)NAN : digit};
                }
                retention_choose(items, n, keep, true, true);
                for (int i = 0; i < n; i++) kept += items[i].stays;
                assert_true(items[n - 1].stays);
                assert_in_range(kept, keep ? keep : n, keep ? keep + 1 : n);
                for (int i = 0; i < n; i++) {
                    for (int k = 0; k < n - 1; k++) { /* all but the latest stay by merit */
                        if (items[i].stays || !items[k].stays) continue;
                        assert_false(retention_is_better(items[i].score, items[k].score, true) &&
                                     !retention_is_better(items[k].score, items[i].score, true));
                    }
                }
            }
        }
    }
}

/* ---- damage ---- */

static void flip(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    int byte;

    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    byte = fgetc(f);
    assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
    fputc(byte ^ 4, f);
    assert_int_equal(fclose(f), 0);
}

static void damage_is_named_and_passed_over(void **state)
{
    static const char *const files[] = {"state.safetensors", "manifest.json"};
    const char *folder = scratch_path("damage");
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_model *model;
    manta_session *s = small_session(&model);
    char path[300], *damaged;

    (void)state;
    for (int i = 0; i < 2; i++) {
        (void)scratch_remove(folder);
        assert_ok(manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 2}, &m));
        assert_ok(save(m, s, 1));
        assert_ok(save(m, s, 2));
        snprintf(path, sizeof path, "%s/checkpoint-000002/%s", folder, files[i]);
        flip(path, i ? 40 : -3);
        assert_ok(manta_checkpoints_latest(m, &c, &damaged));
        assert_true(first_of(c) == 1);
        assert_non_null(damaged);
        assert_non_null(strstr(damaged, "checkpoint-000002"));
        assert_non_null(strstr(damaged, "damaged"));
        free(damaged);
        manta_checkpoint_close(c);
        /* The next one does not take the number of the damaged one. */
        assert_ok(save(m, s, 3));
        assert_ok(manta_checkpoints_latest(m, &c, &damaged));
        assert_true(first_of(c) == 3 && !damaged);
        assert_int_equal(manta_checkpoint_get(c)->sequence, 3);
        manta_checkpoint_close(c);
        manta_checkpoints_close(m);
    }
    snprintf(path, sizeof path, "%s/checkpoint-000003", folder);
    flip(strcat(path, "/state.safetensors"), 100);
    snprintf(path, sizeof path, "%s/checkpoint-000001/state.safetensors", folder);
    assert_int_equal(truncate(path, 100), 0);
    assert_ok(manta_checkpoints_open(folder, NULL, &m));
    assert_int_equal(manta_checkpoints_latest(m, &c, NULL), MANTA_ECORRUPT);
    manta_checkpoints_close(m);
    manta_session_close(s);
    manta_model_free(model);
}

/* Every bit of a manifest counts. */
static void every_bit_of_a_manifest(void **state)
{
    manifest m = {0}, back = {0};
    manta_checkpoint_info info = {.sequence = 7, .epoch = 2, .step = 3, .iterations = 40};
    char *text;
    size_t n;

    (void)state;
    info.metrics.n = 2;
    snprintf(info.metrics.name[0], 64, "loss");
    info.metrics.value[0] = 0.1;
    snprintf(info.metrics.name[1], 64, "accuracy");
    info.metrics.value[1] = (double)NAN;
    info.n_notes = 1;
    info.notes = &(manta_note){"who", "we"};
    manifest_init(&m, &info);
    manifest_add(&m, "a/b.bin", (file_sum){.size = 12, .crc = 0x89abcdef});
    text = manifest_text(&m);
    n = strlen(text);
    assert_ok(manifest_parse("m", text, n, &back));
    assert_int_equal(back.info.step, 3);
    assert_true(manta_metrics_get(&back.info.metrics, "loss") == 0.1);
    assert_int_equal(back.files.at[0].sum.crc, 0x89abcdef);
    assert_string_equal(back.notes.at[0].text, "we");
    manifest_release(&back);
    for (size_t bit = 0; bit < n * 8; bit++) {
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
        assert_int_not_equal(manifest_parse("m", text, n, &back), MANTA_OK);
        manifest_release(&back);
        text[bit / 8] = (char)(text[bit / 8] ^ (1 << bit % 8));
    }
    free(text);
    manifest_release(&m);
    m = (manifest){0};
    manifest_init(&m, &info);
    manifest_add(&m, "../up", (file_sum){0});
    text = manifest_text(&m);
    assert_int_equal(manifest_parse("m", text, strlen(text), &back), MANTA_ECORRUPT);
    free(text);
    manifest_release(&back);
    manifest_release(&m);
}

/* ---- kill -9 and loss of power at every call ---- */

static bool of_a_folder; /* what is saved: a folder of the user's, else a session */

static void copy_file(const char *from, const char *to)
{
    FILE *f = fopen(from, "rb"), *g = fopen(to, "wb");
    int c;

    assert_true(f && g);
    while ((c = fgetc(f)) != EOF) fputc(c, g);
    assert_true(!fclose(f) && !fclose(g));
}

/* A folder as a loop makes it: with weights (2) and a file below, neither of them
 * brought to disk by the one who wrote it. */
static void make_folder(manta_session *s)
{
    const char *files[2] = {"mine/" CHECKPOINT_STATE, "mine/deep/two.txt"};
    char saved[256];

    snprintf(saved, sizeof saved, "%s", scratch_path("two.safetensors"));
    set_all(s, 2);
    assert_ok(manta_session_save(s, saved));
    assert_ok(file_mkdirs(scratch_path("mine/deep")));
    for (int i = 0; i < 2; i++) {
        power_done *d = power_note(DONE_FILE, scratch_path(files[i]));
        copy_file(saved, d->from);
    }
}

/* In a child: with one checkpoint (1) there, saves another (2), keeping one. */
static void save_in_child(const char *folder, int end_at, bool lose, bool keep_names)
{
    manta_checkpoints *m;
    manta_model *model;
    manta_session *s = small_session(&model);

    if (manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 1}, &m)) _exit(1);
    if (of_a_folder) make_folder(s);
    power_begin(end_at, lose, keep_names);
    if (of_a_folder)
        _exit(manta_checkpoints_add(m, scratch_path("mine"), &(manta_checkpoint_info){.epoch = 2}) ? 1 : 0);
    _exit(save(m, s, 2) ? 1 : 0);
}

static void sweep(bool lose, bool keep_names)
{
    char folder[256];
    manta_checkpoints *m;
    manta_model *model;
    manta_session *s = small_session(&model);
    int old = 0, new_ = 0, n = 1;

    snprintf(folder, sizeof folder, "%s", scratch_path("ends"));
    for (; n < 500; n++) {
        int status = 0;
        pid_t child;
        float found;
        (void)scratch_remove(folder);
        (void)scratch_remove(scratch_path("mine"));
        assert_ok(manta_checkpoints_open(folder, NULL, &m));
        assert_ok(save(m, s, 1));
        manta_checkpoints_close(m);
        if (!(child = fork())) save_in_child(folder, n, lose, keep_names);
        assert_true(child > 0 && waitpid(child, &status, 0) == child);
        found = latest(folder); /* a reader first, who repairs nothing */
        assert_true(found == 1 || found == 2);
        old += found == 1;
        new_ += found == 2;
        assert_ok(manta_checkpoints_open(folder, NULL, &m)); /* then the next writer */
        assert_int_equal(litter(folder), 0);
        assert_ok(save(m, s, 3));
        manta_checkpoints_close(m);
        assert_true(latest(folder) == 3);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            assert_true(found == 2);
            break;
        }
    }
    assert_true(n < 500 && old >= 5 && new_ >= 3);
    (void)scratch_remove(folder);
    (void)scratch_remove(scratch_path("mine"));
    manta_session_close(s);
    manta_model_free(model);
}

static void killed_at_every_call(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        of_a_folder = i;
        sweep(false, false);
    }
}

static void power_lost_at_every_call(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        of_a_folder = i;
        sweep(true, false);
        sweep(true, true);
    }
}

/* ---- files that are summed up already ---- */

/* A folder with a state, as one who writes it makes it; *sum of the file. */
static const char *given_folder(manta_session *s, float value, file_sum *sum)
{
    const char *folder = scratch_path("given");
    blobs none = {0};

    assert_ok(file_mkdirs(folder));
    set_all(s, value);
    assert_ok(checkpoint_write_state(s, s->state, &none, folder, sum));
    return folder;
}

/* What is said of a file is believed when it can be true, and looked into when it is used. */
static void sums_that_are_given(void **state)
{
    const char *folder = scratch_path("summed");
    manta_model *model;
    manta_session *s = small_session(&model);
    manta_checkpoints *m;
    const char *from;
    file_sum sum;
    char *damaged = NULL;
    manta_checkpoint *c;

    (void)state;
    assert_ok(manta_checkpoints_open(folder, NULL, &m));
    from = given_folder(s, 1, &sum);
    assert_true(sum.size > 0);
    assert_ok(checkpoints_add(m, from, NULL, sum));
    assert_true(latest(folder) == 1);
    from = given_folder(s, 2, &sum); /* another size: of another file */
    assert_ok(checkpoints_add(m, from, NULL, (file_sum){sum.size + 1, sum.crc ^ 1}));
    assert_true(latest(folder) == 2);
    from = given_folder(s, 3, &sum);
    assert_ok(checkpoints_add(m, from, NULL, (file_sum){sum.size, sum.crc ^ 1}));
    assert_ok(manta_checkpoints_latest(m, &c, &damaged)); /* a wrong one is found out */
    assert_true(first_of(c) == 2 && damaged && strstr(damaged, CHECKPOINT_STATE));
    manta_checkpoint_close(c);
    free(damaged);
    manta_checkpoints_close(m);
    manta_session_close(s);
    manta_model_free(model);
}

/* ---- memory that is made before it is needed ---- */

/* Whether a save comes at once, later or never. */
static void expected_checkpoints(void **state)
{
    manta_model *model;
    manta_session *s = small_session(&model);
    int64_t before = mem_live();

    (void)state;
    for (int saves = 0; saves < 3; saves++) {
        const char *folder = scratch_path("expected");
        manta_checkpoints *m;
        assert_ok(manta_checkpoints_open(folder, NULL, &m));
        checkpoints_expect(m, s);
        checkpoints_expect(m, s);
        for (int i = 1; i <= saves; i++) assert_ok(save(m, s, (float)i));
        manta_checkpoints_close(m);
        if (saves) assert_true(latest(folder) == (float)saves);
        assert_int_equal(mem_live(), before);
        (void)scratch_remove(folder);
    }
    manta_session_close(s);
    manta_model_free(model);
}

/* ---- the record of a run ---- */

static const manta_run_options *run_options(const char *folder, bool resume)
{
    static manta_run_options o;

    o = (manta_run_options){.folder = folder, .resume = resume, .config = "{}"};
    return &o;
}

/* In a child: a run of three epochs, each with a line and then a checkpoint. */
static void train_in_child(const char *folder, int end_at, bool names_kept)
{
    manta_model *model;
    manta_session *s = small_session(&model);
    manta_run *r;

    power_begin(end_at, true, names_kept);
    if (manta_run_open(run_options(folder, false), &r)) _exit(1);
    for (int epoch = 1; epoch <= 3; epoch++) {
        manta_metrics m = {.n = 1, .name = {"loss"}, .value = {epoch}};
        if (manta_run_report(r, epoch, epoch, 0, &m)) _exit(1);
        if (save(manta_run_checkpoints(r), s, (float)epoch)) _exit(1);
    }
    _exit(0);
}

/* Which epochs have a line, as bits. */
static unsigned epochs_with_lines(const char *folder)
{
    char path[600], line[400];
    unsigned all = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        int epoch = 0;
        assert_int_equal(sscanf(line, "{\"epoch\":%d,", &epoch), 1);
        assert_true(epoch >= 1 && epoch <= 3);
        assert_false(all & 1U << epoch);
        all |= 1U << epoch;
    }
    if (f) fclose(f);
    return all;
}

/* A checkpoint that is there after a loss of power has all its lines: no hole is
 * left in the history of the run that goes on from it. */
static void a_record_is_as_durable_as_its_checkpoint(void **state)
{
    char folder[256];
    int n, from[4] = {0};

    (void)state;
    snprintf(folder, sizeof folder, "%s", scratch_path("lit"));
    for (int names_kept = 0; names_kept < 2; names_kept++) {
        for (n = 1; n < 1000; n++) {
            int status = 0;
            int64_t epoch;
            pid_t child;
            manta_run *r;
            (void)scratch_remove(folder);
            if (!(child = fork())) train_in_child(folder, n, names_kept);
            assert_true(child > 0 && waitpid(child, &status, 0) == child);
            assert_ok(manta_run_open(run_options(folder, true), &r));
            epoch = manta_run_start(r) ? manta_checkpoint_get(manta_run_start(r))->epoch : 0;
            assert_int_equal(epochs_with_lines(folder), (1U << (epoch + 1)) - 2);
            manta_run_close(r);
            from[epoch]++;
            if (WIFEXITED(status)) break;
        }
        assert_true(n < 1000 && from[0] >= 10 && from[1] >= 10 && from[2] >= 10 && from[3] >= 1);
    }
}

/* ---- disks that fail ---- */

static void a_disk_that_fails(void **state)
{
    static const int errors[] = {ENOSPC, EROFS, EIO};
    const char *folder = scratch_path("fails");
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_model *model;
    manta_session *s = small_session(&model);

    (void)state;
    for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
        for (int n = 1;; n++) {
            manta_status st;
            float kept;
            (void)scratch_remove(folder);
            assert_ok(manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 1}, &m));
            assert_ok(save(m, s, 1));
            fault_begin((fault_plan){.at = n, .err = errors[e], .sticky = true, .spare_unlink = true});
            st = save(m, s, 2);
            if (!fault_end()) {
                assert_ok(st);
                manta_checkpoints_close(m);
                break;
            }
            assert_ok(manta_checkpoints_latest(m, &c, NULL));
            kept = first_of(c);
            assert_true(kept == 1 || kept == 2);
            if (st) { /* said, and once only; the one before is there */
                assert_true(strlen(manta_error_text()) > 10);
                assert_ok(manta_checkpoints_failure(m));
            }
            manta_checkpoint_close(c);
            assert_ok(save(m, s, 3)); /* when the disk is well again */
            manta_checkpoints_close(m);
            assert_true(latest(folder) == 3);
            assert_true(n < 300);
        }
    }
    (void)scratch_remove(folder);
    manta_session_close(s);
    manta_model_free(model);
}

/* A disk that cannot be read for a moment: what was not read then is not taken for
 * damaged, and never removed for it. */
static void what_cannot_be_read_stays(void **state)
{
    char folder[256], path[300];
    manta_checkpoints *m;
    manta_model *model;
    manta_session *s = small_session(&model);

    (void)state;
    snprintf(folder, sizeof folder, "%s", scratch_path("unread"));
    snprintf(path, sizeof path, "%s/checkpoint-000002/manifest.json", folder);
    for (int n = 1;; n++) {
        int64_t hits;
        manta_status st;
        (void)scratch_remove(folder);
        assert_ok(manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 2}, &m));
        assert_ok(save(m, s, 1));
        assert_ok(save(m, s, 2));
        manta_checkpoints_close(m);
        fault_begin((fault_plan){.at = n, .err = EIO});
        st = manta_checkpoints_open(folder, &(manta_checkpoints_options){.keep = 2}, &m);
        hits = fault_end();
        if (!st) {
            assert_ok(save(m, s, 3));
            manta_checkpoints_close(m);
        }
        if (access(path, F_OK)) fail_msg("checkpoint 2 is gone when call %d fails", n);
        assert_true(latest(folder) == (st ? 2 : 3));
        if (!hits) break;
        assert_true(n < 300);
    }
    (void)scratch_remove(folder);
    manta_session_close(s);
    manta_model_free(model);
}

/* ---- folders of the user's ---- */

static void write_text(const char *path, const char *text)
{
    assert_ok(file_replace(path, text, strlen(text)));
}

/* A dictionary of arrays, with notes, and back. */
static void arrays_of_the_user(void **state)
{
    float weights[2][3] = {{1, 2, 3}, {4, 5, 6}};
    int64_t epoch = 7;
    manta_column dict[2] = {{"epoch", manta_array_of(MANTA_DTYPE_I64, 0, NULL, &epoch)},
                            {"w", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 3}, weights)}};
    manta_note note = {"colour", "blue"};
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_saved *back;
    const manta_array *w;

    (void)state;
    assert_ok(manta_checkpoints_open(scratch_path("arrays"), NULL, &m));
    assert_ok(manta_checkpoints_add_arrays(
        m, 2, dict, &(manta_checkpoint_info){.epoch = 8, .n_notes = 1, .notes = &note}));
    assert_ok(manta_checkpoints_add_arrays(m, 1, dict, NULL));
    assert_int_equal(manta_checkpoints_count(m), 2);
    manta_checkpoints_close(m);
    assert_ok(manta_checkpoint_open(scratch_path("arrays/checkpoint-000001"), &c));
    assert_int_equal(manta_checkpoint_get(c)->epoch, 8);
    assert_string_equal(manta_checkpoint_note(c, "colour"), "blue");
    assert_ok(manta_checkpoint_arrays(c, &back));
    assert_int_equal(*(const int64_t *)manta_saved_find(back, "epoch")->data, 7);
    w = manta_saved_find(back, "w");
    assert_true(w->ndim == 2 && w->shape[0] == 2 && w->shape[1] == 3);
    assert_memory_equal(w->data, weights, sizeof weights);
    manta_saved_free(back);
    manta_checkpoint_close(c);
}

static void files_of_the_user(void **state)
{
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_checkpoint_info info = {.epoch = 3, .n_notes = 1, .notes = &(manta_note){"a", "b"}};

    (void)state;
    assert_ok(file_mkdirs(scratch_path("mine/deep")));
    write_text(scratch_path("mine/one.txt"), "1");
    write_text(scratch_path("mine/deep/two.txt"), "22");
    assert_ok(manta_checkpoints_open(scratch_path("theirs"), NULL, &m));
    assert_ok(manta_checkpoints_add(m, scratch_path("mine"), &info));
    assert_int_not_equal(access(scratch_path("mine"), F_OK), 0);
    assert_ok(manta_checkpoints_latest(m, &c, NULL));
    assert_string_equal(manta_checkpoint_file(c, 0), "deep/two.txt");
    assert_string_equal(manta_checkpoint_note(c, "a"), "b");
    assert_ok(manta_checkpoint_copy(c, scratch_path("again")));
    assert_int_equal(access(scratch_path("again/deep/two.txt"), F_OK), 0);
    manta_checkpoint_close(c);
    manta_checkpoints_close(m);
}

/* What cannot be kept is refused before anything is moved: what a link leads to is
 * not the checkpoint's. */
static void what_cannot_be_kept_stays(void **state)
{
    static const char *const names[] = {"mine/link", "mine/z\xff", "mine/manifest.json"};
    manta_checkpoints *m;
    manta_checkpoint *c;

    (void)state;
    assert_ok(manta_checkpoints_open(scratch_path("few"), NULL, &m));
    assert_ok(file_mkdirs(scratch_path("linked")));
    write_text(scratch_path("linked/dear.txt"), "dear");
    for (int i = 0; i < 4; i++) {
        assert_ok(file_mkdirs(scratch_path("mine/deep")));
        write_text(scratch_path("mine/a.txt"), "1");
        write_text(scratch_path("mine/deep/manifest.json"), "{}"); /* that one is the user's own */
        if (i < 2) {
            assert_int_equal(symlink(scratch_path(i ? "linked/dear.txt" : "linked"), scratch_path(names[0])),
                             0);
        } else {
            write_text(scratch_path(names[i - 1]), "2");
        }
        assert_int_equal(manta_checkpoints_add(m, scratch_path("mine"), NULL), MANTA_EINVAL);
        assert_int_equal(access(scratch_path("mine/a.txt"), F_OK), 0);
        assert_int_equal(unlink(scratch_path(i < 2 ? names[0] : names[i - 1])), 0);
    }
    assert_int_equal(access(scratch_path("linked/dear.txt"), F_OK), 0);
    assert_int_equal(symlink(scratch_path("mine"), scratch_path("alias")), 0);
    assert_int_equal(manta_checkpoints_add(m, scratch_path("alias"), NULL), MANTA_EINVAL);
    assert_int_equal(manta_checkpoints_add(m, scratch_path("mine/a.txt"), NULL), MANTA_EINVAL);
    assert_int_equal(manta_checkpoints_count(m), 0);
    assert_ok(manta_checkpoints_add(m, scratch_path("mine"), NULL));
    assert_ok(manta_checkpoints_latest(m, &c, NULL));
    assert_string_equal(manta_checkpoint_file(c, 1), "deep/manifest.json");
    manta_checkpoint_close(c);
    manta_checkpoints_close(m);
}

static int setup(void **state)
{
    make_data();
    return scratch_setup_quick(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_listed_kept),
        cmocka_unit_test(best_are_kept),
        cmocka_unit_test(the_latest_and_the_best_stay),
        cmocka_unit_test(damage_is_named_and_passed_over),
        cmocka_unit_test(every_bit_of_a_manifest),
        cmocka_unit_test(killed_at_every_call),
        cmocka_unit_test(power_lost_at_every_call),
        cmocka_unit_test(sums_that_are_given),
        cmocka_unit_test(expected_checkpoints),
        cmocka_unit_test(a_record_is_as_durable_as_its_checkpoint),
        cmocka_unit_test(a_disk_that_fails),
        cmocka_unit_test(what_cannot_be_read_stays),
        cmocka_unit_test(files_of_the_user),
        cmocka_unit_test(what_cannot_be_kept_stays),
        cmocka_unit_test(arrays_of_the_user),
    };

    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
