/* ini.c - see ini.h. */
#include "web/ini.h"

#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void trim_blanks(const char **at, size_t *n)
{
    while (*n && is_space(**at)) ++*at, --*n;
    while (*n && is_space((*at)[*n - 1])) --*n;
}

static bool is_word(const char *at, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(at, word, n);
}

/* Whether a line begins the section; *here becomes false where it begins another. */
static bool take_section(const char *line, size_t n, const char *section, bool *here)
{
    const char *end;

    trim_blanks(&line, &n);
    if (!n || *line != '[') return false;
    end = memchr(line, ']', n);
    line++;
    n = end ? (size_t)(end - line) : n - 1;
    trim_blanks(&line, &n);
    *here = end && is_word(line, n, section);
    return true;
}

char *ini_get(const char *text, size_t n, const char *section, const char *name)
{
    const char *end = text + n;
    char *found = NULL;
    bool here = false;

    for (const char *line = text; line < end;) {
        const char *stop = memchr(line, '\n', (size_t)(end - line)), *equals, *value;
        size_t length = stop ? (size_t)(stop - line) : (size_t)(end - line), key_n, value_n;
        const char *key = line;
        line += length + (stop != NULL);
        if (!length || is_space(*key) || *key == '#' || *key == ';') continue;
        if (take_section(key, length, section, &here) || !here) continue;
        if (!(equals = memchr(key, '=', length))) continue;
        key_n = (size_t)(equals - key);
        value = equals + 1;
        value_n = length - key_n - 1;
        trim_blanks(&key, &key_n);
        trim_blanks(&value, &value_n);
        if (!is_word(key, key_n, name) || memchr(value, '\0', value_n)) continue;
        mem_free(found);
        found = mem_strndup(value, value_n);
    }
    return found;
}
