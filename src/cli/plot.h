/* plot.h - curves of a run, as characters, as SVG and as PNG. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include <manta/run.h>

/* Draws one curve, as wide as the terminal allows. */
void plot_terminal(const manta_run_series *s);

/* Writes the curves, one panel each, to an .svg file. */
manta_status plot_svg(const char *path, const char *title, const manta_run_series *s, int n);

/* The same to a .png file (plot_png.c). */
manta_status plot_png(const char *path, const char *title, const manta_run_series *s, int n);

/* The finite range of the values, widened when it is a point; false: there is none. */
bool plot_range(const manta_run_series *s, double *lo, double *hi);

#endif
