/* inspect_outline.c - a model that Manta cannot make: its layers, and why not. */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/table.h"

static void outline_table(const manta_outline *o)
{
    static const char *const heads[] = {"layer", "class", "output shape", "", NULL};
    table *t = table_new(heads);
    char text[256];

    for (int i = 0; i < o->n; i++) {
        const manta_outline_layer *l = &o->layers[i];
        table_add(t, "%*s%s", 2 * l->nesting, "", l->name);
        table_add(t, "%s", l->class_name);
        table_add(t, "%s", l->ndim ? inspect_shape(l->ndim, l->shape, text, sizeof text) : "?");
        table_add(t, "%s", l->problem ? l->problem : "");
    }
    table_print(t);
}

static void outline_json(const manta_outline *o, const char *path)
{
    json_t *list = json_array();

    for (int i = 0; i < o->n; i++) {
        const manta_outline_layer *l = &o->layers[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:i, s:o, s:o}", "name", json_text(l->name), "class",
                                        json_text(l->class_name), "nesting", l->nesting, "shape",
                                        l->ndim ? inspect_shape_json(l->ndim, l->shape) : json_null(),
                                        "problem", l->problem ? json_text(l->problem) : json_null()));
    }
    json_emit(json_pack("{s:s, s:o, s:o}", "kind", "outline", "path", json_text(path), "layers", list));
}

int inspect_outline(const char *path, bool json)
{
    manta_outline o = {0};
    manta_error why;
    int missing = 0;

    manta_error_get(&why);
    if (!manta_file_outline(path, &o)) {
        for (int i = 0; i < o.n; i++) missing += o.layers[i].problem != NULL;
        if (missing && json) outline_json(&o, path);
        if (missing && !json) outline_table(&o);
        manta_outline_release(&o);
    }
    (void)!manta_error_raise(&why); /* it is the sentence of this command, whatever came after it */
    return cli_fail();
}
