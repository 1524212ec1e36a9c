/* bench_core.h - the speed of the runtime, row by row.
 *
 * Rows are named and built as `ray microbenchmark` builds them, so that the two
 * can be laid side by side. Each row checks what it times; rates are medians of
 * several rounds after one that does not count. */
#ifndef CLI_BENCH_CORE_H
#define CLI_BENCH_CORE_H

#include <stdbool.h>

/* A figure: a rate (per second), or else a number of something. */
typedef struct bench_figure {
    const char *row;
    double value;
    const char *unit; /* NULL: a rate; "us", "ms", "KiB" */
} bench_figure;

typedef void bench_say(const bench_figure *f);

/* Runs the rows whose name contains `only` (NULL: all) and says each as it is
 * known. False, and nothing is run, when there is no such row. Starts a node of
 * its own. Ends the process when a row fails. */
bool bench_core_run(const char *only, bool quick, bench_say *say);

#endif
