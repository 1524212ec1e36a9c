/* plot.c - curves of a run. */
#include "cli/plot.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/table.h"

enum { ROWS = 10, WIDTH = 640, PANEL = 220, LEFT = 80, TOP = 40, BOTTOM = 30 };

/* A metric's, and the validation's. */
static const char *colour_of(int curve)
{
    return curve ? "#e65100" : "#1565c0";
}

/* ---- what is drawn ---- */

static bool is_of_validation(const manta_run_series *s, const manta_run_series *of)
{
    return !strncmp(s->name, "val_", 4) && !strcmp(s->name + 4, of->name);
}

int plot_panels(const manta_run_series *s, int n, plot_panel *out)
{
    int panels = 0;

    for (int i = 0; i < n; i++) {
        plot_panel *p = NULL;
        for (int k = 0; k < panels && !p; k++) {
            if (out[k].n == 1 &&
                (is_of_validation(&s[i], out[k].curves[0]) || is_of_validation(out[k].curves[0], &s[i])))
                p = &out[k];
        }
        if (!p) {
            p = &out[panels++];
            *p = (plot_panel){0};
        }
        p->curves[p->n++] = &s[i];
        if (p->n == 2 && is_of_validation(p->curves[0], p->curves[1])) { /* they came the other way round */
            p->curves[1] = p->curves[0];
            p->curves[0] = &s[i];
        }
    }
    return panels;
}

bool plot_range(const plot_panel *p, double *lo, double *hi)
{
    bool some = false;

    for (int k = 0; k < p->n; k++) {
        for (int64_t i = 0; i < p->curves[k]->n; i++) {
            double v = p->curves[k]->points[i].value;
            if (!isfinite(v)) continue;
            if (!some || v < *lo) *lo = v;
            if (!some || v > *hi) *hi = v;
            some = true;
        }
    }
    if (some && *hi == *lo) { /* by so much that it is another number */
        double around = fmax(0.5, fabs(*lo) * 1e-6);
        *lo -= around;
        *hi += around;
    }
    return some && isfinite(*hi - *lo); /* else so far apart that no scale has both */
}

void plot_steps(const plot_panel *p, double *first, double *last)
{
    *first = *last = (double)p->curves[0]->points[0].step;
    for (int k = 0; k < p->n; k++) {
        for (int64_t i = 0; i < p->curves[k]->n; i++) { /* a file may have them in any order */
            *first = fmin(*first, (double)p->curves[k]->points[i].step);
            *last = fmax(*last, (double)p->curves[k]->points[i].step);
        }
    }
}

/* ---- characters ---- */

static int terminal_columns(void)
{
    struct winsize w;
    int n = isatty(1) && !ioctl(1, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80;

    return n < 40 ? 40 : n > 200 ? 200 : n;
}

/* The value of a curve at a step; between two points on the line that joins them. */
static double value_at(const manta_run_series *s, double step)
{
    int64_t i = 0;
    double x0, x1, y0, y1;

    while (i < s->n && (double)s->points[i].step < step) i++;
    if (i == s->n || (!i && (double)s->points[0].step > step)) return (double)NAN; /* beyond its ends */
    x1 = (double)s->points[i].step;
    y1 = s->points[i].value;
    if (x1 == step || !i) return y1;
    x0 = (double)s->points[i - 1].step;
    y0 = s->points[i - 1].value;
    return x1 > x0 ? y0 + (y1 - y0) * (step - x0) / (x1 - x0) : y1;
}

/* What a column from step a to step b shows: the mean of the points in it, or
 * where there is none the line's value in its middle; NaN: nothing. */
static double column_value(const manta_run_series *s, double a, double b)
{
    double sum = 0;
    int64_t count = 0, finite = 0;

    for (int64_t i = 0; i < s->n; i++) {
        double at = (double)s->points[i].step;
        if (at < a || at >= b) continue;
        count++;
        if (!isfinite(s->points[i].value)) continue;
        sum += s->points[i].value;
        finite++;
    }
    return count ? (finite ? sum / (double)finite : (double)NAN) : value_at(s, (a + b) / 2);
}

/* The row that each column of a curve is in; -1: none. Owned by the caller. */
static int *rows_of(const manta_run_series *s, int width, double first, double last, double lo, double hi)
{
    int *rows = malloc((size_t)width * sizeof *rows);
    double span = (last - first) / (width > 1 ? width - 1 : 1);

    if (!rows) abort();
    for (int c = 0; c < width; c++) {
        double middle = first + span * c;
        double v = span > 0 ? column_value(s, middle - span / 2, middle + span / 2) : s->points[0].value;
        rows[c] = isfinite(v) ? (int)lround((v - lo) / (hi - lo) * (ROWS - 1)) : -1;
    }
    return rows;
}

static void draw_rows(const plot_panel *p, int *const *rows, int width, double lo, double hi)
{
    static const char marks[PLOT_CURVES] = {'*', 'o'};

    for (int row = ROWS - 1; row >= 0; row--) {
        if (row == ROWS - 1 || row == 0 || row == ROWS / 2) {
            printf("%11.4g |", lo + (hi - lo) * row / (ROWS - 1));
        } else {
            printf("%11s |", "");
        }
        for (int c = 0; c < width; c++) {
            char mark = ' ';
            for (int k = p->n; k-- > 0;) {
                if (rows[k][c] == row) mark = marks[k];
            }
            putchar(mark);
        }
        putchar('\n');
    }
}

void plot_terminal(const plot_panel *p)
{
    int width = terminal_columns() - 14, *rows[PLOT_CURVES];
    double lo = 0, hi = 0, first, last;

    for (int k = 0; k < p->n; k++) {
        fputs(k ? "   o " : p->n > 1 ? "* " : "", stdout);
        table_text(p->curves[k]->name);
    }
    putchar('\n');
    if (!plot_range(p, &lo, &hi)) {
        printf("  no number in %" PRId64 " points\n\n", p->curves[0]->n);
        return;
    }
    plot_steps(p, &first, &last);
    if (last <= first) width = 1;
    for (int k = 0; k < p->n; k++) rows[k] = rows_of(p->curves[k], width, first, last, lo, hi);
    draw_rows(p, rows, width, lo, hi);
    for (int k = 0; k < p->n; k++) free(rows[k]);
    printf("%11s +", "");
    for (int c = 0; c < width; c++) putchar('-');
    printf("\n%11s  step %.0f to %.0f\n\n", "", first, last);
}

/* ---- SVG ---- */

/* Text as XML has it. */
static void put_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc((unsigned char)*text < ' ' ? '?' : *text, f);
        }
    }
}

static void put_curve(FILE *f, const manta_run_series *s, const char *colour, const double *x,
                      const double *y, int top)
{
    int width = WIDTH - LEFT - 20, height = PANEL - BOTTOM - 20;
    bool drawing = false;

    fprintf(f, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" d=\"", colour);
    for (int64_t i = 0; i < s->n; i++) {
        double v = s->points[i].value;
        if (!isfinite(v)) { /* a gap */
            drawing = false;
            continue;
        }
        fprintf(f, "%c%.1f %.1f", drawing ? 'L' : 'M',
                LEFT + width * ((double)s->points[i].step - x[0]) / (x[1] - x[0]),
                top + 20 + height * (y[1] - v) / (y[1] - y[0]));
        drawing = true;
    }
    fputs("\"/>\n", f);
}

static void put_panel(FILE *f, const plot_panel *p, int top)
{
    int width = WIDTH - LEFT - 20, height = PANEL - BOTTOM - 20;
    double x[2], y[2] = {0, 0};

    fprintf(f, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">", LEFT, top + 12);
    for (int k = 0; k < p->n; k++) {
        fprintf(f, "<tspan fill=\"%s\"%s>", p->n > 1 ? colour_of(k) : "black", k ? " dx=\"16\"" : "");
        put_text(f, p->curves[k]->name);
        fputs("</tspan>", f);
    }
    fprintf(f,
            "</text>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#bbb\"/>\n",
            LEFT, top + 20, width, height);
    if (!plot_range(p, &y[0], &y[1])) return;
    plot_steps(p, &x[0], &x[1]);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6, top + 30, y[1]);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6, top + 20 + height,
            y[0]);
    fprintf(f, "<text x=\"%d\" y=\"%d\">%.0f</text>\n", LEFT, top + 34 + height, x[0]);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step %.0f</text>\n", LEFT + width,
            top + 34 + height, x[1]);
    if (x[1] <= x[0]) x[1] = x[0] + fmax(1, fabs(x[0]) * 1e-6);
    for (int k = 0; k < p->n; k++) put_curve(f, p->curves[k], colour_of(k), x, y, top);
}

manta_status plot_svg(const char *path, const char *title, const plot_panel *p, int n)
{
    FILE *f = fopen(path, "w");
    bool fine;

    if (!f) return manta_fail(MANTA_EIO, "%s: %s", path, strerror(errno));
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" "
        "font-size=\"16\">",
        WIDTH, TOP + n * PANEL, LEFT);
    put_text(f, title);
    fputs("</text>\n", f);
    for (int i = 0; i < n; i++) put_panel(f, &p[i], TOP + i * PANEL);
    fputs("</svg>\n", f);
    fine = !ferror(f);
    if (fclose(f) || !fine)
        return manta_fail(MANTA_EIO, "%s: it could not be written: %s", path, strerror(errno));
    return MANTA_OK;
}
