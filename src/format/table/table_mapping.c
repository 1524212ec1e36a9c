/* table_mapping.c - a mapping: the columns that x and y are made of. */
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/table/table.h"

/* taken: of each name that is in use, what its next namesake tries first: thousands may have one name. */
void table_name_apart(int n, char **names)
{
    MAP(int) taken = {0};

    for (int i = 0; i < n; i++) {
        char *name = *names[i] ? mem_strdup(names[i]) : mem_printf("%d", i);
        int *next = map_find(&taken, name);
        if (next) {
            int k = *next;
            char *first = name;
            for (name = mem_printf("%s.%d", *names[i] ? names[i] : "column", k); map_find(&taken, name);) {
                mem_free(name);
                name = mem_printf("%s.%d", *names[i] ? names[i] : "column", ++k);
            }
            *next = k + 1;
            mem_free(first);
        }
        *map_put(&taken, name) = 1;
        mem_free(names[i]);
        names[i] = name;
    }
    map_release(&taken);
}

void table_source_release(table_source *s)
{
    for (int i = 0; i < s->n; i++) mem_free(s->names[i]);
    mem_free(s->names);
    mem_free(s->refused);
    if (s->release) s->release(s->ctx);
    *s = (table_source){0};
}

void table_column_release(table_column *c)
{
    for (int i = 0; i < c->n; i++) mem_free(c->categories[i]);
    mem_free(c->categories);
    map_release(&c->places);
    mem_free(c->name);
    *c = (table_column){0};
}

void manta_table_free(manta_table *t)
{
    if (!t) return;
    for (int i = 0; i < t->n_x; i++) table_column_release(&t->x[i]);
    mem_free(t->x);
    table_column_release(&t->y);
    mem_free(t);
}

bool table_has_own(const table_column *c)
{
    return c->type == MANTA_TABLE_TYPE_CATEGORY &&
           (c->missing == MANTA_TABLE_MISSING_ZERO || c->missing == MANTA_TABLE_MISSING_NAN);
}

int64_t table_column_width(const table_column *c)
{
    if (c->type != MANTA_TABLE_TYPE_CATEGORY || c->encoding != MANTA_TABLE_ENCODING_ONEHOT) return 1;
    return c->n + table_has_own(c);
}

int table_category_find(const table_column *c, const char *text)
{
    uint32_t *place = map_find(&c->places, text);

    return place ? (int)*place : -1;
}

void table_column_index(table_column *c)
{
    for (int i = 0; i < c->n; i++) *map_put(&c->places, c->categories[i]) = (uint32_t)i;
}

int64_t manta_table_width(const manta_table *t)
{
    REFUSE_NULL_OR(t, -1);

    int64_t n = 0;

    for (int i = 0; i < t->n_x; i++) n += table_column_width(&t->x[i]);
    return n;
}

int64_t manta_table_classes(const manta_table *t)
{
    REFUSE_NULL_OR(t, -1);
    return t->has_y ? t->y.n : 0;
}

const char *manta_table_class(const manta_table *t, int64_t i)
{
    REFUSE_NULL_OR(t, NULL);
    return t->has_y && i >= 0 && i < t->y.n ? t->y.categories[i] : NULL;
}
