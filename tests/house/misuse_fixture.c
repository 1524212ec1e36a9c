/* misuse_fixture.c - see misuse_fixture.h.
 *
 *     misuse             every case, a line each: FUNCTION ARGUMENT VALUE OUTCOME...
 *     misuse N           case N in this process, for a debugger
 *
 * OUTCOME is "refused CODE TEXT", "recorded CODE TEXT" (no status is returned, but an error recorded), "accepted", or
 * "signal N", "hangs", "exit N" of the process that made the call. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "misuse_fixture.h"

enum { ROOM = 1 << 20, LIMIT_S = 240 };

static int answers = 1; /* where a case says what it came to */
static const misuse *now; /* the case that this process makes */

static void answer(const char *how, manta_status st)
{
    dprintf(answers, "%s %s %.300s\n", how, manta_status_name(st), manta_error_text());
}

void told(manta_status st)
{
    if (st)
        answer("refused", st);
    else
        dprintf(answers, "accepted\n");
}

void said(void)
{
    manta_error e;

    manta_error_get(&e);
    if (e.code)
        answer("recorded", e.code);
    else
        dprintf(answers, "accepted\n");
}

void *room(void)
{
    void *at = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) _exit(99);
    return at;
}

long nothing(void)
{
    return 0;
}

const int64_t good_shape[MANTA_MAX_DIMS] = {2, 2, 2, 2, 2, 2, 2, 2};

const char *good_text(const char *argument)
{
    if (strstr(argument, "folder") || strstr(argument, "dir") || !strcmp(argument, "storage")) return ".";
    return "x";
}

static const manta_strategy_options one_replica = {.kind = MANTA_REPLICATION_ONE_DEVICE};

static void must(manta_status st, const char *what)
{
    if (!st) return;
    dprintf(answers, "fixture %s %s\n", what, manta_error_text());
    _exit(98);
}

/* ---- one of each kind ---- */

static void *good_manta_model(void)
{
    manta_model *m = manta_model_new("m");

    (void)manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    (void)manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 1}));
    must(manta_model_build(m), "model");
    return m;
}

static void *good_open_model(void)
{
    static manta_model *m; /* one for all arguments of a call: a layer belongs to it */

    if (m) return m;
    m = manta_model_new("m");
    (void)manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    return m;
}

static void *good_manta_layer(void)
{
    return manta_dense(good_open_model(), (manta_dense_options){.units = 1});
}

static void *good_manta_layer_class(void)
{
    return (void *)(uintptr_t)manta_layer_class_find("Dense");
}

static void *good_manta_op(void)
{
    return (void *)(uintptr_t)manta_op_find("softmax");
}

static void *good_manta_compile(void)
{
    static const manta_loss loss = {.name = "mse"};
    static manta_compile c = {.n_losses = 1, .losses = &loss};

    return &c;
}

static void *good_manta_session(void)
{
    manta_session *s;

    must(manta_session_open(good_manta_model(), good_manta_compile(), NULL, &s), "session");
    return s;
}

static void *good_manta_array(void)
{
    static manta_array a;
    static float values[2];

    a = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 1}, values);
    return &a;
}

static void *good_manta_column(void)
{
    static manta_column c;

    c.name = "x";
    c.array = *(manta_array *)good_manta_array();
    return &c;
}

static void *good_manta_column_spec(void)
{
    static manta_column_spec c = {.name = "x", .dtype = MANTA_DTYPE_F32};

    return &c;
}

static void *good_manta_dataset(void)
{
    return manta_dataset_arrays(1, good_manta_column(), MANTA_OWNERSHIP_COPY);
}

static void *good_manta_loader(void)
{
    manta_loader *l;

    must(manta_loader_open(good_manta_dataset(), NULL, &l), "loader");
    return l;
}

static void *good_manta_tensor(void)
{
    manta_tensor *t;

    must(manta_tensor_new(MANTA_DTYPE_F32, 1, (int64_t[]){2}, &t), "tensor");
    return t;
}

static void *good_manta_arrays(void)
{
    manta_arrays *a;

    must(manta_arrays_save("a.npz", 1, good_manta_column()), "arrays");
    must(manta_arrays_load("a.npz", &a), "arrays");
    return a;
}

static void *good_manta_saved(void)
{
    manta_saved *s;

    must(manta_session_save(good_manta_session(), "m.keras"), "saved");
    must(manta_file_read("m.keras", NULL, &s), "saved");
    return s;
}

static void *good_manta_onnx(void)
{
    manta_onnx *x;

    must(manta_session_save(good_manta_session(), "m.onnx"), "onnx");
    must(manta_onnx_read("m.onnx", &x), "onnx");
    return x;
}

static void *good_manta_checkpoints(void)
{
    manta_checkpoints *c;

    must(manta_checkpoints_open("checkpoints", NULL, &c), "checkpoints");
    return c;
}

static void *good_manta_checkpoint(void)
{
    manta_checkpoints *all = good_manta_checkpoints();
    manta_checkpoint *c;
    const manta_checkpoint_info info = {0};

    must(manta_checkpoints_save(all, good_manta_session(), &info, true), "checkpoint");
    must(manta_checkpoints_wait(all), "checkpoint");
    must(manta_checkpoints_latest(all, &c, NULL), "checkpoint");
    return c;
}

static void *good_manta_events(void)
{
    manta_events *e;

    must(manta_events_open("events", NULL, &e), "events");
    return e;
}

static void *good_manta_events_log(void)
{
    manta_events *e = good_manta_events();
    manta_events_log *l;

    must(manta_events_scalar(e, "x", 0, 1), "events log");
    manta_events_close(e);
    must(manta_events_read("events", &l), "events log");
    return l;
}

static void *good_manta_run(void)
{
    manta_run *r;

    must(manta_run_open(&(manta_run_options){.name = "r", .storage = "."}, &r), "run");
    return r;
}

static void *good_manta_group_plan(void)
{
    manta_group_plan *p;

    must(manta_group_plan_new(1, NULL, &p), "group plan");
    return p;
}

static void *good_manta_group(void)
{
    manta_group *g;

    must(manta_group_join(good_manta_group_plan(), 0, &g), "group");
    return g;
}

static void *good_manta_callback(void)
{
    return manta_terminate_on_nan();
}

static void *good_manta_recipe(void)
{
    manta_recipe *r = manta_recipe_new(NULL);

    must(manta_recipe_open(r, "linear"), "recipe");
    return r;
}

static void *good_manta_arg(void)
{
    static manta_arg a;

    return &a;
}

static void *good_manta_run_log_reader(void)
{
    manta_run *r = good_manta_run();
    manta_run_log_reader *l;

    manta_run_log(r, 0, "x");
    must(manta_run_log_open(manta_run_path(r), "rank", 0, &l), "run log");
    return l;
}

static void *good_manta_strategy(void)
{
    static manta_strategy *s;

    if (!s) must(manta_strategy_open(&one_replica, &s), "strategy");
    return s;
}

/* ---- those that a program has only inside a function of its own that Manta calls ---- */

/* Asking for one runs such a function, which makes the case once more, and ends the process: what is asked for
 * is there then. */
static manta_task *task_now;
static manta_worker *worker_now;
static manta_replica *replica_now;
static manta_fit_context *fit_now;

static manta_status inside_task(manta_task *t)
{
    task_now = t;
    now->call();
    return MANTA_OK;
}

static manta_status make_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}

static manta_status inside_loop(manta_worker *w)
{
    worker_now = w;
    now->call();
    return MANTA_OK;
}

static manta_status inside_replica(manta_replica *r, void *user)
{
    (void)user;
    replica_now = r;
    now->call();
    return MANTA_OK;
}

static manta_status inside_fit(void *self, manta_fit_context *f)
{
    (void)self;
    fit_now = f;
    now->call();
    _exit(0);
}

/* A node of this process alone: calls run where they are made. */
static void need_node(void)
{
    static bool there;

    if (!there) must(manta_init(NULL, NULL, &(manta_node_options){.in_process = true}), "node");
    there = true;
}

static void *good_manta_task(void)
{
    if (task_now) return task_now;
    need_node();
    manta_register("inside_task", inside_task);
    manta_release(manta_submit_one("inside_task", NULL, 0, NULL));
    _exit(0);
}

static void *good_manta_worker(void)
{
    manta_result *r;

    if (worker_now) return worker_now;
    manta_register_loop("inside_loop", inside_loop);
    must(manta_init(NULL, NULL, &(manta_node_options){.num_cpus = 1, .address = "local", .log_level = "off"}),
         "node");
    if (!manta_trainer_fit(&(manta_trainer_options){.loop = inside_loop,
                                                    .scaling = {.num_workers = 1},
                                                    .run = {.name = "r", .storage = "."}},
                           &r)) /* it fails when the case reports what is none: that was told before */
        manta_result_free(r);
    manta_shutdown();
    _exit(0);
}

static void *good_manta_replica(void)
{
    if (replica_now) return replica_now;
    must(manta_strategy_run(good_manta_strategy(), inside_replica, NULL), "replica");
    _exit(0);
}

static void *good_manta_fit_context(void)
{
    static const manta_callback_ops ops = {.name = "misuse", .before_fit = inside_fit};
    manta_callback *c;
    manta_column both[2] = {*(manta_column *)good_manta_column(), *(manta_column *)good_manta_column()};

    if (fit_now) return fit_now;
    both[0].array = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 2}, room());
    both[1].name = "y";
    both[1].array = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 1}, room());
    c = manta_callback_new(&ops, NULL);
    must(manta_fit(good_manta_session(), manta_dataset_arrays(2, both, MANTA_OWNERSHIP_COPY),
                   &(manta_fit_options){.n_callbacks = 1, .callbacks = &c}, NULL),
         "fit");
    _exit(0);
}

static void *good_manta_pool(void)
{
    manta_actor a;
    manta_pool *p;

    need_node();
    manta_register("make_actor", make_actor);
    a = manta_actor_start("make_actor", NULL, 0, NULL);
    must(manta_pool_new(1, &a, &p), "pool");
    return p;
}

static manta_status no_input(void *user, size_t i, manta_arg *out)
{
    (void)user, (void)i, (void)out;
    return manta_fail(MANTA_ENOENT, "no more");
}

static void *good_manta_map(void)
{
    manta_map *m;

    need_node();
    must(manta_map_start("make_actor", NULL, no_input, NULL, &m), "map");
    return m;
}

static const struct {
    const char *type;
    void *(*make)(void);
} makers[] = {
#define MAKER(type)                                                                                          \
    {                                                                                                        \
#type, good_##type                                                                                   \
    }
    MAKER(manta_recipe),      MAKER(manta_model),       MAKER(open_model),           MAKER(manta_layer),
    MAKER(manta_layer_class), MAKER(manta_op),          MAKER(manta_compile),        MAKER(manta_session),
    MAKER(manta_array),       MAKER(manta_column),      MAKER(manta_column_spec),    MAKER(manta_dataset),
    MAKER(manta_loader),      MAKER(manta_tensor),      MAKER(manta_arrays),         MAKER(manta_saved),
    MAKER(manta_onnx),        MAKER(manta_checkpoints), MAKER(manta_checkpoint),     MAKER(manta_events),
    MAKER(manta_events_log),  MAKER(manta_run),         MAKER(manta_group_plan),     MAKER(manta_group),
    MAKER(manta_callback),    MAKER(manta_arg),         MAKER(manta_run_log_reader), MAKER(manta_strategy),
    MAKER(manta_task),        MAKER(manta_worker),      MAKER(manta_replica),        MAKER(manta_fit_context),
    MAKER(manta_pool),        MAKER(manta_map),
};

void *good_object(const char *type)
{
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (!strcmp(makers[i].type, type)) return makers[i].make();
    return room();
}

/* ---- the processes ---- */

static void run_case(const misuse *c)
{
    int pipes[2], status;
    char line[1024] = "";
    ssize_t n;
    pid_t child;

    if (pipe(pipes) || (child = fork()) < 0) exit(97);
    if (child == 0) {
        char folder[] = "misuse-XXXXXX";

        setpgid(0, 0);
        close(pipes[0]);
        answers = pipes[1];
        alarm(LIMIT_S);
        if (!mkdtemp(folder) || chdir(folder) || !freopen("/dev/null", "w", stdout)) _exit(96);
        now = c;
        c->call();
        _exit(0);
    }
    close(pipes[1]);
    n = read(pipes[0], line, sizeof line - 1);
    line[n > 0 ? n : 0] = 0;
    line[strcspn(line, "\n")] = 0;
    waitpid(child, &status, 0);
    close(pipes[0]);
    kill(-child, SIGKILL); /* what it has left behind */
    if (WIFSIGNALED(status))
        printf("%s %s %s signal %d\n", c->function, c->argument, c->value, WTERMSIG(status));
    else if (WEXITSTATUS(status) || !*line)
        printf("%s %s %s exit %d %s\n", c->function, c->argument, c->value, WEXITSTATUS(status), line);
    else
        printf("%s %s %s %s\n", c->function, c->argument, c->value, line);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        int i = atoi(argv[1]);

        if (i < 0 || i >= n_cases) return 2;
        now = &all_cases[i];
        now->call();
        return 0;
    }
    for (int i = 0; i < n_cases; i++) run_case(&all_cases[i]);
    return 0;
}
