/* cmd_ps.c - manta ps, timeline and stack. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/node.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/node_text.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/table.h"

enum { MOST_OBJECTS = 1000 };

static const option_group listing = {
    "Output:",
    (const cli_option[]){
        NODE_OPTION,
        {"objects", OPTION_INT, "N", "List the N largest objects; 1000 when not given"},
        {"json", OPTION_FLAG, NULL, "One JSON object a line for each process, actor, task and object"},
        {0}}};

static const option_group tracing = {
    "Output:", (const cli_option[]){
                   NODE_OPTION,
                   {"output", OPTION_OUTPUT, "FILE", "Where to write; manta-timeline.json when not given"},
                   {0}}};

static const option_group asking = {
    "The worker:", (const cli_option[]){NODE_OPTION,
                                        {"own", OPTION_FLAG, NULL,
                                         "Ask the worker itself, also where a debugger is installed"},
                                        {0}}};

/* ---- ps ---- */

/* The resident memory of a process in bytes; 0 when it is gone. */
static uint64_t memory_of(int pid)
{
    char path[64], line[128], *second = NULL;

    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (fgets(line, sizeof line, f)) second = strchr(line, ' ');
    fclose(f);
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static const manta_view_actor *actor_of(const manta_view *v, uint64_t id)
{
    for (size_t i = 0; id && i < v->n_actors; i++)
        if (v->actors[i].id == id) return &v->actors[i];
    return NULL;
}

static const char *kind_of(manta_kind kind)
{
    static const char *const names[] = {"none",  "number", "number", "truth", "text",
                                        "bytes", "array",  "refs",   "actor", "ref"};

    return names[kind];
}

static const char *actor_state(manta_view_state state)
{
    static const char *const names[] = {"waiting", "starting", "alive", "dead"};

    return names[state];
}

static const char *object_state(manta_view_state state)
{
    return state == MANTA_VIEW_STATE_WAITING ? "pending"
           : state == MANTA_VIEW_STATE_ALIVE ? "ready"
                                             : "failed";
}

/* A constructor as people call it: of Python it is "py.", 32 digits and the class. Borrowed. */
static const char *class_of(const char *constructor)
{
    enum { BEHIND_KEY = 36 };
    bool is_python = !strncmp(constructor, "py.", 3) && strlen(constructor) > BEHIND_KEY;

    return is_python && constructor[BEHIND_KEY - 1] == '.' ? constructor + BEHIND_KEY : constructor;
}

static void ps_workers(const manta_view *v)
{
    static const char *const heads[] = {">PID", "STATE", "CALLER", ">CALLS", ">MEMORY", "RUNS", ">FOR", NULL};
    table *t = table_new(heads);
    char size[32], age[32];

    for (size_t i = 0; i < v->n_workers; i++) {
        const manta_view_worker *w = &v->worker[i];
        const manta_view_actor *a = actor_of(v, w->actor);
        table_add(t, "%d", w->pid);
        table_add(t, "%s", w->actor ? "actor" : w->caller_pid ? "leased" : "idle");
        if (a)
            table_add(t, "%s", a->name[0] ? a->name : class_of(a->constructor));
        else if (w->caller_pid)
            table_add(t, "%d", w->caller_pid);
        else
            table_add(t, "-");
        table_add(t, "%llu", (unsigned long long)w->calls);
        table_add(t, "%s", node_text_size(size, memory_of(w->pid)));
        table_add(t, "%s", w->function[0] ? w->function : "-");
        table_add(t, "%s", w->function[0] ? node_text_time(age, v->now_ns - w->since_ns) : "-");
    }
    print_out("Workers: %zu\n", v->n_workers);
    table_print(t);
}

static void ps_actors(const manta_view *v)
{
    static const char *const heads[] = {"ACTOR",       "STATE",     ">PID", "NAME", "NAMESPACE",
                                        "CONSTRUCTOR", ">RESTARTS", "LIFE", NULL};
    table *t = table_new(heads);

    for (size_t i = 0; i < v->n_actors; i++) {
        const manta_view_actor *a = &v->actors[i];
        table_add(t, "%llx", (unsigned long long)a->id);
        table_add(t, "%s", actor_state(a->state));
        table_add(t, a->pid ? "%d" : "-", a->pid);
        table_add(t, "%s", a->name[0] ? a->name : "-");
        table_add(t, "%s", a->name_space);
        table_add(t, "%s", class_of(a->constructor));
        table_add(t, a->restarts < 0 ? "any" : "%d", a->restarts);
        table_add(t, "%s", a->detached ? "detached" : "by handle");
    }
    print_out("\nActors: %zu\n", v->n_actors);
    table_print(t);
}

static void ps_objects(const manta_view *v)
{
    static const char *const heads[] = {"OBJECT", ">SIZE", "KIND", "STATE", ">OWNER", ">HOLDERS", "IN", NULL};
    table *t = table_new(heads);
    char size[32];

    for (size_t i = 0; i < v->n_objects; i++) {
        const manta_view_object *x = &v->objects[i];
        table_add(t, "%llx", (unsigned long long)x->id);
        table_add(t, "%s", node_text_size(size, x->size));
        table_add(t, "%s", kind_of(x->kind));
        table_add(t, "%s", object_state(x->state));
        table_add(t, x->owner_pid ? "%d" : "gone", x->owner_pid);
        table_add(t, "%lld", (long long)x->holders);
        table_add(t, "%s", x->in_memory ? "store" : "daemon");
    }
    print_out("\nObjects that more than one process knows: %llu", (unsigned long long)v->all_objects);
    if (v->n_objects < v->all_objects) print_out(" (the largest %zu)", v->n_objects);
    print_out("\n");
    table_print(t);
}

static void ps_json(const manta_view *v)
{
    for (size_t i = 0; i < v->n_workers; i++) {
        const manta_view_worker *w = &v->worker[i];
        json_emit(json_pack("{s:s, s:i, s:s, s:i, s:I, s:I, s:s, s:i}", "kind", "worker", "pid", w->pid,
                            "state",
                            w->actor        ? "actor"
                            : w->caller_pid ? "leased"
                                            : "idle",
                            "caller", w->caller_pid, "calls", (json_int_t)w->calls, "memory",
                            (json_int_t)memory_of(w->pid), "function", w->function, "job", (int)w->job));
        if (!w->function[0]) continue;
        json_emit(json_pack("{s:s, s:I, s:s, s:i, s:f}", "kind", "task", "id", (json_int_t)w->task,
                            "function", w->function, "pid", w->pid, "seconds",
                            (double)(v->now_ns - w->since_ns) * 1e-9));
    }
    for (size_t i = 0; i < v->n_actors; i++) {
        const manta_view_actor *a = &v->actors[i];
        json_emit(json_pack("{s:s, s:I, s:s, s:i, s:s, s:s, s:s, s:i, s:b}", "kind", "actor", "id",
                            (json_int_t)a->id, "state", actor_state(a->state), "pid", a->pid, "name", a->name,
                            "namespace", a->name_space, "constructor", class_of(a->constructor), "restarts",
                            a->restarts, "detached", a->detached));
    }
    for (size_t i = 0; i < v->n_objects; i++) {
        const manta_view_object *x = &v->objects[i];
        json_emit(json_pack("{s:s, s:I, s:I, s:s, s:s, s:i, s:I, s:b}", "kind", "object", "id",
                            (json_int_t)x->id, "size", (json_int_t)x->size, "type", kind_of(x->kind), "state",
                            object_state(x->state), "owner", x->owner_pid, "holders", (json_int_t)x->holders,
                            "in_store", x->in_memory));
    }
    json_emit(json_pack("{s:s, s:I, s:I}", "kind", "queue", "waiting", (json_int_t)v->waiting, "objects",
                        (json_int_t)v->all_objects));
}

static int run_ps(const options *o)
{
    manta_view *v;

    if (manta_view_take(options_text(o, "node"), MANTA_VIEW_WORKERS | MANTA_VIEW_ACTORS | MANTA_VIEW_OBJECTS,
                        (size_t)options_int(o, "objects", MOST_OBJECTS), &v))
        return cli_fail();
    if (options_flag(o, "json")) {
        ps_json(v);
    } else {
        ps_workers(v);
        if (v->waiting)
            print_out("%llu call%s wait%s for a worker.\n", (unsigned long long)v->waiting,
                      v->waiting == 1 ? "" : "s", v->waiting == 1 ? "s" : "");
        ps_actors(v);
        ps_objects(v);
    }
    manta_view_free(v);
    return CLI_DONE;
}

const command cmd_ps = {
    .name = "ps",
    .args = "",
    .about = "List the workers, actors, tasks and objects of a node",
    .text = "Lists what is in a node at this moment: workers with the task that each of them runs, actors, "
            "and objects "
            "with their owner and size. Objects that only one process knows are not the node's and are not "
            "listed; "
            "neither are calls that a program has not handed out yet, of which only the number of those that "
            "wait for "
            "a worker is known.",
    .examples = "  manta ps\n"
                "  manta ps --json --objects 20",
    .groups = {&listing},
    .run = run_ps,
};

/* ---- timeline ---- */

static int write_trace(const manta_view *v, FILE *f)
{
    int64_t begin = v->n_calls ? v->calls[0].begin_ns : v->now_ns;
    json_t *x;

    fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", f);
    for (size_t i = 0; i < v->n_workers; i++) {
        const manta_view_worker *w = &v->worker[i];
        const manta_view_actor *a = actor_of(v, w->actor);
        char name[160];
        snprintf(name, sizeof name, "%s pid=%d",
                 a ? a->name[0] ? a->name : class_of(a->constructor) : "worker", w->pid);
        x = json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", "thread_name", "pid", v->daemon_pid,
                      "tid", w->pid, "args", "name", name);
        json_dumpf(x, f, 0);
        json_decref(x);
        fputs(",\n", f);
    }
    for (size_t i = 0; i < v->n_calls; i++) {
        const manta_view_call *c = &v->calls[i];
        x = json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:I, s:b}}", "ph", "X", "cat", "task", "name",
                      c->function, "pid", v->daemon_pid, "tid", c->pid, "ts",
                      (double)(c->begin_ns - begin) * 1e-3, "dur", (double)(c->end_ns - c->begin_ns) * 1e-3,
                      "args", "task", (json_int_t)c->task, "failed", c->failed);
        if (!x) continue;
        json_dumpf(x, f, 0);
        json_decref(x);
        fputs(",\n", f);
    }
    x = json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", v->daemon_pid, "args",
                  "name", "manta node");
    json_dumpf(x, f, 0);
    json_decref(x);
    fputs("\n]}\n", f);
    return ferror(f);
}

static int run_timeline(const options *o)
{
    const char *path = options_text(o, "output");
    manta_view *v;

    if (!path) path = "manta-timeline.json";
    if (manta_view_take(options_text(o, "node"), MANTA_VIEW_WORKERS | MANTA_VIEW_ACTORS | MANTA_VIEW_CALLS, 0,
                        &v))
        return cli_fail();
    FILE *f = fopen(path, "w");
    int failed = !f || write_trace(v, f);
    if (f && fclose(f)) failed = 1;
    if (failed) {
        cli_note("cannot write %s: %s", path, strerror(errno));
    } else {
        print_out("%zu calls of %zu workers are in %s; ui.perfetto.dev and chrome://tracing show it\n",
                  v->n_calls, v->n_workers, path);
    }
    manta_view_free(v);
    return failed ? CLI_FAILED : CLI_DONE;
}

const command cmd_timeline = {
    .name = "timeline",
    .args = "",
    .about = "Write the recent calls of a node as a Chrome trace",
    .text = "Each worker keeps its last 1024 calls, and a node those of its last 16 workers that ended. They "
            "are written "
            "as a Chrome trace: one line of time for each worker.",
    .examples = "  manta timeline -o trace.json",
    .groups = {&tracing},
    .run = run_timeline,
};

/* ---- stack ---- */

/* Runs a debugger and prints the stacks it shows; false: it is not there, or
 * could not look at the process. What it complains about is dropped: the next way
 * is tried. */
static bool run_debugger(char *const argv[])
{
    posix_spawn_file_actions_t files;
    int out[2];
    pid_t pid;
    char *text = NULL;
    size_t n = 0, cap = 0;

    if (pipe(out)) return false;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    posix_spawn_file_actions_addclose(&files, out[0]);
    int failed = posix_spawnp(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(out[1]);
    FILE *f = failed ? NULL : fdopen(out[0], "r");
    if (!f) {
        close(out[0]);
        return false;
    }
    for (int c; (c = fgetc(f)) != EOF;) {
        if (n + 1 >= cap) {
            cap = cap ? 2 * cap : 4096;
            text = realloc(text, cap);
            if (!text) abort();
        }
        text[n++] = (char)c;
        text[n] = 0;
    }
    fclose(f);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
    bool shown = text && strstr(text, "#0 ");
    if (shown) print_lines(text);
    free(text);
    return shown;
}

static bool ask_debuggers(int64_t pid)
{
    static char eu[] = "eu-stack", p[] = "-p", gdb[] = "gdb", nx[] = "-nx", batch[] = "-batch", ex[] = "-ex",
                all[] = "thread apply all backtrace";
    char digits[24];

    snprintf(digits, sizeof digits, "%lld", (long long)pid);
    return run_debugger((char *[]){eu, p, digits, NULL}) ||
           run_debugger((char *[]){gdb, nx, batch, p, digits, ex, all, NULL});
}

/* Prints where the worker's own language is, which a debugger of C does not show: what stands before the frames of C
 * in its account. */
static void print_own_frames(const char *node, int pid)
{
    char *answer, *end;

    if (manta_view_stack(node, pid, &answer)) return; /* it is no worker, or does not answer */
    if ((end = strstr(answer, "\n\n#0"))) {
        end[2] = 0;
        print_lines(answer);
    }
    free(answer);
}

static int run_stack(const options *o)
{
    const char *text = options_arg(o, 0);
    int64_t pid = options_int_of("PID", text);
    char *answer;

    if (pid < 1 || pid > INT32_MAX) cli_usage("'%s' is no pid, expected the number of a process", text);
    if (kill((pid_t)pid, 0) && errno == ESRCH) {
        cli_note("there is no process %lld", (long long)pid);
        return CLI_FAILED;
    }
    if (!options_flag(o, "own") && ask_debuggers(pid)) {
        print_own_frames(options_text(o, "node"), (int)pid);
        return CLI_DONE;
    }
    if (manta_view_stack(options_text(o, "node"), (int)pid, &answer)) return cli_fail();
    print_lines(answer);
    free(answer);
    if (!options_flag(o, "own"))
        cli_note(
            "this is the worker's own account of its first thread, with the names of exported functions "
            "only; "
            "eu-stack (package elfutils) or gdb, allowed to look at the process, show every thread and name");
    return CLI_DONE;
}

const command cmd_stack = {
    .name = "stack",
    .args = "PID",
    .about = "Show where a worker is",
    .text = "Prints the call stack of a worker. With eu-stack (of elfutils) or gdb installed, and the right "
            "to look "
            "at the "
            "process, it shows all threads and names. Otherwise the worker is asked itself: its first "
            "thread, the names "
            "of exported functions, and places in the program for the others. A worker that is stopped "
            "(SIGSTOP) does "
            "not answer. Of a worker that runs Python the frames of Python are shown, too.",
    .examples = "  manta stack 4711\n"
                "  manta stack --own 4711",
    .min_args = 1,
    .max_args = 1,
    .groups = {&asking},
    .run = run_stack,
};
