/* cmd_data.c - manta data. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/stop.h"
#include "cli/suggest.h"
#include "cli/work.h"

static const option_group listing = {
    "Output:",
    (const cli_option[]){{"json", OPTION_FLAG, NULL, "A JSON object a line for each dataset"}, {0}}};

static const option_group fetching = {
    "Fetching:", (const cli_option[]){
                     {"sha256", OPTION_TEXT, "HEX", "What the checksum of the file at a URL must be"}, {0}}};

/* ---- list, path ---- */

static int run_list(const options *o)
{
    const char *name;
    char path[PATH_MAX];

    for (int i = 0; (name = manta_data_name(i)); i++) {
        manta_status st = manta_data_path(name, path, sizeof path);
        if (st && st != MANTA_ENOENT) return cli_fail();
        if (options_flag(o, "json")) {
            json_emit(json_pack("{s:s, s:o}", "name", name, "path", st ? json_null() : json_string(path)));
        } else if (st) {
            print_out("%-14s not here; get it with: manta data fetch %s\n", name, name);
        } else {
            print_out("%-14s %s\n", name, path);
        }
    }
    return CLI_DONE;
}

static manta_status find_set(const char *name, char *path, size_t size)
{
    suggestion s = suggest_for(name);
    const char *each;

    for (int i = 0; (each = manta_data_name(i)); i++) {
        if (!strcmp(each, name)) return manta_data_path(name, path, size);
        suggest_offer(&s, each);
    }
    if (s.best) return manta_fail(MANTA_ENOENT, "no dataset is called '%s'; did you mean %s?", name, s.best);
    return manta_fail(MANTA_ENOENT, "no dataset is called '%s'; 'manta data list' shows those there are",
                      name);
}

static int show_path(const options *o)
{
    char path[PATH_MAX];

    if (find_set(options_arg(o, 0), path, sizeof path)) return cli_fail();
    if (options_flag(o, "json")) {
        json_emit(json_pack("{s:s, s:s}", "name", options_arg(o, 0), "path", path));
    } else {
        print_out("%s\n", path);
    }
    return CLI_DONE;
}

/* ---- fetch ---- */

static bool on_progress(void *user, const char *file, int64_t done, int64_t total)
{
    progress *p = user;

    progress_bytes(p, file, done, total);
    return !stop_requested();
}

static int run_fetch(const options *o)
{
    const char *what = options_arg(o, 0), *sha256 = options_text(o, "sha256");
    char path[PATH_MAX] = "";
    progress p;
    manta_status st;

    if (sha256 && !strstr(what, "://")) cli_usage("--sha256 is for a URL; %s has checksums of its own", what);
    progress_init(&p);
    stop_install();
    st = manta_data_fetch(what, sha256, on_progress, &p, path, sizeof path);
    progress_break(&p);
    if (st == MANTA_ECANCELLED && stop_requested()) {
        cli_note("interrupted; the same command goes on where it stopped");
        return CLI_INTERRUPTED;
    }
    if (st) return cli_fail();
    print_out("%s\n", path);
    return CLI_DONE;
}

const command cmd_data_list = {
    .name = "data list",
    .args = "",
    .about = "List the datasets that have a name, and where they lie",
    .text = "They are looked for in the folder $MANTA_DATA, in the user's cache folder, and in what came "
            "with Manta.",
    .groups = {&listing},
    .run = run_list,
};

const command cmd_data_fetch = {
    .name = "data fetch",
    .args = "NAME|URL",
    .about = "Bring a dataset, or the file at a URL, into the user's cache folder",
    .text = "Prints where it lies. A transfer that was cut goes on where it stopped; a file appears under "
            "its name only "
            "when it is whole and its checksum is right.",
    .examples = "  manta data fetch fashion-mnist",
    .min_args = 1,
    .max_args = 1,
    .groups = {&fetching},
    .run = run_fetch,
};

const command cmd_data_path = {
    .name = "data path",
    .args = "NAME",
    .about = "Print the folder of a dataset",
    .text = "Status 1 when it is not on this machine.",
    .examples = "  ls \"$(manta data path mnist)\"",
    .min_args = 1,
    .max_args = 1,
    .groups = {&listing},
    .run = show_path,
};
