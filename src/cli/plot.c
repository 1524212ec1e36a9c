/* plot.c - curves of a run. */
#include "cli/plot.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/table.h"

enum { ROWS = 10, WIDTH = 640, PANEL = 220, LEFT = 80, TOP = 40, BOTTOM = 30 };

bool plot_range(const manta_run_series *s, double *lo, double *hi)
{
    bool some = false;

    for (int64_t i = 0; i < s->n; i++) {
        double v = s->points[i].value;
        if (!isfinite(v)) continue;
        if (!some || v < *lo) *lo = v;
        if (!some || v > *hi) *hi = v;
        some = true;
    }
    if (some && !isfinite(*hi - *lo)) return false; /* so far apart that no scale has both */
    if (some && *hi == *lo) {
        *lo -= 0.5;
        *hi += 0.5;
    }
    return some;
}

static int columns(void)
{
    struct winsize w;
    int n = isatty(1) && !ioctl(1, TIOCGWINSZ, &w) && w.ws_col ? w.ws_col : 80;

    return n < 40 ? 40 : n > 200 ? 200 : n;
}

/* The mean of the points that fall into column c of `width`; NaN: none. */
static double column_value(const manta_run_series *s, int c, int width)
{
    int64_t from = s->n * c / width, to = s->n * (c + 1) / width;
    double sum = 0;
    int count = 0;

    if (to == from) to = from + 1;
    for (int64_t i = from; i < to && i < s->n; i++) {
        if (!isfinite(s->points[i].value)) continue;
        sum += s->points[i].value;
        count++;
    }
    return count ? sum / count : (double)NAN;
}

void plot_terminal(const manta_run_series *s)
{
    int width = columns() - 14;
    double lo = 0, hi = 0;

    if (s->n < width) width = s->n < 1 ? 1 : (int)s->n * (width / (int)s->n);
    table_text(s->name);
    putchar('\n');
    if (!plot_range(s, &lo, &hi)) {
        printf("  no number in %" PRId64 " points\n\n", s->n);
        return;
    }
    for (int row = ROWS - 1; row >= 0; row--) {
        if (row == ROWS - 1 || row == 0) {
            printf("%11.4g |", row ? hi : lo);
        } else {
            printf("%11s |", "");
        }
        for (int c = 0; c < width; c++) {
            double v = column_value(s, c, width);
            int at = isnan(v) ? -1 : (int)lround((v - lo) / (hi - lo) * (ROWS - 1));
            putchar(at == row ? '*' : ' ');
        }
        putchar('\n');
    }
    printf("%11s +", "");
    for (int c = 0; c < width; c++) putchar('-');
    printf("\n%11s  step %" PRId64 " to %" PRId64 "\n\n", "", s->points[0].step, s->points[s->n - 1].step);
}

/* Text as XML has it. */
static void put_text(FILE *f, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<': fputs("&lt;", f); break;
        case '>': fputs("&gt;", f); break;
        case '&': fputs("&amp;", f); break;
        case '"': fputs("&quot;", f); break;
        default: fputc((unsigned char)*text < ' ' ? '?' : *text, f);
        }
    }
}

static void put_panel(FILE *f, const manta_run_series *s, int top)
{
    double lo = 0, hi = 0, first = (double)s->points[0].step, last = (double)s->points[s->n - 1].step;
    int width = WIDTH - LEFT - 20, height = PANEL - BOTTOM - 20;
    bool drawing = false;

    fprintf(f, "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">", LEFT, top + 12);
    put_text(f, s->name);
    fprintf(f,
            "</text>\n<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#bbb\"/>\n",
            LEFT, top + 20, width, height);
    if (!plot_range(s, &lo, &hi)) return;
    if (last <= first) last = first + 1;
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6, top + 30, hi);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%.4g</text>\n", LEFT - 6, top + 20 + height, lo);
    fprintf(f, "<text x=\"%d\" y=\"%d\">%" PRId64 "</text>\n", LEFT, top + 34 + height, s->points[0].step);
    fprintf(f, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step %" PRId64 "</text>\n", LEFT + width,
            top + 34 + height, s->points[s->n - 1].step);
    fputs("<path fill=\"none\" stroke=\"#1565c0\" stroke-width=\"1.5\" d=\"", f);
    for (int64_t i = 0; i < s->n; i++) {
        double v = s->points[i].value;
        if (!isfinite(v)) { /* a gap */
            drawing = false;
            continue;
        }
        fprintf(f, "%c%.1f %.1f", drawing ? 'L' : 'M',
                LEFT + width * ((double)s->points[i].step - first) / (last - first),
                top + 20 + height * (hi - v) / (hi - lo));
        drawing = true;
    }
    fputs("\"/>\n", f);
}

manta_status plot_svg(const char *path, const char *title, const manta_run_series *s, int n)
{
    FILE *f = fopen(path, "w");
    bool fine;

    if (!f) return manta_fail(MANTA_EIO, "%s: %s", path, strerror(errno));
    fprintf(
        f,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"24\" "
        "font-size=\"16\">",
        WIDTH, TOP + n * PANEL, LEFT);
    put_text(f, title);
    fputs("</text>\n", f);
    for (int i = 0; i < n; i++) put_panel(f, &s[i], TOP + i * PANEL);
    fputs("</svg>\n", f);
    fine = !ferror(f);
    if (fclose(f) || !fine)
        return manta_fail(MANTA_EIO, "%s: it could not be written: %s", path, strerror(errno));
    return MANTA_OK;
}
