/* cmd_runs_plot.c - manta runs plot: the curves of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/plot.h"
#include "cli/runs.h"
#include "cli/work.h"

static const option_group plotting = {
    "Plot:",
    (const cli_option[]){RUNS_STORAGE,
                         {"metrics", OPTION_TEXT, "M,...", "Which curves; all when not given"},
                         {"output", OPTION_OUTPUT, "FILE", "Write them as an .svg or .png file instead"},
                         {0}}};

static bool is_wanted(const char *list, const char *name)
{
    size_t n = strlen(name);

    if (!list) return true;
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n])) return true;
    }
    return false;
}

/* Ends the process when a curve is asked for that is not there. */
static void check_wanted(const char *run, const char *list, const manta_run_series *s, int n)
{
    char name[64], known[512] = "";

    for (int i = 0; i < n; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", s[i].name);
    }
    for (const char *p = list; p && n; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        bool found = false;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        for (int i = 0; i < n; i++) found |= !strcmp(name, s[i].name);
        if (!found) cli_usage("--metrics: run %s has no '%s'; there are %s", run, name, known);
    }
}

static bool ends_in_png(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && !strcmp(path + n - 4, ".png");
}

static int plot_run(const options *o)
{
    const char *output = options_text(o, "output");
    manta_run_series *s;
    manta_run_info r;
    plot_panel *p;
    int n, panels, kept = 0, status = CLI_DONE;

    if (runs_find(options_text(o, "storage"), options_arg(o, 0), &r) || manta_run_history(r.path, &s, &n))
        return cli_fail();
    check_wanted(r.name, options_text(o, "metrics"), s, n);
    for (int i = 0; i < n; i++) {
        manta_run_series now = s[i];
        if (!is_wanted(options_text(o, "metrics"), now.name)) continue;
        s[i] = s[kept];
        s[kept++] = now;
    }
    if (!(p = malloc((size_t)(kept + 1) * sizeof *p))) abort();
    panels = plot_panels(s, kept, p);
    if (!kept) {
        cli_note("run %s has reported no metric yet", r.name);
        status = CLI_FAILED;
    } else if (!output) {
        for (int i = 0; i < panels; i++) plot_terminal(&p[i]);
    } else if (work_check_output(output, ".svg .png") ||
               (ends_in_png(output) ? plot_png : plot_svg)(output, r.name, p, panels)) {
        status = cli_fail();
    }
    free(p);
    manta_run_history_free(s, n);
    return status;
}

const command cmd_runs_plot = {
    .name = "runs plot",
    .args = "NAME",
    .about = "Draw the curves of a run, in the terminal or as SVG or PNG",
    .text = "NAME is that of a run, or a path to its folder.",
    .examples = "  manta runs plot mine\n  manta runs plot mine --metrics loss,val_loss -o "
                "curves.png",
    .min_args = 1,
    .max_args = 1,
    .groups = {&plotting},
    .run = plot_run};
