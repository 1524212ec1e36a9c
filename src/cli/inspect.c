/* inspect.c - what the kinds of inspect share. */
#include "cli/inspect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

size_t inspect_head(const char *path, char *head, size_t size)
{
    struct stat st;
    size_t n = 0;
    FILE *f;

    /* Opening a pipe would wait for its writer. */
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return 0;
    if (!(f = fopen(path, "rbe"))) return 0;
    n = fread(head, 1, size, f);
    fclose(f);
    return n;
}

const char *inspect_shape(int ndim, const int64_t *shape, char *buf, size_t size)
{
    size_t n = 0;

    n += (size_t)snprintf(buf, size, "(");
    for (int i = 0; i < ndim && n < size; i++) {
        const char *comma = i ? ", " : "";
        n += (size_t)(shape[i] < 0 ? snprintf(buf + n, size - n, "%sNone", comma)
                                   : snprintf(buf + n, size - n, "%s%" PRId64, comma, shape[i]));
    }
    if (n < size) snprintf(buf + n, size - n, ndim == 1 ? ",)" : ")");
    return buf;
}

json_t *inspect_shape_json(int ndim, const int64_t *shape)
{
    json_t *list = json_array();

    for (int i = 0; i < ndim; i++) {
        json_array_append_new(list, shape[i] < 0 ? json_null() : json_integer(shape[i]));
    }
    return list;
}

const char *inspect_size(int64_t bytes, char *buf, size_t size)
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    double v = (double)bytes / 1e3;
    int unit = 0;

    if (bytes < 1000) {
        snprintf(buf, size, "%" PRId64 " byte%s", bytes, bytes == 1 ? "" : "s");
        return buf;
    }
    while (v >= 1000 && unit < 3) {
        v /= 1000;
        unit++;
    }
    snprintf(buf, size, "%.2f %s", v, units[unit]);
    return buf;
}
