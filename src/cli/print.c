/* print.c - the one way to a terminal. */
#include "cli/print.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tool_text.h>

/* A word of a sentence that is longer loses its middle. A command to go on with is shorter. */
enum { LONGEST = 2000, HEAD = 1500, TAIL = 300 };

/* One conversion: "%-*.3lld" is `spec` "%-*.*lld" with width, precision and the letter 'd'. */
typedef struct conversion {
    char flags[8], length[4], letter;
    int width, precision; /* negative precision: none was given */
} conversion;

/* What of `text` are characters of `set`, in out; returns what follows. */
static const char *take_span(const char *text, const char *set, char *out, size_t size)
{
    size_t n = strspn(text, set);

    if (n >= size) abort();
    memcpy(out, text, n);
    out[n] = '\0';
    return text + n;
}

/* A number of the format, or an argument where the format has '*'. */
static const char *take_number(const char *text, va_list *args, int *out)
{
    char *end;

    if (*text == '*') {
        *out = va_arg(*args, int);
        return text + 1;
    }
    *out = (int)strtol(text, &end, 10);
    return end;
}

/* Reads what stands behind a '%'; returns what follows it. */
static const char *take_conversion(const char *text, va_list *args, conversion *c)
{
    *c = (conversion){.precision = -1};
    text = take_span(text, "-+ 0#", c->flags, sizeof c->flags);
    text = take_number(text, args, &c->width);
    if (*text == '.') text = take_number(text + 1, args, &c->precision);
    text = take_span(text, "hlz", c->length, sizeof c->length);
    c->letter = *text;
    return text + 1;
}

/* Leaves the middle of a very long word out: nobody reads it, and it hides the sentence. */
static void shorten_word(char *text)
{
    static const char gap[] = " [...] ";
    size_t n = strlen(text);

    if (n <= LONGEST) return;
    memcpy(text + HEAD, gap, sizeof gap - 1);
    memmove(text + HEAD + sizeof gap - 1, text + n - TAIL, TAIL + 1);
}

static void put_text(FILE *f, const conversion *c, const char *text)
{
    char *copy = c->precision < 0 ? strdup(text) : strndup(text, (size_t)c->precision);
    bool left = strchr(c->flags, '-') || c->width < 0;

    if (!copy) abort(); /* small control memory */
    if (f != stdout) shorten_word(copy);
    manta_printable(copy, "");
    fprintf(f, left ? "%-*s" : "%*s", left && c->width < 0 ? -c->width : c->width, copy);
    free(copy);
}

/* The argument of a whole number, as wide as its length says. */
static intmax_t take_integer(const conversion *c, va_list *args)
{
    bool is_signed = c->letter == 'd' || c->letter == 'i';

    if (!strcmp(c->length, "ll")) {
        long long v = va_arg(*args, long long);
        return v;
    }
    if (*c->length == 'l' || *c->length == 'z') {
        long v = va_arg(*args, long);
        return v;
    }
    return is_signed ? va_arg(*args, int) : (intmax_t)va_arg(*args, unsigned);
}

static void put_number(FILE *f, const conversion *c, va_list *args)
{
    bool whole = strchr("diux", c->letter);
    char spec[32];

    snprintf(spec, sizeof spec, "%%%s*%s%s%c", c->flags, c->precision < 0 ? "" : ".*", whole ? "j" : "",
             c->letter);
    if (whole && c->precision < 0) {
        fprintf(f, spec, c->width, take_integer(c, args));
    } else if (whole) {
        fprintf(f, spec, c->width, c->precision, take_integer(c, args));
    } else if (c->precision < 0) {
        fprintf(f, spec, c->width, va_arg(*args, double));
    } else {
        fprintf(f, spec, c->width, c->precision, va_arg(*args, double));
    }
}

static void print_list(FILE *f, const char *fmt, va_list *args)
{
    while (*fmt) {
        size_t n = strcspn(fmt, "%");
        conversion c;
        fwrite(fmt, 1, n, f);
        if (!fmt[n]) return;
        fmt = take_conversion(fmt + n + 1, args, &c);
        if (c.letter == '%') {
            fputc('%', f);
        } else if (c.letter == 's') {
            put_text(f, &c, va_arg(*args, const char *));
        } else if (c.letter == 'c') {
            put_text(f, &c, (char[]){(char)va_arg(*args, int), '\0'});
        } else if (c.letter && strchr("diuxefg", c.letter)) {
            put_number(f, &c, args);
        } else {
            abort();
        }
    }
}

void print_out(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_list(stdout, fmt, &args);
    va_end(args);
}

/* What is said in one call is written at once, or that of other processes would come between. */
void print_err_list(const char *fmt, va_list args)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    va_list mine;

    if (!f) abort(); /* small control memory */
    fflush(stdout);
    va_copy(mine, args); /* an array type has no address as an argument */
    print_list(f, fmt, &mine);
    va_end(mine);
    if (fclose(f)) abort();
    fwrite(text, 1, n, stderr);
    free(text);
}

void print_err(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    print_err_list(fmt, args);
    va_end(args);
}

void print_lines(const char *text)
{
    char *copy = strdup(text);

    if (!copy) abort(); /* small control memory */
    fputs(manta_printable(copy, "\n\t"), stdout);
    free(copy);
}
