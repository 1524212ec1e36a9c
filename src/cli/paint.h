/* paint.h - a sheet of paper that lines and letters are drawn on, as PNG or PDF.
 *
 * cairo draws. It and what it needs (fonts, their settings) are read from disk when the first
 * sheet is opened and not when the program starts: all other commands are spared that.
 * Sizes are points of a PNG; colours are 0xRRGGBB; y grows downwards. */
#ifndef CLI_PAINT_H
#define CLI_PAINT_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/status.h>

typedef struct paint paint; /* opaque, see paint.c */

/* Opens a sheet for the file `path`, which ends in .png or .pdf. *out: owned, paint_free().
 * MANTA_EUNSUPPORTED: cairo is not on this machine; MANTA_ENOMEM. */
manta_status paint_open(const char *path, const char *title, int width, int height, paint **out);

/* Writes what was drawn; the file appears whole or not at all. */
manta_status paint_save(paint *p);
void paint_free(paint *p); /* accepts NULL */

void paint_box(paint *p, uint32_t colour, double x, double y, double width, double height);
/* A line; dash: how long its pieces and the gaps between them are, 0: it has none. */
void paint_line(paint *p, uint32_t colour, double thick, double dash, double x0, double y0, double x1,
                double y1);
/* A triangle whose tip is at (x, y), below its base. */
void paint_mark(paint *p, uint32_t colour, double x, double y, double size);

/* A path of many pieces: moves and lines, then the stroke that draws it, with round joints. A move
 * alone is a dot. */
void paint_move(paint *p, double x, double y);
void paint_to(paint *p, double x, double y);
void paint_stroke(paint *p, uint32_t colour, double thick);

/* From now on nothing is drawn outside the box; paint_unclip() ends that. */
void paint_clip(paint *p, double x, double y, double width, double height);
void paint_unclip(paint *p);

typedef enum paint_side { PAINT_FROM, PAINT_UNTIL, PAINT_AROUND } paint_side;

/* Writes a text on the line y; x is where it begins, ends or has its middle. It is cut, with three
 * dots, where it is wider than `most`. Returns its width. */
double paint_text(paint *p, uint32_t colour, double size, bool bold, double x, double y, paint_side side,
                  double most, const char *text);
/* How wide it would be. */
double paint_text_width(paint *p, double size, bool bold, const char *text);

#endif
