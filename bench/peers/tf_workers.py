#!/usr/bin/env python3
"""TensorFlow's MultiWorkerMirroredStrategy beside `--workers N`: N processes of this batch each, one JSON line.

The tutorial's model through TF_CONFIG on loopback. Keras 3 cannot run this strategy, so
it is tf_keras. --loop fit is model.fit on a dataset, as the tutorial has it; --loop
function, about twice as fast, a compiled step of the user's own under strategy.run()
with ready-made batches."""
import argparse
import json
import os
import socket
import subprocess
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from measure import batches, options, report, timed


def start_all(args):
    """A process for each rank; they meet at ports that were free a moment ago."""
    held = [socket.socket() for _ in range(args.workers)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    cluster = {"worker": [f"127.0.0.1:{s.getsockname()[1]}" for s in held]}
    for s in held:
        s.close()
    children = []
    for rank in range(args.workers):
        env = dict(os.environ, TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": rank}}))
        children.append(subprocess.Popen([sys.executable, *sys.argv, "--rank", str(rank)], env=env,
                                         stdout=None if rank == 0 else subprocess.DEVNULL))
    return max(abs(c.wait()) for c in children)


def main():
    p = options(("mnist-cnn",))
    p.add_argument("--workers", type=int, default=2, metavar="N")
    p.add_argument("--loop", choices=("fit", "function"), default="fit")
    p.add_argument("--rank", type=int, default=-1, help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.rank < 0:
        return start_all(args)

    import tensorflow as tf
    import tf_keras as keras

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    L = keras.layers
    with strategy.scope():
        model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(),
                                  L.Dense(128, activation="relu"), L.Dense(10)])
        opt = keras.optimizers.SGD(0.001)
        opt.build(model.trainable_variables)
    all_of_them = args.batch * args.workers
    ready = [(tf.constant(x), tf.constant(y)) for x, y in batches(args.batch, 16)]

    if args.loop == "fit":
        with strategy.scope():
            model.compile(optimizer=opt, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        data = tf.data.Dataset.from_tensor_slices((tf.concat([x for x, _ in ready], 0), tf.concat([y for _, y in ready], 0)))
        o = tf.data.Options()
        o.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
        data = data.repeat().batch(all_of_them).prefetch(tf.data.AUTOTUNE).with_options(o)
        model.fit(data, steps_per_epoch=args.warmup, verbose=0)
        t = time.perf_counter()
        model.fit(data, steps_per_epoch=args.steps, verbose=0)
        seconds = [(time.perf_counter() - t) / args.steps]
    else:
        def replica(x, y):
            with tf.GradientTape() as tape:
                each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=model(x, training=True))
                value = tf.nn.compute_average_loss(each, global_batch_size=all_of_them)
            opt.apply_gradients(zip(tape.gradient(value, model.trainable_variables), model.trainable_variables))
            return value

        @tf.function
        def train(x, y):
            return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica, args=(x, y)), axis=None)

        seconds = timed(lambda x, y: train(x, y).numpy(), ready, args)
    args.batch = all_of_them
    if args.rank == 0:
        report("tensorflow multi-worker", args, seconds, version=tf.__version__, loop=args.loop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
