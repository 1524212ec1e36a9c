/* trainer_names.c - loops and makers of datasets go to workers by name: to forks of this
 * program, and to workers of another program, trainer_names_other. In this program's
 * trainer manta_actor_start() gives, where a scenario wants it, an actor that the other
 * one has left in the node, and manta_actor_submit_one() looks at the bytes on their way. */
#include "trainer_names.h"

#include <ctype.h>
#include <inttypes.h>
#include <sys/wait.h>

#include <manta/actor.h>
#include <manta/context.h>

/* ---- between the trainer and the runtime ---- */

manta_actor __real_manta_actor_start(const char *constructor, const manta_task_options *options, int n_args,
                                     const manta_arg *args);
manta_actor __wrap_manta_actor_start(const char *constructor, const manta_task_options *options, int n_args,
                                     const manta_arg *args);
manta_ref __real_manta_actor_submit_one(manta_actor actor, const char *method, int n_args,
                                        const manta_arg *args);
manta_ref __wrap_manta_actor_submit_one(manta_actor actor, const char *method, int n_args,
                                        const manta_arg *args);

static bool abroad; /* actors are those of the other program */
static int runs, started; /* by the other program; actors of the run that were taken */
static size_t words_seen;

manta_actor __wrap_manta_actor_start(const char *constructor, const manta_task_options *options, int n_args,
                                     const manta_arg *args)
{
    manta_actor a;
    char name[32];

    if (!abroad) return __real_manta_actor_start(constructor, options, n_args, args);
    CHECK(!manta_actor_find(actor_name(runs, started++, name), &a));
    return a;
}

/* Whether this process has memory there. The shadow of a sanitizer is none of ours: terabytes, in which words that
 * are text would lie by chance. */
static bool is_mapped(uint64_t address)
{
    uint64_t lo, hi;
    char line[600];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");

    CHECK(f);
    while (!found && fgets(line, sizeof line, f))
        found = sscanf(line, "%" SCNx64 "-%" SCNx64, &lo, &hi) == 2 && hi - lo < (uint64_t)1 << 40 &&
                address >= lo && address < hi;
    fclose(f);
    return found;
}

/* Whether the word at i is text that goes on from before: the last digits of a build's hash, with the zeros behind
 * them, may lie where a sanitizer has its heap (0x6136...). An address stands behind a word that is no text. */
static bool is_text(const char *at, size_t i)
{
    if (i < sizeof(uint64_t)) return false;
    for (size_t k = i - sizeof(uint64_t); k < i + sizeof(uint64_t); k++)
        if (!isprint((unsigned char)at[k]) && !(k >= i + 4 && at[k] == '\0')) return false;
    return true;
}

/* Bytes that a worker gets have no address of this process in them, wherever they begin. */
static void look_for_addresses(const char *at, size_t n)
{
    for (size_t i = 0; i + sizeof(uint64_t) <= n; i++) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        words_seen++;
        if (word < 4096 || word >> 47) continue; /* no address of a process's own on any of our machines */
        if (!is_mapped(word) || is_text(at, i)) continue;
        fprintf(stderr, "%zu of %zu bytes: 0x%" PRIx64 " is an address\n", i, n, word);
        exit(1);
    }
}

manta_ref __wrap_manta_actor_submit_one(manta_actor actor, const char *method, int n_args,
                                        const manta_arg *args)
{
    for (int i = 0; i < n_args; i++) {
        if (args[i].kind == MANTA_KIND_BYTES) look_for_addresses(args[i].as.bytes.at, args[i].as.bytes.n);
    }
    return __real_manta_actor_submit_one(actor, method, n_args, args);
}

/* ---- functions ---- */

static manta_dataset *numbers(manta_worker *w, const void *user, size_t size)
{
    (void)w;
    return count_up(user, size, 100);
}
MANTA_DATASET_MAKER(numbers)

static manta_dataset *plain_numbers(manta_worker *w, const void *user, size_t size)
{
    (void)w;
    return count_up(user, size, 100);
}

static manta_status loop(manta_worker *w)
{
    return report_all(w, 1);
}
MANTA_LOOP(loop)

static manta_status plain_loop(manta_worker *w)
{
    return report_all(w, 1.5);
}

static manta_status only_here(manta_worker *w)
{
    return report_all(w, 1);
}
MANTA_LOOP(only_here)

static manta_status one_of_two(manta_worker *w)
{
    return report_all(w, 1);
}
MANTA_LOOP(one_of_two)

static manta_dataset *only_numbers_here(manta_worker *w, const void *user, size_t size)
{
    return numbers(w, user, size);
}
MANTA_DATASET_MAKER(only_numbers_here)

static manta_status twin(manta_worker *w)
{
    return report_all(w, 1);
}
MANTA_LOOP(twin)

static manta_status other_twin(manta_worker *w)
{
    return report_all(w, 1);
}

/* The same function once more is no collision; another one is. */
__attribute__((constructor)) static void register_by_hand(void)
{
    manta_register_loop("loop", loop);
    manta_register_loop("twin", other_twin);
    manta_register_loop("second name", loop);
}

/* ---- a run ---- */

typedef struct seen {
    int reports[RANKS], failed;
    double program, config, samples, first, ranks;
    char error[600];
} seen;

static bool take_report(void *user, const manta_report_event *e)
{
    seen *s = user;

    s->reports[e->rank]++;
    s->program = manta_metrics_get(e->metrics, "program");
    s->config = manta_metrics_get(e->metrics, "config");
    s->samples = manta_metrics_get(e->metrics, "samples");
    s->first = manta_metrics_get(e->metrics, "first");
    s->ranks = manta_metrics_get(e->metrics, "ranks");
    return true;
}

static bool take_failure(void *user, const manta_attempt_event *e)
{
    seen *s = user;

    s->failed++;
    snprintf(s->error, sizeof s->error, "%s", e->error);
    return true;
}

static const shipped config = {7, "for the loop"}, for_maker = {5, "for the maker"};

/* Fits with these functions; the dataset's maker is `numbers` unless one is given. */
static manta_status fit_with(const char *folder, const char *run, manta_loop_fn *fn, const char *fn_name,
                             manta_named_dataset made, seen *s)
{
    manta_result *r = NULL;
    manta_status st;

    memset(s, 0, sizeof *s);
    made.name = "made";
    if (!made.make && !made.maker) made.maker = "numbers";
    made.user = &for_maker;
    made.user_size = sizeof for_maker;
    st = manta_trainer_fit(&(manta_trainer_options){.loop = fn,
                                                    .loop_name = fn_name,
                                                    .config = &config,
                                                    .config_size = sizeof config,
                                                    .scaling = {.num_workers = RANKS},
                                                    .run = {.name = run,
                                                            .storage = folder,
                                                            .report = take_report,
                                                            .failed = take_failure,
                                                            .user = s,
                                                            .logging = {.level = "off"}},
                                                    .n_datasets = 1,
                                                    .datasets = &made},
                           &r);
    manta_result_free(r);
    return st;
}

static void expect_run(const seen *s, manta_status st, double program, double first)
{
    CHECK(!st && !s->failed);
    for (int i = 0; i < RANKS; i++) CHECK(s->reports[i] == 1);
    CHECK(s->program == program && s->first == first);
    CHECK(s->config == 7 && s->samples == 5 && s->ranks == 1 + 2);
}

/* ---- workers that are this program ---- */

static void forks(const char *folder)
{
    seen s;
    manta_status st = fit_with(folder, "by-function", loop, NULL, (manta_named_dataset){0}, &s);

    expect_run(&s, st, 1, 100);
    st = fit_with(folder, "by-name", NULL, "loop", (manta_named_dataset){.make = numbers}, &s);
    expect_run(&s, st, 1, 100);
    st = fit_with(folder, "by-second-name", NULL, "second name", (manta_named_dataset){0}, &s);
    expect_run(&s, st, 1, 100);
    st = fit_with(folder, "unnamed", plain_loop, NULL, (manta_named_dataset){.make = plain_numbers}, &s);
    expect_run(&s, st, 1.5, 100);
    CHECK(words_seen > 4 * RANKS * 2000); /* they were looked at */
}

/* Refused before there is a run. */
static void refuse(const char *folder, manta_loop_fn *fn, const char *name, manta_named_dataset made,
                   manta_status expected, const char *text)
{
    char path[400];
    struct stat there;
    seen s;
    manta_status st = fit_with(folder, "refused", fn, name, made, &s);

    if (st != expected || !strstr(manta_error_text(), text)) {
        fprintf(stderr, "%s: %s; expected '%s'\n", manta_status_name(st), manta_error_text(), text);
        exit(1);
    }
    snprintf(path, sizeof path, "%s/refused", folder);
    CHECK(stat(path, &there));
}

static void names(const char *folder)
{
    const manta_named_dataset plain = {0};
    char data[200], long_name[200] = "";

    refuse(folder, NULL, NULL, plain, MANTA_EINVAL, "the trainer's loop is missing, expected either");
    refuse(folder, loop, "loop", plain, MANTA_EINVAL, "the trainer's loop is given twice");
    refuse(folder, NULL, "lop", plain, MANTA_ENOENT,
           "the trainer's loop: no loop is called 'lop'; write MANTA_LOOP(lop) behind the function");
    refuse(folder, NULL, "numbers", plain, MANTA_ENOENT, "no loop is called 'numbers'");
    refuse(folder, NULL, "", plain, MANTA_EINVAL, "has 0 bytes, expected 1 to 127");
    refuse(folder, NULL, "@ff+10", plain, MANTA_EINVAL, "no '@' in front");
    memset(long_name, 'x', 128);
    refuse(folder, NULL, long_name, plain, MANTA_EINVAL, "has 128 bytes, expected 1 to 127");
    refuse(folder, twin, NULL, plain, MANTA_EEXIST,
           "2 functions are registered as the loop 'twin', expected one");
    refuse(folder, other_twin, NULL, plain, MANTA_EEXIST, "as the loop 'twin'");
    refuse(folder, NULL, "twin", plain, MANTA_EEXIST, "as the loop 'twin'");
    refuse(folder, (manta_loop_fn *)(uintptr_t)data, NULL, plain, MANTA_EUNSUPPORTED,
           "write MANTA_LOOP() with its name behind it");
    refuse(folder, loop, NULL, (manta_named_dataset){.maker = "loop"}, MANTA_ENOENT,
           "the maker of dataset 'made': no dataset maker is called 'loop'; write MANTA_DATASET_MAKER(loop)");
    refuse(folder, loop, NULL, (manta_named_dataset){.make = numbers, .maker = "numbers"}, MANTA_EINVAL,
           "the maker of dataset 'made' is given twice");
}

static manta_dataset *nothing(manta_worker *w, const void *user, size_t size)
{
    (void)user;
    if (size && manta_worker_rank(w)) (void)!manta_fail(MANTA_EIO, "the well is dry");
    return NULL;
}

/* A maker that gives nothing: its own sentence, or that it said none. */
static manta_status dry_loop(manta_worker *w)
{
    manta_dataset *d;
    manta_status st = manta_worker_dataset(w, "made", &d);

    if (manta_worker_rank(w) ? st != MANTA_EIO || strcmp(manta_error_text(), "the well is dry") != 0
                             : st != MANTA_EINVAL || !strstr(manta_error_text(), "'made' gave none"))
        return manta_fail(MANTA_EINTERNAL, "another failure than was expected: %s", manta_error_text());
    return MANTA_OK;
}

static void dry(const char *folder)
{
    seen s;

    CHECK(!fit_with(folder, "dry", dry_loop, NULL, (manta_named_dataset){.make = nothing}, &s));
}

/* ---- workers that are another program ---- */

/* Starts the other program, which lies beside this one, and waits until it has left its
 * actors in our node. */
static void start_other(void)
{
    char path[600], node[32], run[32];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 40);
    manta_node_info info;
    int status;
    pid_t pid;

    CHECK(n > 0 && !manta_node_get(&info));
    path[n] = '\0';
    snprintf(strrchr(path, '/'), 40, "/trainer_names_other");
    snprintf(node, sizeof node, "%d", info.daemon_pid);
    snprintf(run, sizeof run, "%d", ++runs);
    started = 0;
    /* Not in the child, whose malloc a thread of ours may have locked as it was forked. */
    CHECK(!setenv("MANTA_ADDRESS", node, 1));
    CHECK((pid = fork()) >= 0);
    if (!pid) {
        execl(path, path, run, (char *)NULL);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid && !status && !unsetenv("MANTA_ADDRESS"));
    abroad = true;
}

static void another_program(const char *folder)
{
    seen s;
    manta_status st;

    start_other();
    st = fit_with(folder, "abroad", loop, NULL, (manta_named_dataset){.make = numbers}, &s);
    expect_run(&s, st, 2, 200);
    started = 0; /* the same actors once more */
    st = fit_with(folder, "abroad-again", NULL, "loop", (manta_named_dataset){0}, &s);
    expect_run(&s, st, 2, 200);
}

/* One attempt, and the sentence of a worker. */
static void fail_abroad(const char *folder, const char *run, manta_loop_fn *fn, manta_named_dataset made,
                        const char *text)
{
    seen s;
    manta_status st;

    start_other();
    st = fit_with(folder, run, fn, NULL, made, &s);
    if (st != MANTA_EUNSUPPORTED || s.failed != 1 || !strstr(s.error, text) ||
        !strstr(s.error, "this worker's program (trainer_names_o")) {
        fprintf(stderr, "%s, %d failures: %s; expected '%s'\n", manta_status_name(st), s.failed, s.error,
                text);
        exit(1);
    }
}

static void strangers(const char *folder)
{
    fail_abroad(folder, "lacks", only_here, (manta_named_dataset){0},
                "has no loop called 'only_here': write MANTA_LOOP(only_here) behind the function there");
    fail_abroad(folder, "unnamed", plain_loop, (manta_named_dataset){0},
                "is another one than its driver's, and the loop has no name: write MANTA_LOOP()");
    fail_abroad(folder, "two", one_of_two, (manta_named_dataset){0},
                "has 2 functions registered as the loop 'one_of_two', expected one");
    fail_abroad(folder, "no-maker", loop, (manta_named_dataset){.make = only_numbers_here},
                "has no dataset maker called 'only_numbers_here'");
    fail_abroad(folder, "unnamed-maker", loop, (manta_named_dataset){.make = plain_numbers},
                "the dataset maker has no name: write MANTA_DATASET_MAKER()");
}

int main(int argc, char **argv)
{
    static const scenario all[] = {{"forks", forks},
                                   {"names", names},
                                   {"dry", dry},
                                   {"another-program", another_program},
                                   {"strangers", strangers}};

    return run_scenario(argc, argv, all, sizeof all / sizeof *all);
}
