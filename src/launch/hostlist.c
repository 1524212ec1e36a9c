/* hostlist.c - see hostlist.h.
 *
 *   text --> items, apart by commas outside brackets
 *   item --> parts: plain characters, or a bracket with ranges
 *        --> names: a walk through the parts, in which each bracket tries its numbers in order
 *
 * Numbers are bounded before anything is made of them, and names are counted as they are made: a short text
 * such as "a[0-9999][0-9999]" must not take the machine's memory. */
#include "launch/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/vec.h"

enum { DIGITS = 9, DEEPEST = 8 /* brackets in a name */ };

typedef struct walk {
    const char *text; /* the whole, for sentences */
    VEC(char *) names;
    char name[HOSTLIST_NAME + 1]; /* as far as it is put together */
} walk;

void hostlist_free(char **names, int n)
{
    for (int i = 0; names && i < n; i++) mem_free(names[i]);
    mem_free(names);
}

static manta_status fail_at(const walk *w, const char *at, const char *why)
{
    return manta_fail(MANTA_EINVAL, "list of hosts \"%.200s\": character %d: %s", w->text,
                      (int)(at - w->text) + 1, why);
}

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits; *width: how many there are. */
static manta_status read_digits(const walk *w, const char **at, long *value, int *width)
{
    const char *p = *at;

    *value = 0;
    for (*width = 0; is_digit(*p); p++, ++*width) {
        if (*width == DIGITS) return fail_at(w, p, "a number has at most 9 digits");
        *value = *value * 10 + (*p - '0');
    }
    if (!*width) return fail_at(w, p, "expected a number");
    *at = p;
    return MANTA_OK;
}

static manta_status walk_item(walk *w, const char *at, size_t n, int depth);

static manta_status add_name(walk *w, const char *at, size_t n)
{
    if (!n) return fail_at(w, at, "expected the name of a host");
    if (w->names.n == HOSTLIST_MOST) return fail_at(w, at, "there are more than 65536 hosts");
    vec_push(&w->names, mem_strndup(w->name, n));
    return MANTA_OK;
}

/* One number or range of a bracket, and for each of its numbers the rest of the name. *at moves behind it. */
static manta_status walk_range(walk *w, const char **at, const char *rest, size_t n, int depth)
{
    long first, last;
    int width, unused;
    const char *begin = *at;

    TRY(read_digits(w, at, &first, &width));
    last = first;
    if (**at == '-') {
        ++*at;
        TRY(read_digits(w, at, &last, &unused));
    }
    if (last < first) return fail_at(w, begin, "a range goes upwards");
    for (long i = first; i <= last; i++) {
        int room = (int)(sizeof w->name - n);
        int put = snprintf(w->name + n, (size_t)room, "%0*ld", width, i);
        if (put >= room) return fail_at(w, begin, "a name has at most 255 bytes");
        TRY(walk_item(w, rest, n + (size_t)put, depth + 1));
    }
    return MANTA_OK;
}

/* A bracket, which begins at `at`, and what follows it. */
static manta_status walk_bracket(walk *w, const char *at, size_t n, int depth)
{
    const char *end = at + strcspn(at, "]");

    if (depth == DEEPEST) return fail_at(w, at, "a name has at most 8 brackets");
    if (!*end) return fail_at(w, at, "the bracket is not closed");
    do {
        at++; /* the bracket, or a comma */
        TRY(walk_range(w, &at, end + 1, n, depth));
    } while (*at == ',');
    return at == end ? MANTA_OK : fail_at(w, at, "expected a number, '-', ',' or ']'");
}

/* The rest of an item; n bytes of the name are there. */
static manta_status walk_item(walk *w, const char *at, size_t n, int depth)
{
    for (; is_plain(*at); at++) {
        if (n == HOSTLIST_NAME) return fail_at(w, at, "a name has at most 255 bytes");
        w->name[n++] = *at;
    }
    if (*at == '[') return walk_bracket(w, at, n, depth);
    if (*at && *at != ',') return fail_at(w, at, "no name of a host has this character");
    return add_name(w, at, n);
}

/* The end of the item that begins at `at`: a comma outside brackets, or the end of the text. */
static const char *item_end(const char *at)
{
    bool inside = false;

    for (; *at && (inside || *at != ','); at++) {
        if (*at == '[') inside = true;
        if (*at == ']') inside = false;
    }
    return at;
}

manta_status hostlist_parse(const char *text, char ***out, int *n)
{
    walk w = {.text = text};
    manta_status st = MANTA_OK;
    const char *at = text;

    vec_reserve(&w.names, 1);
    while (!st && *at) {
        st = walk_item(&w, at, 0, 0);
        at = item_end(at);
        if (!st && *at == ',' && !*++at) st = fail_at(&w, at, "expected the name of a host");
    }
    if (st) {
        hostlist_free(w.names.at, (int)w.names.n);
        return st;
    }
    *out = w.names.at;
    *n = (int)w.names.n;
    return MANTA_OK;
}
