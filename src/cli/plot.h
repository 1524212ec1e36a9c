/* plot.h - curves of a run, as characters and as SVG. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include <manta/run.h>

/* Draws one curve, as wide as the terminal allows. */
void plot_terminal(const manta_run_series *s);

/* Writes the curves, one panel each, to an .svg file. */
manta_status plot_svg(const char *path, const char *title, const manta_run_series *s, int n);

#endif
