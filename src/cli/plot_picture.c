/* plot_picture.c - curves of a run as a picture, PNG or PDF.
 *
 *   0          LEFT                                        WIDTH - RIGHT
 *   |           | title, which run is which, marks           |  HEAD
 *   +-----------+--------------------------------------------+
 *   |           | names of the curves                        |  ABOVE
 *   |           +--------------------------------------------+
 *   |    number |-  the frame                                |  of a panel, each PANEL high
 *   |           +--------------------------------------------+
 *   |           number                                  step |  BELOW */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/paint.h"
#include "cli/plot.h"

enum {
    WIDTH = 1280,
    HEAD = 70,
    PANEL = 420, /* a curve with its name and numbers */
    LEFT = 150,
    RIGHT = 30,
    ABOVE = 44, /* of a panel, for the name */
    BELOW = 56,
    EDGE = 8, /* nothing is written nearer to the edge of the paper */
    PANELS = 32,
    TICK = 7, /* how far a tick reaches into the frame */
    MARK = 12,
};

static const double title_size = 26, text_size = 18, thin = 1, thick = 3.6, behind_thick = 9;
static const double air = 0.025; /* of a frame's height, above and below what is in it */

/* The part of the picture that a curve is drawn in, and what it stands for. */
typedef struct frame {
    double left, top, width, height;
    double x0, x1, y0, y1;
} frame;

static double x_of(const frame *f, double x)
{
    return f->left + f->width * (x - f->x0) / (f->x1 - f->x0);
}

static double y_of(const frame *f, double value)
{
    return f->top + f->height * (f->y1 - value) / (f->y1 - f->y0);
}

/* The middle of a point: a line of one point's thickness lies on points and not between them. */
static double on_point(double v)
{
    return floor(v) + 0.5;
}

/* ---- axes ---- */

static void draw_value_ticks(paint *p, const plot_theme *t, const plot_panel *drawn, const frame *f)
{
    double at[PLOT_TICKS];
    int n = plot_value_ticks(drawn, f->y0, f->y1, 5, at);

    for (int i = 0; i < n; i++) {
        double y = on_point(y_of(f, at[i])), value = fabs(at[i]) < (f->y1 - f->y0) * 1e-9 ? 0 : at[i];
        char text[32];
        snprintf(text, sizeof text, "%.6g", plot_value(drawn, value));
        paint_line(p, t->grid, thin, 0, f->left, y, f->left + f->width, y);
        paint_line(p, t->soft, thin, 0, f->left, y, f->left + TICK, y);
        paint_text(p, t->soft, text_size, false, f->left - 12, y + text_size * 0.36, PAINT_UNTIL,
                   f->left - 12 - EDGE, text);
    }
}

/* A number whose place is taken by the one before it, or by the name of the axis, is not written. */
static void draw_x_ticks(paint *p, const plot_theme *t, const plot *of, const frame *f)
{
    double at[PLOT_TICKS], bottom = f->top + f->height, base = bottom + 10 + text_size, free_from = EDGE;
    int n = plot_ticks(f->x0, f->x1, 7, at);

    for (int i = 0; i < n; i++) {
        double x = on_point(x_of(f, at[i])), width, from;
        char text[32];
        if (!of->time && at[i] != floor(at[i])) continue; /* there is no half a step */
        snprintf(text, sizeof text, "%.10g", at[i]);
        paint_line(p, t->grid, thin, 0, x, f->top, x, bottom);
        paint_line(p, t->soft, thin, 0, x, bottom - TICK, x, bottom);
        width = paint_text_width(p, text_size, false, text);
        from = fmin(x - width / 2, WIDTH - EDGE - width);
        if (from < free_from) continue;
        paint_text(p, t->soft, text_size, false, from, base, PAINT_FROM, width + 1, text);
        free_from = from + width + EDGE;
    }
    paint_text(p, t->ink, text_size, false, f->left + f->width, base + text_size + 4, PAINT_UNTIL, WIDTH,
               plot_x_name(of));
}

static void draw_frame(paint *p, const plot_theme *t, const frame *f)
{
    double left = on_point(f->left), right = on_point(f->left + f->width);
    double top = on_point(f->top), bottom = on_point(f->top + f->height);

    paint_line(p, t->soft, thin, 0, left, top, right, top);
    paint_line(p, t->soft, thin, 0, left, bottom, right, bottom);
    paint_line(p, t->soft, thin, 0, left, top, left, bottom);
    paint_line(p, t->soft, thin, 0, right, top, right, bottom);
}

/* ---- curves ---- */

/* What is drawn of the points from *i on that fall into the same column as the
 * first: its first, least, greatest and last, in an order that keeps the line. */
static void column_points(const plot_curve *s, const frame *f, int64_t *i, double out[4])
{
    int column = (int)x_of(f, s->x[*i]);
    double first = s->y[*i], least = first, greatest = first, last = first;

    for (; *i < s->n && isfinite(s->y[*i]) && (int)x_of(f, s->x[*i]) == column; ++*i) {
        last = s->y[*i];
        least = fmin(least, last);
        greatest = fmax(greatest, last);
    }
    out[0] = first;
    out[1] = least;
    out[2] = greatest;
    out[3] = last;
}

static void draw_curve(paint *p, const plot_theme *t, const frame *f, const plot_curve *s)
{
    bool drawing = false; /* a number that is none makes a gap */

    for (int64_t i = 0; i < s->n;) {
        double values[4], x = x_of(f, s->x[i]);
        if (!isfinite(s->y[i])) {
            drawing = false;
            i++;
            continue;
        }
        column_points(s, f, &i, values);
        for (int k = 0; k < 4; k++) {
            (drawing ? paint_to : paint_move)(p, x, y_of(f, values[k]));
            drawing = true;
        }
    }
    paint_stroke(p, t->curve[s->slot], s->other ? behind_thick : thick);
}

static void draw_curves(paint *p, const plot_theme *t, const plot_panel *drawn, const frame *f)
{
    double more = behind_thick / 2;

    paint_clip(p, f->left - more, f->top - more, f->width + 2 * more, f->height + 2 * more);
    for (int behind = 1; behind >= 0; behind--) {
        for (int k = 0; k < drawn->n; k++) {
            if (drawn->curves[k].other == behind) draw_curve(p, t, f, &drawn->curves[k]);
        }
    }
    paint_unclip(p);
}

/* A broken line at each death, and a mark above it. */
static void draw_deaths(paint *p, const plot_theme *t, const plot *of, const frame *f)
{
    for (int i = 0; i < of->n_deaths; i++) {
        double x = round(x_of(f, of->deaths[i]));
        paint_line(p, t->death, 2, 4, x, f->top, x, f->top + f->height);
        paint_mark(p, t->death, x, f->top, MARK);
    }
}

/* ---- panels ---- */

/* The names of its curves, in their colours where there are several. */
static void write_names(paint *p, const plot_theme *t, const plot_panel *drawn, double top)
{
    bool several = drawn->n > 1 && !drawn->curves[1].other;
    double at = LEFT;

    for (int k = 0; k < drawn->n && !drawn->curves[k].other; k++) {
        const plot_curve *c = &drawn->curves[k];
        at += 24 + paint_text(p, several ? t->curve[c->slot] : t->ink, text_size, true, at, top + 25,
                              PAINT_FROM, WIDTH - RIGHT - at, c->name);
    }
}

static void draw_panel(paint *p, const plot_theme *t, const plot *of, const plot_panel *drawn, double top)
{
    frame f = {
        .left = LEFT, .top = top + ABOVE, .width = WIDTH - LEFT - RIGHT, .height = PANEL - ABOVE - BELOW};
    bool some = plot_range(drawn, &f.y0, &f.y1);

    plot_reach(of, drawn, &f.x0, &f.x1);
    write_names(p, t, drawn, top);
    if (!some) {
        f.y0 = 0;
        f.y1 = 1;
        paint_text(p, t->soft, text_size, false, LEFT + 20, f.top + 34, PAINT_FROM, f.width, "no number");
    } else if (isfinite((f.y1 - f.y0) * (1 + 2 * air))) {
        double more = (f.y1 - f.y0) * air;
        f.y1 += more;
        if (!drawn->rate) f.y0 -= more;
    }
    if (f.x1 <= f.x0) { /* one point only: in the middle */
        double around = fmax(1, fabs(f.x0) * 1e-6);
        f.x0 -= around;
        f.x1 += around;
    }
    if (some) draw_value_ticks(p, t, drawn, &f);
    draw_x_ticks(p, t, of, &f);
    draw_frame(p, t, &f);
    draw_deaths(p, t, of, &f);
    if (some) draw_curves(p, t, drawn, &f);
}

/* The run's name; beside it which run is which, and what the marks are. */
static void draw_head(paint *p, const plot_theme *t, const plot *of)
{
    double at = LEFT, base = 44, most = WIDTH - LEFT - RIGHT, half = most / 2;
    char text[64];

    if (of->other) {
        paint_line(p, t->curve[PLOT_METRICS], thick, 0, at, base - 8, at + 34, base - 8);
        at += 44;
    }
    at += 36 + paint_text(p, t->ink, title_size, true, at, base, PAINT_FROM,
                          of->other || of->n_deaths ? half - 44 : most, of->title);
    if (of->other) {
        paint_line(p, t->curve[0], behind_thick, 0, at, base - 8, at + 34, base - 8);
        at += 44;
        at += 36 + paint_text(p, t->ink, text_size, false, at, base, PAINT_FROM, half / 2, of->other);
    }
    if (!of->n_deaths) return;
    snprintf(text, sizeof text, "a worker died (%d)", of->n_deaths);
    paint_mark(p, t->death, at + MARK / 2.0, base - 1, MARK);
    paint_text(p, t->ink, text_size, false, at + MARK + 8, base, PAINT_FROM, WIDTH - EDGE - at - MARK - 8,
               text);
}

manta_status plot_picture(const char *path, const plot *of)
{
    const plot_theme *t = plot_theme_of(of);
    int height = HEAD + of->n * PANEL;
    manta_status st;
    paint *p;

    if (of->n > PANELS)
        return manta_fail(MANTA_EINVAL,
                          "%s: %d curves are too many for a picture: choose up to %d with --metrics", path,
                          of->n, PANELS);
    MANTA_TRY(paint_open(path, of->title, WIDTH, height, &p));
    paint_box(p, t->paper, 0, 0, WIDTH, height);
    draw_head(p, t, of);
    for (int i = 0; i < of->n; i++) draw_panel(p, t, of, &of->panels[i], HEAD + i * PANEL);
    st = paint_save(p);
    paint_free(p);
    return st;
}
