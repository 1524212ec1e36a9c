"""What the peer programs share: their options, their data and the line they print."""
import argparse
import gzip
import json
import os
import statistics
import time

import numpy as np


def options(models):
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=models, default=models[0])
    p.add_argument("--mode", choices=("train", "forward", "startup"), default="train")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    return p


def _idx(path):
    d = gzip.open(path).read()
    dims = d[3]
    shape = [int.from_bytes(d[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(d, np.uint8, offset=4 + 4 * dims).reshape(shape)


def batches(batch, count):
    """`count` ready-made float batches of 28x28 images, so that no peer pays for its input
    pipeline. With MANTA_DATA they are MNIST's first images, otherwise noise."""
    folder = os.environ.get("MANTA_DATA")
    if folder:
        x = _idx(os.path.join(folder, "mnist", "train-images-idx3-ubyte.gz"))
        y = _idx(os.path.join(folder, "mnist", "train-labels-idx1-ubyte.gz"))
    else:
        r = np.random.default_rng(1)
        x = r.integers(0, 256, (batch * count, 28, 28)).astype(np.uint8)
        y = r.integers(0, 10, batch * count).astype(np.uint8)
    x = x[:batch * count].astype(np.float32) / np.float32(255)
    y = y[:batch * count].astype(np.int64)
    return [(x[i * batch:(i + 1) * batch], y[i * batch:(i + 1) * batch]) for i in range(count)]


def timed(step, ready, args):
    """Calls step(x, y) until it is warm, then `steps` times; seconds of each."""
    count = len(ready)
    for i in range(args.warmup):
        step(*ready[i % count])
    seconds = []
    for i in range(args.steps):
        t = time.perf_counter()
        step(*ready[i % count])
        seconds.append(time.perf_counter() - t)
    return seconds


def report(peer, args, seconds, **more):
    median = statistics.median(seconds)
    print(json.dumps({"peer": peer, "model": args.model, "mode": args.mode, "batch": args.batch, "threads": args.threads,
                      "steps": len(seconds), "ms_per_step": round(median * 1e3, 3),
                      "images_per_s": round(args.batch / median, 1), **more}), flush=True)
