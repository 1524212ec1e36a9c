/* table_cell.c - what a field of a table says: a number, a date, nothing, or a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/table/table.h"

/* ---- missing values ---- */

bool table_missing_read(const uint8_t *text, size_t n, bool quoted)
{
    static const char *const words[] = {"NA",   "N/A",  "n/a",  "NaN",  "nan", "NULL",
                                        "null", "None", "<NA>", "#N/A", "?"};

    if (n == 0) return true;
    if (quoted || n > 4) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strlen(words[i]) == n && memcmp(words[i], text, n) == 0) return true;
    }
    return false;
}

/* ---- numbers ---- */

/* Digits with a point among them, at most 15: exact, as one division of whole numbers
 * below 2^53 rounds once. False: it is of another form. */
static bool read_plain_number(const uint8_t *at, size_t n, double *out)
{
    static const double scale[] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    bool negative = n && *at == '-';
    size_t i = negative, digits = 0, part = 0;
    uint64_t v = 0;

    if (n > 17) return false;
    for (; i < n && (uint8_t)(at[i] - '0') < 10; i++, digits++) v = v * 10 + (uint64_t)(at[i] - '0');
    if (i < n && at[i] == '.') {
        for (i++; i < n && (uint8_t)(at[i] - '0') < 10; i++, part++) v = v * 10 + (uint64_t)(at[i] - '0');
    }
    if (i < n || digits + part == 0 || digits + part > 15) return false;
    double d = (double)v / scale[part];
    *out = negative ? -d : d;
    return true;
}

bool table_number_read(const uint8_t *text, size_t n, locale_t c_locale, double *out)
{
    char copy[64], *end;

    if (read_plain_number(text, n, out)) return true;
    /* What begins with a letter other than those of inf and nan is none: most texts end here. */
    if (n == 0 || n >= sizeof copy || !strchr("+-.0123456789iInN", text[0]) || memchr(text, 0, n))
        return false;
    memcpy(copy, text, n);
    copy[n] = '\0';
    *out = strtod_l(copy, &end, c_locale);
    return *end == '\0' && end != copy;
}

/* ---- dates ---- */

typedef struct text_scan {
    const uint8_t *at;
    size_t n;
} text_scan;

static bool take_char(text_scan *s, char c)
{
    if (!s->n || s->at[0] != (uint8_t)c) return false;
    s->at++;
    s->n--;
    return true;
}

/* Between `least` and `most` digits. */
static bool take_digits(text_scan *s, size_t least, size_t most, int *out)
{
    size_t k = 0;
    int v = 0;

    for (; k < most && k < s->n && (uint8_t)(s->at[k] - '0') < 10; k++) v = v * 10 + (s->at[k] - '0');
    if (k < least) return false;
    s->at += k;
    s->n -= k;
    *out = v;
    return true;
}

static bool is_leap_year(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* Days from 1970-01-01 to a day of the Gregorian calendar; false when there is no such day. */
static bool count_days(int year, int month, int day, double *out)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    static const int length[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    if (year < 1 || month < 1 || month > 12 || day < 1) return false;
    if (day > length[month - 1] + (month == 2 && is_leap_year(year))) return false;
    int y = year - 1; /* whole years since the year 1 */
    int days =
        y * 365 + y / 4 - y / 100 + y / 400 + before[month - 1] + (month > 2 && is_leap_year(year)) + day - 1;
    *out = days - 719162; /* from 0001-01-01 to 1970-01-01 */
    return true;
}

static bool take_day(text_scan *s, double *days)
{
    int year, month, day;
    text_scan t = *s;

    if (take_digits(&t, 4, 4, &year) && t.n && (t.at[0] == '-' || t.at[0] == '/')) {
        char sign = (char)t.at[0];
        if (!take_char(&t, sign) || !take_digits(&t, 1, 2, &month)) return false;
        if (!take_char(&t, sign) || !take_digits(&t, 1, 2, &day)) return false;
    } else {
        t = *s;
        if (!take_digits(&t, 1, 2, &day) || !take_char(&t, '.')) return false;
        if (!take_digits(&t, 1, 2, &month) || !take_char(&t, '.')) return false;
        if (!take_digits(&t, 4, 4, &year)) return false;
    }
    *s = t;
    return count_days(year, month, day, days);
}

/* Seconds of the day, and seconds east of Greenwich. */
static bool take_time(text_scan *s, double *seconds)
{
    int hour, minute, second = 0;
    double part = 0, place = 0.1;

    if (!take_digits(s, 1, 2, &hour) || !take_char(s, ':') || !take_digits(s, 2, 2, &minute)) return false;
    if (take_char(s, ':')) {
        if (!take_digits(s, 2, 2, &second)) return false;
        if (take_char(s, '.')) {
            if (!s->n) return false;
            for (; s->n && (uint8_t)(s->at[0] - '0') < 10; s->at++, s->n--) {
                part += (s->at[0] - '0') * place;
                place /= 10;
            }
        }
    }
    if (hour > 23 || minute > 59 || second > 60) return false;
    *seconds = hour * 3600.0 + minute * 60.0 + second + part;
    return true;
}

static bool take_zone(text_scan *s, double *seconds)
{
    int hour, minute = 0;
    bool east;

    *seconds = 0;
    if (!s->n || take_char(s, 'Z')) return true;
    east = take_char(s, '+');
    if (!east && !take_char(s, '-')) return false;
    if (!take_digits(s, 2, 2, &hour)) return false;
    (void)take_char(s, ':');
    if (s->n && !take_digits(s, 2, 2, &minute)) return false;
    if (hour > 14 || minute > 59) return false;
    *seconds = (east ? 1 : -1) * (hour * 3600.0 + minute * 60.0);
    return true;
}

bool table_date_read(const uint8_t *text, size_t n, double *days)
{
    text_scan s = {text, n};
    double day, seconds = 0, east = 0;

    if (n < 8 || n > 40 || (uint8_t)(text[0] - '0') > 9) return false;
    if (!take_day(&s, &day)) return false;
    if (s.n) {
        if (!take_char(&s, 'T') && !take_char(&s, ' ')) return false;
        if (!take_time(&s, &seconds) || !take_zone(&s, &east)) return false;
    }
    if (s.n) return false;
    *days = day + (seconds - east) / 86400;
    return true;
}

/* ---- cells ---- */

table_cell table_cell_read(table_cell c, locale_t c_locale)
{
    if (c.kind != TABLE_CELL_UNREAD) return c;
    while (!c.quoted && c.n && (c.at[0] == ' ' || c.at[0] == '\t')) c.at++, c.n--;
    while (!c.quoted && c.n && (c.at[c.n - 1] == ' ' || c.at[c.n - 1] == '\t')) c.n--;
    if (table_missing_read(c.at, c.n, c.quoted)) {
        c.kind = TABLE_CELL_MISSING;
    } else if (table_number_read(c.at, c.n, c_locale, &c.number)) {
        c.kind = isnan(c.number) ? TABLE_CELL_MISSING : TABLE_CELL_NUMBER;
    } else {
        c.kind = table_date_read(c.at, c.n, &c.number) ? TABLE_CELL_DATE : TABLE_CELL_TEXT;
    }
    return c;
}

/* With as few digits as tell it from others, in C's locale. */
static void print_number(double v, char *buf, size_t size)
{
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    locale_t before = c_locale ? uselocale(c_locale) : (locale_t)0;

    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, size, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    if (!c_locale) return;
    uselocale(before);
    freelocale(c_locale);
}

const char *table_cell_text(const table_cell *c, char *buf, size_t size)
{
    if (!c->at && c->kind != TABLE_CELL_TEXT) {
        print_number(c->number, buf, size);
        return buf;
    }
    size_t n = c->n < size - 1 ? c->n : size - 1;
    if (n) memcpy(buf, c->at, n);
    buf[n] = '\0';
    return buf;
}

bool table_is_utf8(const uint8_t *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint8_t b = text[i];
        size_t more = b < 0x80                ? 0
                      : b >= 0xc2 && b < 0xe0 ? 1
                      : b >= 0xe0 && b < 0xf0 ? 2
                      : b >= 0xf0 && b < 0xf5 ? 3
                                              : 9;
        if (more == 9 || b == 0 || more >= n - i) return false;
        for (size_t k = 1; k <= more; k++) {
            if ((text[i + k] & 0xc0) != 0x80) return false;
        }
        if ((b == 0xe0 && text[i + 1] < 0xa0) || (b == 0xed && text[i + 1] > 0x9f) ||
            (b == 0xf0 && text[i + 1] < 0x90) || (b == 0xf4 && text[i + 1] > 0x8f))
            return false;
        i += more + 1;
    }
    return true;
}

const char *table_cell_show(const table_cell *c, char *buf, size_t size)
{
    size_t room = size - 4, n = 0;

    if (!c->at) return c->kind == TABLE_CELL_MISSING ? strcpy(buf, "") : table_cell_text(c, buf, size);
    for (; n < c->n && n < room; n++) {
        uint8_t b = c->at[n];
        buf[n] = b < ' ' || b == 127 ? '?' : (char)b;
    }
    while (n && n < c->n && (c->at[n] & 0xc0) == 0x80) n--; /* no half of a character */
    memcpy(buf + n, n < c->n ? "..." : "", n < c->n ? 4 : 1);
    if (!table_is_utf8((const uint8_t *)buf, strlen(buf))) {
        for (char *p = buf; *p; p++) *p = *p & (char)0x80 ? '?' : *p;
    }
    return buf;
}
