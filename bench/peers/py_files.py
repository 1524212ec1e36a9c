#!/usr/bin/env python3
"""What bench_files does, in the Python libraries: as many bytes of float32 saved
and loaded, in 64 arrays, by each library that is installed.

    py_files.py [--mb N] [--rounds R] [FOLDER]

Saving ends with fsync, as ours and dd conv=fsync do; the libraries do not do it
themselves. Loading is from a warm file cache, and every element is there at the
end. Medians of the rounds."""
import argparse
import os
import pathlib
import statistics
import time

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402

TENSORS = 64


def synced(path, save):
    save(path)
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def by_safetensors(arrays):
    from safetensors.numpy import load_file, save_file
    return "safetensors", lambda p: save_file(arrays, p), load_file


def by_torch(arrays):
    import torch
    tensors = {k: torch.from_numpy(a) for k, a in arrays.items()}
    return "torch .pt", lambda p: torch.save(tensors, p), lambda p: torch.load(p, weights_only=True)


def by_keras(arrays):
    import keras
    n = len(arrays["layer00"])
    narrow, wide = 1024, n // 1024
    model = keras.Sequential([keras.Input((narrow,))])
    for i in range(TENSORS):
        model.add(keras.layers.Dense(narrow if i % 2 else wide, use_bias=False))
    return "keras .keras", model.save, lambda p: keras.models.load_model(p, compile=False)


def rate(bytes_, seconds):
    return f"{bytes_ / statistics.median(seconds) / 1e9:6.2f} GB/s"


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--mb", type=int, default=256)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("folder", nargs="?", default=".")
    o = p.parse_args()
    n = o.mb * (1 << 20) // 4 // TENSORS
    rng = np.random.default_rng(1)
    arrays = {f"layer{i:02d}": rng.random(n, dtype=np.float32) for i in range(TENSORS)}
    for make in (by_safetensors, by_torch, by_keras):
        try:
            name, save, load = make(arrays)
        except ImportError as why:
            print(f"{make.__name__[3:]:14} missing: {why}")
            continue
        ending = ".keras" if "keras" in name else ".bin"
        path = pathlib.Path(o.folder) / f"py_files.{os.getpid()}{ending}"
        took = {"write": [], "read": []}
        for _ in range(o.rounds):
            start = time.perf_counter()
            synced(path, save)
            took["write"].append(time.perf_counter() - start)
            start = time.perf_counter()
            load(path)
            took["read"].append(time.perf_counter() - start)
        path.unlink()
        for what, seconds in took.items():
            print(f"{name:14} {what:6} {rate(n * 4 * TENSORS, seconds)}")


main()
