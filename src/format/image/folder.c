/* folder.c - a folder of images, one sub-folder per class. */
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/vec.h"
#include "data/source.h"
#include "format/codec/input.h"
#include "format/image/folder.h"
#include "format/image/picture.h"
#include "os/file.h"

typedef struct item {
    char *path;
    int64_t label;
} item;

typedef struct folder {
    VEC(item) items;
    int height, width, channels;
    bool resize;
} folder;

static void folder_free(void *ctx)
{
    folder *f = ctx;

    for (size_t i = 0; i < f->items.n; i++) mem_free(f->items.at[i].path);
    vec_release(&f->items);
    mem_free(f);
}

static bool is_image(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot && dot != name &&
           (!strcasecmp(dot, ".png") || !strcasecmp(dot, ".jpg") || !strcasecmp(dot, ".jpeg"));
}

static manta_status read_image(void *ctx, void *state, int64_t i, void *const *out)
{
    const folder *f = ctx;
    const item *it = &f->items.at[i];
    input in = {0};
    picture p = {0};
    manta_status st;

    (void)state;
    if (out[1]) memcpy(out[1], &it->label, sizeof it->label);
    if (!out[0]) return MANTA_OK;
    if ((st = input_read(it->path, &in))) goto out;
    if ((st = picture_decode(it->path, in.data, in.size, f->channels, &p))) goto out;
    if (!f->resize && (p.height != f->height || p.width != f->width)) {
        st = manta_fail(
            MANTA_EINVAL,
            "%s: the image has %d x %d points, expected %d x %d as the first; give a size to resize to",
            it->path, p.height, p.width, f->height, f->width);
        goto out;
    }
    picture_resize(&p, f->height, f->width, out[0]);
out:
    picture_release(&p);
    input_release(&in);
    return st;
}

static manta_status add_class(folder *f, const char *path, int64_t label)
{
    file_names names = {0};

    TRY(file_list(path, &names));
    for (size_t i = 0; i < names.n; i++) {
        if (names.at[i][0] == '.' || !is_image(names.at[i])) continue;
        vec_push(&f->items, (item){mem_printf("%s/%s", path, names.at[i]), label});
    }
    file_names_release(&names);
    return MANTA_OK;
}

static manta_status collect_classes(folder *f, const char *path)
{
    file_names names = {0};
    manta_status st = file_list(path, &names);
    int64_t label = 0;

    for (size_t i = 0; i < names.n && !st; i++) {
        file_info info;
        if (names.at[i][0] == '.') continue;
        char *sub = mem_printf("%s/%s", path, names.at[i]);
        if (!(st = file_stat(sub, &info)) && info.is_folder) st = add_class(f, sub, label++);
        mem_free(sub);
    }
    file_names_release(&names);
    if (st) return st;
    if (!label)
        return manta_fail(MANTA_ENOENT, "%s: it has no sub-folders, expected one per class with images in it",
                          path);
    if (!f->items.n)
        return manta_fail(MANTA_ENOENT, "%s: no .png, .jpg or .jpeg file in its %lld classes", path,
                          (long long)label);
    return MANTA_OK;
}

static manta_status decide_shape(folder *f, const manta_open_options *o)
{
    const char *path = f->items.at[0].path;
    input in = {0};
    picture p = {0};

    if (o->image_height < 0 || o->image_width < 0 || (o->image_height > 0) != (o->image_width > 0) ||
        o->image_height > PICTURE_MAX_SIDE || o->image_width > PICTURE_MAX_SIDE) {
        return manta_fail(MANTA_EINVAL,
                          "image folder: a size of %d x %d, expected both sides or neither, at most %d",
                          o->image_height, o->image_width, PICTURE_MAX_SIDE);
    }
    if (o->image_channels != 0 && o->image_channels != 1 && o->image_channels != 3) {
        return manta_fail(MANTA_EINVAL, "image folder: %d channels, expected 1 or 3", o->image_channels);
    }
    TRY(input_read(path, &in));
    manta_status st = picture_size(path, in.data, in.size, &p);
    input_release(&in);
    if (st) return st;
    f->resize = o->image_height > 0;
    f->height = f->resize ? o->image_height : p.height;
    f->width = f->resize ? o->image_width : p.width;
    f->channels = o->image_channels ? o->image_channels : p.channels;
    return MANTA_OK;
}

manta_status folder_open(const char *path, const manta_open_options *o, manta_dataset **out)
{
    folder *f = mem_new(sizeof *f);
    manta_status st;

    if ((st = collect_classes(f, path)) || (st = decide_shape(f, o))) {
        folder_free(f);
        return st;
    }
    source_indexed s = {
        .count = (int64_t)f->items.n, .n = 2, .ctx = f, .read = read_image, .release = folder_free};
    s.columns[0] = (manta_column_spec){
        .name = "x", .dtype = MANTA_DTYPE_U8, .ndim = 3, .shape = {f->height, f->width, f->channels}};
    s.columns[1] = (manta_column_spec){.name = "y", .dtype = MANTA_DTYPE_I64};
    manta_dataset *d = source_from_reader(&s);
    if (!o->raw) d = manta_dataset_scale(d, "x", 255);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}
