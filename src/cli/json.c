/* json.c - what --json prints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/print.h"

json_t *json_number(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

json_t *json_text(const char *text)
{
    json_t *s = json_string(text);
    char *copy;

    if (s) return s;
    if (!(copy = strdup(text))) abort(); /* small control memory */
    for (char *p = copy; *p; p++) {
        if ((unsigned char)*p >= 0x80) *p = '?';
    }
    s = json_string(copy);
    free(copy);
    return s;
}

void json_add_metrics(json_t *to, const manta_metrics *m)
{
    for (int i = 0; m && i < m->n; i++) json_object_set_new(to, m->name[i], json_number(m->value[i]));
}

bool json_emit(json_t *object)
{
    char *line = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9) | JSON_ENSURE_ASCII);

    json_decref(object);
    if (!line) abort(); /* small control memory */
    /* Control characters are escaped, but for the one that a JSON text may hold as it is. */
    for (char *at = line, *part; (part = strsep(&at, "\177"));) print_out(at ? "%s\\u007f" : "%s\n", part);
    free(line);
    return cli_flush();
}

bool json_result(const char *status, const manta_metrics *metrics, const char *checkpoint, const char *path,
                 const char *error)
{
    json_t *values = json_object(), *event = json_object();

    json_add_metrics(values, metrics);
    json_object_set_new(event, "event", json_string("result"));
    json_object_set_new(event, "status", json_string(status));
    json_object_set_new(event, "metrics", values);
    json_object_set_new(event, "checkpoint", checkpoint ? json_text(checkpoint) : json_null());
    json_object_set_new(event, "path", path ? json_text(path) : json_null());
    if (error) json_object_set_new(event, "error", json_text(error));
    return json_emit(event);
}
