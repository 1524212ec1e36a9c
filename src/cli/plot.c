/* plot.c - curves of a run: which there are, their scales, and how they look as characters. */
#include "cli/plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/print.h"
#include "cli/table.h"

enum { ROWS = 10 };

static void *grow_array(void *old, size_t n, size_t size)
{
    void *at = realloc(old, (n ? n : 1) * size);

    if (!at) abort();
    return at;
}

/* ---- what is drawn ---- */

static bool is_validation_of(const char *name, const char *of)
{
    return !strncmp(name, "val_", 4) && !strcmp(name + 4, of);
}

static bool is_rate(const char *name)
{
    return !strcmp(name, PLOT_RATE);
}

static double y_of(bool log, double value)
{
    if (!log) return value;
    return value > 0 ? log10(value) : (double)NAN;
}

static plot_curve curve_of(const plot *p, const manta_run_series *s, double began_s)
{
    plot_curve c = {0};

    memcpy(c.name, s->name, sizeof c.name);
    c.x = grow_array(NULL, (size_t)s->n, sizeof *c.x);
    c.y = grow_array(NULL, (size_t)s->n, sizeof *c.y);
    for (int64_t i = 0; i < s->n; i++) {
        const manta_run_point *at = &s->points[i];
        if (p->time && !(at->time_s > 0)) continue;
        c.x[c.n] = p->time ? at->time_s - began_s : (double)at->step;
        c.y[c.n++] = y_of(p->log && !is_rate(s->name), at->value);
    }
    return c;
}

/* The panel that a curve belongs to; a new one where there is none, NULL: the other run's
 * has nothing to be held against. */
static plot_panel *panel_for(plot *p, const char *name, bool other)
{
    for (int i = 0; i < p->n; i++) {
        const plot_panel *at = &p->panels[i];
        for (int k = 0; k < at->n; k++) {
            const plot_curve *c = &at->curves[k];
            if (c->other) continue;
            if (other ? !strcmp(name, c->name)
                      : is_validation_of(name, c->name) || is_validation_of(c->name, name))
                return &p->panels[i];
        }
    }
    if (other) return NULL;
    p->panels = grow_array(p->panels, (size_t)p->n + 1, sizeof *p->panels);
    p->panels[p->n] = (plot_panel){.log = p->log && !is_rate(name), .rate = is_rate(name)};
    return &p->panels[p->n++];
}

static void number_curves(plot_panel *panel)
{
    int of[2] = {0, 0};

    for (int k = 0; k < panel->n; k++) {
        plot_curve *c = &panel->curves[k];
        c->slot = (c->other ? 0 : PLOT_METRICS) + of[c->other]++;
    }
}

bool plot_add(plot *p, const manta_run_series *s, double began_s, bool other)
{
    plot_curve c = curve_of(p, s, began_s);
    plot_panel *panel = c.n ? panel_for(p, c.name, other) : NULL;
    int at;

    if (!panel) {
        free(c.x);
        free(c.y);
        return c.n > 0;
    }
    c.other = other;
    at = panel->n++;
    panel->curves[at] = c;
    if (at && panel->curves[at - 1].other == other && is_validation_of(panel->curves[at - 1].name, c.name)) {
        panel->curves[at] = panel->curves[at - 1]; /* they came the other way round */
        panel->curves[at - 1] = c;
    }
    number_curves(panel);
    return true;
}

/* Where a run had come to at a time: on the line between two reports. */
static double step_at(const manta_run_series *s, double at_s, double began_s)
{
    double x0 = 0, t0 = began_s;

    for (int64_t i = 0; i < s->n; i++) {
        double x1 = (double)s->points[i].step, t1 = s->points[i].time_s;
        if (t1 >= at_s && t1 > t0) return x0 + (x1 - x0) * fmax(0, at_s - t0) / (t1 - t0);
        x0 = x1;
        t0 = t1;
    }
    return x0;
}

void plot_add_death(plot *p, double at_s, double began_s, const manta_run_series *s)
{
    p->deaths = grow_array(p->deaths, (size_t)p->n_deaths + 1, sizeof *p->deaths);
    p->deaths[p->n_deaths++] = p->time ? at_s - began_s : step_at(s, at_s, began_s);
}

void plot_release(plot *p)
{
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < p->panels[i].n; k++) {
            free(p->panels[i].curves[k].x);
            free(p->panels[i].curves[k].y);
        }
    }
    free(p->panels);
    free(p->deaths);
    *p = (plot){0};
}

/* ---- scales ---- */

bool plot_range(const plot_panel *p, double *lo, double *hi)
{
    bool some = false;

    for (int k = 0; k < p->n; k++) {
        for (int64_t i = 0; i < p->curves[k].n; i++) {
            double v = p->curves[k].y[i];
            if (!isfinite(v)) continue;
            if (!some || v < *lo) *lo = v;
            if (!some || v > *hi) *hi = v;
            some = true;
        }
    }
    if (some && p->rate && *lo > 0) *lo = 0;
    if (some && *hi == *lo) { /* by so much that it is another number */
        double around = fmax(0.5, fabs(*lo) * 1e-6);
        *lo -= around;
        *hi += around;
    }
    return some && isfinite(*hi - *lo); /* else so far apart that no scale has both */
}

static void reach_over(const plot_panel *panel, double *first, double *last)
{
    for (int k = 0; k < panel->n; k++) {
        for (int64_t i = 0; i < panel->curves[k].n; i++) { /* a file may have them in any order */
            *first = fmin(*first, panel->curves[k].x[i]);
            *last = fmax(*last, panel->curves[k].x[i]);
        }
    }
}

void plot_reach(const plot *p, const plot_panel *panel, double *first, double *last)
{
    *first = *last = p->time ? 0 : panel->curves[0].x[0];
    reach_over(panel, first, last);
    for (int i = 0; i < p->n && p->time; i++) reach_over(&p->panels[i], first, last);
    for (int i = 0; i < p->n_deaths; i++) {
        *first = fmin(*first, p->deaths[i]);
        *last = fmax(*last, p->deaths[i]);
    }
}

int plot_ticks(double lo, double hi, int wish, double *at)
{
    double raw = (hi - lo) / wish, power, step, first;
    int n = 0;

    if (!(raw > 0) || !isfinite(raw)) return 0;
    power = pow(10, floor(log10(raw)));
    step = raw / power <= 1   ? power
           : raw / power <= 2 ? 2 * power
           : raw / power <= 5 ? 5 * power
                              : 10 * power;
    if (!(step > 0)) return 0;
    first = ceil(lo / step - 1e-9);
    for (; n < PLOT_TICKS && (first + n) * step <= hi + step * 1e-9; n++) at[n] = (first + n) * step;
    return n;
}

/* Powers of ten, and between them 3 times, or 2 and 5 times as much, where there is room. */
int plot_value_ticks(const plot_panel *p, double lo, double hi, int wish, double *at)
{
    static const double all[] = {1, 2, 5}, some[] = {1, 3};
    const double *of = hi - lo < 1.5 ? all : some;
    int each = hi - lo < 1.5 ? 3 : hi - lo < 4 ? 2 : 1, n = 0;

    if (!p->log || hi - lo > PLOT_TICKS - 2) return plot_ticks(lo, hi, wish, at);
    for (int power = 0; floor(lo) + power <= hi; power++) {
        for (int i = 0; i < each && n < PLOT_TICKS; i++) {
            double y = floor(lo) + power + log10(of[i]);
            if (y >= lo && y <= hi) at[n++] = y;
        }
    }
    return n;
}

double plot_value(const plot_panel *p, double y)
{
    return p->log ? pow(10, y) : y;
}

const char *plot_x_name(const plot *p)
{
    return p->time ? "seconds" : "step";
}

const plot_theme *plot_theme_of(const plot *p)
{
    static const plot_theme light = {0xffffff, 0x1f2328, 0x59636e,
                                     0xd1d9e0, 0xc62828, {0xb6cdea, 0xf7cfb2, 0x1565c0, 0xe65100}};
    static const plot_theme dark = {0x0d1117, 0xf0f6fc, 0x9198a1,
                                    0x30363d, 0xff7b72, {0x365880, 0x6e4a33, 0x79b8ff, 0xffab70}};

    return p->dark ? &dark : &light;
}

/* ---- characters ---- */

static int terminal_columns(void)
{
    struct winsize w;
    int n = isatty(1) && !ioctl(1, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80;

    return n < 40 ? 40 : n > 200 ? 200 : n;
}

/* The value of a curve at x; between two points on the line that joins them. */
static double value_at(const plot_curve *c, double x)
{
    int64_t i = 0;
    double x0, x1, y0, y1;

    while (i < c->n && c->x[i] < x) i++;
    if (i == c->n || (!i && c->x[0] > x)) return (double)NAN; /* beyond its ends */
    x1 = c->x[i];
    y1 = c->y[i];
    if (x1 == x || !i) return y1;
    x0 = c->x[i - 1];
    y0 = c->y[i - 1];
    return x1 > x0 ? y0 + (y1 - y0) * (x - x0) / (x1 - x0) : y1;
}

/* What a column from a to b shows: the mean of the points in it, or where there is
 * none the line's value in its middle; NaN: nothing. */
static double column_value(const plot_curve *c, double a, double b)
{
    double sum = 0;
    int64_t count = 0, finite = 0;

    for (int64_t i = 0; i < c->n; i++) {
        if (c->x[i] < a || c->x[i] >= b) continue;
        count++;
        if (!isfinite(c->y[i])) continue;
        sum += c->y[i];
        finite++;
    }
    return count ? (finite ? sum / (double)finite : (double)NAN) : value_at(c, (a + b) / 2);
}

/* The row that each column of a curve is in; -1: none. Owned by the caller. */
static int *rows_of(const plot_curve *s, int width, double first, double last, double lo, double hi)
{
    int *rows = grow_array(NULL, (size_t)width, sizeof *rows);
    double span = (last - first) / (width > 1 ? width - 1 : 1);

    for (int c = 0; c < width; c++) {
        double middle = first + span * c;
        double v = span > 0 ? column_value(s, middle - span / 2, middle + span / 2) : s->y[0];
        rows[c] = isfinite(v) ? (int)lround((v - lo) / (hi - lo) * (ROWS - 1)) : -1;
    }
    return rows;
}

static char mark_of(const plot_curve *c)
{
    static const char marks[PLOT_CURVES] = {'.', ',', '*', 'o'};

    return marks[c->slot];
}

static void draw_rows(const plot_panel *panel, int *const *rows, int width, double lo, double hi)
{
    for (int row = ROWS - 1; row >= 0; row--) {
        if (row == ROWS - 1 || row == 0 || row == ROWS / 2) {
            print_out("%11.4g |", plot_value(panel, lo + (hi - lo) * row / (ROWS - 1)));
        } else {
            print_out("%11s |", "");
        }
        for (int c = 0; c < width; c++) {
            char mark = ' ';
            for (int k = panel->n; k-- > 0;) {
                if (rows[k][c] == row) mark = mark_of(&panel->curves[k]);
            }
            print_out("%c", mark);
        }
        print_out("\n");
    }
}

static void draw_axis(const plot *p, int width, double first, double last)
{
    print_out("%11s +", "");
    for (int c = 0; c < width; c++) {
        double span = (last - first) / (width > 1 ? width - 1 : 1), at = first + span * c;
        bool death = false;
        for (int i = 0; i < p->n_deaths && span > 0; i++)
            death |= p->deaths[i] >= at - span / 2 && p->deaths[i] < at + span / 2;
        print_out("%c", death ? 'x' : '-');
    }
    if (p->time) {
        print_out("\n%11s  %.1f to %.1f s", "", first, last);
    } else {
        print_out("\n%11s  step %.0f to %.0f", "", first, last);
    }
    if (p->n_deaths) print_out("; x: a worker died (%d)", p->n_deaths);
    print_out("\n\n");
}

static void draw_panel(const plot *p, const plot_panel *panel)
{
    int width = terminal_columns() - 14, *rows[PLOT_CURVES];
    double lo = 0, hi = 0, first, last;

    for (int k = 0; k < panel->n; k++) {
        if (panel->n > 1) print_out("%s%c ", k ? "   " : "", mark_of(&panel->curves[k]));
        print_out("%s", panel->curves[k].name);
        if (panel->curves[k].other) {
            print_out(" of ");
            print_out("%s", p->other);
        }
    }
    print_out("\n");
    if (!plot_range(panel, &lo, &hi)) {
        print_out("  no number in %" PRId64 " points\n\n", panel->curves[0].n);
        return;
    }
    plot_reach(p, panel, &first, &last);
    if (last <= first) width = 1;
    for (int k = 0; k < panel->n; k++) rows[k] = rows_of(&panel->curves[k], width, first, last, lo, hi);
    draw_rows(panel, rows, width, lo, hi);
    for (int k = 0; k < panel->n; k++) free(rows[k]);
    draw_axis(p, width, first, last);
}

void plot_terminal(const plot *p)
{
    for (int i = 0; i < p->n; i++) draw_panel(p, &p->panels[i]);
}
