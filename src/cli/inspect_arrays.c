/* inspect_arrays.c - named arrays without a model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"
#include "cli/work.h"

/* Of a .npy file, or of any other that holds weights. */
typedef struct arrays {
    const char *path;
    const manta_arrays *plain; /* NULL: of `saved` */
    const manta_saved *saved;
} arrays;

/* How much there is, by what the names say it is. */
typedef struct totals {
    int arrays, state; /* state: of the optimizer and the run, among all */
    int64_t elements, bytes;
} totals;

static const manta_column *column_at(const arrays *a, int i)
{
    return a->plain ? manta_arrays_at(a->plain, i) : manta_saved_at(a->saved, i);
}

static totals count_arrays(const arrays *a)
{
    const manta_column *c;
    totals t = {0};

    for (int i = 0; (c = column_at(a, i)); i++) {
        bool state = !strncmp(c->name, "optimizer/", 10) || !strncmp(c->name, "run/", 4);
        t.arrays++;
        t.state += state;
        t.elements += manta_array_count(&c->array);
        t.bytes += (int64_t)manta_array_bytes(&c->array);
    }
    return t;
}

static void show_table(const arrays *a)
{
    static const char *const heads[] = {"name", "shape", "dtype", ">bytes", NULL};
    table *t = table_new(heads);
    int64_t steps = a->saved ? inspect_iterations(a->saved) : -1;
    totals sum = count_arrays(a);
    const manta_column *c;
    char text[256], number[32];

    for (int i = 0; (c = column_at(a, i)); i++) {
        table_add(t, "%s", *c->name ? c->name : "(array)");
        table_add(t, "%s", manta_shape_text(c->array.ndim, c->array.shape, text, sizeof text));
        table_add(t, "%s", manta_dtype_name(c->array.dtype));
        table_add(t, "%s", work_number((int64_t)manta_array_bytes(&c->array), number, sizeof number));
    }
    table_print(t);
    print_out("\n%d array%s, %s elements, %s", sum.arrays, sum.arrays == 1 ? "" : "s",
              work_number(sum.elements, number, sizeof number), inspect_size(sum.bytes, text, sizeof text));
    if (sum.state) print_out("; %d of the arrays are state of a training run", sum.state);
    if (steps >= 0) print_out(", %" PRId64 " step%s done", steps, steps == 1 ? "" : "s");
    print_out("\n");
}

static void show_json(const arrays *a)
{
    json_t *list = json_array();
    int64_t steps = a->saved ? inspect_iterations(a->saved) : -1;
    totals sum = count_arrays(a);
    const manta_column *c;

    for (int i = 0; (c = column_at(a, i)); i++) {
        json_array_append_new(list, json_pack("{s:o, s:o, s:s, s:I}", "name", json_text(c->name), "shape",
                                              inspect_shape_json(c->array.ndim, c->array.shape), "dtype",
                                              manta_dtype_name(c->array.dtype), "bytes",
                                              (json_int_t)manta_array_bytes(&c->array)));
    }
    json_emit(json_pack("{s:s, s:o, s:s, s:I, s:I, s:o, s:o}", "kind", "arrays", "path", json_text(a->path),
                        "format", a->plain ? "npy" : manta_saved_format(a->saved), "elements",
                        (json_int_t)sum.elements, "bytes", (json_int_t)sum.bytes, "iterations",
                        steps >= 0 ? json_integer(steps) : json_null(), "arrays", list));
}

static void show_arrays(const arrays *a, bool json)
{
    if (json) {
        show_json(a);
    } else {
        show_table(a);
    }
}

void inspect_saved(const manta_saved *s, const char *path, bool json)
{
    show_arrays(&(arrays){.path = path, .saved = s}, json);
}

int inspect_npy(const char *path, bool json)
{
    manta_arrays *a = NULL;

    if (manta_arrays_load(path, &a)) return cli_fail();
    show_arrays(&(arrays){.path = path, .plain = a}, json);
    manta_arrays_free(a);
    return CLI_DONE;
}
