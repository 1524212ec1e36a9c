/* plot_png.c - curves of a run as a picture of points.
 *
 * A canvas holds an index into the palette for each point. The shades from paper
 * to a curve's colour are neighbours in it, so a line is drawn by how much of
 * each point it covers, and where two of its pieces meet the greater one stays. A
 * second curve lies over the first where it covers most of a point. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tool_png.h>

#include "cli/font.h"
#include "cli/plot.h"

enum {
    WIDTH = 1280,
    HEAD = 70,
    PANEL = 420, /* a curve with its name and numbers */
    LEFT = 150,
    RIGHT = 30,
    ABOVE = 44, /* of a panel, for the name */
    BELOW = 56,
    SCALE = 2, /* points of a letter's point */
    PANELS = 32,
    SHADES = 32
};

enum { PAPER, INK, FRAME, GRID, DEATH, SHADE, COLOURS = SHADE + PLOT_CURVES * SHADES };

typedef struct canvas {
    int height;
    uint8_t *points; /* (height, WIDTH) */
} canvas;

static void set_point(canvas *c, int x, int y, uint8_t colour)
{
    if (x >= 0 && x < WIDTH && y >= 0 && y < c->height) c->points[(size_t)y * WIDTH + (size_t)x] = colour;
}

/* ---- text ---- */

typedef enum side { FROM, UNTIL, AROUND } side;

/* Text whose upper edge is y; x is where it begins, ends or has its middle. */
static void write_text(canvas *c, uint8_t ink, int x, int y, side s, int scale, const char *text)
{
    int width = (int)strlen(text) * FONT_ADVANCE * scale;

    if (s == UNTIL) x -= width;
    if (s == AROUND) x -= width / 2;
    for (; *text; text++, x += FONT_ADVANCE * scale) {
        for (int i = 0; i < FONT_ROWS * scale * FONT_COLUMNS * scale; i++) {
            int dx = i % (FONT_COLUMNS * scale), dy = i / (FONT_COLUMNS * scale);
            if (font_is_set(*text, dx / scale, dy / scale)) set_point(c, x + dx, y + dy, ink);
        }
    }
}

/* ---- axes ---- */

/* The part of the picture that a curve is drawn in, and what it stands for. */
typedef struct panel {
    int left, top, width, height;
    double x0, x1, y0, y1;
} panel;

static double x_of(const panel *p, double x)
{
    return p->left + p->width * (x - p->x0) / (p->x1 - p->x0);
}

static double y_of(const panel *p, double value)
{
    return p->top + p->height * (p->y1 - value) / (p->y1 - p->y0);
}

static void draw_axes(canvas *c, const plot *of, const plot_panel *drawn, const panel *p)
{
    double at[PLOT_TICKS];
    char text[32];
    int n = plot_value_ticks(drawn, p->y0, p->y1, 5, at), text_height = FONT_LINE * SCALE;

    for (int i = 0; i < n; i++) {
        int y = (int)lround(y_of(p, at[i]));
        for (int x = p->left; x <= p->left + p->width; x++) set_point(c, x, y, GRID);
        snprintf(text, sizeof text, "%.6g",
                 plot_value(drawn, fabs(at[i]) < (p->y1 - p->y0) * 1e-9 ? 0 : at[i]));
        write_text(c, INK, p->left - 12, y - text_height / 2, UNTIL, SCALE, text);
    }
    n = plot_ticks(p->x0, p->x1, 7, at);
    for (int i = 0; i < n; i++) {
        int x = (int)lround(x_of(p, at[i]));
        if (!of->time && at[i] != floor(at[i])) continue; /* there is no half a step */
        for (int y = p->top; y <= p->top + p->height; y++) set_point(c, x, y, GRID);
        snprintf(text, sizeof text, "%.10g", at[i]);
        write_text(c, INK, x, p->top + p->height + 10, AROUND, SCALE, text);
    }
    for (int x = p->left; x <= p->left + p->width; x++) {
        set_point(c, x, p->top, FRAME);
        set_point(c, x, p->top + p->height, FRAME);
    }
    for (int y = p->top; y <= p->top + p->height; y++) {
        set_point(c, p->left, y, FRAME);
        set_point(c, p->left + p->width, y, FRAME);
    }
}

/* ---- curves ---- */

static void cover_point(canvas *c, int curve, int x, int y, double share)
{
    int base = SHADE + curve * SHADES;
    uint8_t *point, shade;
    bool over; /* another curve, which stays where this one is faint */

    if (share <= 0 || x < 0 || x >= WIDTH || y < 0 || y >= c->height) return;
    shade = (uint8_t)(base + (share >= 1 ? SHADES - 1 : (int)(share * (SHADES - 1))));
    point = &c->points[(size_t)y * WIDTH + (size_t)x];
    over = *point >= SHADE && *point < base;
    if (over ? share >= 0.5 : *point < shade) *point = shade;
}

/* A piece of a curve from (x0, y0) to (x1, y1), three points thick with round
 * ends; a point when both are the same. */
static void draw_piece(canvas *c, int curve, double x0, double y0, double x1, double y1)
{
    enum { HALF = 3 };
    double dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;

    for (int y = (int)fmin(y0, y1) - HALF; y <= (int)fmax(y0, y1) + HALF; y++) {
        for (int x = (int)fmin(x0, x1) - HALF; x <= (int)fmax(x0, x1) + HALF; x++) {
            double t = length2 > 0 ? ((x - x0) * dx + (y - y0) * dy) / length2 : 0;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            cover_point(c, curve, x, y, 2.0 - hypot(x - x0 - t * dx, y - y0 - t * dy));
        }
    }
}

/* What is drawn of the points from *i on that fall into the same column as the
 * first: its first, least, greatest and last, in an order that keeps the line. */
static int column_points(const plot_curve *s, const panel *p, int64_t *i, double *out)
{
    int column = (int)x_of(p, s->x[*i]);
    double first = s->y[*i], least = first, greatest = first, last = first;

    for (; *i < s->n && isfinite(s->y[*i]) && (int)x_of(p, s->x[*i]) == column; ++*i) {
        last = s->y[*i];
        least = fmin(least, last);
        greatest = fmax(greatest, last);
    }
    out[0] = first;
    out[1] = least;
    out[2] = greatest;
    out[3] = last;
    return 4;
}

static void draw_curve(canvas *c, const panel *p, const plot_curve *s)
{
    double before_x = 0, before_y = 0;
    bool drawing = false; /* a number that is none makes a gap */

    for (int64_t i = 0; i < s->n;) {
        double values[4], x = x_of(p, s->x[i]);
        int n;
        if (!isfinite(s->y[i])) {
            drawing = false;
            i++;
            continue;
        }
        n = column_points(s, p, &i, values);
        for (int k = 0; k < n; k++) {
            double y = y_of(p, values[k]);
            draw_piece(c, s->slot, drawing ? before_x : x, drawing ? before_y : y, x, y);
            before_x = x;
            before_y = y;
            drawing = true;
        }
    }
}

/* A broken line at each death. */
static void draw_deaths(canvas *c, const plot *of, const panel *p)
{
    for (int i = 0; i < of->n_deaths; i++) {
        int x = (int)lround(x_of(p, of->deaths[i]));
        for (int y = p->top; y <= p->top + p->height; y++) {
            if ((y - p->top) % 8 < 4) set_point(c, x, y, DEATH);
        }
    }
}

/* The full colour of a curve. */
static uint8_t colour_of(const plot_curve *c)
{
    return (uint8_t)(SHADE + (c->slot + 1) * SHADES - 1);
}

/* The names of its curves, those of the other run too. */
static void write_names(canvas *c, const plot *of, const plot_panel *drawn, int top)
{
    int at = LEFT;

    for (int k = 0; k < drawn->n; k++) {
        bool other = drawn->curves[k].other;
        char name[400];
        snprintf(name, sizeof name, "%s%s%s", drawn->curves[k].name, other ? " of " : "",
                 other ? of->other : "");
        write_text(c, drawn->n > 1 ? colour_of(&drawn->curves[k]) : INK, at, top + 16, FROM, SCALE, name);
        at += ((int)strlen(name) + 2) * FONT_ADVANCE * SCALE;
    }
}

static void draw_curves(canvas *c, const plot_panel *drawn, const panel *p)
{
    for (int behind = 1; behind >= 0; behind--) {
        for (int k = 0; k < drawn->n; k++) {
            if (drawn->curves[k].other == behind) draw_curve(c, p, &drawn->curves[k]);
        }
    }
}

static void draw_panel(canvas *c, const plot *of, const plot_panel *drawn, int top)
{
    panel p = {
        .left = LEFT, .top = top + ABOVE, .width = WIDTH - LEFT - RIGHT, .height = PANEL - ABOVE - BELOW};
    bool some = plot_range(drawn, &p.y0, &p.y1);

    plot_reach(of, drawn, &p.x0, &p.x1);
    write_names(c, of, drawn, top);
    if (!some) {
        p.y0 = 0;
        p.y1 = 1;
        write_text(c, INK, LEFT + 20, p.top + 20, FROM, SCALE, "no number");
    }
    if (p.x1 <= p.x0) { /* one point only: in the middle */
        double around = fmax(1, fabs(p.x0) * 1e-6);
        p.x0 -= around;
        p.x1 += around;
    }
    draw_axes(c, of, drawn, &p);
    draw_deaths(c, of, &p);
    if (some) draw_curves(c, drawn, &p);
    write_text(c, INK, LEFT + p.width, p.top + p.height + 10 + FONT_ROWS * SCALE + 2, UNTIL, SCALE,
               plot_x_name(of));
}

/* From the paper to the colours that the SVG has. */
static void make_palette(uint32_t *palette, bool dark)
{
    static const uint32_t fixed[2][SHADE] = {{0xffffff, 0x202020, 0x909090, 0xe8e8e8, 0xc62828},
                                             {0x0d1117, 0xf0f6fc, 0x6e7681, 0x21262d, 0xff7b72}};
    static const uint32_t curves[2][PLOT_CURVES] = {{0xb6cdea, 0xf7cfb2, 0x1565c0, 0xe65100},
                                                    {0x365880, 0x6e4a33, 0x79b8ff, 0xffab70}};

    memcpy(palette, fixed[dark], sizeof fixed[dark]);
    for (int i = 0; i < PLOT_CURVES * SHADES; i++) {
        uint32_t full = curves[dark][i / SHADES], share = (uint32_t)(i % SHADES), rest = SHADES - 1 - share;
        uint32_t colour = 0;
        for (int shift = 16; shift >= 0; shift -= 8) {
            uint32_t from = fixed[dark][PAPER] >> shift & 0xff, to = full >> shift & 0xff;
            colour = colour << 8 | (to * share + from * rest) / (SHADES - 1);
        }
        palette[SHADE + i] = colour;
    }
}

manta_status plot_png(const char *path, const plot *p)
{
    canvas c = {.height = HEAD + p->n * PANEL};
    uint32_t palette[COLOURS];
    manta_status st;

    if (p->n > PANELS)
        return manta_fail(MANTA_EINVAL,
                          "%s: %d curves are too many for a picture: choose up to %d with --metrics", path,
                          p->n, PANELS);
    c.points = calloc((size_t)WIDTH * (size_t)c.height, 1);
    if (!c.points) return manta_fail(MANTA_ENOMEM, "%s: no memory for a picture of %d curves", path, p->n);
    make_palette(palette, p->dark);
    write_text(&c, INK, LEFT, 24, FROM, SCALE + 1, p->title);
    for (int i = 0; i < p->n; i++) draw_panel(&c, p, &p->panels[i], HEAD + i * PANEL);
    st = manta_png_write(path, WIDTH, c.height, c.points, COLOURS, palette);
    free(c.points);
    return st;
}
