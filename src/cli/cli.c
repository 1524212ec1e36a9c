/* cli.c - how the program speaks and ends. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/print.h"

static const char *command = "";
static const char *source; /* of options, beside the command line */
static int write_error; /* errno of the first flush that failed */
static bool pipe_held; /* SIGPIPE is ignored because cli_outlive_readers() asked for it */

void cli_set_command(const char *name)
{
    command = name;
}

void cli_set_source(const char *path)
{
    source = path;
}

void cli_usage(const char *fmt, ...)
{
    va_list args;

    print_err("manta: ");
    va_start(args, fmt);
    print_err_list(fmt, args);
    va_end(args);
    if (source) print_err(" (options are also taken from %s)", source);
    print_err("\nTry 'manta%s%s --help'.\n", *command ? " " : "", command);
    exit(CLI_USAGE);
}

int cli_fail(void)
{
    manta_error e;

    manta_error_get(&e);
    print_err("manta: %s\n", *e.text ? e.text : "it failed, and nothing was said about why");
    return CLI_FAILED;
}

void cli_note(const char *fmt, ...)
{
    va_list args;

    print_err("manta: ");
    va_start(args, fmt);
    print_err_list(fmt, args);
    va_end(args);
    print_err("\n");
}

void cli_outlive_readers(void)
{
    pipe_held = signal(SIGPIPE, SIG_IGN) != SIG_IGN;
}

/* Dies of SIGPIPE, unless whoever started the program has it ignored. */
static int end_unread(void)
{
    if (pipe_held) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    return CLI_UNREAD;
}

bool cli_flush(void)
{
    if (fflush(stdout) && !write_error) write_error = errno;
    clearerr(stdout);
    return write_error != EPIPE;
}

int cli_finish(int status)
{
    cli_flush();
    if (fclose(stdout) && !write_error) write_error = errno;
    if (!write_error) return status;
    if (write_error == EPIPE) return status ? status : end_unread();
    print_err("manta: cannot write to standard output: %s\n", strerror(write_error));
    return status ? status : CLI_FAILED;
}
