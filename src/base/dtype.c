/* dtype.c - sizes and names of element types. */
#include <manta/array.h>

#include <string.h>

#include "base/args.h"
#include "base/suggest.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[MANTA_DTYPE_COUNT] = {
    [MANTA_DTYPE_F32] = {"float32", 4}, [MANTA_DTYPE_F64] = {"float64", 8},
    [MANTA_DTYPE_F16] = {"float16", 2}, [MANTA_DTYPE_BF16] = {"bfloat16", 2},
    [MANTA_DTYPE_I32] = {"int32", 4},   [MANTA_DTYPE_I64] = {"int64", 8},
    [MANTA_DTYPE_U8] = {"uint8", 1},    [MANTA_DTYPE_BOOL] = {"bool", 1},
};

static bool is_dtype(manta_dtype t)
{
    return (int)t >= 0 && (int)t < MANTA_DTYPE_COUNT;
}

size_t manta_dtype_size(manta_dtype t)
{
    return is_dtype(t) ? dtypes[t].size : 0;
}

const char *manta_dtype_name(manta_dtype t)
{
    return is_dtype(t) ? dtypes[t].name : "?";
}

manta_status manta_dtype_parse(const char *name, manta_dtype *out)
{
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    manta_suggestion near = manta_suggestion_for(name);
    char hint[SUGGEST_TEXT];

    for (int t = 0; t < MANTA_DTYPE_COUNT; t++) {
        if (strcmp(name, dtypes[t].name) == 0) {
            *out = (manta_dtype)t;
            return MANTA_OK;
        }
    }
    for (int t = 0; t < MANTA_DTYPE_COUNT; t++) manta_suggestion_offer(&near, dtypes[t].name);
    return manta_fail(
        MANTA_EINVAL,
        "there is no dtype \"%.80s\" (there are float32, float64, float16, bfloat16, int32, int64, "
        "uint8, bool)%s",
        name, manta_suggestion_text(&near, hint, sizeof hint));
}
