/* plot.h - curves of a run, as characters, as SVG and as PNG.
 *
 * A metric and the same of the validation (loss and val_loss) share a panel. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include <manta/run.h>

enum { PLOT_CURVES = 2 };

/* What is drawn in one panel. */
typedef struct plot_panel {
    int n;
    const manta_run_series *curves[PLOT_CURVES]; /* a metric, and the validation's */
} plot_panel;

/* Divides n curves among panels, in their order; how many there are. */
int plot_panels(const manta_run_series *s, int n, plot_panel *out);

/* Draws a panel, as wide as the terminal allows. */
void plot_terminal(const plot_panel *p);

/* Writes n panels to an .svg file. */
manta_status plot_svg(const char *path, const char *title, const plot_panel *p, int n);

/* Writes n panels to a .png file (plot_png.c). */
manta_status plot_png(const char *path, const char *title, const plot_panel *p, int n);

/* The finite range of the values, widened when it is a point; false: there is none. */
bool plot_range(const plot_panel *p, double *lo, double *hi);
/* From which step to which. */
void plot_steps(const plot_panel *p, double *first, double *last);

#endif
