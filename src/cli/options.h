/* options.h - the options of one run: what the command line and a --config
 * file say, checked against the command's table.
 *
 * Reading never fails: what is wrong is found by options_parse(), which ends
 * the process with status 2 and a sentence. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#include "cli/command.h"

/* Parses argv[1..argc) for c; argv[0] is what to call the program ("manta
 * train"). --help and --usage print and end the process with status 0.
 * Owned by the caller: options_free(). argv must outlive it. */
options *options_parse(const command *c, int argc, char **argv);
void options_free(options *o); /* accepts NULL */

/* The option's text, or NULL when it was not given. `name` must be in the
 * command's table. */
const char *options_text(const options *o, const char *name);
bool options_flag(const options *o, const char *name);
int64_t options_int(const options *o, const char *name, int64_t fallback);
double options_real(const options *o, const char *name, double fallback);

/* Whether the command has such an option at all. */
bool options_knows(const options *o, const char *name);

/* The i-th argument that is no option; NULL past the last. */
const char *options_arg(const options *o, int i);

/* The words behind --, NULL behind the last, for a command that takes them; none when there is no --. */
const char *const *options_rest(const options *o);

/* What was given, as the JSON object that --config takes; without the options
 * that say where a run lies. precision: is kept as if it had been given; NULL: as it was. Owned by the caller,
 * free(). */
char *options_json(const options *o, const char *precision);

/* Reads what options_json() wrote, which may have been damaged or made up since:
 * every name and value is checked as if it were typed. `where` is what to call
 * the text. *out: owned, options_free(). MANTA_EINVAL with what is wrong. */
manta_status options_read_json(const command *c, const char *where, const char *text, options **out);

/* The i-th option of the table and its text, NULL when it was not given; false
 * past the last. */
bool options_at(const options *o, int i, const cli_option **option, const char **text);

/* Gives an option another text, which has been checked; NULL: as if not given. */
void options_set(options *o, const char *name, const char *text);
/* Replaces the first argument that is no option. */
void options_set_arg(options *o, const char *text);

/* Whether the option says where a run lies or how it is looked at, and not what it is. */
bool options_is_place(const char *name);

const command *options_command(const options *o);

/* The number that `text`, the value of `what`, is; ends the process when it is none. */
double options_real_of(const char *what, const char *text);
int64_t options_int_of(const char *what, const char *text);

#endif
