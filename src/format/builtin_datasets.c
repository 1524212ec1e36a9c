/* builtin_datasets.c - the datasets that Manta knows by name. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "format/builtin_datasets.h"
#include "os/file.h"

/* The checksums are of the unpacked contents: mirrors pack the same images differently. */
static const builtin_dataset sets[] = {
    {.name = "mnist",
     .url = "https://ossci-datasets.s3.amazonaws.com/mnist",
     .files =
         {{"train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
          {"train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
          {"t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
          {"t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}},
     .classes = 10},
    {.name = "fashion-mnist",
     .url = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
     .files =
         {{"train-images-idx3-ubyte.gz", "55828370b9a3c1191a460e15258cbd3b2a66c89a3d928ab323a7ee76699d0ca1"},
          {"train-labels-idx1-ubyte.gz", "184ccf885c889e561f6f466124387548d27083da919d951b700a12588f522f8d"},
          {"t10k-images-idx3-ubyte.gz", "ff67a712756423b4bff4f706e58ec81947fd0c09498cb6f4e20a073864c77e52"},
          {"t10k-labels-idx1-ubyte.gz", "0162fe28518cea5e443604a46c4131dacad9ee0db836b5a9f99287fbac75f2d4"}},
     .classes = 10},
};

#define SETS (sizeof sets / sizeof sets[0])

bool builtin_is_name(const char *text, size_t n)
{
    for (size_t i = 0; i < SETS; i++) {
        if (strlen(sets[i].name) == n && strncmp(sets[i].name, text, n) == 0) return true;
    }
    return false;
}

const builtin_dataset *builtin_find(const char *name)
{
    for (size_t i = 0; i < SETS; i++) {
        if (strcmp(sets[i].name, name) == 0) return &sets[i];
    }
    return NULL;
}

const char *builtin_names(void)
{
    return "mnist, fashion-mnist";
}

const char *builtin_near(const char *typed, char *out, size_t size)
{
    return suggest_among(typed, 2, (const char *const[]){"mnist", "fashion-mnist"}, out, size);
}

static const char *environment_text(const char *name)
{
    const char *v = getenv(name);

    return v && v[0] ? v : NULL;
}

manta_status builtin_cache_dir(char **out)
{
    const char *xdg = environment_text("XDG_CACHE_HOME"), *home = environment_text("HOME");

    if (xdg) {
        *out = mem_printf("%s/manta/data", xdg);
    } else if (home) {
        *out = mem_printf("%s/.cache/manta/data", home);
    } else {
        return manta_fail(MANTA_ENOENT,
                          "data: there is no cache folder, neither XDG_CACHE_HOME nor HOME is set");
    }
    return MANTA_OK;
}

/* ---- looking ------------------------------------------------------------------ */

typedef struct search {
    const builtin_dataset *set;
    const char *file;
    buf tried; /* folders looked in, for the sentence */
    char *found;
} search;

/* Looks for DIR/SET/FILE, packed as named or unpacked. */
static bool try_dir(search *s, const char *dir)
{
    file_info info;
    char *path = mem_printf("%s/%s/%s", dir, s->set->name, s->file);

    for (int unpacked = 0; unpacked < 2; unpacked++) {
        if (unpacked) path[strlen(path) - strlen(".gz")] = '\0';
        if (file_stat(path, &info) == MANTA_OK && info.is_file) {
            s->found = path;
            return true;
        }
    }
    mem_free(path);
    return false;
}

static bool look_in(search *s, const char *dir)
{
    if (!dir) return false;
    buf_printf(&s->tried, "%s%s", s->tried.n ? ", " : "", dir);
    return try_dir(s, dir);
}

/* Folders above the library or program that we are part of: a build lies in
 * its source tree, and an installation may have been moved. */
static bool look_beside_us(search *s)
{
    Dl_info us;
    bool found = false;

    if (!dladdr((const void *)(uintptr_t)&builtin_is_name, &us) || !us.dli_fname) return false;
    char *dir = realpath(us.dli_fname, NULL);
    for (int up = 0; dir && up < 5 && !found; up++) {
        char *slash = strrchr(dir, '/');
        if (!slash || slash == dir) break;
        *slash = '\0';
        char *data = mem_printf("%s/data", dir), *share = mem_printf("%s/share/manta/data", dir);
        found = try_dir(s, data) || try_dir(s, share);
        mem_free(data);
        mem_free(share);
    }
    free(dir); /* realpath's own allocation */
    return found;
}

manta_status builtin_locate(const builtin_dataset *set, int file, const char *first, char **out)
{
    search s = {.set = set, .file = set->files[file].name};
    char *cache = NULL;
    manta_status st = MANTA_OK;

    if (builtin_cache_dir(&cache)) cache = NULL; /* then there is none to look in */
    if (look_in(&s, first ? first : environment_text("MANTA_DATA")) || look_in(&s, cache) ||
        look_in(&s, MANTA_DATA_DIR) || look_beside_us(&s)) {
        *out = s.found;
    } else {
        st = manta_fail(MANTA_ENOENT, "%s: %s/%s is in none of %s; get it with: manta data fetch %s",
                        set->name, set->name, s.file, buf_text(&s.tried), set->name);
    }
    buf_release(&s.tried);
    mem_free(cache);
    return st;
}
