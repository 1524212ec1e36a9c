/* paint.c - see paint.h. */
#include "cli/paint.h"

#include <cairo-pdf.h>
#include <cairo.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tool_png.h>
#include <manta/tool_text.h>

#define LIBRARY   "libcairo.so.2"
#define PDF_SCALE 0.5 /* points of a page for one of a PNG */

/* ---- the library ---- */

#define FUNCTIONS(F)                                                                                         \
    F(cairo_clip)                                                                                            \
    F(cairo_close_path)                                                                                      \
    F(cairo_create)                                                                                          \
    F(cairo_destroy)                                                                                         \
    F(cairo_fill)                                                                                            \
    F(cairo_font_options_create)                                                                             \
    F(cairo_font_options_destroy)                                                                            \
    F(cairo_font_options_set_antialias)                                                                      \
    F(cairo_font_options_set_hint_metrics)                                                                   \
    F(cairo_font_options_set_hint_style)                                                                     \
    F(cairo_image_surface_create)                                                                            \
    F(cairo_image_surface_get_data)                                                                          \
    F(cairo_image_surface_get_stride)                                                                        \
    F(cairo_line_to)                                                                                         \
    F(cairo_move_to)                                                                                         \
    F(cairo_new_path)                                                                                        \
    F(cairo_pdf_surface_create_for_stream)                                                                   \
    F(cairo_pdf_surface_set_metadata)                                                                        \
    F(cairo_rectangle)                                                                                       \
    F(cairo_restore)                                                                                         \
    F(cairo_save)                                                                                            \
    F(cairo_scale)                                                                                           \
    F(cairo_select_font_face)                                                                                \
    F(cairo_set_dash)                                                                                        \
    F(cairo_set_font_options)                                                                                \
    F(cairo_set_font_size)                                                                                   \
    F(cairo_set_line_cap)                                                                                    \
    F(cairo_set_line_join)                                                                                   \
    F(cairo_set_line_width)                                                                                  \
    F(cairo_set_source_rgb)                                                                                  \
    F(cairo_show_text)                                                                                       \
    F(cairo_status)                                                                                          \
    F(cairo_status_to_string)                                                                                \
    F(cairo_stroke)                                                                                          \
    F(cairo_surface_destroy)                                                                                 \
    F(cairo_surface_finish)                                                                                  \
    F(cairo_surface_flush)                                                                                   \
    F(cairo_surface_status)                                                                                  \
    F(cairo_text_extents)

#define FIELD(f) __typeof__(&(f)) f;
static struct {
    FUNCTIONS(FIELD)
} lib;
#undef FIELD

static manta_status load_function(void *from, const char *name, void *to)
{
    void *at = dlsym(from, name);

    if (!at)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "pictures are drawn by cairo, and " LIBRARY " of this machine has no %s: expected "
                          "cairo 1.16 or newer; an .svg needs none",
                          name);
    memcpy(to, &at, sizeof at);
    return MANTA_OK;
}

/* Once; it stays until the program ends. */
static manta_status load_library(void)
{
    static bool loaded;
    void *from = loaded ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (loaded) return MANTA_OK;
    if (!from)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "pictures are drawn by cairo, which cannot be loaded (%s); expected the package "
                          "libcairo2, or an .svg, which needs none",
                          dlerror());
#define LOAD(f) MANTA_TRY(load_function(from, #f, &lib.f));
    FUNCTIONS(LOAD)
#undef LOAD
    loaded = true;
    return MANTA_OK;
}

/* ---- a sheet ---- */

struct paint {
    char *path;
    bool pdf;
    int width, height;
    cairo_surface_t *surface;
    cairo_t *c;
    FILE *to; /* of a PDF: what it is written to, in memory */
    char *bytes;
    size_t n;
};

static cairo_status_t take_bytes(void *to, const unsigned char *data, unsigned n)
{
    return fwrite(data, 1, n, to) == n ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static void open_page(paint *p, const char *title)
{
    char *name = strdup(title);

    p->to = open_memstream(&p->bytes, &p->n);
    if (!p->to || !name) abort();
    p->surface = lib.cairo_pdf_surface_create_for_stream(take_bytes, p->to, p->width * PDF_SCALE,
                                                         p->height * PDF_SCALE);
    lib.cairo_pdf_surface_set_metadata(p->surface, CAIRO_PDF_METADATA_TITLE, manta_printable(name, NULL));
    free(name);
}

/* Shades of one colour rather than of three, and letters of the same width at every size. */
static void choose_letters(cairo_t *c)
{
    cairo_font_options_t *o = lib.cairo_font_options_create();

    lib.cairo_font_options_set_antialias(o, CAIRO_ANTIALIAS_GRAY);
    lib.cairo_font_options_set_hint_style(o, CAIRO_HINT_STYLE_SLIGHT);
    lib.cairo_font_options_set_hint_metrics(o, CAIRO_HINT_METRICS_OFF);
    lib.cairo_set_font_options(c, o);
    lib.cairo_font_options_destroy(o);
}

manta_status paint_open(const char *path, const char *title, int width, int height, paint **out)
{
    size_t n = strlen(path);
    paint *p;

    MANTA_TRY(load_library());
    p = calloc(1, sizeof *p);
    if (!p) abort();
    *p = (paint){.path = strdup(path), .width = width, .height = height};
    p->pdf = n > 4 && !strcmp(path + n - 4, ".pdf");
    if (p->pdf) {
        open_page(p, title);
    } else {
        p->surface = lib.cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
    }
    p->c = lib.cairo_create(p->surface);
    if (lib.cairo_status(p->c)) {
        manta_status st = manta_fail(MANTA_ENOMEM, "%s: a picture of %d x %d points cannot be drawn: %s",
                                     path, width, height, lib.cairo_status_to_string(lib.cairo_status(p->c)));
        paint_free(p);
        return st;
    }
    if (p->pdf) lib.cairo_scale(p->c, PDF_SCALE, PDF_SCALE);
    choose_letters(p->c);
    *out = p;
    return MANTA_OK;
}

void paint_free(paint *p)
{
    if (!p) return;
    lib.cairo_destroy(p->c);
    lib.cairo_surface_destroy(p->surface);
    if (p->to) fclose(p->to);
    free(p->bytes);
    free(p->path);
    free(p);
}

/* A point of cairo's is a word 0x00RRGGBB of this machine. */
static manta_status save_png(const paint *p)
{
    const unsigned char *from = lib.cairo_image_surface_get_data(p->surface);
    int stride = lib.cairo_image_surface_get_stride(p->surface);
    uint8_t *points = calloc((size_t)p->width * (size_t)p->height, 3);
    manta_status st;

    if (!points) return manta_fail(MANTA_ENOMEM, "%s: no memory for the picture", p->path);
    for (int y = 0; y < p->height; y++) {
        for (int x = 0; x < p->width; x++) {
            uint8_t *to = points + 3 * ((size_t)y * (size_t)p->width + (size_t)x);
            uint32_t colour;
            memcpy(&colour, from + (ptrdiff_t)y * stride + (ptrdiff_t)x * 4, sizeof colour);
            for (int k = 0; k < 3; k++) to[k] = (uint8_t)(colour >> (16 - 8 * k));
        }
    }
    st = manta_png_write(p->path, p->width, p->height, points);
    free(points);
    return st;
}

manta_status paint_save(paint *p)
{
    cairo_status_t st = lib.cairo_status(p->c);

    lib.cairo_surface_flush(p->surface);
    if (p->pdf) lib.cairo_surface_finish(p->surface);
    if (!st) st = lib.cairo_surface_status(p->surface);
    if (!st && p->to && fflush(p->to)) st = CAIRO_STATUS_WRITE_ERROR;
    if (st)
        return manta_fail(MANTA_EIO, "%s: it cannot be drawn: %s", p->path, lib.cairo_status_to_string(st));
    return p->pdf ? manta_picture_write(p->path, p->bytes, p->n) : save_png(p);
}

/* ---- lines ---- */

static void choose_colour(const paint *p, uint32_t colour)
{
    lib.cairo_set_source_rgb(p->c, (colour >> 16 & 0xff) / 255.0, (colour >> 8 & 0xff) / 255.0,
                             (colour & 0xff) / 255.0);
}

void paint_box(paint *p, uint32_t colour, double x, double y, double width, double height)
{
    choose_colour(p, colour);
    lib.cairo_rectangle(p->c, x, y, width, height);
    lib.cairo_fill(p->c);
}

void paint_line(paint *p, uint32_t colour, double thick, double dash, double x0, double y0, double x1,
                double y1)
{
    choose_colour(p, colour);
    lib.cairo_set_line_width(p->c, thick);
    lib.cairo_set_line_cap(p->c, CAIRO_LINE_CAP_BUTT);
    lib.cairo_set_dash(p->c, &dash, dash > 0 ? 1 : 0, 0);
    lib.cairo_move_to(p->c, x0, y0);
    lib.cairo_line_to(p->c, x1, y1);
    lib.cairo_stroke(p->c);
}

void paint_mark(paint *p, uint32_t colour, double x, double y, double size)
{
    choose_colour(p, colour);
    lib.cairo_move_to(p->c, x, y);
    lib.cairo_line_to(p->c, x - size / 2, y - size);
    lib.cairo_line_to(p->c, x + size / 2, y - size);
    lib.cairo_close_path(p->c);
    lib.cairo_fill(p->c);
}

void paint_move(paint *p, double x, double y)
{
    lib.cairo_move_to(p->c, x, y);
    lib.cairo_line_to(p->c, x, y);
}

void paint_to(paint *p, double x, double y)
{
    lib.cairo_line_to(p->c, x, y);
}

void paint_stroke(paint *p, uint32_t colour, double thick)
{
    choose_colour(p, colour);
    lib.cairo_set_line_width(p->c, thick);
    lib.cairo_set_line_cap(p->c, CAIRO_LINE_CAP_ROUND);
    lib.cairo_set_line_join(p->c, CAIRO_LINE_JOIN_ROUND);
    lib.cairo_set_dash(p->c, NULL, 0, 0);
    lib.cairo_stroke(p->c);
}

void paint_clip(paint *p, double x, double y, double width, double height)
{
    lib.cairo_save(p->c);
    lib.cairo_rectangle(p->c, x, y, width, height);
    lib.cairo_clip(p->c);
}

void paint_unclip(paint *p)
{
    lib.cairo_restore(p->c);
}

/* ---- letters ---- */

static void choose_font(const paint *p, double size, bool bold)
{
    lib.cairo_select_font_face(p->c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                               bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    lib.cairo_set_font_size(p->c, size);
}

static double width_of(const paint *p, const char *text)
{
    cairo_text_extents_t e;

    lib.cairo_text_extents(p->c, text, &e);
    return e.x_advance;
}

/* What cairo can show: UTF-8, and nothing that a terminal would obey either. Owned by the caller. */
static char *shown_text(const char *text)
{
    static const char dots[] = "...";
    char *t = malloc(strlen(text) + sizeof dots);

    if (!t) abort();
    return manta_printable(strcpy(t, text), NULL);
}

/* Takes characters from the end, and puts dots there, until it is narrow enough. */
static void cut_text(const paint *p, char *text, double most)
{
    size_t n = strlen(text);

    if (width_of(p, text) <= most) return;
    while (n > 0) {
        do n--;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80); /* not in the middle of a character */
        strcpy(text + n, "...");
        if (width_of(p, text) <= most) return;
    }
}

double paint_text(paint *p, uint32_t colour, double size, bool bold, double x, double y, paint_side side,
                  double most, const char *text)
{
    char *t = shown_text(text);
    double width;

    choose_font(p, size, bold);
    cut_text(p, t, most);
    width = width_of(p, t);
    if (side == PAINT_UNTIL) x -= width;
    if (side == PAINT_AROUND) x -= width / 2;
    choose_colour(p, colour);
    lib.cairo_move_to(p->c, x, y);
    lib.cairo_show_text(p->c, t);
    lib.cairo_new_path(p->c);
    free(t);
    return width;
}

double paint_text_width(paint *p, double size, bool bold, const char *text)
{
    char *t = shown_text(text);
    double width;

    choose_font(p, size, bold);
    width = width_of(p, t);
    free(t);
    return width;
}
