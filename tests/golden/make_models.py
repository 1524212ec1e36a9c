#!/usr/bin/env python3
"""Gathers the runs that make_models made into keras_mnist_cnn, torch_resnet18
and torch_resnet18_sgd (.npz).

    make_models.py FOLDER      with FOLDER/keras_RUN.npz, FOLDER/adam_RUN.npz and FOLDER/sgd_RUN.npz
"""
import glob
import os
import sys

import numpy as np

from golden import save, spread, summary


def gather(folder, peer, name, config, whole, samples, gradients=True):
    runs = {}
    for path in sorted(glob.glob(os.path.join(folder, peer + "_*.npz"))):
        runs[os.path.basename(path)[len(peer) + 1:-4]] = dict(np.load(path))
    if "t1" not in runs:
        return
    first, exact = runs["t1"], runs["f64"]
    arrays = {f"loss_{r}": a["loss"].astype(np.float32) for r, a in runs.items()}
    singles = [a["loss"] for r, a in runs.items() if r != "f64"]
    arrays["spread"] = spread(singles)
    keys = [k[5:] for k in first if k.startswith("grad:")]
    arrays["scales"] = np.array([first["scale:" + k] for k in keys], np.float32)
    errors = []
    for k in keys if gradients else []:
        arrays.update(summary("grad/" + k, first["grad:" + k], whole, samples))
        arrays.update(summary("exact/" + k, exact["grad:" + k], whole, samples))
        e = exact["grad:" + k].astype(np.float64)
        errors.append(max(np.linalg.norm(a["grad:" + k] - e) / np.linalg.norm(e) for r, a in runs.items() if r != "f64"))
    if gradients:
        arrays["grad_error"] = np.array(errors, np.float32)
    for k in first if gradients else []:
        if k.startswith("stat:"):
            arrays["stat/" + k[5:]] = first[k]
        if k in ("images", "labels"):
            arrays[k] = first[k]
    save(name, {"kind": "model", "made_by": str(first["made_by"]), "tensors": keys, **config}, arrays)
    s = arrays["spread"]
    print(f"{name}: loss {first['loss'][0]:.6f} to {first['loss'][-1]:.6f}, spread {s[0]:.2e} {s[len(s) // 2]:.2e} {s[-1]:.2e}, "
          f"largest relative error of a step-1 gradient {max(errors, default=0.0):.2e}")
    for a in sorted(runs):
        print(f"  {a:6s}", " ".join(f"{v:.6f}" for v in runs[a]["loss"][[0, 1, 2, 4, 9, 19, len(s) - 1]]))


gather(sys.argv[1], "keras", "keras_mnist_cnn",
       {"class_name": "mnist-cnn", "batch": 64, "steps": 100, "optimizer": "SGD", "learning_rate": 0.01}, 4096, 4096)
RESNET = {"class_name": "resnet18", "batch": 32, "steps": 30}
gather(sys.argv[1], "adam", "torch_resnet18", {**RESNET, "optimizer": "Adam", "learning_rate": 0.001}, 1024, 1024)
gather(sys.argv[1], "sgd", "torch_resnet18_sgd", {**RESNET, "optimizer": "SGD", "learning_rate": 0.001}, 1024, 1024, gradients=False)
