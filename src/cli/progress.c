/* progress.c - progress as Keras draws it. */
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/print.h"

enum { BAR = 20, LEAST_BAR = 5, PLAIN_MS = 10000, LINE = 512 };

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void progress_init(progress *p)
{
    const char *term = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    bool dumb = !term || !*term || !strcmp(term, "dumb");

    setlocale(LC_CTYPE, "");
    *p = (progress){.terminal = isatty(STDOUT_FILENO) && !dumb};
    p->colour = p->terminal && !(no_colour && *no_colour);
    p->unicode = !strcmp(nl_langinfo(CODESET), "UTF-8");
}

static int terminal_columns(void)
{
    struct winsize w;

    return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col > 1 ? w.ws_col : 80;
}

/* ---- parts of a line ---- */

static void add_text(char *line, const char *text)
{
    size_t n = strlen(line);

    snprintf(line + n, LINE - n, "%s", text);
}

static const char *duration_text(double seconds, char *buf, size_t size)
{
    long long s = seconds > 0 ? llround(seconds) : 0;

    if (s >= 3600) {
        snprintf(buf, size, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    } else if (s >= 60) {
        snprintf(buf, size, "%lld:%02lld", s / 60, s % 60);
    } else {
        snprintf(buf, size, "%llds", s);
    }
    return buf;
}

static const char *pace_text(double seconds, char *buf, size_t size)
{
    if (seconds >= 1) {
        snprintf(buf, size, "%.0fs/step", seconds);
    } else if (seconds >= 1e-3) {
        snprintf(buf, size, "%.0fms/step", seconds * 1e3);
    } else {
        snprintf(buf, size, "%.0fus/step", seconds * 1e6);
    }
    return buf;
}

static bool is_val(const char *name)
{
    return !strncmp(name, "val_", 4);
}

/* Keras's order: by name, those of validation last. */
static int order_metrics(const manta_metrics *m, int *index)
{
    for (int i = 0; i < m->n; i++) {
        int at = i;
        for (; at > 0; at--) {
            const char *before = m->name[index[at - 1]];
            int c = is_val(before) - is_val(m->name[i]);
            if (c < 0 || (!c && strcmp(before, m->name[i]) <= 0)) break;
            index[at] = index[at - 1];
        }
        index[at] = i;
    }
    return m->n;
}

/* " - accuracy: 0.9012 - loss: 0.3321", from the metric `from` on as many whole ones as fit in
 * `room` (negative: all of them). Returns the first that did not. */
static int add_metrics(char *line, const manta_metrics *m, int from, int room)
{
    int index[MANTA_MAX_METRICS], n = m ? order_metrics(m, index) : 0;

    for (int i = from; i < n; i++) {
        char text[96];
        double v = m->value[index[i]];
        bool fixed = !isfinite(v) || fabs(v) > 1e-3 || v == 0;
        int length = snprintf(text, sizeof text, fixed ? " - %s: %.4f" : " - %s: %.4e", m->name[index[i]], v);
        if (room >= 0 && length > room) return i;
        if (room >= 0) room -= length;
        add_text(line, text);
    }
    return n;
}

/* ---- drawing ---- */

static void draw_bar(const progress *p, double share, int width)
{
    int full = share >= 1 ? width : (int)(share * width);

    for (int i = 0; i < width; i++) {
        if (p->colour && i == 0 && full) print_out("\033[32m");
        if (p->colour && i == full) print_out(i ? "\033[0m\033[90m" : "\033[90m");
        if (p->unicode) {
            /* Without colours the two halves must differ in shape. */
            print_out(i < full || p->colour ? "━" : "─");
        } else {
            print_out(i < full ? "=" : ".");
        }
    }
    if (p->colour) print_out("\033[0m");
}

/* The metrics from `from` on that the line above had no place for, in lines of their own. */
static void draw_rest(const manta_metrics *m, int from, int indent, int columns)
{
    while (m && from < m->n) {
        char line[LINE] = "";
        int next = add_metrics(line, m, from, columns - indent);
        if (next == from && indent) {
            indent = 0;
        } else if (next == from) { /* wider than the terminal by itself: it is cut */
            add_metrics(line, m, from, -1);
            print_out("\n%.*s\033[K", columns, line);
            from++;
        } else {
            print_out("\n%*s%s\033[K", indent, "", line);
            from = next;
        }
    }
}

/* One line in place: `left`, the bar, `right`, then the metrics that fit; where they do not, the bar
 * becomes shorter and goes. The last line of an epoch has no bar before it leaves out a metric, and those
 * that it has no place for follow below. No line is as wide as the terminal: none is ever wrapped. */
static void draw_line(progress *p, const char *left, double share, const char *right, const manta_metrics *m,
                      const char *note, bool last)
{
    int columns = terminal_columns() - 1, wide = (int)strlen(left), room, width, shown;
    char metrics[LINE] = "", head[LINE];

    snprintf(head, sizeof head, "%.*s", columns, left);
    if (wide + 2 + (int)strlen(right) > columns) right = "";
    room = columns - wide - 2 - (int)strlen(right);
    if ((int)strlen(note) > room - LEAST_BAR) note = "";
    room -= (int)strlen(note);
    shown = add_metrics(metrics, m, 0,
                        last               ? (room > 0 ? room : 0)
                        : room > LEAST_BAR ? room - LEAST_BAR
                                           : 0);
    width = room - (int)strlen(metrics);
    if (width > BAR) width = BAR;
    print_out("\r");
    progress_bold(p, head);
    if (wide + 2 <= columns) print_out(" ");
    if (width >= LEAST_BAR) draw_bar(p, share, width);
    if (*right) print_out(" %s", right);
    print_out("%s%s\033[K", metrics, note);
    if (last) draw_rest(m, shown, wide, columns);
    p->open = true;
    p->drawn_ms = now_ms();
    cli_flush();
}

void progress_bold(const progress *p, const char *text)
{
    if (p->colour) {
        print_out("\033[1m%s\033[0m", text);
    } else {
        print_out("%s", text);
    }
}

void progress_break(progress *p)
{
    if (p->open) print_out("\n");
    p->open = false;
    cli_flush();
}

void progress_interrupted(progress *p)
{
    if (p->terminal && !p->open) print_out("\r\033[K");
    progress_break(p);
}

/* Whether it is time for another line. */
static bool is_due(const progress *p)
{
    return now_ms() - p->drawn_ms >= (p->terminal ? PROGRESS_DRAW_MS : PLAIN_MS);
}

static void counter_text(int64_t step, int64_t steps, char *buf, size_t size)
{
    char all[24];

    if (steps < 0) {
        snprintf(buf, size, "%lld/Unknown", (long long)step);
    } else {
        int digits = snprintf(all, sizeof all, "%lld", (long long)steps);
        snprintf(buf, size, "%*lld/%s", digits, (long long)step, all);
    }
}

/* The time of a line: left while it runs, taken at the end; then per step. */
static void times_text(int64_t step, int64_t steps, double seconds, double total, bool over, char *buf,
                       size_t size)
{
    char time[32], per[32];
    double each = step > 0 ? seconds / (double)step : 0;
    double shown = over || steps < 0 ? total : each * (double)(steps - step);

    snprintf(buf, size, "%s %s", duration_text(shown, time, sizeof time), pace_text(each, per, sizeof per));
}

static double share_of(int64_t step, int64_t steps)
{
    return steps > 0 ? (double)step / (double)steps : 0;
}

static void train_line(progress *p, const manta_event *e, bool over, const char *note)
{
    char left[64], right[80];

    counter_text(p->step, p->steps, left, sizeof left);
    times_text(p->step, p->steps, p->train_seconds, e->seconds, over, right, sizeof right);
    draw_line(p, left, over ? 1 : share_of(p->step, p->steps), right, e->metrics, note, over);
    if (over) progress_break(p);
}

static void plain_line(progress *p, const manta_event *e, const char *note)
{
    char left[64], time[32], per[32], line[LINE] = "";

    counter_text(p->step, p->steps, left, sizeof left);
    add_metrics(line, e->metrics, 0, -1);
    print_out("Epoch %lld/%lld - %s - %s - %s%s%s\n", (long long)e->epoch + 1, (long long)e->epochs, left,
              duration_text(e->seconds, time, sizeof time),
              pace_text(p->step > 0 ? p->train_seconds / (double)p->step : 0, per, sizeof per), line,
              note ? note : "");
    p->drawn_ms = now_ms();
    cli_flush();
}

static void show_validation(progress *p, const manta_event *e)
{
    char left[64], note[80];

    if (!p->terminal || !is_due(p)) return;
    if (!e->epochs) { /* an evaluation by itself */
        p->step = e->step;
        p->steps = e->steps;
        p->train_seconds = e->seconds;
        train_line(p, e, false, "");
        return;
    }
    counter_text(e->step, e->steps, left, sizeof left);
    snprintf(note, sizeof note, " - validating %s", left);
    train_line(p, e, false, note);
}

void progress_show(progress *p, const manta_event *e)
{
    switch (e->kind) {
    case MANTA_EVENT_EPOCH_BEGIN:
        p->steps = e->steps;
        p->step = 0;
        p->train_seconds = 0;
        p->drawn_ms = p->terminal ? 0 : now_ms();
        if (p->terminal) print_out("Epoch %lld/%lld\n", (long long)e->epoch + 1, (long long)e->epochs);
        break;
    case MANTA_EVENT_STEP:
        p->step = e->step;
        p->train_seconds = e->seconds;
        if (!is_due(p)) break;
        if (p->terminal) {
            train_line(p, e, false, p->note ? p->note : "");
        } else {
            plain_line(p, e, p->note);
        }
        break;
    case MANTA_EVENT_VALIDATE_STEP: show_validation(p, e); break;
    case MANTA_EVENT_EPOCH_END:
        if (p->terminal) {
            train_line(p, e, true, "");
        } else {
            plain_line(p, e, NULL);
        }
        break;
    case MANTA_EVENT_WORKER_LEFT:
        if (strcmp(e->cause, "on request") != 0) break; /* a failure has a block of its own */
        progress_break(p);
        print_out("Worker %d (process %lld) left: %s\n", e->rank, (long long)e->pid, e->cause);
        break;
    case MANTA_EVENT_BEGIN:
    case MANTA_EVENT_RECOVERED:
    case MANTA_EVENT_WAITING:
    case MANTA_EVENT_WORKER:
    case MANTA_EVENT_VALIDATE:
    case MANTA_EVENT_END: break;
    }
}

/* ---- other work ---- */

void progress_evaluated(progress *p, int64_t steps, double seconds, const manta_metrics *m)
{
    char left[64], right[80], time[32], per[32], line[LINE] = "";

    counter_text(steps, steps, left, sizeof left);
    if (p->terminal) {
        times_text(steps, steps, seconds, seconds, true, right, sizeof right);
        draw_line(p, left, 1, right, m, "", true);
        progress_break(p);
        return;
    }
    add_metrics(line, m, 0, -1);
    print_out("%s - %s - %s%s\n", left, duration_text(seconds, time, sizeof time),
              pace_text(steps > 0 ? seconds / (double)steps : 0, per, sizeof per), line);
    cli_flush();
}

void progress_bytes(progress *p, const char *file, int64_t done, int64_t total)
{
    char right[64];
    const char *slash = strrchr(file, '/');

    if (!p->terminal || (!is_due(p) && done != total)) return;
    if (total > 0) {
        snprintf(right, sizeof right, "%.1f of %.1f MB", (double)done / 1e6, (double)total / 1e6);
    } else {
        snprintf(right, sizeof right, "%.1f MB", (double)done / 1e6);
    }
    draw_line(p, slash ? slash + 1 : file, share_of(done, total), right, NULL, "", false);
}
