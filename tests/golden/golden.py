"""What make_keras.py and make_torch.py share: fixed random inputs, the .npz
writer and the formula that gives whole models their initial weights.

The writer does what numpy.savez does, with a fixed date and no zip64 fields, so
that the same numbers give the same bytes and the simplest reader can read them.
"""
import gzip
import io
import json
import os
import zipfile
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def rng(name):
    """A generator that depends on the case's name only: adding a case moves no other."""
    return np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))


def uniform(r, shape, low=-1.0, high=1.0):
    return r.uniform(low, high, shape).astype(np.float32)


def plain(value):
    """True for what a small JSON reader should have to understand."""
    if isinstance(value, (bool, int, float, str)):
        return True
    return isinstance(value, (list, tuple)) and all(plain(v) for v in value)


def config_array(config):
    """The configuration as JSON text; what is None or nested (initializers, policies) is left out."""
    text = json.dumps({k: v for k, v in config.items() if plain(v)}, separators=(",", ":"))
    return np.frombuffer(text.encode(), np.uint8)


def save(name, config, arrays):
    """Writes name.npz beside this file; every array is float32, int32 or uint8."""
    arrays = dict(arrays, config=config_array(config))
    with zipfile.ZipFile(os.path.join(HERE, name + ".npz"), "w", zipfile.ZIP_STORED) as z:
        for key, value in arrays.items():
            a = np.asarray(value, order="C")
            if a.dtype == np.float64:
                a = a.astype(np.float32)
            elif a.dtype == np.int64:
                a = a.astype(np.int32)
            assert a.dtype in (np.float32, np.int32, np.uint8), (name, key, a.dtype)
            if a.dtype == np.float32:
                assert np.isfinite(a).all(), (name, key)
            b = io.BytesIO()
            np.lib.format.write_array(b, a, version=(1, 0), allow_pickle=False)
            z.writestr(zipfile.ZipInfo(key + ".npy", (1980, 1, 1, 0, 0, 0)), b.getvalue())


def idx(path):
    """Reads one gzipped IDX file of bytes."""
    d = gzip.open(path).read()
    dims = d[3]
    shape = [int.from_bytes(d[4 + 4 * i:8 + 4 * i], "big") for i in range(dims)]
    return np.frombuffer(d, np.uint8, offset=4 + 4 * dims).reshape(shape)


def formula(tensor, count, scale):
    """Initial weights: element i of tensor number `tensor` (README.md, "Initial weights").

    All in 32-bit unsigned arithmetic, then one float32 product."""
    with np.errstate(over="ignore"):
        h = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9)
        h += np.uint32((tensor * 0x85EBCA6B + 1) & 0xFFFFFFFF)
        h ^= h >> np.uint32(16)
        h *= np.uint32(0x85EBCA6B)
        h ^= h >> np.uint32(13)
        h *= np.uint32(0xC2B2AE35)
        h ^= h >> np.uint32(16)
    k = (h >> np.uint32(8)).astype(np.int32) - np.int32(1 << 23)
    return k.astype(np.float32) * np.float32(scale)


def scale_of(fan_in):
    """He's uniform limit sqrt(6 / fan_in), as the step between neighbouring values."""
    return np.float32(np.float32(np.sqrt(6.0 / fan_in)) * np.float32(2.0 ** -23))


def summary(prefix, gradient, whole, samples):
    """A gradient as its norm, its sum and either all of it or every stride-th element."""
    flat = np.asarray(gradient, np.float64).ravel()
    stride = 1 if flat.size <= whole else -(-flat.size // samples)
    return {
        prefix + ".norm": np.float32(np.sqrt((flat * flat).sum())),
        prefix + ".sum": np.float32(flat.sum()),
        prefix + ".stride": np.int32(stride),
        prefix + ".values": flat[::stride].astype(np.float32),
    }


def spread(curves):
    """Per step, the largest difference of any two runs seen so far in the curve."""
    c = np.stack(curves).astype(np.float64)
    return np.maximum.accumulate(c.max(axis=0) - c.min(axis=0)).astype(np.float32)
