/* inspect_checkpoint.c - a checkpoint: where its run stood, how well, and the arrays
 * of its state. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/checkpoint.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/record.h"
#include "cli/table.h"

static void show_text(const char *name, const char *value)
{
    print_out("%-10s ", name);
    print_out("%s\n", value);
}

static void show_table(const manta_checkpoint *c)
{
    const manta_checkpoint_info *i = manta_checkpoint_get(c);
    const char *file;
    char place[64];

    show_text("checkpoint", manta_checkpoint_path(c));
    print_out("place      %s\n", record_place(i, place, sizeof place));
    for (int k = 0; k < i->metrics.n; k++) {
        print_out("%-10s ", k ? "" : "metrics");
        print_out("%s", i->metrics.name[k]);
        print_out(" %.6g\n", i->metrics.value[k]);
    }
    for (int k = 0; k < i->n_notes; k++) {
        print_out("%-10s ", k ? "" : "notes");
        print_out("%s", i->notes[k].name);
        print_out(" = ");
        print_out("%s\n", i->notes[k].text);
    }
    for (int k = 0; (file = manta_checkpoint_file(c, k)); k++) show_text(k ? "" : "files", file);
}

static void show_json(const manta_checkpoint *c)
{
    const manta_checkpoint_info *i = manta_checkpoint_get(c);
    json_t *metrics = json_object(), *notes = json_object(), *files = json_array();
    const char *file;

    json_add_metrics(metrics, &i->metrics);
    for (int k = 0; k < i->n_notes; k++)
        json_object_set_new(notes, i->notes[k].name, json_text(i->notes[k].text));
    for (int k = 0; (file = manta_checkpoint_file(c, k)); k++) json_array_append_new(files, json_text(file));
    json_emit(json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "kind", "checkpoint", "path",
                        json_text(manta_checkpoint_path(c)), "sequence", (json_int_t)i->sequence, "epoch",
                        (json_int_t)i->epoch, "step", (json_int_t)i->step, "iterations",
                        (json_int_t)i->iterations, "metrics", metrics, "notes", notes, "files", files));
}

int inspect_checkpoint(const char *path, bool json)
{
    manta_checkpoint *c = NULL;
    manta_saved *state = NULL;
    manta_status st = manta_checkpoint_open(path, &c);

    if (st) return cli_fail();
    if (json) {
        show_json(c);
    } else {
        show_table(c);
        st = manta_checkpoint_arrays(c, &state);
        if (!st) print_out("\n");
        if (!st) inspect_saved(state, path, false);
        if (st == MANTA_ENOENT) st = MANTA_OK; /* one of a program's own files */
    }
    manta_saved_free(state);
    manta_checkpoint_close(c);
    return st ? cli_fail() : CLI_DONE;
}
