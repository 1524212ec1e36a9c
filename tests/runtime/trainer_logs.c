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
    manta_status st = manta_worker_barrier(w); /* the other has said it as well, and is not ended before */
    if (st) return st;
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

/* ---- failures ---- */

/* A checkpoint that counts a report of both; then rank 1 fails, in every attempt. */
static manta_status stumble(manta_worker *w)
{
    float x = 1;
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};
    manta_metrics m = {0};
    manta_status st = MANTA_OK;
    int rank = manta_worker_rank(w);

    one_metric(&m, "loss", 1);
    if (!manta_worker_epoch(w)) {
        if (rank == 1) st = manta_report(w, &m);
        if (!st) st = manta_worker_barrier(w);
        if (!st && rank == 0) st = manta_report_arrays(w, &m, 1, &c, 1, 0);
        if (!st) st = manta_worker_barrier(w);
    }
    if (st || rank != 1) return st;
    return manta_fail(MANTA_EIO, "the ladder\033[2J is short");
}

/* What a run that fails twice says on standard error; owned by the caller. */
static char *said_of_failures(const char *folder, const char *name, const char *level)
{
    manta_trainer_options o = {
        .loop = stumble,
        .scaling = {.num_workers = 2},
        .run = {
            .name = name, .storage = folder, .failure = {.max_failures = 1}, .logging = {.level = level}}};
    int saved = dup(STDERR_FILENO);
    char path[300], *text = calloc(1, 1 << 16);
    FILE *f;

    snprintf(path, sizeof path, "%s/said", folder);
    CHECK(text && saved >= 0 && (f = fopen(path, "w+")) && dup2(fileno(f), STDERR_FILENO) >= 0);
    manta_result_free(fit(&o, MANTA_EIO));
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(f);
    text[fread(text, 1, (1 << 16) - 1, f)] = '\0';
    fclose(f);
    return text;
}

static char *block_of(const char *folder, const char *name, const char *now)
{
    char *text;

    CHECK(asprintf(&text,
                   "manta: worker 1 failed\n"
                   "  what   the ladder?[2J is short\n"
                   "  where  epoch 2, after report 1\n"
                   "  now    %s\n"
                   "  log    manta logs %s/%s --rank 1\n",
                   now, folder, name) > 0);
    return text;
}

/* A failure is one block for people, one record for programs, and nothing where
 * nothing is to be said. */
static void blocks(const char *folder)
{
    static const char *const again =
        "all 2 workers begin again from checkpoint-000001 (failure 1, max_failures is 1)";
    static const char *const end = "the run ends (failure 2, max_failures is 1); a fit with .name = \"%s\" "
                                   "and .resume goes on from checkpoint-000001";
    char now[200], *said, *first, *last;

    said = said_of_failures(folder, "people", NULL);
    first = block_of(folder, "people", again);
    snprintf(now, sizeof now, end, "people");
    last = block_of(folder, "people", now);
    CHECK(!strncmp(said, first, strlen(first)) && !strcmp(said + strlen(first), last));
    free(said);
    free(first);
    free(last);

    said = said_of_failures(folder, "last", "error");
    snprintf(now, sizeof now, end, "last");
    last = block_of(folder, "last", now);
    CHECK(!strcmp(said, last));
    free(said);
    free(last);

    said = said_of_failures(folder, "silent", "off");
    CHECK(!*said);
    free(said);

    manta_log_set_format(MANTA_LOG_FORMAT_JSON);
    said = said_of_failures(folder, "program", NULL);
    manta_log_set_format(MANTA_LOG_FORMAT_TEXT);
    first = strchr(said, '\n');
    CHECK(first && (last = strchr(first + 1, '\n')) && !last[1]); /* two lines */
    *first = '\0';
    CHECK(strstr(said, "\"msg\":\"a loop has failed; all begin again\",\"rank\":1"));
    CHECK(strstr(first + 1, "\"msg\":\"the run has failed\",\"run\":\"program\",\"rank\":1"));
    CHECK(strstr(first + 1, "/program/checkpoints/checkpoint-000001\""));
    free(said);
}

int main(int argc, char **argv)
{
    static const scenario all[] = {
        {"bounds", bounds}, {"levels", levels}, {"shows", shows}, {"blocks", blocks}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
