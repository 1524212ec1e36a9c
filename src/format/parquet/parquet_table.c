/* parquet_table.c - a Parquet file as a table. */
#include "format/parquet/parquet_table.h"

#include <math.h>

#include "base/mem.h"
#include "format/parquet/parquet_column.h"

typedef struct parquet_source {
    seek_file f;
    parquet_meta m;
    bool *wanted; /* by leaf */
    parquet_values *values; /* by leaf, of the row group before `group` */
    table_cell *cells;
    int group; /* that comes next */
    int64_t row, rows; /* of the one before it: which comes next, and how many */
} parquet_source;

static void drop_group(parquet_source *p)
{
    for (int i = 0; p->values && i < p->m.n_leaves; i++) parquet_values_release(&p->values[i]);
    p->row = p->rows = 0;
}

static void free_source(void *ctx)
{
    parquet_source *p = ctx;

    drop_group(p);
    mem_free(p->values);
    mem_free(p->wanted);
    mem_free(p->cells);
    parquet_meta_release(&p->m);
    seek_close(&p->f);
    mem_free(p);
}

static void want_columns(void *ctx, const bool *wanted)
{
    parquet_source *p = ctx;

    for (int i = 0; i < p->m.n_leaves; i++) p->wanted[i] = wanted[i];
}

static manta_status rewind_rows(void *ctx)
{
    parquet_source *p = ctx;

    drop_group(p);
    p->group = 0;
    return MANTA_OK;
}

static manta_status load_group(parquet_source *p)
{
    drop_group(p);
    for (int i = 0; i < p->m.n_leaves; i++) {
        if (p->wanted[i]) TRY(parquet_cells_read(&p->f, &p->m, p->group, i, &p->values[i]));
    }
    p->rows = p->m.groups[p->group].rows;
    p->group++;
    return MANTA_OK;
}

/* Units of a time in a day. */
static double units_of_day(parquet_time t)
{
    switch (t) {
    case PARQUET_MILLISECONDS: return 86400e3;
    case PARQUET_MICROSECONDS: return 86400e6;
    case PARQUET_NANOSECONDS: return 86400e9;
    default: return 1;
    }
}

static table_cell make_cell(const parquet_leaf *leaf, const parquet_values *v, int64_t row)
{
    if (v->offsets) {
        uint64_t from = v->offsets[row];
        return (table_cell){.kind = v->present[row] ? TABLE_CELL_TEXT : TABLE_CELL_MISSING,
                            .at = (const uint8_t *)v->data + from,
                            .n = (size_t)(v->offsets[row + 1] - from)};
    }
    double number = ((const double *)v->data)[row];
    if (isnan(number)) return (table_cell){.kind = TABLE_CELL_MISSING};
    if (leaf->time) return (table_cell){.kind = TABLE_CELL_DATE, .number = number / units_of_day(leaf->time)};
    return (table_cell){.kind = TABLE_CELL_NUMBER, .number = number};
}

static manta_status next_row(void *ctx, const table_cell **cells, int64_t *place, bool *end)
{
    parquet_source *p = ctx;

    while (p->row == p->rows) {
        *end = p->group == p->m.n_groups;
        if (*end) return MANTA_OK;
        TRY(load_group(p));
    }
    *end = false;
    for (int i = 0; i < p->m.n_leaves; i++) {
        if (p->wanted[i]) p->cells[i] = make_cell(&p->m.leaves[i], &p->values[i], p->row);
    }
    *cells = p->cells;
    *place = p->m.groups[p->group - 1].first + p->row++;
    return MANTA_OK;
}

static const char *why_refused(const parquet_leaf *leaf)
{
    if (parquet_leaf_is_cell(leaf)) return NULL;
    if (leaf->max_rep) return "a list";
    return leaf->other ? leaf->other : "bytes";
}

manta_status parquet_table_open(seek_file f, table_source *out)
{
    parquet_source *p = mem_new(sizeof *p);
    table_source s = {.format = "parquet",
                      .row_word = "row",
                      .ctx = p,
                      .rewind = rewind_rows,
                      .want = want_columns,
                      .next = next_row,
                      .release = free_source};
    manta_status st;

    p->f = f;
    s.path = p->f.path;
    if ((st = parquet_meta_read(&p->f, &p->m))) {
        table_source_release(&s);
        return st;
    }
    size_t n = (size_t)p->m.n_leaves;
    p->wanted = mem_new(n + 1);
    p->values = mem_new((n + 1) * sizeof *p->values);
    p->cells = mem_new((n + 1) * sizeof *p->cells);
    s.names = mem_new((n + 1) * sizeof *s.names);
    s.refused = mem_new((n + 1) * sizeof *s.refused);
    for (; s.n < p->m.n_leaves; s.n++) {
        s.names[s.n] = mem_strdup(p->m.leaves[s.n].name);
        s.refused[s.n] = why_refused(&p->m.leaves[s.n]);
        p->cells[s.n].kind = TABLE_CELL_MISSING; /* until it is wanted */
    }
    table_name_apart(s.n, s.names);
    *out = s;
    return MANTA_OK;
}

manta_status parquet_table_open_path(const char *path, table_source *out)
{
    seek_file f;

    TRY(seek_open(path, &f));
    return parquet_table_open(f, out);
}
