/* cmd_where.c - manta where: who started this process, and beside whom. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/tool_launch.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/print.h"

enum { ANSWER_MS = 2000 };

static const option_group output = {
    "Output:", (const cli_option[]){{"peers", OPTION_FLAG, NULL, "Also ask which of the addresses answer"},
                                    {"json", OPTION_FLAG, NULL, "One JSON object"},
                                    {0}}};

static const char *name_of(const char *launcher)
{
    static const char *const names[][2] = {{"tf_config", "TF_CONFIG"},
                                           {"torchrun", "torchrun"},
                                           {"openmpi", "Open MPI's mpirun"},
                                           {"pmix", "a launcher with PMIx"},
                                           {"pmi", "a launcher with PMI, as MPICH's mpiexec"},
                                           {"slurm", "srun of Slurm"},
                                           {"kubernetes", "an indexed Job of Kubernetes"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i][0], launcher)) return names[i][1];
    }
    return "nobody: this process is alone";
}

/* ---- for people ---- */

static void print_number(const char *label, int v, const char *of, int n)
{
    if (v == MANTA_WHERE_UNKNOWN && n == MANTA_WHERE_UNKNOWN) return;
    print_out("%-10s  ", label);
    print_out(v == MANTA_WHERE_UNKNOWN ? "none" : "%d", v);
    if (n != MANTA_WHERE_UNKNOWN) print_out(" of %d%s", n, of);
    print_out("\n");
}

static void print_list(const char *label, char **list, int n)
{
    for (int i = 0; i < n; i++) print_out("%-10s  %s\n", i ? "" : label, list[i]);
}

static void print_answers(const manta_where *w)
{
    for (int i = 0; i < w->n_addresses; i++) {
        bool fine = !manta_where_ask(w->addresses[i], ANSWER_MS);
        print_out("%-10s  %s %s\n", i ? "" : "answers", w->addresses[i],
                  fine ? "answers" : manta_error_text());
        cli_flush();
    }
}

static void print_where(const manta_where *w, bool peers)
{
    print_out("%-10s  %s\n", "started by", name_of(w->launcher));
    print_number("rank", w->rank, "", w->size);
    print_number("local rank", w->local_rank, " on this host", w->local_size);
    if (w->job) print_out("%-10s  %s, as %s calls it\n", "job", w->job, w->job_of);
    print_list("hosts", w->hosts, w->n_hosts);
    print_list("addresses", w->addresses, w->n_addresses);
    if (peers) print_answers(w);
    print_out("\nWhat says so:\n");
    for (const char *line = w->why, *end; (end = strchr(line, '\n')); line = end + 1)
        print_out("  %.*s\n", (int)(end - line), line);
    if (w->hint) print_out("\nHint: %s\n", w->hint);
}

/* ---- for programs ---- */

static json_t *json_count(int v)
{
    return v == MANTA_WHERE_UNKNOWN ? json_null() : json_integer(v);
}

static json_t *json_list(char **list, int n)
{
    json_t *out = json_array();

    for (int i = 0; i < n; i++) json_array_append_new(out, json_text(list[i]));
    return out;
}

static json_t *json_lines(const char *text)
{
    json_t *out = json_array();

    for (const char *end; (end = strchr(text, '\n')); text = end + 1) {
        char *line = strndup(text, (size_t)(end - text));
        json_array_append_new(out, json_text(line ? line : ""));
        free(line);
    }
    return out;
}

static json_t *json_answers(const manta_where *w)
{
    json_t *out = json_object();

    for (int i = 0; i < w->n_addresses; i++) {
        bool fine = !manta_where_ask(w->addresses[i], ANSWER_MS);
        json_object_set_new(out, w->addresses[i], fine ? json_true() : json_text(manta_error_text()));
    }
    return out;
}

static void emit_where(const manta_where *w, bool peers)
{
    json_t *out = json_pack("{s:s, s:o, s:o, s:o, s:o}", "launcher", w->launcher, "size", json_count(w->size),
                            "rank", json_count(w->rank), "local_size", json_count(w->local_size),
                            "local_rank", json_count(w->local_rank));

    json_object_set_new(out, "job", w->job ? json_text(w->job) : json_null());
    json_object_set_new(out, "job_of", w->job_of ? json_text(w->job_of) : json_null());
    json_object_set_new(out, "hosts", json_list(w->hosts, w->n_hosts));
    json_object_set_new(out, "addresses", json_list(w->addresses, w->n_addresses));
    if (peers) json_object_set_new(out, "answers", json_answers(w));
    json_object_set_new(out, "why", json_lines(w->why));
    json_object_set_new(out, "hint", w->hint ? json_text(w->hint) : json_null());
    json_emit(out);
}

static int show_where(const options *o)
{
    manta_where w;

    if (manta_where_find((const char *const *)environ, &w)) return cli_fail();
    if (options_flag(o, "json")) {
        emit_where(&w, options_flag(o, "peers"));
    } else {
        print_where(&w, options_flag(o, "peers"));
    }
    manta_where_release(&w);
    return CLI_DONE;
}

const command cmd_where = {
    .name = "where",
    .args = "",
    .about = "Show who started this process, and beside whom",
    .text =
        "Reads the environment as a program that is started by Slurm, MPI, torchrun, Kubernetes or with "
        "TF_CONFIG "
        "finds it, and says what follows: who started it, its rank and how many there are, its place on this "
        "host, the job, hosts and addresses; and which variables say so. Put it where the program would be: "
        "'srun manta where', 'mpirun manta where'.\n\n"
        "Launchers nest. The innermost counts: TF_CONFIG; RANK, WORLD_SIZE and MASTER_ADDR; Open MPI, PMIx, "
        "PMI; a step of Slurm; an indexed Job of Kubernetes, which MANTA_WORLD_SIZE tells how many they are. "
        "What "
        "is outside of it gives the job's number and the hosts. Variables of one launcher that contradict "
        "each "
        "other are refused.\n\n"
        "Nothing is sent, unless --peers asks to: then each address is connected to and left at once.",
    .examples = "  manta where\n"
                "  srun --nodes=2 manta where --json",
    .max_args = 0,
    .groups = {&output},
    .run = show_where,
};
