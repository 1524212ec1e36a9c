/* title.c - the name that tools such as ps show of a worker: what it runs.
 *
 * A process's command line is the memory of its arguments, which it may write to: from
 * arg_start to arg_end, as /proc/self/stat says (proc(5)). A worker is a fork of the nursery and
 * has the nursery's there. What does not fit is cut, and the last byte stays NUL, so that nobody
 * reads on into the variables behind it. */
#include "py.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARG_START = 48, ARG_END = 49 }; /* fields, the first is 1 */

static char *area; /* NULL: titles are not shown */
static size_t area_size;
static char prefix[16];

/* Field n of /proc/self/stat, of those behind the name, which may have anything in it. */
static unsigned long long stat_field(const char *after_name, int n)
{
    for (int i = 2; i < n && after_name; i++) {
        after_name = strchr(after_name, ' ');
        if (after_name) after_name++;
    }
    return after_name ? strtoull(after_name, NULL, 10) : 0;
}

static void find_area(void)
{
    char line[2048];
    FILE *f = fopen("/proc/self/stat", "re");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;

    if (f) (void)fclose(f);
    line[n] = 0;
    const char *name_end = strrchr(line, ')');
    unsigned long long from = name_end ? stat_field(name_end, ARG_START) : 0,
                       to = name_end ? stat_field(name_end, ARG_END) : 0;
    if (!from || to < from + 2) return;
    area = (char *)(uintptr_t)from;
    area_size = (size_t)(to - from);
}

/* set_title_prefix(text): from now on the process is called by what it runs, behind the text. In workers only. */
PyObject *py_set_title_prefix(PyObject *self, PyObject *text)
{
    const char *s = PyUnicode_AsUTF8AndSize(text, NULL);
    (void)self;

    if (!s) return NULL;
    snprintf(prefix, sizeof prefix, "%s", s);
    if (py->is_worker && !area) find_area();
    Py_RETURN_NONE;
}

const char *py_label_of(const char *name)
{
    enum { BEHIND_PY = 3, BEHIND_KEY = 36 }; /* "py.", and 16 bytes as hex digits with a dot behind them */

    /* A method's name may be as long, but has no dot. */
    return strlen(name) > BEHIND_KEY && name[BEHIND_KEY - 1] == '.' ? name + BEHIND_KEY : name + BEHIND_PY;
}

bool py_has_titles(void)
{
    return area != NULL;
}

void py_titles_in_worker(void)
{
    if (prefix[0] && !area) find_area();
}

void py_show_title(const char *title)
{
    char text[128];

    if (!area) return;
    int n = snprintf(text, sizeof text, "%s%s", prefix, title);
    size_t length = n < (int)sizeof text ? (size_t)n : sizeof text - 1;
    if (length > area_size - 1) length = area_size - 1;
    memcpy(area, text, length);
    memset(area + length, 0, area_size - length);
}
