/* model_fuzz.c - a file of a model or of weights, taken for what its contents
 * are: by itself, and likened to a small model. This is where legacy HDF5 files,
 * Keras's weights and the matching of names and shapes are reached. The first
 * inputs are of manta model and manta convert, and of Keras. */
#include <manta/file.h>
#include <manta/model.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fuzz.h"

static manta_model *like;
static int fd = -1;
static char path[40];

static void begin(void)
{
    if (log_level_named("off")) abort(); /* what is left in a file is told, thousands of times */
    if (manta_zoo("linear", &like)) abort();
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
}

/* What was read is whole: every array has its bytes, and a model's variables are there. */
static void look(const manta_saved *s)
{
    const manta_model *m = manta_saved_model(s);
    unsigned sum = 0;

    for (int i = 0; i < manta_saved_arrays(s); i++) {
        const manta_column *c = manta_saved_at(s, i);
        size_t n = manta_array_bytes(&c->array);
        if (!c->name || manta_saved_find(s, c->name) != &c->array) abort();
        if (n) sum += ((const uint8_t *)c->array.data)[0] + ((const uint8_t *)c->array.data)[n - 1];
    }
    for (int i = 0; m && i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        const manta_array *a = manta_saved_find(s, v.name);
        if (a && a->ndim != v.ndim) abort();
    }
    static volatile unsigned sink;
    sink = sum;
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fd < 0) begin();
    if (ftruncate(fd, 0) || pwrite(fd, data, size, 0) != (ssize_t)size) abort();
    for (int k = 0; k < 2; k++) {
        int64_t live = mem_live();
        manta_saved *s = NULL;
        manta_status st = manta_file_read(path, &(manta_read_options){.like = k ? like : NULL}, &s);
        fuzz_expect(st);
        if (!st) look(s);
        manta_saved_free(s);
        fuzz_balance(live);
    }
    return 0;
}
