"""Datasets through libmanta.so, as a foreign program would read them.

    x, y = dataset.read("f.parquet:label=y")["x"], ...

Opens a specification and gives its columns as NumPy arrays; what the library
says is wrong is raised as dataset.Refused.
"""
import ctypes

import numpy as np

from conftest import PROGRAM

MAX_DIMS = 8
DTYPES = [np.float32, np.float64, np.float16, None, np.int32, np.int64, np.uint8, np.bool_]


class Refused(Exception):
    pass


class Array(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("ndim", ctypes.c_int),
                ("shape", ctypes.c_int64 * MAX_DIMS), ("strides", ctypes.c_int64 * MAX_DIMS)]

    def numpy(self):
        shape = tuple(self.shape[:self.ndim])
        dtype = np.dtype(DTYPES[self.dtype])
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(self.data, size), dtype).reshape(shape)


class Column(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("array", Array)]


class Batch(ctypes.Structure):
    _fields_ = [("epoch", ctypes.c_int64), ("step", ctypes.c_int64), ("first", ctypes.c_int64),
                ("count", ctypes.c_int64), ("n", ctypes.c_int), ("columns", ctypes.POINTER(Column))]


class Options(ctypes.Structure):
    _fields_ = [("raw", ctypes.c_bool), ("allow_nan", ctypes.c_bool), ("image_height", ctypes.c_int),
                ("image_width", ctypes.c_int), ("image_channels", ctypes.c_int), ("shards", ctypes.c_int),
                ("shard", ctypes.c_int), ("shard_policy", ctypes.c_int), ("data_dir", ctypes.c_char_p),
                ("table", ctypes.c_void_p), ("learnt", ctypes.c_void_p), ("inputs_only", ctypes.c_bool)]


class LoaderOptions(ctypes.Structure):
    _fields_ = [("batch_size", ctypes.c_int64), ("drop_last", ctypes.c_bool), ("sampler", ctypes.c_int),
                ("seed", ctypes.c_uint64), ("replicas", ctypes.c_int64), ("rank", ctypes.c_int64),
                ("shuffle", ctypes.c_bool), ("pad", ctypes.c_bool), ("steps_per_epoch", ctypes.c_int64),
                ("readers", ctypes.c_int), ("read_ahead", ctypes.c_int)]


def library():
    lib = ctypes.CDLL(str(PROGRAM.parent / "libmanta.so"))
    pointer = ctypes.c_void_p
    lib.manta_error_text.restype = ctypes.c_char_p
    lib.manta_dataset_open.argtypes = [ctypes.c_char_p, ctypes.POINTER(Options), ctypes.POINTER(pointer)]
    lib.manta_dataset_unref.argtypes = [pointer]
    lib.manta_dataset_unref.restype = None
    lib.manta_loader_open.argtypes = [pointer, ctypes.POINTER(LoaderOptions), ctypes.POINTER(pointer)]
    lib.manta_loader_next.argtypes = [pointer, ctypes.POINTER(Batch)]
    lib.manta_loader_next.restype = ctypes.c_bool
    lib.manta_loader_status.argtypes = [pointer]
    lib.manta_loader_close.argtypes = [pointer]
    lib.manta_loader_close.restype = None
    return lib


def read(spec, batch=64, readers=0, **options):
    """All columns of one pass, by name."""
    lib = library()
    d, loader, b = ctypes.c_void_p(), ctypes.c_void_p(), Batch()
    parts = {}

    def check(status):
        if status:
            raise Refused(lib.manta_error_text().decode())

    check(lib.manta_dataset_open(str(spec).encode(), ctypes.byref(Options(**options)), ctypes.byref(d)))
    try:
        asked = LoaderOptions(batch_size=batch, readers=readers)
        check(lib.manta_loader_open(d, ctypes.byref(asked), ctypes.byref(loader)))
        while lib.manta_loader_next(loader, ctypes.byref(b)):
            for i in range(b.n):
                parts.setdefault(b.columns[i].name.decode(), []).append(b.columns[i].array.numpy())
        check(lib.manta_loader_status(loader))
    finally:
        if loader:
            lib.manta_loader_close(loader)
        lib.manta_dataset_unref(d)
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}
