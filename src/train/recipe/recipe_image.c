/* recipe_image.c - images shaped as the settings "resize", "crop", "channels" and "augment" say.
 *
 * All images are resized, then cut: out of the middle, or where "augment" has a crop and they are trained
 * on, at a place that is drawn. What else augments comes behind that. Each draws from a seed of its own,
 * made of the setting "seed". */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "train/recipe/choice.h"
#include "train/recipe/recipe.h"

enum { SIDE_MOST = 16384 };

/* A side at *text, which goes on behind its digits; 0: it is none that can be. */
static int read_side(const char **text)
{
    char *end;
    long n = **text >= '0' && **text <= '9' ? strtol(*text, &end, 10) : 0;

    if (n < 1 || n > SIDE_MOST) return 0;
    *text = end;
    return (int)n;
}

/* "64x48", or "64" for a square, of a setting. Both 0: it is not set. */
static manta_status read_size(manta_recipe *r, const char *setting, int *height, int *width)
{
    const char *text = recipe_text(r, setting), *at = text;

    *height = *width = 0;
    if (!text) return MANTA_OK;
    *height = *width = read_side(&at);
    if (*height && *at == 'x') {
        at++;
        *width = read_side(&at);
    }
    if (*height && *width && !*at) return MANTA_OK;
    return recipe_fail(r, setting, "'%.40s', expected HEIGHTxWIDTH such as 64x64, each 1 to %d", text,
                       SIDE_MOST);
}

manta_status recipe_image_options(manta_recipe *r, manta_open_options *how)
{
    TRY(read_size(r, "resize", &how->image_height, &how->image_width));
    TRY(recipe_small(r, "channels", 0, 3, &how->image_channels));
    if (how->image_channels != 2) return MANTA_OK;
    return recipe_fail(r, "channels", "2, expected 1 for grey or 3 for red, green and blue");
}

/* The height and width of column x; false: it is no image. */
static bool find_size(const manta_dataset *d, int64_t *height, int64_t *width)
{
    const manta_column_spec *c;
    int n = manta_dataset_columns(d, &c);

    for (int i = 0; i < n; i++) {
        if (strcmp(c[i].name, "x") || (c[i].ndim != 2 && c[i].ndim != 3)) continue;
        *height = c[i].shape[0];
        *width = c[i].shape[1];
        return true;
    }
    return false;
}

/* What "augment" says. */
typedef struct augmentation {
    bool crop;
    int64_t pad;
    double flip, rotation, brightness, contrast, saturation;
} augmentation;

static manta_status read_augmentation(manta_recipe *r, augmentation *a)
{
    const char *text = recipe_text(r, "augment");
    char word[96], *whole = mem_printf("augment:%s", text ? text : "");
    choice c;
    manta_status st = MANTA_OK;

    *a = (augmentation){0};
    if (text) {
        choice_init(&c, recipe_word(r, "augment", word, sizeof word), whole);
        const char *flip = choice_value(&c, "flip", NULL);
        a->flip = flip && strcmp(flip, "yes") != 0 ? choice_real(&c, "flip", NULL, 0) : flip ? 0.5 : 0;
        a->crop = choice_value(&c, "crop", NULL) != NULL;
        a->pad = choice_count(&c, "crop", NULL, 0);
        a->rotation = choice_real(&c, "rotation", NULL, 0);
        a->brightness = choice_real(&c, "brightness", NULL, 0);
        a->contrast = choice_real(&c, "contrast", NULL, 0);
        a->saturation = choice_real(&c, "saturation", NULL, 0);
        if (a->pad > SIDE_MOST) choice_fail(&c, "crop=%lld, expected up to %d", (long long)a->pad, SIDE_MOST);
        st = choice_done(&c, "flip, crop, rotation, brightness, contrast, saturation");
        choice_release(&c);
    }
    mem_free(whole);
    return st ? recipe_blame(r, "augment", st) : MANTA_OK;
}

/* Each use of the seed has numbers of its own. */
static uint64_t seed_for(const manta_recipe *r, uint64_t use)
{
    return (uint64_t)recipe_int(r, "seed", 0) * 0x9e3779b97f4a7c15u + 0x6175676d656e7400u + use;
}

/* Cuts images to the size of "crop", or for an augmentation of it to the size that they have. */
static manta_status crop_images(manta_recipe *r, const augmentation *a, manta_dataset **d)
{
    int64_t h = 0, w = 0;
    int height, width;

    TRY(read_size(r, "crop", &height, &width));
    if (!a->crop) {
        if (height) *d = manta_dataset_center_crop(*d, "x", height, width);
        return MANTA_OK;
    }
    find_size(*d, &h, &w);
    *d = manta_dataset_random_crop(*d, "x", (int)a->pad, height ? height : (int)h, width ? width : (int)w,
                                   seed_for(r, 1));
    return MANTA_OK;
}

manta_status recipe_shape_images(manta_recipe *r, bool training, manta_dataset **d)
{
    augmentation a;
    int64_t h, w;
    int height, width;

    TRY(read_size(r, "resize", &height, &width));
    TRY(read_augmentation(r, &a));
    if (!training) a = (augmentation){0};
    if (height && !(find_size(*d, &h, &w) && h == height && w == width))
        *d = manta_dataset_resize(*d, "x", height, width);
    TRY(crop_images(r, &a, d));
    if (a.flip != 0) *d = manta_dataset_random_flip(*d, "x", a.flip, seed_for(r, 2));
    if (a.rotation != 0) *d = manta_dataset_random_rotation(*d, "x", a.rotation, seed_for(r, 3));
    if (a.brightness != 0 || a.contrast != 0 || a.saturation != 0)
        *d = manta_dataset_random_color(*d, "x", a.brightness, a.contrast, a.saturation, seed_for(r, 4));
    return MANTA_OK;
}
