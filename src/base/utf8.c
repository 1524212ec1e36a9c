/* utf8.c - which bytes are characters, and which characters a terminal may be shown. */
#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/args.h"

size_t utf8_length(const unsigned char *s)
{
    size_t n = s[0] < 0x80                   ? 1
               : s[0] >= 0xC2 && s[0] < 0xE0 ? 2
               : s[0] >= 0xE0 && s[0] < 0xF0 ? 3
               : s[0] >= 0xF0 && s[0] < 0xF5 ? 4
                                             : 0;

    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xC0) != 0x80) return 0; /* also ends at a terminator */
    if (n == 3 && ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] >= 0xA0))) return 0;
    if (n == 4 && ((s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] >= 0x90))) return 0;
    return n;
}

uint32_t utf8_character(const unsigned char *s, size_t n)
{
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7FU >> n);

    for (size_t i = 1; i < n; i++) c = c << 6 | (s[i] & 0x3FU);
    return c;
}

bool utf8_is_control(const unsigned char *s, size_t n)
{
    uint32_t c = utf8_character(s, n);

    if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return true;
    return c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

char *manta_printable(char *text, const char *keep)
{
    REFUSE_NULL_OR(text, NULL);
    REFUSE_NULL_OR(keep, text);

    unsigned char *to = (unsigned char *)text;

    for (const unsigned char *at = to; *at;) {
        size_t n = utf8_length(at);
        if (n && (!utf8_is_control(at, n) || strchr(keep, *at))) {
            memmove(to, at, n);
            to += n;
        } else {
            *to++ = '?';
        }
        at += n ? n : 1;
    }
    *to = '\0';
    return text;
}
