/* trainer_logs.c - what workers of a trainer say: where it goes, how loud it is,
 * and that it has a bound. */
#include <dirent.h>

#include <manta/log.h>

#include "trainer_fixture.h"

/* All that a rank has said, as a reader gets it; owned by the caller. */
static char *said_by(const char *run, int rank)
{
    manta_run_log_reader *in;
    char *all = calloc(1, 1);
    const char *text;
    size_t n, had = 0;

    CHECK(all && !manta_run_log_open(run, "rank", rank, &in));
    for (;;) {
        CHECK(!manta_run_log_read(in, &text, &n));
        if (!n) break;
        CHECK((all = realloc(all, had + n + 1)));
        memcpy(all + had, text, n);
        all[had += n] = '\0';
    }
    manta_run_log_close(in);
    return all;
}

static long bytes_of(const char *run, int *files)
{
    char path[1000];
    struct dirent *e;
    struct stat info;
    long sum = 0;
    DIR *d;

    snprintf(path, sizeof path, "%s/log", run);
    CHECK((d = opendir(path)));
    for (*files = 0; (e = readdir(d));) {
        if (*e->d_name == '.') continue;
        snprintf(path, sizeof path, "%s/log/%s", run, e->d_name);
        CHECK(!stat(path, &info));
        sum += info.st_size;
        ++*files;
    }
    closedir(d);
    return sum;
}

/* ---- a loop that prints without end ---- */

enum { LINES = 30000 };

static manta_status babble(manta_worker *w)
{
    for (int i = 0; i < LINES; i++) printf("rank %d says line %d\n", manta_worker_rank(w), i);
    return MANTA_OK;
}

/* By its own hand and through the driver's, what it leaves has a size. */
static void bounds(const char *folder)
{
    for (int stamp = 0; stamp < 2; stamp++) {
        manta_trainer_options o = {.loop = babble,
                                   .scaling = {.num_workers = 2},
                                   .run = {.name = stamp ? "stamped" : "plain",
                                           .storage = folder,
                                           .logging = {.stamp = stamp, .max_size = 64 << 10, .parts = 4}}};
        manta_result *r = fit(&o, MANTA_OK);
        int files;
        CHECK(bytes_of(r->path, &files) <= 2 * ((64 << 10) + 400));
        CHECK(files > 2 && files <= 8);
        for (int rank = 0; rank < 2; rank++) {
            char *text = said_by(r->path, rank), last[64];
            snprintf(last, sizeof last, "rank %d says line %d\n", rank, LINES - 1);
            CHECK(strstr(text, last) && !strstr(text, "says line 0\n"));
            CHECK(strstr(text, "this log is kept to 0.0625 MiB") ||
                  (!stamp && strstr(text, " bytes were said here faster")));
            free(text);
        }
        manta_result_free(r);
    }
}

/* ---- levels ---- */

/* Its first attempt fails, which is what the driver has to say. */
static manta_status quiet_or_loud(manta_worker *w)
{
    manta_metrics m = {0};

    one_metric(&m, "x", 1);
    if (!manta_worker_attempt(w)) return manta_fail(MANTA_EIO, "the first attempt is not to be");
    return manta_report(w, &m);
}

typedef struct heard {
    int n;
} heard;

static void hear(void *ctx, manta_log_level level, const char *line, size_t n)
{
    (void)level;
    (void)n;
    if (strstr(line, "all begin again")) ((heard *)ctx)->n++;
}

/* The driver of a run that is off says nothing of the attempt that failed; the next run in
 * this process does, and neither changes what the process lets through. */
static void levels(const char *folder)
{
    static const char *const names[] = {"off", NULL, "error", "warn"};
    heard h = {0};

    manta_log_set_sink(hear, &h);
    for (int i = 0; i < 4; i++) {
        char name[8] = {(char)('a' + i)};
        manta_trainer_options o = {.loop = quiet_or_loud,
                                   .run = {.name = name, .storage = folder, .logging = {.level = names[i]}}};
        manta_result_free(fit(&o, MANTA_OK));
        CHECK(h.n == (i < 1 ? 0 : i < 3 ? 1 : 2));
    }
    manta_log_set_sink(NULL, NULL);
    {
        manta_trainer_options o = {.loop = quiet_or_loud,
                                   .run = {.name = "e", .storage = folder, .logging = {.level = "loud"}}};
        manta_result *r = NULL;
        CHECK(manta_trainer_fit(&o, &r) == MANTA_EINVAL && !r);
        CHECK(strstr(manta_error_text(), "no log level is called \"loud\""));
    }
}

/* ---- shown ---- */

static manta_status greet(manta_worker *w)
{
    printf("hello from attempt %d\n", manta_worker_attempt(w));
    fprintf(stderr, "and no end");
    if (!manta_worker_attempt(w) && manta_worker_rank(w) == 1) abort();
    return manta_worker_barrier(w);
}

static void shows(const char *folder)
{
    char path[300], text[4096] = "";
    int saved = dup(STDERR_FILENO);
    FILE *f;

    snprintf(path, sizeof path, "%s/shown", folder);
    CHECK(saved >= 0 && (f = fopen(path, "w+")) && dup2(fileno(f), STDERR_FILENO) >= 0);
    for (manta_log_to to = MANTA_LOG_TO_OUTPUT; to <= MANTA_LOG_TO_BOTH; to++) {
        manta_trainer_options o = {.loop = greet,
                                   .scaling = {.num_workers = 2},
                                   .run = {.name = to == MANTA_LOG_TO_BOTH ? "both" : "output",
                                           .storage = folder,
                                           .logging = {.to = to}}};
        manta_result *r = fit(&o, MANTA_OK);
        CHECK(r->failures == 1);
        snprintf(path, sizeof path, "%s/log/rank-0.txt", r->path);
        CHECK(!access(path, F_OK) == (to == MANTA_LOG_TO_BOTH));
        if (to == MANTA_LOG_TO_BOTH) {
            char *own = said_by(r->path, 1);
            CHECK(!strncmp(own, "hello from attempt 0\nand no end\n", 32));
            CHECK(strstr(own, "rank 1 of 2: ") && strstr(own, "\nhello from attempt 1\nand no end\n"));
            free(own);
        }
        manta_result_free(r);
    }
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    CHECK(strstr(text, "rank 0 | hello from attempt 0\n") && strstr(text, "rank 1 | hello from attempt 1\n"));
    CHECK(strstr(text, "rank 1 | and no end\n"));
}

int main(int argc, char **argv)
{
    static const scenario all[] = {{"bounds", bounds}, {"levels", levels}, {"shows", shows}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
