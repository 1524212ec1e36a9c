/* command.h - what a command is: one table that --help, the man page and the
 * check of the command line all read. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct options options; /* see options.h */

typedef enum option_kind {
    OPTION_FLAG, /* given or not */
    OPTION_TEXT,
    OPTION_MAYBE, /* a flag that takes the word after it as its text, when there is one */
    OPTION_OUTPUT, /* a text that is also called -o */
    OPTION_INT, /* a whole number, 0 or more */
    OPTION_COUNT, /* a whole number, 1 or more */
    OPTION_REAL,
    OPTION_LATER, /* named in the design and not there yet: refused with `help` as the reason */
    OPTION_SETTING /* in tables alone: the library's setting of that name (settings.h) */
} option_kind;

typedef struct cli_option {
    const char *name; /* without dashes; NULL ends a list */
    option_kind kind;
    const char *arg; /* what --help calls its argument; NULL for a flag */
    const char *help;
} cli_option;

/* A row that is a setting of the library. */
#define SETTING(name)                                                                                        \
    {                                                                                                        \
        name, OPTION_SETTING, NULL, NULL                                                                     \
    }

typedef struct option_group {
    const char *title;
    const cli_option *options;
} option_group;

enum { COMMAND_GROUPS = 12 };

typedef struct command {
    const char *name; /* "train", "bench train" */
    const char *args; /* "MODEL --data D" */
    const char *about; /* one line */
    const char *text; /* paragraphs, apart by an empty line */
    const char *examples; /* one a line */
    int min_args, max_args;
    bool rest; /* what follows the word -- is not looked at, and is options_rest() */
    const option_group *groups[COMMAND_GROUPS]; /* NULL ends them */
    int (*run)(const options *o); /* returns the exit status */
} command;

extern const command cmd_train, cmd_evaluate, cmd_predict, cmd_model, cmd_convert, cmd_inspect,
    cmd_bench_train, cmd_bench_core, cmd_bench_comm, cmd_data_list, cmd_data_fetch, cmd_data_path, cmd_start,
    cmd_stop, cmd_status, cmd_ps, cmd_timeline, cmd_stack, cmd_runs, cmd_runs_show, cmd_runs_compare,
    cmd_runs_plot, cmd_logs, cmd_key, cmd_where, cmd_launch, cmd_agent;

/* The i-th command; NULL past the end. */
const command *command_at(int i);

/* The command called `name`; NULL when there is none. */
const command *command_find(const char *name);

/* The option of c called name[0..n), as it is meant (settings_row()); NULL when there is none. */
const cli_option *command_option(const command *c, const char *name, size_t n);

#endif
