/* print.h - the one way to a terminal.
 *
 * A format is the program's own and may hold newlines and escape sequences. What
 * %s and %c bring comes from files, from names that others chose and from the command
 * line: there every character that could do something to a terminal, a newline too,
 * is shown as a question mark (manta_printable()). On stderr a word of more than 2,000 bytes
 * loses its middle. Nothing else in the program writes
 * to stdout or stderr; tests/house/test_printing.py looks for whatever would. */
#ifndef CLI_PRINT_H
#define CLI_PRINT_H

#include <stdarg.h>

#include <manta/status.h>

/* printf() to stdout. Conversions: d i u x c s e f g with their flags, width,
 * precision and length, and %%; another one is a mistake of ours and aborts. */
void print_out(const char *fmt, ...) MANTA_PRINTF(1, 2);

/* Prints to stderr what printf() would, with the conversions of print_out(), behind all that was printed
 * before: stdout is flushed first. */
void print_err(const char *fmt, ...) MANTA_PRINTF(1, 2);
void print_err_list(const char *fmt, va_list args);

/* A text of several lines that others have written, to stdout: newlines and tabs stay. */
void print_lines(const char *text);

#endif
