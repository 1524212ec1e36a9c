/* recorded.h - the files that other programs wrote, and all that one dataset holds. */
#ifndef TEST_RECORDED_H
#define TEST_RECORDED_H

#include <stdio.h>

#include <manta/data.h>

#include "ok.h"

/* Where files of TensorFlow, PyTorch, pyarrow and others lie; see tests/golden/README.md. */
#define GOLDEN MANTA_SOURCE_DIR "/tests/golden/files/"

/* The path of the recorded file `name`, in a static buffer until the next call. */
static inline const char *golden(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, GOLDEN "%s", name);
    return path;
}

/* All samples of d as one batch, valid until the caller closes the returned loader. */
static inline manta_loader *whole_batch(manta_dataset *d, manta_batch *b)
{
    manta_loader *l = NULL;

    assert_ok(manta_loader_open(
        d, &(manta_loader_options){.batch_size = manta_dataset_count(d), .readers = -1}, &l));
    if (!manta_loader_next(l, b)) fail_msg("%d: %s", manta_loader_status(l), manta_error_text());
    return l;
}

#endif
