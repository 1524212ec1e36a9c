/* main.c - the program: finds the command and runs it. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/version.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/man.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/suggest.h"

static const command *const commands[] = {
    &cmd_train,       &cmd_evaluate,   &cmd_predict,      &cmd_model,     &cmd_convert,    &cmd_inspect,
    &cmd_bench_train, &cmd_bench_core, &cmd_bench_comm,   &cmd_data_list, &cmd_data_fetch, &cmd_data_path,
    &cmd_start,       &cmd_stop,       &cmd_status,       &cmd_ps,        &cmd_timeline,   &cmd_stack,
    &cmd_runs,        &cmd_runs_show,  &cmd_runs_compare, &cmd_runs_plot, &cmd_logs,       &cmd_key,
    &cmd_where,       &cmd_launch,     &cmd_agent,
};

#define COMMANDS (int)(sizeof commands / sizeof *commands)

const command *command_at(int i)
{
    return i >= 0 && i < COMMANDS ? commands[i] : NULL;
}

const command *command_find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++) {
        if (!strcmp(commands[i]->name, name)) return commands[i];
    }
    return NULL;
}

/* ---- help ---- */

/* All commands, or those of a family ("bench", "data"). */
static int show_help(const char *family)
{
    size_t n = strlen(family);

    print_out("Usage: manta %s%sCOMMAND [OPTION...]\n\n", family, n ? " " : "");
    for (int i = 0; i < COMMANDS; i++) {
        if (n && (strncmp(commands[i]->name, family, n) || commands[i]->name[n] != ' ')) continue;
        print_out("  manta %-12s  %s\n", commands[i]->name, commands[i]->about);
    }
    if (!n) {
        print_out(
            "\n  manta --version       Print the version\n\n"
            "A first run:  manta train mnist-cnn --data mnist --validation mnist:test --epochs 3 --batch "
            "64\n");
    }
    print_out("\n'manta COMMAND --help' says more about a command.\n");
    return CLI_DONE;
}

/* ---- finding the command ---- */

static bool is_family(const char *word)
{
    size_t n = strlen(word);

    for (int i = 0; i < COMMANDS; i++) {
        if (!strncmp(commands[i]->name, word, n) && commands[i]->name[n] == ' ') return true;
    }
    return false;
}

static _Noreturn void no_such(const char *name)
{
    suggestion s = suggest_for(name);

    for (int i = 0; i < COMMANDS; i++) suggest_offer(&s, commands[i]->name);
    if (s.best) cli_usage("no command is called '%s'; did you mean %s?", name, s.best);
    cli_usage("no command is called '%s'", name);
}

static bool wants_help(const char *word)
{
    return !strcmp(word, "--help") || !strcmp(word, "-h") || !strcmp(word, "-?") || !strcmp(word, "help");
}

static int run_command(const command *c, int argc, char **argv)
{
    char name[64];
    options *o;
    int status;

    snprintf(name, sizeof name, "manta %s", c->name);
    argv[0] = name;
    o = options_parse(c, argc, argv);
    status = c->run(o);
    options_free(o);
    return status;
}

/* manta bench train ...: argv[0] is the family. */
static int run_family(int argc, char **argv)
{
    char name[64];
    const command *c;

    cli_set_command(argv[0]);
    snprintf(name, sizeof name, "%.20s %.40s", argv[0], argc > 1 ? argv[1] : "");
    c = command_find(argv[0]); /* manta runs */
    if (c && argc > 1 && argv[1][0] != '-' && !c->max_args && !command_find(name)) no_such(name);
    if (c && !command_find(name)) return run_command(c, argc, argv);
    if (argc < 2) cli_usage("%s needs to know what: 'manta %s --help' lists it", argv[0], argv[0]);
    if (wants_help(argv[1])) return show_help(argv[0]);
    snprintf(name, sizeof name, "%.20s %.40s", argv[0], argv[1]);
    c = command_find(name);
    if (!c) no_such(name);
    return run_command(c, argc - 1, argv + 1);
}

/* manta help [--man] [COMMAND...] */
static int run_help(int argc, char **argv)
{
    static char ask[] = "--help";
    char *line[3] = {argv[0], argc > 1 ? argv[1] : NULL, NULL};

    if (argc < 2) return show_help("");
    if (!strcmp(argv[1], "--man")) {
        if (argc != 3 || !man_print(argv[2])) cli_usage("help --man needs the name of a command");
        return CLI_DONE;
    }
    if (is_family(argv[1]) && argc < 3) return show_help(argv[1]);
    if (is_family(argv[1])) return run_family(3, (char *[]){argv[1], argv[2], ask});
    if (!command_find(argv[1])) no_such(argv[1]);
    line[0] = argv[1];
    line[1] = ask;
    return run_command(command_find(argv[1]), 2, line);
}

static int dispatch_command(int argc, char **argv)
{
    if (argc < 2) {
        cli_usage("a command is missing, such as: manta train mnist-cnn --data mnist");
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
        print_out("manta " MANTA_VERSION_TEXT "\n");
        return CLI_DONE;
    }
    if (!strcmp(argv[1], "help")) return run_help(argc - 1, argv + 1);
    if (wants_help(argv[1])) return show_help("");
    if (argv[1][0] == '-') cli_usage("unknown option %s before a command", argv[1]);
    if (is_family(argv[1])) return run_family(argc - 1, argv + 1);
    if (!command_find(argv[1])) no_such(argv[1]);
    return run_command(command_find(argv[1]), argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a sentence, not a death */
    return cli_finish(dispatch_command(argc, argv));
}
