/* run_fuzz.c - the files of a run's folder as `manta runs`, `manta runs show` and `manta
 * train --resume NAME` read them. An input is up to four texts with a byte 0 between
 * them: config.json, result.json, metrics.jsonl, and the manifest of a checkpoint that
 * holds one file of five bytes. */
#include <stdio.h>
#include <unistd.h>

#include <manta/log.h>
#include <manta/run.h>
#include <manta/trainer.h>

#include "cli/options.h"
#include "fuzz.h"
#include "os/file.h"
#include "temp.h"
#include "train/run/run_folder.h"

/* Options of each kind, as the command's own table has them. */
static const cli_option kinds[] = {{"debug", OPTION_FLAG, NULL, ""},     {"data", OPTION_TEXT, "D", ""},
                                   {"resume", OPTION_MAYBE, "NAME", ""}, {"save", OPTION_OUTPUT, "FILE", ""},
                                   {"seed", OPTION_INT, "K", ""},        {"epochs", OPTION_COUNT, "N", ""},
                                   {"momentum", OPTION_REAL, "X", ""},   {"gpu", OPTION_LATER, NULL, ""},
                                   {"name", OPTION_TEXT, "NAME", ""},    {0}};
static const option_group all_kinds = {"Options", kinds};
static const command train = {.name = "train", .max_args = 1, .groups = {&all_kinds}};

static char folder[64], run[80], checkpoint[120];

static void leave(void)
{
    if (file_remove_tree(folder)) return; /* nothing can be done about it here */
}

static void make_folder(void)
{
    if (!temp_folder(folder, sizeof folder, temp_quick(), "fuzz-run")) abort();
    snprintf(run, sizeof run, "%s/run", folder);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoints/checkpoint-000001", run);
    manta_log_set_level(MANTA_LOG_LEVEL_ERROR); /* damage is said, and there is a lot of it */
    atexit(leave);
}

/* Without bringing it to disk. */
static void put(const char *place, const char *name, const void *data, size_t n)
{
    char path[160];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", place, name);
    if (!(f = fopen(path, "wb")) || fwrite(data, 1, n, f) != n || fclose(f)) abort();
}

/* The next text of the input, as the file of that name; an empty one is not there. */
static void put_next(const char *place, const char *name, const uint8_t **data, size_t *size)
{
    const uint8_t *end = *size ? memchr(*data, 0, *size) : NULL;
    size_t n = end ? (size_t)(end - *data) : *size, passed = end ? n + 1 : n;

    if (n) put(place, name, *data, n);
    *data += passed;
    *size -= passed;
}

static void read_options(void)
{
    char *text = NULL, *again;
    options *o = NULL;
    manta_status st = manta_run_read_config(run, &text);

    fuzz_expect(st);
    if (st) return;
    fuzz_expect(st = options_read_json(&train, "config.json", text, &o));
    free(text);
    if (st) return;
    again = options_json(o, NULL); /* what was read can be kept with the next run */
    options_free(o);
    fuzz_expect(st = options_read_json(&train, "config.json", again, &o));
    if (st) abort();
    free(again);
    options_free(o);
}

static void show(void)
{
    manta_run_info info;
    manta_run_series *series = NULL;
    manta_result *r = NULL;
    int n = 0;

    fuzz_expect(manta_run_read(run, &info));
    if (strnlen(info.status, sizeof info.status) == sizeof info.status ||
        strnlen(info.error, sizeof info.error) == sizeof info.error)
        abort();
    fuzz_expect(manta_run_history(run, &series, &n));
    manta_run_history_free(series, n);
    fuzz_expect(manta_result_read(run, &r));
    if (r && (r->failures < 0 || r->n_checkpoints > 1)) abort();
    manta_result_free(r);
}

static void resume(void)
{
    manta_run *r = NULL;

    fuzz_expect(manta_run_open(&(manta_run_options){.folder = run, .resume = true, .config = "{}"}, &r));
    if (r) fuzz_expect(manta_run_report(r, 1, 1, 0, &(manta_metrics){0}));
    manta_run_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live;

    if (!*run) make_folder();
    live = mem_live();
    if (file_mkdirs(checkpoint)) abort();
    put_next(run, "config.json", &data, &size);
    put_next(run, "result.json", &data, &size);
    put_next(run, "metrics.jsonl", &data, &size);
    put(checkpoint, "a.txt", "bytes", 5);
    put_next(checkpoint, "manifest.json", &data, &size);
    read_options();
    show();
    resume();
    show();
    if (file_remove_tree(run)) abort();
    fuzz_balance(live);
    return 0;
}
