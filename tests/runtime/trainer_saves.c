/* trainer_saves.c - checkpoints that are written behind the loops' backs: the loop goes
 * on, what was reported is what is kept, and whoever is killed at whatever call of the
 * file system leaves whole checkpoints and a run that ends with the same bytes.
 *
 * fsync(), rename() and mkdir() are this program's own: they count, wait at a gate, or
 * end the process, where a loop or a driver has asked for that. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "trainer_fixture.h"

/* ---- calls of the file system ---- */

static _Atomic int kill_in; /* so many calls from now; 0: never */
static _Atomic bool gated, gate_open;
static _Atomic int synced; /* fsync() calls that have returned */

static void wait_a_moment(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void count_call(void)
{
    if (atomic_load(&kill_in) && atomic_fetch_sub(&kill_in, 1) == 1) kill(getpid(), SIGKILL);
}

MANTA_API int fsync(int fd)
{
    int rc;

    count_call();
    while (atomic_load(&gated) && !atomic_load(&gate_open)) wait_a_moment();
    rc = (int)syscall(SYS_fsync, fd);
    atomic_fetch_add(&synced, 1);
    return rc;
}

MANTA_API int rename(const char *from, const char *to)
{
    count_call();
    return (int)syscall(SYS_renameat2, -100 /* AT_FDCWD */, from, -100, to, 0);
}

MANTA_API int mkdir(const char *path, mode_t mode)
{
    count_call();
    return (int)syscall(SYS_mkdirat, -100, path, mode);
}

/* ---- the loop goes on ---- */

static manta_status report_number(manta_worker *w, double x, int64_t epoch)
{
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F64, 1, (int64_t[]){1}, &x)};
    manta_metrics m = {0};
    manta_status st;

    one_metric(&m, "x", x);
    st = manta_report_arrays(w, &m, 1, &c, epoch, 0);
    x = -1; /* the loop's own again */
    return st;
}

static _Atomic bool third_begun;

static void *open_gate(void *arg)
{
    while (!atomic_load(&third_begun)) wait_a_moment();
    for (int i = 0; i < 50; i++) wait_a_moment(); /* one that did not wait would be back */
    atomic_store(&gate_open, true);
    return arg;
}

/* No file comes to disk before the gate opens, and it opens when two checkpoints and
 * many metrics are reported: a report that waited for the disk would wait for ever.
 * The third checkpoint waits for the first. */
static manta_status gate_loop(manta_worker *w)
{
    manta_metrics m = {0};
    pthread_t opener;
    manta_status st;

    one_metric(&m, "x", 0);
    atomic_store(&gated, true);
    for (int i = 1; i <= 2; i++) {
        if ((st = report_number(w, i, i))) return st;
        for (int k = 0; k < 50; k++) {
            if ((st = manta_report(w, &m))) return st;
        }
    }
    if (atomic_load(&synced)) return manta_fail(MANTA_EINTERNAL, "the gate is open");
    CHECK(!pthread_create(&opener, NULL, open_gate, NULL));
    atomic_store(&third_begun, true);
    st = report_number(w, 3, 3);
    if (!st && !atomic_load(&synced)) st = manta_fail(MANTA_EINTERNAL, "three checkpoints are on their way");
    CHECK(!pthread_join(opener, NULL));
    return st;
}

/* The number in a checkpoint's arrays. */
static double number_in(const char *path)
{
    manta_checkpoint *c;
    manta_saved *saved;
    double x;

    CHECK(!manta_checkpoint_open(path, &c) && !manta_checkpoint_arrays(c, &saved));
    CHECK(manta_saved_contents(saved).n_arrays == 1);
    x = *(const double *)manta_saved_contents(saved).arrays[0].array.data;
    manta_saved_free(saved);
    manta_checkpoint_close(c);
    return x;
}

static void goes_on(const char *folder)
{
    manta_trainer_options o = {.loop = gate_loop, .run = {.name = "gate", .storage = folder}};
    manta_result *r = fit(&o, MANTA_OK);
    char path[400];

    CHECK(r->failures == 0 && r->n_checkpoints == 3 && lines_of(r->path, 0) == 103);
    for (int i = 1; i <= 3; i++) { /* in the order of the reports, each as it was then */
        snprintf(path, sizeof path, "%s/checkpoints/checkpoint-%06d", r->path, i);
        CHECK(number_in(path) == i);
    }
    manta_result_free(r);
}

/* ---- folders ---- */

typedef struct places {
    char own[200]; /* where loops make folders */
    int rounds;
} places;

/* The same name every time: it is free again when the report returns. */
static manta_status same_name_loop(manta_worker *w)
{
    const places *p = manta_worker_config(w, NULL);
    char folder[300], name[32], text[32];

    snprintf(folder, sizeof folder, "%s/rank-%d", p->own, manta_worker_rank(w));
    snprintf(name, sizeof name, "state-%d.txt", manta_worker_rank(w));
    for (int i = 0; i < p->rounds; i++) {
        manta_status st;
        if (mkdir(folder, 0777)) return manta_fail(MANTA_EIO, "%s is not free in round %d", folder, i);
        snprintf(text, sizeof text, "round %d", i);
        write_text(folder, name, text);
        if ((st = manta_report_checkpoint(w, NULL, folder, &(manta_checkpoint_info){.epoch = i + 1})))
            return st;
    }
    return MANTA_OK;
}

static void check_text(const char *folder, const char *name, const char *expected)
{
    char path[500], text[32] = "";
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK((f = fopen(path, "r")) && fgets(text, sizeof text, f));
    fclose(f);
    CHECK(!strcmp(text, expected));
}

/* Folders on the storage's file system, and on another one. */
static void same_name(const char *folder)
{
    char storage[64], command[80], path[300];
    places p = {.rounds = 6};
    manta_trainer_options o = {.loop = same_name_loop,
                               .config = &p,
                               .config_size = sizeof p,
                               .scaling = {.num_workers = 2},
                               .run = {.name = "same"}};

    CHECK(temp_folder(storage, sizeof storage, "/var/tmp", "trainer"));
    for (int i = 0; i < 2; i++) {
        manta_result *r;
        o.run.storage = i ? storage : folder;
        snprintf(p.own, sizeof p.own, "%s/own", folder);
        CHECK(!mkdir(p.own, 0777));
        r = fit(&o, MANTA_OK);
        CHECK(r->n_checkpoints == p.rounds);
        for (int k = 0; k < p.rounds; k++) {
            char text[32];
            snprintf(path, sizeof path, "%s/checkpoints/checkpoint-%06d", r->path, k + 1);
            snprintf(text, sizeof text, "round %d", k);
            check_text(path, "state-0.txt", text);
            check_text(path, "state-1.txt", text);
        }
        manta_result_free(r);
        CHECK(!rmdir(p.own)); /* nothing is left beside them */
    }
    snprintf(command, sizeof command, "rm -r %s", storage);
    CHECK(!system(command));
}

/* ---- what cannot be written ---- */

enum { LOST_AT_END = 1, LOST_FOLDER };

static void limit_files(rlim_t size)
{
    signal(SIGXFSZ, SIG_IGN);
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){size, RLIM_INFINITY}));
}

/* Reports metrics until one says what became of a checkpoint. */
static manta_status await_failure(manta_worker *w)
{
    struct timespec now, begin;
    manta_metrics m = {0};
    manta_status st;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        if ((st = manta_report(w, &m))) return st;
        wait_a_moment();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - begin.tv_sec < 60);
    return MANTA_OK;
}

/* Waits until the run has its first checkpoint: what is limited then is the second. */
static void await_first(const manta_worker *w)
{
    char path[1200];

    snprintf(path, sizeof path, "%s/checkpoints/checkpoint-000001", manta_worker_storage(w));
    for (int i = 0; i < 60000 && access(path, F_OK); i++) wait_a_moment();
}

/* A folder whose note is too long for the limit. */
static manta_status report_text(manta_worker *w, int64_t epoch, bool limited)
{
    char *folder;
    manta_status st = manta_worker_temp_folder(w, &folder);

    if (st) return st;
    write_text(folder, manta_worker_rank(w) ? "b.txt" : "a.txt", "a text");
    if (limited) limit_files(8);
    if (!(st = manta_worker_note(w, "why", "a note of more than eight bytes")))
        st = manta_report_checkpoint(w, NULL, folder, &(manta_checkpoint_info){.epoch = epoch});
    free(folder);
    return st;
}

/* The second of three checkpoints does not fit; rank 0 hears of it and goes on. */
static manta_status lost_loop(manta_worker *w)
{
    const int *mode = manta_worker_config(w, NULL);
    manta_status st = MANTA_OK;

    for (int i = 1; i <= 3 && !st; i++) {
        bool limited = manta_worker_rank(w) == 0 && i == 2;
        if (limited) await_first(w);
        if (limited && *mode != LOST_FOLDER) limit_files(8);
        st = *mode == LOST_FOLDER ? report_text(w, i, limited) : report_number(w, i, i);
        if (st || !limited) continue;
        if (*mode == LOST_AT_END) return MANTA_OK;
        st = await_failure(w);
        if ((st != MANTA_EIO && st != MANTA_ENOSPC) || !strstr(manta_error_text(), "File too large"))
            return manta_fail(MANTA_EINTERNAL, "the failure is not told: %s", manta_error_text());
        limit_files(RLIM_INFINITY);
        st = MANTA_OK;
    }
    return st;
}

static void lost(const char *folder)
{
    int mode = 0;
    manta_trainer_options o = {
        .loop = lost_loop,
        .config = &mode,
        .config_size = sizeof mode,
        .run = {.name = "lost", .storage = folder, .failure = {.max_failures = MANTA_NONE}}};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(r->n_checkpoints == 2 && number_in(r->checkpoint) == 3);
    manta_result_free(r);
    mode = LOST_AT_END;
    o.run.name = "lost-at-end";
    CHECK(manta_trainer_fit(&o, &r) && r);
    CHECK(r->error_rank == 0 && strstr(r->error, "rank 0 of 1") && strstr(r->error, "File too large"));
    CHECK(r->n_checkpoints == 1 && number_in(r->checkpoint) == 1);
    manta_result_free(r);
    mode = LOST_FOLDER; /* of a group: what is not whole is none */
    o.run.name = "lost-folder";
    o.scaling.num_workers = 2;
    r = fit(&o, MANTA_OK);
    CHECK(r->n_checkpoints == 2);
    check_text(r->checkpoint, "a.txt", "a text");
    check_text(r->checkpoint, "b.txt", "a text");
    manta_result_free(r);
}

/* ---- killed at every call ---- */

typedef struct counted {
    bool folders; /* of two ranks; else arrays of one */
    int kill_in; /* the calls of the last rank's process in the first attempt */
    char own[64]; /* where the folders are made; empty: where Manta says */
} counted;

enum { EPOCHS = 3 };

/* What a checkpoint says: of arrays the number, of folders the same as a file. */
static manta_status read_state(manta_worker *w, double *x)
{
    const manta_checkpoint *c = manta_worker_checkpoint(w);
    const counted *o = manta_worker_config(w, NULL);
    char path[1200];
    bool fine;
    FILE *f;

    *x = 1;
    if (!c) return MANTA_OK;
    if (!o->folders) {
        *x = number_in(manta_checkpoint_path(c));
        return MANTA_OK;
    }
    snprintf(path, sizeof path, "%s/state-%d.bin", manta_checkpoint_path(c), manta_worker_rank(w));
    if (!(f = fopen(path, "rb"))) return manta_fail(MANTA_EIO, "%s is not there", path);
    fine = fread(x, sizeof *x, 1, f) == 1;
    fclose(f);
    return fine ? MANTA_OK : manta_fail(MANTA_ECORRUPT, "%s is short", path);
}

static manta_status make_folder(manta_worker *w, char **out)
{
    const counted *o = manta_worker_config(w, NULL);

    if (!*o->own) return manta_worker_temp_folder(w, out);
    if (asprintf(out, "%s/rank-%d", o->own, manta_worker_rank(w)) < 0) abort();
    if (!mkdir(*out, 0777) || errno == EEXIST) return MANTA_OK; /* of one that was killed */
    return manta_fail(MANTA_EIO, "%s", *out);
}

static manta_status report_folder(manta_worker *w, double x, int64_t epoch)
{
    manta_metrics m = {0};
    char path[1200], *folder;
    manta_status st = make_folder(w, &folder);
    FILE *f;

    if (st) return st;
    snprintf(path, sizeof path, "%s/state-%d.bin", folder, manta_worker_rank(w));
    CHECK((f = fopen(path, "wb")) && fwrite(&x, sizeof x, 1, f) == 1 && !fclose(f));
    one_metric(&m, "x", x);
    st = manta_report_checkpoint(w, &m, folder, &(manta_checkpoint_info){.epoch = epoch});
    free(folder);
    return st;
}

static manta_status counted_loop(manta_worker *w)
{
    const counted *o = manta_worker_config(w, NULL);
    bool last = manta_worker_rank(w) == manta_worker_world_size(w) - 1;
    double x;
    manta_status st = read_state(w, &x);

    if (last && !manta_worker_attempt(w)) atomic_store(&kill_in, o->kill_in);
    for (int64_t e = manta_worker_epoch(w); e < EPOCHS && !st; e++) {
        x = x * 1.5 + (double)e + manta_worker_rank(w);
        st = o->folders ? report_folder(w, x, e + 1) : report_number(w, x, e + 1);
    }
    return st;
}

static manta_result *run_counted(const char *folder, const char *name, counted c, bool resume)
{
    manta_trainer_options o = {.loop = counted_loop,
                               .config = &c,
                               .config_size = sizeof c,
                               .scaling = {.num_workers = c.folders ? 2 : 1},
                               .run = {.name = name, .storage = folder, .resume = resume}};

    return fit(&o, MANTA_OK);
}

/* Every epoch is in the record once, the checkpoints are whole, and the last has the
 * bytes of a run that nobody killed. */
static void check_counted(const manta_result *r, bool folders)
{
    double x[2] = {1, 1};

    for (int e = 0; e < EPOCHS; e++) {
        for (int rank = 0; rank < 2; rank++) x[rank] = x[rank] * 1.5 + e + rank;
    }
    for (int rank = 0; rank < 1 + folders; rank++) CHECK(lines_of(r->path, rank) == EPOCHS);
    CHECK(series(r, "x")->n == EPOCHS && r->n_checkpoints == EPOCHS);
    for (int i = 0; i < r->n_checkpoints; i++) {
        manta_checkpoint *c;
        CHECK(!manta_checkpoint_open(r->checkpoints[i], &c));
        CHECK(manta_checkpoint_get(c)->epoch == EPOCHS - i);
        manta_checkpoint_close(c);
    }
    for (int rank = 0; folders && rank < 2; rank++) {
        char path[1200];
        double found = 0;
        FILE *f;
        snprintf(path, sizeof path, "%s/state-%d.bin", r->checkpoint, rank);
        CHECK((f = fopen(path, "rb")) && fread(&found, sizeof found, 1, f) == 1);
        fclose(f);
        CHECK(found == x[rank]);
    }
    CHECK(folders || number_in(r->checkpoint) == x[0]);
}

/* At every `step`-th call. */
static void kill_writer(const char *folder, const char *stem, counted c, int step)
{
    int n = 1;

    for (bool killed = true; killed; n += step) {
        char name[32];
        manta_result *r;
        c.kill_in = n;
        snprintf(name, sizeof name, "%s-%d", stem, n);
        r = run_counted(folder, name, c, false);
        killed = r->failures == 1;
        CHECK(r->failures <= 1);
        check_counted(r, c.folders);
        manta_result_free(r);
        CHECK(n < 200);
    }
    CHECK(n > 3 * EPOCHS); /* it did come to the calls of each checkpoint */
    printf("%s: killed at calls 1 to %d\n", stem, n - 2 * step);
}

static void killed_writer(const char *folder)
{
    kill_writer(folder, "arrays", (counted){0}, 1);
    kill_writer(folder, "folders", (counted){.folders = true}, 1);
}

static void killed_elsewhere(const char *folder)
{
    counted elsewhere = {.folders = true};

    /* Another file system, where there is one. */
    CHECK(temp_folder(elsewhere.own, sizeof elsewhere.own, "/var/tmp", "trainer"));
    kill_writer(folder, "elsewhere", elsewhere, 3); /* a disk is slow */
    CHECK(!rmdir(elsewhere.own)); /* what was moved aside there is gone */
}

/* ---- the driver is killed at every call ---- */

/* In a process of its own; what it is to do is in the environment. */
static void victim(const char *folder)
{
    const char *there = getenv("VICTIM_FOLDER"), *when = getenv("VICTIM_KILL_IN");
    bool folders = getenv("VICTIM_FOLDERS") != NULL;

    CHECK(!rmdir(folder)); /* its own, which nobody will remove */
    CHECK(there && when);
    atomic_store(&kill_in, (int)strtol(when, NULL, 10));
    manta_result_free(
        run_counted(there, folders ? "folders" : "arrays", (counted){.folders = folders}, true));
    atomic_store(&kill_in, 0);
    CHECK(!mkdir(folder, 0777));
}

/* Each takes up what the one before left, and is killed some calls later, until one
 * comes to the end. */
static void killed_driver(const char *folder)
{
    char *argv[] = {(char[]){"trainer_saves"}, (char[]){"victim"}, NULL}, at[8];

    CHECK(!setenv("VICTIM_FOLDER", folder, 1));
    for (int folders = 0; folders < 2; folders++) {
        int n = 1 + folders, kills = -1, status = 1;
        manta_result *r;
        if (folders) CHECK(!setenv("VICTIM_FOLDERS", "1", 1));
        for (; status; n += 3, kills++) {
            pid_t pid;
            snprintf(at, sizeof at, "%d", n);
            CHECK(!setenv("VICTIM_KILL_IN", at, 1));
            CHECK(!posix_spawn(&pid, "/proc/self/exe", NULL, NULL, argv, environ));
            CHECK(waitpid(pid, &status, 0) == pid);
            CHECK(!status || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
            CHECK(n < 200);
        }
        printf("killed at %d calls\n", kills);
        CHECK(kills > EPOCHS);
        r = run_counted(folder, folders ? "folders" : "arrays", (counted){.folders = folders}, true);
        check_counted(r, folders);
        manta_result_free(r);
    }
}

int main(int argc, char **argv)
{
    static const scenario all[] = {{"goes-on-saving", goes_on},
                                   {"same-name", same_name},
                                   {"lost", lost},
                                   {"killed-writer", killed_writer},
                                   {"killed-elsewhere", killed_elsewhere},
                                   {"killed-committer", killed_driver},
                                   {"victim", victim}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
