/* cmd_runs_plot.c - manta runs plot: the curves of a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/command.h"
#include "cli/deaths.h"
#include "cli/plot.h"
#include "cli/print.h"
#include "cli/runs.h"
#include "cli/suggest.h"
#include "cli/work.h"

static const option_group plotting = {
    "Plot:", (const cli_option[]){
                 RUNS_STORAGE,
                 {"metrics", OPTION_TEXT, "M,...",
                  "Which curves; all when not given. 'rate' is steps per second, from report to report"},
                 {"x", OPTION_TEXT, "AXIS",
                  "Over what: 'step', or 'time' in seconds since the run was begun; step when not given"},
                 {"log", OPTION_FLAG, NULL, "A scale of powers of ten for the values"},
                 {"against", OPTION_TEXT, "RUN", "Draw the same curves of this run behind them"},
                 {"output", OPTION_OUTPUT, "FILE", "Write them as an .svg, .png or .pdf file instead"},
                 {"dark", OPTION_FLAG, NULL, "A file for pages on dark ground"},
                 {0}}};

/* A run that is drawn: its curves, the last of which is the rate when there are times. */
typedef struct drawn {
    manta_run_info r;
    manta_run_series *s;
    int n;
    manta_run_series rate;
    double began_s;
} drawn;

/* ---- what there is ---- */

static const manta_run_series *longest_series(const drawn *d)
{
    const manta_run_series *longest = NULL;

    for (int i = 0; i < d->n; i++) {
        if (!longest || d->s[i].n > longest->n) longest = &d->s[i];
    }
    return longest;
}

/* Steps per second between each report and the one before. */
static void make_rate(drawn *d)
{
    const manta_run_series *s = longest_series(d);

    snprintf(d->rate.name, sizeof d->rate.name, "%s", PLOT_RATE);
    if (!s) return;
    d->rate.points = calloc((size_t)s->n, sizeof *d->rate.points);
    if (!d->rate.points) abort();
    for (int64_t i = 1; i < s->n; i++) {
        const manta_run_point *a = &s->points[i - 1], *b = &s->points[i];
        manta_run_point p = *b;
        if (!(a->time_s > 0 && b->time_s > a->time_s && b->step >= a->step)) continue;
        p.value = ((double)b->step - (double)a->step) / (b->time_s - a->time_s);
        d->rate.points[d->rate.n++] = p;
    }
}

/* When it was begun, or where its folder does not know that any more, its first report. */
static double begin_of(const drawn *d)
{
    const manta_run_series *s = longest_series(d);
    double began = d->r.began_s;

    for (int64_t i = 0; s && i < s->n; i++) {
        double at = s->points[i].time_s;
        if (at > 0 && (!(began > 0) || at < began)) began = at;
    }
    return began;
}

static manta_status open_drawn(const options *o, const char *name, drawn *d)
{
    manta_status st = runs_find(options_text(o, "storage"), name, &d->r);

    if (!st) st = manta_run_history(d->r.path, &d->s, &d->n);
    if (st) return st;
    make_rate(d);
    d->began_s = begin_of(d);
    return MANTA_OK;
}

static void release_drawn(drawn *d)
{
    manta_run_history_free(d->s, d->n);
    free(d->rate.points);
}

/* ---- what is wanted ---- */

static bool is_wanted(const char *list, const char *name)
{
    size_t n = strlen(name);

    if (!list) return true;
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        if (!strncmp(p, name, n) && (p[n] == ',' || !p[n])) return true;
    }
    return false;
}

/* Whether the rate is asked for; a metric of that name is the run's own. */
static bool wants_rate(const drawn *d, const char *list)
{
    for (int i = 0; i < d->n; i++) {
        if (!strcmp(d->s[i].name, "rate")) return false;
    }
    return list && is_wanted(list, "rate");
}

/* Ends the process when a curve is asked for that is not there. */
static void check_wanted(const drawn *d, const char *list)
{
    char name[64], known[512] = "", hint[128];

    for (int i = 0; i < d->n; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", d->s[i].name);
    }
    for (const char *p = list; p && d->n; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        bool found = false;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(p, ","), p);
        suggestion near = suggest_for(name);
        for (int i = 0; i < d->n; i++) {
            found |= !strcmp(name, d->s[i].name);
            suggest_offer(&near, d->s[i].name);
        }
        if (!found && strcmp(name, "rate") != 0)
            cli_usage("--metrics: run %s has no '%s'; there are %s%s", d->r.name, name, known,
                      manta_suggestion_text(&near, hint, sizeof hint));
    }
}

static bool is_over_time(const options *o)
{
    const char *x = options_text(o, "x");
    suggestion near = suggest_for(x ? x : "");
    char hint[128];

    suggest_offer(&near, "step");
    suggest_offer(&near, "time");
    if (x && strcmp(x, "step") != 0 && strcmp(x, "time") != 0)
        cli_usage("--x: '%s', expected step or time%s", x, manta_suggestion_text(&near, hint, sizeof hint));
    return x && !strcmp(x, "time");
}

/* ---- drawing ---- */

static manta_status add_curves(plot *p, const drawn *d, const char *list, bool other)
{
    int wanted = 0, added = 0;

    for (int i = 0; i < d->n; i++) {
        if (!is_wanted(list, d->s[i].name)) continue;
        wanted++;
        added += plot_add(p, &d->s[i], d->began_s, other);
    }
    if (wants_rate(d, list) && !plot_add(p, &d->rate, d->began_s, other))
        return manta_fail(MANTA_EINVAL, "run %s: a rate needs two reports with their times", d->r.name);
    if (wanted && !added)
        return manta_fail(MANTA_EINVAL,
                          "run %s: its record has no times, so it can only be drawn over steps (--x step)",
                          d->r.name);
    return MANTA_OK;
}

static void add_deaths(plot *p, const drawn *d)
{
    double *at = NULL;
    int n = deaths_read(d->r.path, &at);

    for (int i = 0; i < n && d->n; i++) plot_add_death(p, at[i], d->began_s, longest_series(d));
    free(at);
}

static bool ends_in_svg(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && !strcmp(path + n - 4, ".svg");
}

static manta_status draw_plot(const char *output, const plot *p)
{
    manta_status st = output ? work_check_output(output, ".svg .png .pdf") : MANTA_OK;

    if (st) return st;
    if (!output) {
        plot_terminal(p);
        return MANTA_OK;
    }
    st = (ends_in_svg(output) ? plot_svg : plot_picture)(output, p);
    if (!st) print_out("Saved to %s\n", output);
    return st;
}

static int plot_run(const options *o)
{
    const char *list = options_text(o, "metrics"), *against = options_text(o, "against");
    plot p = {.time = is_over_time(o), .log = options_flag(o, "log"), .dark = options_flag(o, "dark")};
    static drawn run, other;
    int status = CLI_DONE;

    if (p.dark && !options_text(o, "output")) cli_usage("--dark needs --output: it is about a file");
    if (open_drawn(o, options_arg(o, 0), &run) || (against && open_drawn(o, against, &other)))
        return cli_fail();
    check_wanted(&run, list);
    p.title = run.r.name;
    p.other = against ? other.r.name : NULL;
    if (!run.n) {
        cli_note("run %s has reported no metric yet", run.r.name);
        status = CLI_FAILED;
    } else if (add_curves(&p, &run, list, false) || (against && add_curves(&p, &other, list, true))) {
        status = cli_fail();
    } else {
        add_deaths(&p, &run);
        if (draw_plot(options_text(o, "output"), &p)) status = cli_fail();
    }
    plot_release(&p);
    release_drawn(&run);
    release_drawn(&other);
    return status;
}

const command cmd_runs_plot = {
    .name = "runs plot",
    .args = "NAME",
    .about = "Draw the curves of a run, in the terminal or as SVG, PNG or PDF",
    .text = "NAME is that of a run, or a path to its folder. Where a worker died the picture has a mark.",
    .examples = "  manta runs plot mine\n  manta runs plot mine --metrics loss,val_loss -o "
                "curves.png\n  manta runs plot mine --x time --metrics loss,rate --log --against calm -o "
                "curves.svg",
    .min_args = 1,
    .max_args = 1,
    .groups = {&plotting},
    .run = plot_run};
