/* inspect.h - the kinds of things that manta inspect shows, a file each.
 *
 * Each prints a table for people or, with json, one object whose "kind" says
 * which: model, outline, arrays, checkpoint, events, onnx, dataset, table. Those that open a file return
 * the exit status, having said why when it is not 0. */
#ifndef CLI_INSPECT_H
#define CLI_INSPECT_H

#include <jansson.h>

#include <manta/data.h>
#include <manta/file.h>

/* A built model; s: the file it comes from, or NULL for one of the zoo. */
void inspect_model(const manta_model *m, const manta_saved *s, const char *path, bool json);

/* The layers of a file whose model Manta does not have, which the last failure says; it is the status that is
 * returned, with its sentence, also where the file lists no layers. */
int inspect_outline(const char *path, bool json);

/* Named arrays without a model. */
void inspect_saved(const manta_saved *s, const char *path, bool json);
int inspect_npy(const char *path, bool json);

/* A checkpoint's folder, of which every byte is checked. */
int inspect_checkpoint(const char *path, bool json);

int inspect_onnx(const char *path, bool json);

/* Whether path is an event file, or a folder with one somewhere in it. */
bool inspect_is_events(const char *path);
int inspect_events(const char *path, bool json);

/* Whether spec is what manta_dataset_open() takes, by its name. */
bool inspect_is_data(const char *spec);
int inspect_data(const char *spec, bool json);
/* What a dataset is made of. */
json_t *inspect_dataset_json(manta_dataset *d, const char *spec);

/* Whether path is the name of a file that is a table, no columns chosen. */
bool inspect_is_table(const char *path);
int inspect_table(const char *path, bool json);
/* Shows a Parquet file as a table, if it is one whose columns all are such as a table has. */
bool inspect_if_table(const char *path, bool json);

/* What an optimizer, losses and metrics of a file are set to. */
void inspect_compiled(const manta_saved *s);
void inspect_compiled_json(const manta_saved *s, json_t *to);

/* How often the optimizer was called, by its state in the file; -1: it does not say. */
int64_t inspect_iterations(const manta_saved *s);

/* ---- shared by them ---- */

/* Reads the first bytes of a regular file; 0 when it is none. */
size_t inspect_head(const char *path, char *head, size_t size);

/* A shape as Keras writes it, with None for -1. Returns buf. */
const char *inspect_shape(int ndim, const int64_t *shape, char *buf, size_t size);
json_t *inspect_shape_json(int ndim, const int64_t *shape);

/* "512 bytes", "1.24 MB". Returns buf. */
const char *inspect_size(int64_t bytes, char *buf, size_t size);

#endif
