/* train/checkpoint/manifest.h - what a checkpoint says about itself.
 *
 *   {"manta_checkpoint":1, "sequence":3, "epoch":1, "step":50, "iterations":150,
 *    "metrics":{"loss":0.31}, "notes":{...},
 *    "files":[{"name":"state.safetensors","size":1234,"crc32c":"89abcdef"}],
 *    "crc32c":"01234567"}
 *
 * The last crc32c is that of the object without it, as manifest_text() writes
 * it: no bit of the manifest itself can turn unnoticed. */
#ifndef TRAIN_CHECKPOINT_MANIFEST_H
#define TRAIN_CHECKPOINT_MANIFEST_H

#include <manta/checkpoint.h>

#include "base/vec.h"
#include "os/file.h"

#define MANIFEST_NAME "manifest.json"

typedef struct manifest_file {
    char *name; /* relative to the checkpoint, never upwards; owned */
    file_sum sum;
} manifest_file;

typedef struct manifest {
    manta_checkpoint_info info; /* notes: owned here */
    VEC(manta_note) notes; /* owned, texts too */
    VEC(manifest_file) files;
} manifest;

/* Copies info; its notes too. m is zeroed memory. */
void manifest_init(manifest *m, const manta_checkpoint_info *info);
void manifest_add(manifest *m, const char *name, file_sum sum);
void manifest_release(manifest *m); /* accepts zeroed memory */

/* Whether a file of a checkpoint can be called `name`: in UTF-8, and not as the manifest is. */
bool manifest_can_name(const char *name);

/* The text of the manifest; owned by the caller, free(). */
char *manifest_text(const manifest *m);

/* Reads a manifest; `path` is for sentences. MANTA_ECORRUPT.
 * *out is zeroed memory; to be released also on failure. */
manta_status manifest_parse(const char *path, const char *text, size_t n, manifest *out) MANTA_MUST_USE;

/* Whether a greater value of this metric is better. order: "max", "min", NULL
 * or "auto": as its name tells. */
bool manifest_greater_is_better(const char *metric, const char *order);

#endif
