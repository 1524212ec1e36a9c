/* scratch.h - a folder of a test's own, and files in it. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temp.h"

static char scratch_dir[64];

static inline int scratch_setup(void **state)
{
    (void)state;
    return temp_folder(scratch_dir, sizeof scratch_dir, "/tmp", "test") ? 0 : -1;
}

static inline int scratch_setup_quick(void **state)
{
    (void)state;
    return temp_folder(scratch_dir, sizeof scratch_dir, temp_quick(), "test") ? 0 : -1;
}

static inline int scratch_remove_one(const char *path, const struct stat *sb, int flag, struct FTW *ftw)
{
    (void)sb;
    (void)flag;
    (void)ftw;
    return remove(path);
}

/* A file, or a folder with all that is in it. */
static inline int scratch_remove(const char *path)
{
    return nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    return scratch_remove(scratch_dir);
}

/* The path of `name` in the folder; one of eight static buffers in turn. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][512];
    static int next;
    char *p = paths[next++ % 8];

    snprintf(p, sizeof paths[0], "%s/%s", scratch_dir, name);
    return p;
}

static inline const char *scratch_file(const char *name, const void *data, size_t n)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");

    if (!f || fwrite(data, 1, n, f) != n || fclose(f)) abort();
    return path;
}

#endif
