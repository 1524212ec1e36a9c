/* cli.h - how the program speaks and ends.
 *
 * stdout carries results, stderr sentences. Every command returns an exit
 * status; only wrong usage, which is found before anything is opened, ends the
 * process on the spot. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>

#include <manta/status.h>

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_RESUMABLE = 75,
    CLI_INTERRUPTED = 130,
    CLI_UNREAD = 141
};

/* The command that runs, for usage sentences: "train", "bench train", or "". */
void cli_set_command(const char *name);

/* A file that options were taken from beside the command line, which a usage
 * sentence then names too. Borrowed; NULL: none. */
void cli_set_source(const char *path);

/* Ends the process with status 2: "manta: SENTENCE" and where the help is. */
_Noreturn void cli_usage(const char *fmt, ...) MANTA_PRINTF(1, 2);

/* Says the library's last sentence on stderr and returns CLI_FAILED. */
int cli_fail(void);

/* Has cli_flush() say that nobody reads any more, where SIGPIPE would end the
 * process on the spot: for a command that has something to put away first. */
void cli_outlive_readers(void);

/* Pushes out what was printed. False when nobody reads it any more (a broken
 * pipe): then there is no point in going on. A full disk is remembered for
 * cli_finish(), because a long run is worth more than its messages. */
bool cli_flush(void);

/* The status to end with, once stdout is closed: CLI_FAILED, with a sentence,
 * when what was printed could not be written. A command that did what it was asked
 * to, or stopped because nobody reads any more, ends as any program does then: by
 * SIGPIPE, and where that is ignored with the status that a shell gives it. */
int cli_finish(int status);

/* Says a sentence on stderr that is no failure. */
void cli_note(const char *fmt, ...) MANTA_PRINTF(1, 2);

#endif
