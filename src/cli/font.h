/* font.h - letters for pictures, of points. */
#ifndef CLI_FONT_H
#define CLI_FONT_H

#include <stdbool.h>

enum { FONT_COLUMNS = 5, FONT_ROWS = 9, FONT_LINE = 7, FONT_ADVANCE = 6 };

/* Whether the letter has a point in that column and row, from its upper left;
 * its line is below row FONT_LINE - 1. One that is not known is a frame. */
bool font_is_set(char letter, int x, int y);

#endif
