/* options.h - the options of one run: what the command line and a --config
 * file say, checked against the command's table.
 *
 * Reading never fails: what is wrong is found by options_parse(), which ends
 * the process with status 2 and a sentence. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

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

/* What was given, as the JSON object that --config takes; without the options
 * that say where a run lies. Owned by the caller, free(). */
char *options_json(const options *o);

/* Reads a comma-separated list of numbers into out[0..cap); returns how many.
 * Ends the process when it is none. */
int options_reals(const char *name, const char *text, double *out, int cap);

/* The number that `text`, the value of `what`, is; ends the process when it is none. */
double options_real_of(const char *what, const char *text);
int64_t options_int_of(const char *what, const char *text);

#endif
