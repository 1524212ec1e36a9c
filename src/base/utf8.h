/* utf8.h - which bytes are characters, and which characters a terminal may be shown. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes of the text at s, which a zero byte ends, are one well-formed UTF-8
 * character; 0 for none. */
size_t utf8_length(const unsigned char *s);

/* The number of the well-formed character of n bytes at s. */
uint32_t utf8_character(const unsigned char *s, size_t n);

/* Whether the character of n bytes at s could do something to a terminal, or to the
 * line it stands in, beside showing itself: control characters, also those of C1
 * (U+0080 to U+009F), line and paragraph separators, and marks that turn the
 * direction of writing. */
bool utf8_is_control(const unsigned char *s, size_t n);

#endif
