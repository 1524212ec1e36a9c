/* plot_svg.c - curves of a run as SVG. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tool_png.h>

#include "cli/plot.h"

enum {
    WIDTH = 880,
    HEAD = 44,
    LEGEND = 26, /* a line below the head, where there is something to be said */
    PANEL = 230, /* with its name above and its numbers below */
    LEFT = 76,
    RIGHT = 20,
    ABOVE = 36,
    BELOW = 34,
};

/* A panel's place in the picture, and what it stands for. */
typedef struct place {
    double top, x0, x1, y0, y1;
} place;

static double place_across(const place *at, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * (x - at->x0) / (at->x1 - at->x0);
}

static double place_down(const place *at, double y)
{
    return at->top + ABOVE + (PANEL - ABOVE - BELOW) * (at->y1 - y) / (at->y1 - at->y0);
}

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

static void put_line(FILE *f, double x0, double y0, double x1, double y1, uint32_t colour, const char *rest)
{
    fprintf(f, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#%06x\"%s/>\n", x0, y0, x1, y1,
            colour, rest);
}

/* ---- head ---- */

static void put_death_mark(FILE *f, double x, double y, const plot_theme *t)
{
    fprintf(f, "<polygon points=\"%.1f,%.1f %.1f,%.1f %.1f,%.1f\" fill=\"#%06x\"/>\n", x - 5, y - 9, x + 5,
            y - 9, x, y, t->death);
}

/* Which run is which, and what the marks are. */
static void put_legend(FILE *f, const plot *p, const plot_theme *t)
{
    const char *runs[] = {p->title, p->other};
    double x = LEFT;

    for (int i = 0; p->other && i < 2; i++) {
        put_line(f, x, HEAD, x + 28, HEAD, t->curve[i ? 0 : PLOT_METRICS],
                 i ? " stroke-width=\"6\"" : " stroke-width=\"1.8\"");
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" fill=\"#%06x\">", x + 36, HEAD + 4, t->ink);
        put_text(f, runs[i]);
        fputs("</text>\n", f);
        x += 60 + 7.5 * (double)strlen(runs[i]);
    }
    if (!p->n_deaths) return;
    put_death_mark(f, x + 5, HEAD + 5, t);
    fprintf(f, "<text x=\"%.1f\" y=\"%d\" fill=\"#%06x\">a worker died (%d)</text>\n", x + 18, HEAD + 4,
            t->ink, p->n_deaths);
}

/* ---- panels ---- */

static void put_grid(FILE *f, const plot *p, const plot_panel *panel, const plot_theme *t, const place *at)
{
    double ticks[PLOT_TICKS], bottom = at->top + PANEL - BELOW, half;
    char text[32];
    int n = plot_value_ticks(panel, at->y0, at->y1, 4, ticks);

    for (int i = 0; i < n; i++) {
        double y = place_down(at, ticks[i]);
        put_line(f, LEFT, y, WIDTH - RIGHT, y, t->grid, "");
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" fill=\"#%06x\" text-anchor=\"end\">%.4g</text>\n", LEFT - 8,
                y + 4.5, t->soft,
                plot_value(panel, fabs(ticks[i]) < (at->y1 - at->y0) * 1e-9 ? 0 : ticks[i]));
    }
    n = plot_ticks(at->x0, at->x1, 7, ticks);
    for (int i = 0; i < n; i++) {
        if (!p->time && ticks[i] != floor(ticks[i])) continue; /* there is no half a step */
        snprintf(text, sizeof text, "%.10g", ticks[i]);
        half = 3.8 * (double)strlen(text); /* of its width, about: the font is the reader's */
        fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" fill=\"#%06x\" text-anchor=\"middle\">%s</text>\n",
                fmin(place_across(at, ticks[i]), WIDTH - 4 - half), bottom + 18, t->soft, text);
    }
}

static void put_curve(FILE *f, const plot_curve *c, const plot_theme *t, const place *at)
{
    bool drawing = false;

    fprintf(f, "<path fill=\"none\" stroke=\"#%06x\" stroke-width=\"%s\" stroke-linejoin=\"round\" d=\"",
            t->curve[c->slot], c->other ? "6" : "1.8");
    for (int64_t i = 0; i < c->n; i++) {
        if (!isfinite(c->y[i])) { /* a gap */
            drawing = false;
            continue;
        }
        fprintf(f, "%c%.1f %.1f", drawing ? 'L' : 'M', place_across(at, c->x[i]), place_down(at, c->y[i]));
        drawing = true;
    }
    fputs("\"/>\n", f);
}

/* Its name, in the colours of its curves where there are several. */
static void put_names(FILE *f, const plot *p, const plot_panel *panel, const plot_theme *t, double top)
{
    bool several = panel->n > 1 && !panel->curves[1].other;

    fprintf(f, "<text x=\"%d\" y=\"%.1f\" font-weight=\"bold\" fill=\"#%06x\">", LEFT, top + 18, t->ink);
    for (int k = 0; k < panel->n && !panel->curves[k].other; k++) {
        fprintf(f, "<tspan fill=\"#%06x\"%s>", several ? t->curve[panel->curves[k].slot] : t->ink,
                k ? " dx=\"16\"" : "");
        put_text(f, panel->curves[k].name);
        fputs("</tspan>", f);
    }
    fprintf(f, "</text>\n<text x=\"%d\" y=\"%.1f\" fill=\"#%06x\" text-anchor=\"end\">%s</text>\n",
            WIDTH - RIGHT, top + 18, t->soft, plot_x_name(p));
}

static void put_panel(FILE *f, const plot *p, const plot_panel *panel, const plot_theme *t, double top)
{
    place at = {.top = top};

    put_names(f, p, panel, t, top);
    if (!plot_range(panel, &at.y0, &at.y1)) {
        fprintf(f, "<text x=\"%d\" y=\"%.1f\" fill=\"#%06x\">no number</text>\n", LEFT + 16, top + ABOVE + 24,
                t->soft);
        return;
    }
    plot_reach(p, panel, &at.x0, &at.x1);
    if (at.x1 <= at.x0) at.x1 = at.x0 + fmax(1, fabs(at.x0) * 1e-6);
    put_grid(f, p, panel, t, &at);
    for (int i = 0; i < p->n_deaths; i++) {
        double x = place_across(&at, p->deaths[i]);
        put_line(f, x, top + ABOVE, x, top + PANEL - BELOW, t->death, " stroke-dasharray=\"2 4\"");
        put_death_mark(f, x, top + ABOVE, t);
    }
    for (int behind = 1; behind >= 0; behind--) {
        for (int k = 0; k < panel->n; k++) {
            if (panel->curves[k].other == behind) put_curve(f, &panel->curves[k], t, &at);
        }
    }
}

static void put_page(FILE *f, const plot *p)
{
    const plot_theme *t = plot_theme_of(p);
    int head = HEAD + (p->other || p->n_deaths ? LEGEND : 0), height = head + p->n * PANEL;

    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"-apple-system, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', Helvetica, Arial, "
            "sans-serif\" font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" rx=\"6\" "
            "fill=\"#%06x\"/>\n"
            "<text x=\"%d\" y=\"26\" font-size=\"17\" font-weight=\"bold\" fill=\"#%06x\">",
            WIDTH, height, WIDTH, height, t->paper, LEFT, t->ink);
    put_text(f, p->title);
    fputs("</text>\n", f);
    put_legend(f, p, t);
    for (int i = 0; i < p->n; i++) put_panel(f, p, &p->panels[i], t, head + i * PANEL);
    fputs("</svg>\n", f);
}

manta_status plot_svg(const char *path, const plot *p)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    manta_status st;

    if (!f) abort();
    put_page(f, p);
    if (fclose(f)) abort(); /* small control memory */
    st = manta_picture_write(path, text, n);
    free(text);
    return st;
}
