/* png_write.c - a picture, as PNG.
 *
 * A PNG is a signature and chunks: length, name, contents, crc32 of name and
 * contents. The contents of IDAT are the rows, each behind a byte that says how
 * it is filtered (0: not at all), compressed by zlib. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <manta/tool_png.h>

#include "base/args.h"
#include "base/mem.h"
#include "os/file.h"

enum { SIDE_MOST = 16384 };

static void put_u32(unsigned char *at, uint32_t v)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(v >> (24 - 8 * i));
}

static manta_status put_chunk(file_writer *w, const char *name, const unsigned char *data, size_t n)
{
    unsigned char head[8], tail[4];
    uLong sum;

    put_u32(head, (uint32_t)n);
    memcpy(head + 4, name, 4);
    sum = crc32(0, head + 4, 4);
    if (n) sum = crc32(sum, data, (uInt)n);
    put_u32(tail, (uint32_t)sum);
    TRY(file_writer_write(w, head, sizeof head));
    if (n) TRY(file_writer_write(w, data, n));
    return file_writer_write(w, tail, sizeof tail);
}

/* The rows, compressed. *out: owned, mem_try_free(). */
static manta_status pack_points(int width, int height, const uint8_t *points, unsigned char **out,
                                size_t *size)
{
    size_t row = 3 * (size_t)width, line = row + 1, n = line * (size_t)height;
    uLong room = compressBound((uLong)n);
    unsigned char *rows = NULL, *packed = NULL;
    manta_status st = mem_try_array((int64_t)n, 1, "rows of a picture", (void **)&rows);

    if (!st) st = mem_try_array((int64_t)room, 1, "a packed picture", (void **)&packed);
    for (int y = 0; !st && y < height; y++) {
        rows[line * (size_t)y] = 0;
        memcpy(rows + line * (size_t)y + 1, points + (size_t)y * row, row);
    }
    if (!st && compress2(packed, &room, rows, (uLong)n, Z_BEST_COMPRESSION) != Z_OK)
        st = manta_fail(MANTA_ENOMEM, "packing a picture: no memory is left");
    if (!st) {
        *out = packed;
        *size = room;
        packed = NULL;
    }
    mem_try_free(packed);
    mem_try_free(rows);
    return st;
}

manta_status manta_png_write(const char *path, int width, int height, const uint8_t *points)
{
    REFUSE_NULL(path);
    REFUSE_NULL(points);

    static const unsigned char signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    unsigned char head[13] = {0}, *packed = NULL;
    file_writer *w = NULL;
    size_t n = 0;
    manta_status st;

    if (width < 1 || height < 1 || width > SIDE_MOST || height > SIDE_MOST) {
        return manta_fail(MANTA_EINVAL, "%s: a picture of %d x %d points, expected 1 to %d each way", path,
                          width, height, SIDE_MOST);
    }
    put_u32(head, (uint32_t)width);
    put_u32(head + 4, (uint32_t)height);
    head[8] = 8; /* bits of a colour */
    head[9] = 2; /* red, green and blue */
    if ((st = pack_points(width, height, points, &packed, &n))) goto out;
    if ((st = file_writer_open(path, &w))) goto out;
    if ((st = file_writer_write(w, signature, sizeof signature))) goto out;
    if ((st = put_chunk(w, "IHDR", head, sizeof head))) goto out;
    if ((st = put_chunk(w, "IDAT", packed, n))) goto out;
    if ((st = put_chunk(w, "IEND", NULL, 0))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    mem_try_free(packed);
    return st;
}

manta_status manta_picture_write(const char *path, const void *data, size_t n)
{
    REFUSE_NULL(path);
    if (n) REFUSE_NULL(data);
    return file_replace(path, data, n);
}
