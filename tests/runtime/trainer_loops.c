/* trainer_loops.c - what loops of a trainer can do: see themselves, notes,
 * evaluation, reports at a pace of their own, datasets and checkpoints of every
 * kind. */
#include <math.h>
#include <signal.h>
#include <unistd.h>

#include "trainer_fixture.h"

/* ---- what a loop sees of itself ---- */

static manta_status context_loop(manta_worker *w)
{
    int rank = manta_worker_rank(w), world = manta_worker_world_size(w);
    const char *storage = manta_worker_storage(w), *config;
    size_t n = 0;

    config = manta_worker_config(w, &n);
    if (world != 3 || rank < 0 || rank >= world)
        return manta_fail(MANTA_EINTERNAL, "rank %d of %d", rank, world);
    if (manta_worker_local_rank(w) != rank || manta_worker_local_world_size(w) != world ||
        manta_worker_node_rank(w) != 0) /* one host */
        return manta_fail(MANTA_EINTERNAL, "its place on the host");
    if (n != 6 || strcmp(config, "hello") != 0) return manta_fail(MANTA_EINTERNAL, "its config");
    if (strcmp(manta_worker_run_name(w), "context") != 0 || access(storage, F_OK) ||
        strcmp(strrchr(storage, '/'), "/context") != 0)
        return manta_fail(MANTA_EINTERNAL, "its run %s", storage);
    if (manta_worker_checkpoint(w) || manta_worker_epoch(w) || manta_worker_step(w))
        return manta_fail(MANTA_EINTERNAL, "a checkpoint that nobody made");
    if (manta_worker_should_stop(w)) return manta_fail(MANTA_EINTERNAL, "to stop at once");
    printf("rank %d, attempt %d\n", rank, manta_worker_attempt(w));
    if (!manta_worker_attempt(w) && rank == 2) return manta_fail(MANTA_EIO, "the first attempt is not to be");
    return MANTA_OK;
}

static void context(const char *folder)
{
    manta_trainer_options o = {.loop = context_loop,
                               .config = "hello",
                               .config_size = 6,
                               .scaling = {.num_workers = 3},
                               .run = {.name = "context", .storage = folder}};
    manta_result *r = fit(&o, MANTA_OK);
    char path[300], text[100] = "";
    FILE *f;

    CHECK(r->failures == 1 && r->workers == 3 && !r->checkpoint);
    /* What it prints is in the log of its rank, and so is why it failed. */
    snprintf(path, sizeof path, "%s/log/rank-2.txt", r->path);
    CHECK((f = fopen(path, "r")));
    CHECK(fgets(text, sizeof text, f) && !strcmp(text, "rank 2, attempt 0\n"));
    CHECK(fgets(text, sizeof text, f) && strstr(text, "the first attempt is not to be"));
    CHECK(fgets(text, sizeof text, f) && !strcmp(text, "rank 2, attempt 1\n"));
    fclose(f);
    manta_result_free(r);
}

/* ---- notes ---- */

static manta_status notes_loop(manta_worker *w)
{
    float x[2] = {1, 2};
    manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){2}, x)};
    manta_note given[2] = {{"author", "rank"}, {"text", "two words\nand a line"}};
    manta_checkpoint_info info = {.epoch = 3, .n_notes = 2, .notes = given};
    manta_note mine[1] = {{"reports", "7"}};
    manta_status st;
    static char long_one[(1 << 20) + 1];
    char *folder;

    memset(long_one, 'x', sizeof long_one - 1);
    given[0].text = manta_worker_rank(w) ? "another" : "chief";
    if ((st = manta_worker_note(w, "first", "of arrays"))) return st;
    if ((st = manta_report_arrays(w, NULL, 1, &c, 1, 0))) return st;
    if ((st = manta_report_arrays(w, NULL, 1, &c, 2, 0))) return st; /* a note is of one checkpoint */
    if ((st = manta_worker_temp_folder(w, &folder))) return st;
    write_text(folder, "a.txt", "a");
    st = manta_report_checkpoint(w, NULL, folder, &info);
    free(folder);
    if (st) return st;
    if (manta_worker_note(w, "workers", "5") != MANTA_EINVAL ||
        manta_worker_note(w, "x", "\xff") != MANTA_EINVAL)
        return manta_fail(MANTA_EINTERNAL, "notes that cannot be were taken");
    info.n_notes = 1;
    info.notes = mine;
    if (manta_report_checkpoint(w, NULL, NULL, &info) != MANTA_EINVAL)
        return manta_fail(MANTA_EINTERNAL, "a note of Manta's own was taken");
    mine[0] = (manta_note){"long", long_one};
    if (manta_report_checkpoint(w, NULL, NULL, &info) != MANTA_EINVAL)
        return manta_fail(MANTA_EINTERNAL, "a note beyond all bounds was taken");
    return MANTA_OK;
}

/* A checkpoint that stands has its notes, and nobody else. */
static bool notes_are_in(void *user, const manta_report_event *e)
{
    bool first = e->checkpoint && strstr(e->checkpoint, "000001"),
         third = e->checkpoint && strstr(e->checkpoint, "000003"); /* the second has none */
    char left[400];

    snprintf(left, sizeof left, "%s/notes/.parts.%d.0/round-%d.rank-0.notes", (const char *)user, getpid(),
             first ? -1 : 0);
    CHECK((!first && !third) || access(left, F_OK));
    return true;
}

static void notes(const char *folder)
{
    static const struct {
        int64_t epoch;
        const char *name, *text;
    } expected[] = {{1, "first", "of arrays"}, {2, "first", NULL},
                    {3, "author", "chief"},    {3, "text", "two words\nand a line"},
                    {3, "first", NULL},        {3, "workers", "2"}};
    manta_trainer_options o = {
        .loop = notes_loop,
        .scaling = {.num_workers = 2},
        .run = {
            .name = "notes", .storage = folder, .report = notes_are_in, .user = (void *)(uintptr_t)folder}};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(r->n_checkpoints == 3);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        bool found = false;
        for (int k = 0; k < r->n_checkpoints; k++) {
            manta_checkpoint *c;
            const char *text;
            CHECK(!manta_checkpoint_open(r->checkpoints[k], &c));
            text = manta_checkpoint_note(c, expected[i].name);
            if (manta_checkpoint_get(c)->epoch == expected[i].epoch) {
                found = true;
                CHECK(expected[i].text ? text && !strcmp(text, expected[i].text) : !text);
            }
            manta_checkpoint_close(c);
        }
        CHECK(found);
    }
    manta_result_free(r);
}

/* ---- evaluation ---- */

/* Of three ranks the last has nothing; all samples together are "whole". */
static manta_status evaluate_loop(manta_worker *w)
{
    static const int64_t skip[3] = {0, 41, 60}, take[3] = {41, 19, 0};
    int rank = manta_worker_rank(w);
    manta_model *m = line_model();
    manta_session *s;
    manta_dataset *all, *part;
    manta_metrics whole, own, together, fitted, report = {0};
    manta_status st;

    if ((st = open_session(w, m, "sgd", &s))) return st;
    if ((st = manta_worker_dataset(w, "train", &all))) return st;
    if ((st = manta_evaluate(s, all, NULL, &whole))) return st; /* every rank, by itself */
    if ((st = manta_worker_dataset(w, "train", &part))) return st;
    part = manta_dataset_take(manta_dataset_skip(part, skip[rank]), take[rank]);
    if (take[rank] && (st = manta_evaluate(s, part, NULL, &own))) return st;
    if ((st = manta_worker_evaluate(w, s, rank == 2 ? NULL : part, NULL, &together))) return st;
    one_metric(&report, "whole", whole.value[0]);
    one_metric(&report, "own", take[rank] ? own.value[0] : 0);
    one_metric(&report, "together", together.value[0]);
    /* Validation in a fit is everybody's too: no rank decides by its own part. */
    if (rank < 2) {
        if ((st = manta_fit(s, all, &(manta_fit_options){.validation = part}, &fitted))) return st;
    } else {
        manta_dataset *one = NULL;
        if ((st = manta_worker_dataset(w, "train", &one))) return st;
        one = manta_dataset_take(one, 0);
        if ((st = manta_fit(s, all, &(manta_fit_options){.validation = one}, &fitted))) return st;
        manta_dataset_unref(one);
    }
    if ((st = manta_evaluate(s, all, NULL, &whole))) return st;
    one_metric(&report, "val_loss", manta_metrics_get(&fitted, "val_loss"));
    one_metric(&report, "whole_after", whole.value[0]);
    manta_dataset_unref(part);
    manta_dataset_unref(all);
    manta_session_close(s);
    manta_model_free(m);
    return manta_report(w, &report);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b); /* sums of float numbers in another order */
}

static bool check_evaluation(void *user, const manta_report_event *e)
{
    const manta_metrics *m = e->metrics;

    CHECK(near(manta_metrics_get(m, "together"), manta_metrics_get(m, "whole")));
    CHECK(!near(manta_metrics_get(m, "own"), manta_metrics_get(m, "whole")));
    CHECK(near(manta_metrics_get(m, "val_loss"), manta_metrics_get(m, "whole_after")));
    ++*(int *)user;
    return true;
}

static void evaluates(const char *folder)
{
    int seen = 0;
    manta_named_dataset d = {.name = "train", .dataset = samples(), .whole = true};
    manta_trainer_options o = {
        .loop = evaluate_loop,
        .scaling = {.num_workers = 3},
        .run = {.name = "evaluates", .storage = folder, .report = check_evaluation, .user = &seen},
        .n_datasets = 1,
        .datasets = &d};

    manta_result_free(fit(&o, MANTA_OK));
    CHECK(seen == 3);
    manta_dataset_unref(d.dataset);
}

/* ---- reports at a pace of their own ---- */

/* What rank 0 has becomes everybody's, small and large; sizes that differ are said by all. */
static manta_status broadcast_loop(manta_worker *w)
{
    enum { MANY = 300000 };
    static int32_t many[MANY];
    int rank = manta_worker_rank(w);
    double one = rank ? 0 : 42;
    char odd[8] = "";
    manta_status st;

    if ((st = manta_worker_broadcast(w, &one, sizeof one))) return st;
    for (int i = 0; i < MANY && !rank; i++) many[i] = i * 7;
    if ((st = manta_worker_broadcast(w, many, sizeof many))) return st;
    for (int i = 0; i < MANY; i++) CHECK(many[i] == i * 7);
    CHECK(one == 42 && !manta_worker_broadcast(w, NULL, 0));
    CHECK(manta_worker_broadcast(w, odd, rank ? 4 : 8) == MANTA_EINVAL);
    if ((st = manta_worker_broadcast(w, &one, sizeof one))) return st;
    if (!rank) return MANTA_OK;
    CHECK(manta_worker_broadcast(w, &one, sizeof one) == MANTA_EDIED);
    return MANTA_OK;
}

static void broadcasts(const char *folder)
{
    manta_trainer_options o = {.loop = broadcast_loop,
                               .scaling = {.num_workers = 3},
                               .run = {.name = "broadcast", .storage = folder, .failure = {MANTA_NONE}}};

    manta_result_free(fit(&o, MANTA_OK));
}

/* Rank 1 reports ten times as often, and is killed once, late. */
static manta_status pace_loop(manta_worker *w)
{
    int rank = manta_worker_rank(w);
    manta_status st;

    for (int64_t e = manta_worker_epoch(w); e < 4; e++) {
        manta_metrics m = {0};
        float x = (float)e;
        manta_column c = {"x", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){1}, &x)};
        one_metric(&m, "epoch", (double)e);
        for (int i = 0; rank && i < 10; i++) {
            if ((st = manta_report(w, &m))) return st;
        }
        if (rank && e == 3 && !manta_worker_attempt(w)) raise(SIGKILL);
        if ((st = manta_worker_barrier(w))) return st;
        if (!rank && e < 3 && (st = manta_report_arrays(w, &m, 1, &c, e + 1, 0))) return st;
        if (!rank && e == 3 && (st = manta_report(w, &m))) return st;
        if ((st = manta_worker_barrier(w))) return st;
    }
    return MANTA_OK;
}

static void paces(const char *folder)
{
    manta_trainer_options o = {
        .loop = pace_loop, .scaling = {.num_workers = 2}, .run = {.name = "paces", .storage = folder}};
    manta_result *r = fit(&o, MANTA_OK);
    const manta_run_series *s = series(r, "epoch");

    CHECK(r->failures == 1);
    CHECK(s->n == 4);
    for (int i = 0; i < 4; i++) CHECK(s->points[i].epoch == i + 1 && s->points[i].value == i);
    CHECK(lines_of(r->path, 0) == 4);
    CHECK(lines_of(r->path, 1) == 40);
    manta_result_free(r);
}

/* Folders without an info: a report stands for an epoch, before and after. */
static manta_status bare_loop(manta_worker *w)
{
    manta_metrics m = {0};
    manta_status st;

    one_metric(&m, "epoch", (double)manta_worker_epoch(w));
    for (int i = 0; i < 2; i++) {
        char *folder;
        if ((st = manta_worker_temp_folder(w, &folder))) return st;
        write_text(folder, "state.txt", "mine");
        st = manta_report_checkpoint(w, &m, folder, NULL);
        free(folder);
        if (st) return st;
        m.value[0]++;
    }
    return MANTA_OK;
}

static void bare(const char *folder)
{
    manta_trainer_options o = {
        .loop = bare_loop, .scaling = {.num_workers = 2}, .run = {.name = "bare", .storage = folder}};
    manta_result *r = fit(&o, MANTA_OK);
    const manta_run_series *s;
    char checkpoint[600];

    snprintf(checkpoint, sizeof checkpoint, "%s", r->checkpoint);
    manta_result_free(r);
    o.run.resume = true;
    r = fit(&o, MANTA_OK);
    s = series(r, "epoch");
    CHECK(s->n == 4);
    for (int i = 0; i < 4; i++) CHECK(s->points[i].epoch == i + 1 && s->points[i].value == i);
    manta_result_free(r);
    o.run.resume = false;
    o.run.name = "elsewhere";
    o.resume_from_checkpoint = checkpoint;
    r = fit(&o, MANTA_OK);
    s = series(r, "epoch");
    CHECK(s->n == 2 && s->points[0].epoch == 3 && s->points[0].value == 2 && s->points[1].epoch == 4);
    manta_result_free(r);
}

/* ---- datasets ---- */

static manta_status double_x(manta_sample *s, void *user)
{
    const float *in = s->in[0].array.data;
    float *out = s->out[0].array.data;

    (void)user;
    for (int i = 0; i < FEATURES; i++) out[i] = 2 * in[i];
    memcpy(s->out[1].array.data, s->in[1].array.data, sizeof(float));
    return MANTA_OK;
}

typedef struct counter {
    int64_t at, end;
} counter;

static manta_status count_open(void *user, int64_t epoch, void **state)
{
    const counter *from = user;
    counter *c = malloc(sizeof *c);

    (void)epoch;
    if (!c) return manta_fail(MANTA_ENOMEM, "a counter");
    *c = *from;
    *state = c;
    return MANTA_OK;
}

static manta_status count_next(void *state, manta_column *out, int n, bool *end)
{
    counter *c = state;

    (void)n;
    if (c->at == c->end) {
        *end = true;
        return MANTA_OK;
    }
    *(float *)out[0].array.data = (float)c->at++;
    return MANTA_OK;
}

/* A generator that is sharded already: a rank makes its own numbers, apart by what `user` says. */
static manta_dataset *make_numbers(manta_worker *w, const void *user, size_t size)
{
    static const manta_column_spec spec = {.name = "n", .dtype = MANTA_DTYPE_F32, .ndim = 0};
    counter *own = malloc(sizeof *own);

    if (!own || size != sizeof(int64_t)) return NULL;
    memcpy(&own->at, user, size);
    own->at *= manta_worker_rank(w);
    own->end = own->at + 5 + manta_worker_rank(w);
    return manta_dataset_generator(
        &(manta_generator){.open = count_open, .next = count_next, .close = free, .release = free}, own,
        own->end - own->at, 1, &spec);
}
MANTA_DATASET_MAKER(make_numbers)

static manta_dataset *make_broken(manta_worker *w, const void *user, size_t size)
{
    (void)w;
    (void)user;
    CHECK(!size);
    return manta_dataset_cast(samples(), "no such column", MANTA_DTYPE_F64);
}

/* How many samples an epoch of the dataset has here, and the sum of a column's
 * first numbers; *order: a number that tells one order from another. */
static manta_status add_up(manta_worker *w, const char *name, int64_t epoch, double *n, double *sum,
                           double *order)
{
    manta_dataset *d;
    manta_loader *l;
    manta_batch b;
    manta_status st = manta_worker_dataset(w, name, &d);

    if (st) return st;
    st = manta_loader_open(d, &(manta_loader_options){.batch_size = 4}, &l);
    manta_dataset_unref(d);
    if (st) return st;
    *n = *sum = *order = 0;
    if (!(st = manta_loader_seek(l, epoch, 0))) {
        while (manta_loader_next(l, &b)) {
            const manta_array *a = &b.columns[0].array;
            int64_t width = a->ndim > 1 ? a->shape[1] : 1;
            if (strcmp(b.columns[0].name, strcmp(name, "made") ? "x" : "n") != 0)
                st = manta_fail(MANTA_EINVAL, "%s: a column %s of %d dimensions", name, b.columns[0].name,
                                a->ndim);
            for (int64_t i = 0; i < b.count; i++) {
                double x = ((const float *)a->data)[i * width];
                *n += 1;
                *sum += x;
                *order += *n * x;
            }
        }
        if (!st) st = manta_loader_status(l);
    }
    manta_loader_close(l);
    return st;
}

static manta_status shards_loop(manta_worker *w)
{
    static const char *const names[] = {"divided", "shuffled", "whole", "made", "described"};
    manta_metrics m = {0};
    manta_dataset *d = NULL;
    double n, sum, order;
    manta_status st;

    for (int i = 0; i < 5; i++) {
        for (int epoch = 0; epoch < 2; epoch++) {
            char name[64];
            if ((st = add_up(w, names[i], epoch, &n, &sum, &order))) return st;
            snprintf(name, sizeof name, "%s-%d-n", names[i], epoch);
            one_metric(&m, name, n);
            snprintf(name, sizeof name, "%s-%d-sum", names[i], epoch);
            one_metric(&m, name, sum);
            snprintf(name, sizeof name, "%s-%d-order", names[i], epoch);
            one_metric(&m, name, order);
        }
    }
    if (manta_worker_dataset(w, "broken", &d) != MANTA_EINVAL || d ||
        manta_worker_dataset(w, "nobody's", &d) != MANTA_ENOENT)
        return manta_fail(MANTA_EINTERNAL, "a dataset that cannot be was given");
    return manta_report(w, &m);
}
MANTA_LOOP(shards_loop)

static double seen[2][5][2][3]; /* rank, dataset, epoch; samples, sum, order */

static bool take_sums(void *user, const manta_report_event *e)
{
    (void)user;
    memcpy(seen[e->rank], e->metrics->value, sizeof seen[0]);
    return true;
}

/* Named datasets arrive sharded, shuffled and normalised, whatever they come from. */
static void shards(const char *folder)
{
    char spec[400];
    int64_t apart = 100;
    manta_dataset *mapped = manta_dataset_map(samples(), double_x, NULL, 0, 0, NULL);
    manta_named_dataset all[6] = {
        {.name = "divided", .dataset = samples()},
        {.name = "shuffled", .dataset = mapped, .shuffle = true},
        {.name = "whole", .dataset = samples(), .whole = true},
        {.name = "made", .maker = "make_numbers", .user = &apart, .user_size = sizeof apart},
        {.name = "described", .spec = spec},
        {.name = "broken", .make = make_broken}};
    manta_trainer_options o = {.loop_name = "shards_loop",
                               .scaling = {.num_workers = 2},
                               .run = {.name = "shards", .storage = folder, .report = take_sums},
                               .n_datasets = 6,
                               .datasets = all,
                               .seed = 5};
    double total = 0;

    write_text(folder, "numbers.csv", "n\n1\n2\n3\n4\n5\n");
    snprintf(spec, sizeof spec, "%s/numbers.csv", folder);
    manta_result_free(fit(&o, MANTA_OK));
    for (int i = 0; i < N; i++) total += xs[i * FEATURES];
    for (int e = 0; e < 2; e++) {
        for (int rank = 0; rank < 2; rank++) {
            CHECK(seen[rank][0][e][0] == N / 2 && seen[rank][1][e][0] == N / 2 && seen[rank][2][e][0] == N);
            CHECK(fabs(seen[rank][2][e][1] - total) < 1e-4);
            CHECK(seen[rank][3][e][0] == 5 + rank);
            CHECK(seen[rank][4][e][0] == 3 - rank);
        }
        CHECK(fabs(seen[0][0][e][1] + seen[1][0][e][1] - total) < 1e-4);
        CHECK(fabs(seen[0][1][e][1] + seen[1][1][e][1] - 2 * total) < 1e-4); /* mapped before */
        CHECK(seen[0][3][e][1] == 0 + 1 + 2 + 3 + 4 && seen[1][3][e][1] == 600 + 15);
        CHECK(seen[0][4][e][1] == 1 + 3 + 5 && seen[1][4][e][1] == 2 + 4);
    }
    CHECK(seen[0][0][0][2] == seen[0][0][1][2]); /* as it was given */
    CHECK(seen[0][1][0][2] != seen[0][1][1][2]); /* anew every epoch */
    manta_dataset_unref(all[0].dataset);
    manta_dataset_unref(all[1].dataset);
    manta_dataset_unref(all[2].dataset);
}

/* ---- checkpoints of every kind ---- */

/* A folder made anywhere, a dictionary of arrays, and back. */
static manta_status folders_loop(manta_worker *w)
{
    const char *base = manta_worker_config(w, NULL);
    const manta_checkpoint *from = manta_worker_checkpoint(w);
    float x[6] = {1, 2, 3, 4, 5, 6};
    int32_t n = 41;
    manta_column c[2] = {{"weights", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 3}, x)},
                         {"n", manta_array_of(MANTA_DTYPE_I32, 0, NULL, &n)}};
    char folder[300], inner[340], link[340], *temp;
    manta_status st;

    if (from) { /* taken up: the folder of the run before, copied out of it */
        FILE *f;
        char text[16] = "";
        if ((st = manta_worker_temp_folder(w, &temp))) return st;
        if ((st = manta_checkpoint_copy(from, temp))) return st;
        snprintf(inner, sizeof inner, "%s/below/b.txt", temp);
        free(temp);
        if (!(f = fopen(inner, "r")) || !fgets(text, sizeof text, f) || strcmp(text, "deep") != 0)
            return manta_fail(MANTA_EINTERNAL, "%s says '%s'", inner, text);
        fclose(f);
        return manta_report_arrays(w, NULL, 2, c, 2, 0);
    }
    snprintf(folder, sizeof folder, "%s/own-%d", base, manta_worker_rank(w));
    snprintf(inner, sizeof inner, "%s/below", folder);
    if (mkdir(folder, 0777) || mkdir(inner, 0777)) return manta_fail(MANTA_EIO, "%s", folder);
    write_text(folder, manta_worker_rank(w) ? "b.txt" : "a.txt", "flat");
    write_text(inner, manta_worker_rank(w) ? "c.txt" : "b.txt", "deep");
    snprintf(link, sizeof link, "%s/link", folder);
    if (symlink(inner, link)) return manta_fail(MANTA_EIO, "%s", link);
    if (manta_report_checkpoint(w, NULL, folder, NULL) != MANTA_EINVAL || access(link, F_OK))
        return manta_fail(MANTA_EINTERNAL, "a link was taken for a folder");
    if (unlink(link)) return manta_fail(MANTA_EIO, "%s", link);
    if ((st = manta_report_checkpoint(w, NULL, folder, &(manta_checkpoint_info){.epoch = 1, .step = 2})))
        return st;
    if (!access(folder, F_OK)) return manta_fail(MANTA_EINTERNAL, "%s is still there", folder);
    if (manta_report_checkpoint(w, NULL, folder, NULL) != MANTA_ENOENT)
        return manta_fail(MANTA_EINTERNAL, "a folder that is not there was taken");
    return MANTA_OK;
}

static void folders(const char *folder)
{
    static const char *const files[] = {"a.txt", "b.txt", "below/b.txt", "below/c.txt"};
    manta_trainer_options o = {.loop = folders_loop,
                               .config = folder,
                               .config_size = strlen(folder) + 1,
                               .scaling = {.num_workers = 2},
                               .run = {.name = "folders", .storage = folder}};
    manta_result *r = fit(&o, MANTA_OK);
    manta_checkpoint *c;
    manta_saved *saved;
    char storage[64], command[80];

    CHECK(r->n_checkpoints == 1 && !manta_checkpoint_open(r->checkpoint, &c));
    CHECK(manta_checkpoint_get(c)->epoch == 1 && manta_checkpoint_get(c)->step == 2);
    for (int i = 0; i < 4; i++) CHECK(!strcmp(manta_checkpoint_file(c, i), files[i]));
    CHECK(!manta_checkpoint_file(c, 4));
    manta_checkpoint_close(c);
    manta_result_free(r);
    o.run.resume = true;
    r = fit(&o, MANTA_OK);
    CHECK(r->n_checkpoints == 2 && !manta_checkpoint_open(r->checkpoint, &c));
    CHECK(!manta_checkpoint_arrays(c, &saved));
    manta_contents have = manta_saved_contents(saved);
    CHECK(have.n_arrays == 2);
    for (int i = 0; i < 2; i++) {
        const manta_column *a = &have.arrays[i];
        CHECK(!strcmp(a->name, "n") ? *(const int32_t *)a->array.data == 41
                                    : a->array.ndim == 2 && ((const float *)a->array.data)[5] == 6);
    }
    manta_saved_free(saved);
    manta_checkpoint_close(c);
    manta_result_free(r);
    /* The same with storage on another file system than the loop's folders. */
    CHECK(temp_folder(storage, sizeof storage, "/var/tmp", "trainer"));
    o.run.resume = false;
    o.run.storage = storage;
    r = fit(&o, MANTA_OK);
    CHECK(r->n_checkpoints == 1);
    manta_result_free(r);
    snprintf(command, sizeof command, "rm -r %s", storage);
    CHECK(!system(command));
}

/* ---- a great many reports ---- */

/* A sanitizer keeps memory that was given back: there is nothing to measure. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { MANY = 6000, MEASURED = false };
#else
enum { MANY = 50000, MEASURED = true };
#endif

static manta_status many_loop(manta_worker *w)
{
    manta_metrics m = {0};
    manta_status st = MANTA_OK;

    for (int i = 0; i < 10; i++) {
        char name[16];
        snprintf(name, sizeof name, "metric-%d", i);
        one_metric(&m, name, i);
    }
    for (int i = 0; i < MANY / 2 && !st; i++) st = manta_report(w, &m);
    return st;
}

typedef struct memory {
    int64_t reports;
    long early, late; /* pages of this process that nobody shares */
} memory;

static long pages(void)
{
    long size = 0, resident = 0, shared = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    CHECK(f && fscanf(f, "%ld %ld %ld", &size, &resident, &shared) == 3);
    fclose(f);
    return resident - shared;
}

static bool look(void *user, const manta_report_event *e)
{
    memory *m = user;

    (void)e;
    if (++m->reports == 2000) m->early = pages();
    if (m->reports == MANY) m->late = pages();
    return true;
}

/* Reports leave nothing behind in the driver: the memory that 2,000 of them need
 * is what 50,000 need. */
static void many(const char *folder)
{
    memory m = {0};
    manta_trainer_options o = {.loop = many_loop,
                               .scaling = {.num_workers = 2},
                               .run = {.name = "many", .storage = folder, .report = look, .user = &m}};
    manta_result *r = fit(&o, MANTA_OK);

    CHECK(m.reports == MANY);
    printf("%ld pages after 2000 reports, %ld after %d\n", m.early, m.late, MANY);
    CHECK(!MEASURED || m.late - m.early <= 16);
    CHECK(series(r, "metric-9")->n == MANY / 2 && lines_of(r->path, 1) == MANY / 2);
    manta_result_free(r);
}

int main(int argc, char **argv)
{
    static const scenario all[] = {{"context", context},       {"notes", notes},     {"evaluates", evaluates},
                                   {"broadcasts", broadcasts}, {"paces", paces},     {"bare", bare},
                                   {"shards", shards},         {"folders", folders}, {"many", many}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
