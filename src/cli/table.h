/* table.h - rows of text for people, each column as wide as its widest cell.
 *
 * Cells may come out of files that nobody trusts: a control character is
 * printed as a question mark, so that no name can move the cursor. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <manta/status.h>

typedef struct table table;

/* heads: what the columns are called, ended by NULL; one that begins with '>'
 * is set to the right. Owned by the caller: table_print(). */
table *table_new(const char *const *heads);

/* The next cell, row by row. */
void table_add(table *t, const char *fmt, ...) MANTA_PRINTF(2, 3);

/* Prints what was added and gives t back. */
void table_print(table *t);

#endif
