#!/usr/bin/env python3
"""What bench_sources --all does, in tf.data: every record of a TFRecord file of
floats "x" and an int64 "y" (FILE:WIDTH), in batches of 256, one thread.

tf.data is given its best way, one parse_example for each batch of records; the
median of five passes is printed, with the sum of every first element."""
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402

tf.config.threading.set_inter_op_parallelism_threads(1)
tf.config.threading.set_intra_op_parallelism_threads(1)


def read(path, width, batched):
    features = {"x": tf.io.FixedLenFeature([width], tf.float32), "y": tf.io.FixedLenFeature([], tf.int64)}
    d = tf.data.TFRecordDataset(path)
    if batched:
        d = d.batch(256).map(lambda r: tf.io.parse_example(r, features))
    else:
        d = d.map(lambda r: tf.io.parse_single_example(r, features)).batch(256)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    return sum(float(tf.reduce_sum(b["x"][:, 0])) for b in d.with_options(options))


for argument in sys.argv[1:]:
    path, width = argument.rsplit(":", 1)
    for batched in (True, False):
        took = []
        for _ in range(5):
            start = time.perf_counter()
            total = read(path, int(width), batched)
            took.append(time.perf_counter() - start)
        s = statistics.median(took)
        print(f"{argument:28} {s * 1e3:8.1f} ms {os.path.getsize(path) / s / 1e6:8.0f} MB/s   sum {total:.6g}   "
              f"{'parse_example' if batched else 'parse_single_example'}")
