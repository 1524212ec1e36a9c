"""Small data that a model can learn in a blink, for tests of the program."""
import numpy as np


def digits(folder, n=256, seed=0, classes=10):
    """x.npy (n, 28, 28) and y.npy in folder: class c lights up row c. Returns what --data takes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    x = rng.random((n, 28, 28), dtype=np.float32) * 0.1
    x[np.arange(n), y] += 1
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y.astype(np.int64))
    return "x.npy,y.npy"


def line(folder, n=64):
    """Points of y = 3 x - 1 in lx.npy and ly.npy. Returns what --data takes."""
    x = np.linspace(-1, 1, n, dtype=np.float32).reshape(n, 1)
    np.save(folder / "lx.npy", x)
    np.save(folder / "ly.npy", 3 * x - 1)
    return "lx.npy,ly.npy"
