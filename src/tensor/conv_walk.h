/* tensor/conv_walk.h - which taps of a convolution see data, where.
 *
 * A pass over a map (the output when going forward, the input when going back)
 * asks for each of its rows and columns which taps reach into the other map,
 * and where. That is the same question in both dimensions and is answered once
 * per call by a table; columns that agree about their taps and lie evenly
 * apart form a run, which one register tile can take several of. */
#ifndef TENSOR_CONV_WALK_H
#define TENSOR_CONV_WALK_H

#include "tensor/conv.h"

/* One dimension of a pass over a map. */
typedef struct conv_dim {
    int64_t size; /* size of the map that is walked over */
    int64_t other; /* size of the map that the taps reach into */
    int64_t taps, stride, dilation, before;
    bool back; /* the walk goes from input to output: a tap exists where the stride divides */
} conv_dim;

typedef struct conv_tap {
    int32_t tap, at; /* at: place in the other map */
} conv_tap;

/* Columns first, first + step, ... of equal taps; the place a tap reaches moves
 * by `move` from one to the next. */
typedef struct conv_run {
    int32_t first, step, count, move;
} conv_run;

typedef struct conv_walk {
    conv_dim rows, cols;
    int32_t *n_row_taps, *n_col_taps;
    conv_tap *row_taps, *col_taps; /* taps of place i at i * taps */
    conv_run *runs; /* the runs that are worth a tile of their own */
    int32_t *singles; /* the columns in no run: tiles take them across samples */
    int32_t n_runs, n_singles;
} conv_walk;

/* Whether each output channel sees one input channel, its own. */
bool conv_is_depthwise(const conv_shape *s);

/* Bytes of the tables of either pass. */
size_t conv_walk_size(const conv_shape *s);

/* Fills the tables of one pass in `memory`, 64-byte aligned, conv_walk_size() bytes. */
void conv_walk_init(conv_walk *w, const conv_shape *s, bool back, void *memory);

#endif
