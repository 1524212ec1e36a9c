/* manta.h - all of Manta's public interface.
 *
 * What is checked. A function refuses a NULL where its comment does not allow one, a
 * number that no constant of an enumeration has, a negative count and a size that
 * overflows. It changes nothing then and returns MANTA_EINVAL with a sentence that names
 * function and argument ("manta_fit: s is NULL"). One that returns no status records
 * the sentence (manta_error_text()) and returns what stands for nothing: NULL, 0,
 * false, zeroed memory. A layer or value that cannot be latches in its model, a stage in
 * its dataset. Frees and closes accept NULL.
 *
 * What is not. A pointer that is not NULL is taken at its word: memory that was given
 * back, freed twice, or is smaller than was said is undefined behaviour, as everywhere
 * in C. */
#ifndef MANTA_H
#define MANTA_H

#include <manta/actor.h>
#include <manta/array.h>
#include <manta/callback.h>
#include <manta/checkpoint.h>
#include <manta/cluster.h>
#include <manta/code.h>
#include <manta/comm.h>
#include <manta/context.h>
#include <manta/data.h>
#include <manta/data_file.h>
#include <manta/events.h>
#include <manta/failure.h>
#include <manta/file.h>
#include <manta/layer.h>
#include <manta/log.h>
#include <manta/loss.h>
#include <manta/map.h>
#include <manta/model.h>
#include <manta/node.h>
#include <manta/nursery.h>
#include <manta/object.h>
#include <manta/onnx.h>
#include <manta/op.h>
#include <manta/optimizer.h>
#include <manta/option.h>
#include <manta/packed.h>
#include <manta/placement.h>
#include <manta/pool.h>
#include <manta/queue.h>
#include <manta/recipe.h>
#include <manta/run.h>
#include <manta/status.h>
#include <manta/strategy.h>
#include <manta/stream.h>
#include <manta/table.h>
#include <manta/task.h>
#include <manta/tensor.h>
#include <manta/train.h>
#include <manta/trainer.h>
#include <manta/value.h>
#include <manta/version.h>
#include <manta/watch.h>

#endif
