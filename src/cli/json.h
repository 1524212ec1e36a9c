/* json.h - what --json prints: one object a line, at once. */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <jansson.h>

#include <manta/train.h>

/* A number; null where JSON has none for it (NaN, infinity). */
json_t *json_number(double v);

/* A string of any bytes: what is no UTF-8 becomes question marks. */
json_t *json_text(const char *text);

/* Adds every metric to `to`. */
void json_add_metrics(json_t *to, const manta_metrics *m);

/* Prints the object as a line and gives it back. False when nobody reads on. */
bool json_emit(json_t *object);

/* The event every run ends with. error and path may be NULL, metrics too. */
bool json_result(const char *status, const manta_metrics *metrics, const char *checkpoint, const char *path,
                 const char *error);

#endif
