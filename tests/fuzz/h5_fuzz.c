/* h5_fuzz.c - HDF5 files, as a tree of groups, and as a file of weights alone. */
#include "format/hdf5/h5.h"
#include "format/keras/keras_state.h"
#include "fuzz.h"

static void walk(h5_file *f, const char *at, int depth, int *left)
{
    h5_names names = {0};
    manta_status st = h5_list(f, at, &names);

    fuzz_expect(st);
    for (size_t i = 0; i < names.n && !st && --*left > 0; i++) {
        char *path = mem_printf("%s%s%s", at, *at ? "/" : "", names.at[i]);
        manta_saved *s = mem_new(sizeof *s);
        h5_names texts = {0};
        bool found;
        h5_kind kind;
        manta_status sub = h5_find(f, path, &kind);
        fuzz_expect(sub);
        if (!sub && kind == H5_DATASET) {
            int ndim;
            int64_t shape[MANTA_MAX_DIMS];
            fuzz_expect(h5_shape(f, path, &ndim, shape));
            fuzz_expect(h5_read(f, path, s, "x"));
        }
        if (!sub && kind == H5_GROUP) {
            fuzz_expect(h5_texts(f, path, "weight_names", &texts, &found));
            h5_names_release(&texts);
            if (depth < 8) walk(f, path, depth + 1, left);
        }
        manta_saved_free(s);
        mem_free(path);
    }
    h5_names_release(&names);
}

static void read_texts(h5_file *f)
{
    static const char *const names[] = {"layer_names", "many", "fixed", "list", "text-1", "fixed-long"};
    char *text = NULL;

    fuzz_expect(h5_text(f, "", "model_config", 1 << 20, &text));
    mem_free(text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        h5_names texts = {0};
        bool found;
        fuzz_expect(h5_texts(f, i < 4 ? "" : "links", names[i], &texts, &found));
        h5_names_release(&texts);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    uint8_t *copy = mem_try_raw(size + 1); /* aligned, as readers are given it */
    h5_file *f = NULL;
    int left = 200;
    manta_status st;

    if (size) memcpy(copy, data, size);
    st = h5_open("fuzz", copy, size, &f);
    fuzz_expect(st);
    if (!st) {
        manta_saved *s = mem_new(sizeof *s);
        manta_read_options all = {0};
        read_texts(f);
        walk(f, "", 0, &left);
        fuzz_expect(keras_weights_read("fuzz", f, &all, s));
        manta_saved_free(s);
    }
    h5_close(f);
    mem_try_free(copy);
    fuzz_balance(live);
    return 0;
}
