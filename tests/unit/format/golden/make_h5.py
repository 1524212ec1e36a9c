"""Writes the files that h5_test.c reads, with h5py.

Every dataset holds arange(n) of its dtype in its shape, so that the test needs
no second copy of the values; where elements were never written they count as
what fills them, 7. old-*.h5 are of the oldest form that libhdf5 writes, new-*.h5
of the newest."""
import os

import h5py
import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))


def count(shape, dtype):
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape).astype(dtype)


def low(f, name, dtype, shape, data=None, most=None, chunk=None, layout=None, early=False):
    """A dataset by properties that h5py's upper half has no words for."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if chunk:
        plist.set_chunk(chunk)
    if layout is not None:
        plist.set_layout(layout)
    if early:
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    d = h5py.h5d.create(f.id, name.encode(), h5py.h5t.py_create(np.dtype(dtype)),
                        h5py.h5s.create_simple(shape, most or shape), plist)
    if data is not None:
        d.write(h5py.h5s.ALL, h5py.h5s.ALL, data)


def types(f):
    g = f.create_group("types")
    for t in ["<f4", ">f4", "<f8", ">f8", "<f2", ">f2", "<i4", ">i4", "<i8", ">i8", "|u1", "|i1", "<i2", ">i2", "<u2",
              "<u4", "<u8", ">u8"]:
        name = {"<": "little", ">": "big", "|": "byte"}[t[0]] + "-" + t[1:]
        g[name] = count((2, 3), t)
    g["bool"] = np.array([False, True])
    d = g.create_dataset("bfloat16", data=(count((4,), "<f4").view("<u4") >> 16).astype("<u2").view("V2"))
    d.attrs["dtype"] = "bfloat16"
    g["scalar"] = np.float32(0)
    g["empty"] = np.zeros((0, 3), "f4")
    g["named-type"] = np.dtype("<f4")
    g.create_dataset("of-named-type", data=count((3,), "<f4"), dtype=g["named-type"])


def storage(f):
    g = f.create_group("storage")
    g.create_dataset("chunked", data=count((5, 7), "<f4"), chunks=(2, 3))
    g.create_dataset("gzip", data=count((5, 7), "<f4"), chunks=(2, 3), compression="gzip")
    g.create_dataset("all", data=count((50,), "<i8"), chunks=(16,), compression="gzip", shuffle=True, fletcher32=True)
    g.create_dataset("shuffle", data=count((20,), ">f8"), chunks=(20,), shuffle=True)
    g.create_dataset("fletcher32", data=count((9,), "|u1"), chunks=(9,), fletcher32=True)
    g.create_dataset("deep", data=count((3, 2, 3, 2), "<i2"), chunks=(2, 1, 2, 2), compression="gzip")
    g.create_dataset("long", data=count((150,), "<f4"), chunks=(1,))
    g.create_dataset("grows", data=count((40,), "<f4"), chunks=(8,), maxshape=(None,))
    g.create_dataset("may-grow", data=count((4, 4), "<f4"), chunks=(2, 2), maxshape=(8, 10), compression="gzip")
    low(g, "compact", "<f4", (6,), count((6,), "<f4"), layout=h5py.h5d.COMPACT)
    g.create_dataset("unwritten", (4,), "<f4", fillvalue=7)
    d = g.create_dataset("sparse", (12,), "<f4", chunks=(4,), fillvalue=7)
    d[4:8] = np.arange(4, 8)


def texts(f):
    f.attrs["model_config"] = '{"a": "\u00e4"}'
    f.attrs["many"] = ["first", "", "third"]
    f.attrs["fixed"] = np.array([b"one", b"three"])
    f.attrs["empty"] = np.zeros((0,))
    f.attrs["number"] = 3.0
    f.attrs["list0"] = ["a", "b"]
    f.attrs["list1"] = np.array([b"c"])
    f.attrs["long"] = "x" * 5000


def elsewhere(f):
    g = f.create_group("elsewhere")
    g["soft"] = h5py.SoftLink("/types/little-f4")
    g["outer"] = h5py.ExternalLink("other.h5", "/")
    g["hard"] = f["storage/compact"]
    g.create_dataset("external", (4,), "<f4", external=[("other.raw", 0, 16)])
    layout = h5py.VirtualLayout((4,), "<f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", (4,))
    g.create_virtual_dataset("virtual", layout)
    g.create_dataset("text", data=np.array([b"abcd"]))
    low(g, "huge", "<f4", (1 << 48,))
    low(g, "huge-chunks", "<f4", (1 << 48,), chunk=(1 << 20,))
    g.create_dataset("scale-offset", data=count((8,), "<i4"), chunks=(8,), scaleoffset=0)
    g["toolarge"] = np.array([2 ** 63], "<u8")


with h5py.File("old.h5", "w", libver="earliest") as f:
    types(f)
    storage(f)
    texts(f)
    elsewhere(f)
with h5py.File("old-front.h5", "w", libver="earliest", userblock_size=512) as f:
    f["x"] = count((3,), "<f4")
with h5py.File("new-v18.h5", "w", libver=("v108", "v108")) as f:
    f["x"] = count((3,), "<f4")
    f.create_dataset("gzip", data=count((5, 7), "<f4"), chunks=(2, 3), compression="gzip")
with h5py.File("new.h5", "w", libver="latest") as f:
    types(f)
    storage(f)
    texts(f)
    elsewhere(f)
with h5py.File("new-index.h5", "w", libver="latest", track_order=True) as f:
    low(f, "implicit", "<f4", (5, 7), count((5, 7), "<f4"), chunk=(2, 3), early=True)
    low(f, "implicit-may-grow", "<f4", (4, 4), count((4, 4), "<f4"), most=(4, 6), chunk=(2, 2), early=True)
    f.create_dataset("pages", data=count((1100,), "|u1"), chunks=(1,))
    d = f.create_dataset("pages-sparse", (2100,), "|u1", chunks=(1,), fillvalue=7)
    d[1030] = 1030 % 256
    f.create_dataset("super", data=count((300,), "|u1"), chunks=(1,), maxshape=(None,))
    f.create_dataset("two-ends", data=count((5, 7), "<f4"), chunks=(2, 3), maxshape=(None, None))
    f.create_dataset("two-ends-gzip", data=count((9, 9), "<i4"), chunks=(1, 1), maxshape=(None, None),
                     compression="gzip")
    f.create_dataset("grows-second", data=count((3, 10), "<f4"), chunks=(2, 3), maxshape=(5, None),
                     compression="gzip")
with h5py.File("new-dense.h5", "w", libver="latest") as f:
    g = f.create_group("links")
    for i in range(120):
        g.create_group("link-%d-%s" % (i, "n" * (i % 30)))
    for i in range(60):
        g.attrs["text-%d" % i] = "value %d" % i
    g.attrs["fixed-long"] = np.bytes_(b"y" * 5000)
# Each structure once and no larger than it must be: these are damaged at every byte.
with h5py.File("small-old.h5", "w", libver="earliest") as f:
    f.attrs["model_config"] = "{}"
    f.create_dataset("g/gzip", data=count((3, 2), "<f4"), chunks=(2, 1), compression="gzip")
    low(f, "compact", "<i8", (2,), count((2,), "<i8"), layout=h5py.h5d.COMPACT)
with h5py.File("small-array.h5", "w", libver="latest") as f:
    f.create_dataset("fixed", data=count((5,), "|u1"), chunks=(1,))
    f.create_dataset("grows", data=count((12,), "|u1"), chunks=(1,), maxshape=(None,), fletcher32=True)
    f.create_dataset("one", data=count((3,), "<f4"), chunks=(3,), compression="gzip", shuffle=True)
with h5py.File("small-tree.h5", "w", libver="latest") as f:
    f.create_dataset("two-ends", data=count((2, 2), "<f4"), chunks=(1, 1), maxshape=(None, None), compression="gzip")
with h5py.File("small-dense.h5", "w", libver="latest") as f:
    for i in range(9):
        f.create_group(str(i))
    for i in range(9):
        f.attrs["text-%d" % i] = "value %d" % i
for name in sorted(os.listdir(".")):
    if name.endswith(".h5"):
        print(name, os.path.getsize(name))
