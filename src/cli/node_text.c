/* node_text.c - see node_text.h. */
#include "cli/node_text.h"

#include <stdio.h>

char *node_text_size(char text[32], uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int i = 0;

    for (; x >= 1024 && i < 4; i++) x /= 1024;
    snprintf(text, 32, i ? "%.1f %s" : "%.0f %s", x, units[i]);
    return text;
}

char *node_text_time(char text[32], int64_t ns)
{
    double s = (double)ns * 1e-9;

    if (s < 1)
        snprintf(text, 32, "%.1f ms", s * 1e3);
    else if (s < 60)
        snprintf(text, 32, "%.1f s", s);
    else if (s < 3600)
        snprintf(text, 32, "%d m %d s", (int)s / 60, (int)s % 60);
    else
        snprintf(text, 32, "%d h %d m", (int)(s / 3600), (int)s / 60 % 60);
    return text;
}
