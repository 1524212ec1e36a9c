/* plot.h - curves of a run, as characters, as SVG, PNG and PDF.
 *
 * A metric and the same of the validation (loss and val_loss) share a panel, and so do
 * the curves of a second run that the first one is held against. They are drawn over
 * steps, or over the seconds since the run was begun, with a mark wherever a worker died.
 *
 * Whoever draws sees numbers on two straight axes: with a scale of powers of ten a
 * curve's y are logarithms, and plot_value() says what is written beside them. */
#ifndef CLI_PLOT_H
#define CLI_PLOT_H

#include <manta/run.h>

enum {
    PLOT_METRICS = 2, /* a metric, and the validation's */
    PLOT_CURVES = 2 * PLOT_METRICS, /* and the same of another run */
    PLOT_TICKS = 12,
};

typedef struct plot_curve {
    char name[64];
    bool other; /* of the other run: drawn behind those of the first */
    int slot; /* which of the colours: those of the other run first */
    int64_t n;
    double *x, *y;
} plot_curve;

/* The name of a series that is a rate. */
#define PLOT_RATE "steps per second"

/* What is drawn in one panel: the run's own curves first, a metric before the validation's. */
typedef struct plot_panel {
    bool log; /* the values are logarithms */
    bool rate; /* reaches from 0, whatever the plot's scale is: half of it is to look like half */
    int n;
    plot_curve curves[PLOT_CURVES];
} plot_panel;

typedef struct plot {
    const char *title; /* name of the run; borrowed */
    const char *other; /* name of the run that is drawn behind it, or NULL; borrowed */
    bool time; /* x is seconds since the run was begun, else steps */
    bool log; /* a scale of powers of ten, but for rates: what is not above 0 is a gap */
    bool dark; /* for pages on dark ground */
    int n;
    plot_panel *panels;
    int n_deaths;
    double *deaths; /* x of each */
} plot;

/* Adds a curve of a run that was begun at began_s (since 1970), in the panel that it
 * belongs to; of the other run only where the first has the same one. Points whose time is
 * not known are left out when x is time; false: none is left. */
bool plot_add(plot *p, const manta_run_series *s, double began_s, bool other);
/* Marks a death at `at_s` since 1970, of a run that was begun at began_s. Over steps it lies
 * where the run had come to by then, as the times of `s` tell. */
void plot_add_death(plot *p, double at_s, double began_s, const manta_run_series *s);
void plot_release(plot *p);

/* Draws all panels, as wide as the terminal allows. */
void plot_terminal(const plot *p);

/* Writes the panels to an .svg file (plot_svg.c), or to a .png or .pdf file (plot_picture.c). A file
 * appears whole or not at all. */
manta_status plot_svg(const char *path, const plot *p);
manta_status plot_picture(const char *path, const plot *p);

/* ---- for those who draw ---- */

/* The colours of a page, 0xRRGGBB; curves by slot. */
typedef struct plot_theme {
    uint32_t paper, ink, soft, grid, death, curve[PLOT_CURVES];
} plot_theme;

/* For light ground or dark. */
const plot_theme *plot_theme_of(const plot *p);

/* The finite range of a panel, widened when it is a point; false: there is none. */
bool plot_range(const plot_panel *p, double *lo, double *hi);
/* From where to where a panel reaches: over its curves and all deaths. Over time that is from
 * the run's beginning, and the same for all panels. */
void plot_reach(const plot *p, const plot_panel *panel, double *first, double *last);

/* Round numbers in [lo, hi], about `wish` and at most PLOT_TICKS, 1, 2 or 5 times a power
 * of ten apart; how many. plot_value_ticks() does so for the values of a panel. */
int plot_ticks(double lo, double hi, int wish, double *at);
int plot_value_ticks(const plot_panel *p, double lo, double hi, int wish, double *at);
/* The number that stands at y. */
double plot_value(const plot_panel *p, double y);
/* "step", "seconds" */
const char *plot_x_name(const plot *p);

#endif
