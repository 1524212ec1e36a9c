/* settings.h - options that are settings of the library (manta/recipe.h): kind, argument and help are
 * the library's, and a table names them only. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/command.h"

/* The row of a table as it is meant: of an OPTION_SETTING the library's, of others itself. Static. */
const cli_option *settings_row(const cli_option *p);

#endif
