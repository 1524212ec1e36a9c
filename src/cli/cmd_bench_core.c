/* cmd_bench_core.c - manta bench core. */
#include <stdio.h>
#include <string.h>

#include "cli/bench_core.h"
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/options.h"
#include "cli/print.h"

static const option_group benching = {
    "Benchmark:", (const cli_option[]){{"row", OPTION_TEXT, "TEXT", "Only rows with this text in their name"},
                                       {"quick", OPTION_FLAG, NULL, "Fewer rounds"},
                                       {"json", OPTION_FLAG, NULL, "One JSON object a line"},
                                       {0}}};

static void say_text(const bench_figure *f)
{
    if (f->unit)
        print_out("%-46s %14.2f %s\n", f->row, f->value, f->unit);
    else
        print_out("%-46s %14.1f /s\n", f->row, f->value);
    cli_flush();
}

static void say_json(const bench_figure *f)
{
    json_emit(json_pack("{s:s, s:o}", "row", f->row, f->unit ? f->unit : "per_s", json_number(f->value)));
}

static int bench_core(const options *o)
{
    const char *row = options_text(o, "row");

    if (!bench_core_run(row, options_flag(o, "quick"), options_flag(o, "json") ? say_json : say_text))
        cli_usage("--row: no row has '%s' in its name; all are shown without it", row);
    return CLI_DONE;
}

const command cmd_bench_core = {
    .name = "bench core",
    .args = "",
    .about = "Time remote functions, objects and actors",
    .text = "Starts a node of its own and times the rows that 'ray microbenchmark' times, under the same "
            "names and built "
            "the same way, then what it does not time: how long a single call takes, how long a node and an "
            "actor take "
            "to start, a million queued tasks, and memory. Rates are medians.",
    .examples = "  manta bench core\n"
                "  manta bench core --row actor --json",
    .groups = {&benching},
    .run = bench_core,
};
