/* table_json.c - a mapping as a JSON file, which people may read.
 *
 *     {"manta_table": 1,
 *      "x": [{"name": "age", "type": "number", "missing": "mean", "mean": 29.7},
 *            {"name": "city", "type": "category", "encoding": "onehot", "missing": "refuse",
 *             "categories": ["Bonn", "Kiel"], "frequent": 0}],
 *      "y": {"name": "bought", "type": "category", ..., "categories": ["no", "yes"]}}
 *
 * A mapping that was read is as one that was learnt, to the bit. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/table/table.h"
#include "format/table/table_json.h"
#include "os/file.h"

enum { VERSION = 1, MOST_COLUMNS = 1 << 20 };

/* ---- writing ---- */

static json_t *column_json(const table_column *c)
{
    json_t *o = json_pack("{s:s, s:s, s:s}", "name", c->name, "type", manta_table_type_name(c->type),
                          "missing", table_missing_name(c->missing));

    if (!o) return NULL;
    if (c->type != MANTA_TABLE_TYPE_CATEGORY) {
        json_object_set_new(o, "mean", json_real(c->mean));
        json_object_set_new(o, "whole", json_boolean(c->whole));
        return o;
    }
    json_t *list = json_array();
    for (int i = 0; i < c->n; i++) json_array_append_new(list, json_string(c->categories[i]));
    json_object_set_new(o, "encoding",
                        json_string(c->encoding == MANTA_TABLE_ENCODING_ONEHOT ? "onehot" : "integer"));
    json_object_set_new(o, "frequent", json_integer(c->frequent));
    json_object_set_new(o, "categories", list);
    return o;
}

manta_status table_text(const manta_table *t, const char *path, char **out)
{
    json_t *o = json_object(), *x = json_array(), *y = t->has_y ? column_json(&t->y) : json_null();
    bool fine = y != NULL;
    char *text = NULL;

    for (int i = 0; i < t->n_x; i++) {
        json_t *c = column_json(&t->x[i]);
        fine = fine && c;
        if (c) json_array_append_new(x, c);
    }
    json_object_set_new(o, "manta_table", json_integer(VERSION));
    json_object_set_new(o, "x", x);
    json_object_set_new(o, "y", y ? y : json_null());
    if (fine) text = json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(o);
    if (!text)
        return manta_fail(MANTA_EINVAL,
                          "%s: a column's name is not UTF-8 or a mean not finite, expected text and "
                          "numbers that JSON can hold",
                          path);
    *out = text;
    return MANTA_OK;
}

manta_status manta_table_save(const manta_table *t, const char *path)
{
    REFUSE_NULL(t);
    REFUSE_NULL(path);

    char *text;

    TRY(table_text(t, path, &text));
    manta_status st = file_replace(path, text, strlen(text));
    free(text);
    return st;
}

/* ---- reading ---- */

typedef struct place {
    const char *path;
    const char *what; /* "x[3]", "y" */
} place;

static manta_status fail_key(const place *p, const char *key, const char *expected)
{
    return manta_fail(MANTA_ECORRUPT, "%s: %s: %s is missing or wrong, expected %s", p->path, p->what, key,
                      expected);
}

static manta_status read_categories(const place *p, const json_t *o, table_column *c)
{
    const json_t *list = json_object_get(o, "categories"), *frequent = json_object_get(o, "frequent");
    const char *encoding = json_string_value(json_object_get(o, "encoding"));
    size_t n = json_array_size(list);

    if (!encoding || (strcmp(encoding, "onehot") != 0 && strcmp(encoding, "integer") != 0))
        return fail_key(p, "encoding", "onehot or integer");
    c->encoding = encoding[0] == 'o' ? MANTA_TABLE_ENCODING_ONEHOT : MANTA_TABLE_ENCODING_INTEGER;
    if (!json_is_array(list) || n < 1 || n > MANTA_TABLE_CATEGORIES)
        return fail_key(p, "categories", "a list of texts");
    c->categories = mem_new((n + 1) * sizeof *c->categories);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text || strlen(text) > TABLE_CATEGORY_BYTES)
            return fail_key(p, "categories", "a list of short texts");
        c->categories[c->n++] = mem_strdup(text);
    }
    table_column_index(c);
    if (c->places.n != (size_t)c->n) return fail_key(p, "categories", "different texts");
    if (!json_is_integer(frequent) || json_integer_value(frequent) < 0 ||
        json_integer_value(frequent) >= c->n)
        return fail_key(p, "frequent", "the place of a category");
    c->frequent = (int)json_integer_value(frequent);
    return MANTA_OK;
}

static manta_status read_column(const place *p, const json_t *o, table_column *c)
{
    const char *name = json_string_value(json_object_get(o, "name"));
    const char *type = json_string_value(json_object_get(o, "type"));
    const char *missing = json_string_value(json_object_get(o, "missing"));
    const json_t *mean = json_object_get(o, "mean");

    if (!name) return fail_key(p, "name", "a text");
    c->name = mem_strdup(name);
    for (int i = MANTA_TABLE_TYPE_NUMBER; type && i <= MANTA_TABLE_TYPE_CATEGORY; i++) {
        if (!strcmp(type, manta_table_type_name((manta_table_type)i))) c->type = (manta_table_type)i;
    }
    if (!c->type) return fail_key(p, "type", "number, date or category");
    if (!missing || !table_missing_find(missing, &c->missing))
        return fail_key(p, "missing", "refuse, drop, mean, zero or nan");
    if (c->type == MANTA_TABLE_TYPE_CATEGORY) return read_categories(p, o, c);
    if (!json_is_number(mean)) return fail_key(p, "mean", "a number");
    c->mean = json_number_value(mean);
    c->whole = json_is_true(json_object_get(o, "whole"));
    return MANTA_OK;
}

static manta_status read_mapping(const char *path, const json_t *o, manta_table *t)
{
    const json_t *x = json_object_get(o, "x"), *y = json_object_get(o, "y");
    char what[32];

    if (json_integer_value(json_object_get(o, "manta_table")) != VERSION)
        return manta_fail(MANTA_ECORRUPT, "%s: it is no mapping of a table, expected \"manta_table\": %d",
                          path, VERSION);
    if (!json_is_array(x) || !json_array_size(x) || json_array_size(x) > MOST_COLUMNS)
        return manta_fail(MANTA_ECORRUPT, "%s: x is missing or wrong, expected a list of columns", path);
    t->x = mem_new(json_array_size(x) * sizeof *t->x);
    for (size_t i = 0; i < json_array_size(x); i++) {
        snprintf(what, sizeof what, "x[%zu]", i);
        t->n_x++;
        TRY(read_column(&(place){path, what}, json_array_get(x, i), &t->x[i]));
    }
    t->has_y = y && !json_is_null(y);
    return t->has_y ? read_column(&(place){path, "y"}, y, &t->y) : MANTA_OK;
}

manta_status table_parse(const char *path, const char *text, size_t size, manta_table **out)
{
    json_error_t e;
    json_t *o = json_loadb(text, size, JSON_REJECT_DUPLICATES, &e);
    manta_table *t;
    manta_status st;

    if (!o)
        return manta_fail(MANTA_ECORRUPT, "%s: line %d: %s, expected the JSON of a mapping", path, e.line,
                          e.text);
    t = mem_new(sizeof *t);
    st = read_mapping(path, o, t);
    json_decref(o);
    if (st) {
        manta_table_free(t);
        return st;
    }
    *out = t;
    return MANTA_OK;
}

manta_status manta_table_load(const char *path, manta_table **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    void *text = NULL;
    size_t size;

    TRY(file_read(path, TABLE_MOST_BYTES, &text, &size));
    manta_status st = table_parse(path, text, size, out);
    mem_try_free(text);
    return st;
}
