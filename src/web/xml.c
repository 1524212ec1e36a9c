/* xml.c - see xml.h. */
#include "web/xml.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

enum { ENTITY_MOST = 10 };

static const char *find_text(const char *at, const char *end, const char *what, size_t n)
{
    return memmem(at, (size_t)(end - at), what, n);
}

/* Where the element's inner text begins; NULL: there is none. *empty: it is <name/>. */
static const char *find_open(const char *at, const char *end, const char *name, bool *empty)
{
    size_t n = strlen(name);

    while ((at = memchr(at, '<', (size_t)(end - at)))) {
        const char *tag = ++at, *close;
        if ((size_t)(end - tag) <= n || memcmp(tag, name, n) != 0) continue;
        if (!strchr("> \t\r\n/", tag[n]) || !tag[n]) continue;
        if (!(close = memchr(tag, '>', (size_t)(end - tag)))) return NULL;
        *empty = close[-1] == '/';
        return close + 1;
    }
    return NULL;
}

bool xml_next(xml_span *rest, const char *name, xml_span *inner)
{
    const char *end = rest->at + rest->n, *open, *close;
    size_t n = strlen(name) + 3;
    char *closing;
    bool empty;

    if (!rest->n || !(open = find_open(rest->at, end, name, &empty))) return false;
    if (empty) {
        *inner = (xml_span){open, 0};
        *rest = (xml_span){open, (size_t)(end - open)};
        return true;
    }
    closing = mem_printf("</%s>", name);
    close = find_text(open, end, closing, n);
    mem_free(closing);
    if (!close) return false;
    *inner = (xml_span){open, (size_t)(close - open)};
    *rest = (xml_span){close + n, (size_t)(end - close) - n};
    return true;
}

/* What an entity means, "&" and ";" left out; 0: it is none of those that S3 sends. */
static char entity_of(const char *at, size_t n)
{
    static const struct {
        const char *name;
        char c;
    } known[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    char digits[ENTITY_MOST];
    long code;

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].name) == n && !memcmp(known[i].name, at, n)) return known[i].c;
    if (n < 2 || n >= sizeof digits || *at != '#') return 0;
    memcpy(digits, at + 1, n - 1);
    digits[n - 1] = '\0';
    code = *digits == 'x' ? strtol(digits + 1, NULL, 16) : strtol(digits, NULL, 10);
    return code > 0 && code < 128 ? (char)code : 0;
}

char *xml_text(xml_span all, const char *name)
{
    xml_span s;
    buf to = {0};

    if (!xml_next(&all, name, &s)) return NULL;
    for (size_t i = 0; i < s.n; i++) {
        const char *at = s.at + i, *end = NULL;
        size_t left = s.n - i;
        char c = *at;
        if (c == '&') end = memchr(at, ';', left < ENTITY_MOST ? left : ENTITY_MOST);
        if (end && (c = entity_of(at + 1, (size_t)(end - at) - 1))) {
            i += (size_t)(end - at);
        } else {
            c = *at;
        }
        if (c) buf_add_char(&to, c);
    }
    return buf_take(&to);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool xml_decode_url(char *text, bool plus)
{
    char *to = text;

    for (const char *p = text; *p; p++) {
        int high, low;
        if (*p != '%') {
            *to++ = plus && *p == '+' ? ' ' : *p;
            continue;
        }
        if ((high = digit_of(p[1])) < 0 || (low = digit_of(p[2])) < 0 || !(high | low)) return false;
        *to++ = (char)(high << 4 | low);
        p += 2;
    }
    *to = '\0';
    return true;
}
