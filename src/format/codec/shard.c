/* shard.c - which part of a source one of several workers reads. */
#include "format/codec/shard.h"

#include "base/log.h"
#include "base/mem.h"

static bool is_divided(const manta_open_options *o)
{
    return o->shards > 1 && o->shard_policy != MANTA_SHARD_POLICY_OFF;
}

/* By file only if every part then has one. */
static bool is_by_file(const manta_open_options *o, size_t files)
{
    if (o->shard_policy == MANTA_SHARD_POLICY_FILE) return true;
    return o->shard_policy == MANTA_SHARD_POLICY_AUTO && files >= (size_t)o->shards;
}

manta_status shard_files(const manta_open_options *o, const char *what, file_names *files)
{
    size_t kept = 0;

    if (!is_divided(o) || !is_by_file(o, files->n)) return MANTA_OK;
    if (files->n < (size_t)o->shards) {
        return manta_fail(
            MANTA_EINVAL,
            "dataset '%s': %zu file%s for %d workers; dividing by file needs one for each, dividing "
            "by sample (DATA) does not",
            what, files->n, files->n == 1 ? "" : "s", o->shards);
    }
    for (size_t i = 0; i < files->n; i++) {
        if (i % (size_t)o->shards == (size_t)o->shard) {
            files->at[kept++] = files->at[i];
        } else {
            mem_free(files->at[i]);
        }
    }
    files->n = kept;
    return MANTA_OK;
}

manta_dataset *shard_samples(const manta_open_options *o, size_t files, manta_dataset *d)
{
    if (!is_divided(o)) return d;
    if (o->shard_policy == MANTA_SHARD_POLICY_AUTO)
        log_info("data divided among workers", LOG_STR("policy", is_by_file(o, files) ? "FILE" : "DATA"),
                 LOG_INT("files", (int64_t)files), LOG_INT("workers", o->shards));
    return is_by_file(o, files) ? d : manta_dataset_shard(d, o->shards, o->shard);
}
