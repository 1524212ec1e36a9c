/* run_config.c - the checksum of a configuration: of its values, sorted by name, so
 * that neither order nor space between them counts. */
#include "train/checkpoint/run_config.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/mem.h"

#define CHECK "check"

static void sum_of(const json_t *o, char out[16])
{
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);

    if (!text) abort(); /* small control memory */
    snprintf(out, 16, "%08x", crc32c(0, text, strlen(text)));
    free(text);
}

static json_t *object_of(const char *text)
{
    json_error_t why;
    json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, &why);

    if (json_is_object(o)) return o;
    json_decref(o);
    return NULL;
}

char *run_config_seal(const char *config)
{
    json_t *o = object_of(config ? config : "{}");
    char sum[16], *text, *sealed;

    if (!o) return mem_printf("%s\n", config);
    (void)json_object_del(o, CHECK);
    sum_of(o, sum);
    if (json_object_set_new(o, CHECK, json_string(sum)) || !(text = json_dumps(o, JSON_INDENT(1)))) abort();
    sealed = mem_printf("%s\n", text);
    free(text);
    json_decref(o);
    return sealed;
}

manta_status run_config_unseal(const char *path, const char *text, char **out)
{
    json_t *o = object_of(text), *check = json_object_get(o, CHECK);
    char sum[16] = "", told[32];
    manta_status st = MANTA_OK;

    snprintf(told, sizeof told, "%s", json_is_string(check) ? json_string_value(check) : "");
    if (check) {
        (void)json_object_del(o, CHECK);
        sum_of(o, sum);
        if (strcmp(sum, told) != 0) {
            st = manta_fail(MANTA_ECORRUPT,
                            "%s is damaged or was changed by hand: its checksum does not fit (without "
                            "\"" CHECK "\" it is taken as it is)",
                            path);
        }
    }
    if (!st && !(*out = check ? json_dumps(o, JSON_INDENT(1)) : strdup(text))) abort();
    json_decref(o);
    return st;
}
