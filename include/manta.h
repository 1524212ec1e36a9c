/* manta.h - all of Manta's public interface. */
#ifndef MANTA_H
#define MANTA_H

#include <manta/array.h>
#include <manta/callback.h>
#include <manta/checkpoint.h>
#include <manta/cluster.h>
#include <manta/comm.h>
#include <manta/data.h>
#include <manta/data_file.h>
#include <manta/events.h>
#include <manta/file.h>
#include <manta/layer.h>
#include <manta/log.h>
#include <manta/loss.h>
#include <manta/model.h>
#include <manta/onnx.h>
#include <manta/op.h>
#include <manta/optimizer.h>
#include <manta/option.h>
#include <manta/recipe.h>
#include <manta/run.h>
#include <manta/status.h>
#include <manta/strategy.h>
#include <manta/node.h>
#include <manta/task.h>
#include <manta/tensor.h>
#include <manta/train.h>
#include <manta/trainer.h>
#include <manta/version.h>

#endif
