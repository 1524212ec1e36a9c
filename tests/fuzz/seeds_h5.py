"""Writes small HDF5 files for the corpus h5, one or few forms of storage in each, with h5py."""
import os

import h5py
import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(os.path.join(here, "corpus", "h5"))


def count(shape, dtype="<f4"):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def put(name, make, libver="latest"):
    with h5py.File(name, "w", libver=libver) as f:
        make(f)


def texts(f):
    f.attrs["model_config"] = "{}"
    f.attrs["many"] = ["a", ""]
    f.attrs["fixed"] = np.array([b"one"])
    f.attrs["list0"] = ["b"]


def types(f):
    f["big"] = count((2,), ">i2")
    f["bool"] = np.array([False, True])
    f["t"] = np.dtype(">f8")
    f.create_dataset("named", data=count((3,)), dtype=f["t"])
    f.create_dataset("filled", (4,), "<f4", fillvalue=7)


def packed(f):
    f.create_dataset("all", data=count((20,)), chunks=(8,), compression="gzip", shuffle=True, fletcher32=True)


def dense(f):
    g = f.create_group("links")
    for i in range(10):
        f.create_group("n%d" % i)
        g.attrs["text-%d" % i] = "v"


def huge(f):
    g = f.create_group("links")
    for i in range(9):
        g.attrs["text-%d" % i] = "v"
    g.attrs["fixed-long"] = np.bytes_(b"y" * 4200)


for form in ("earliest", "latest"):
    put("texts-" + form, texts, form)
    put("types-" + form, types, form)
    put("packed-" + form, packed, form)
put("dense", dense)
put("huge", huge)
put("grid-earliest", lambda f: f.create_dataset("x", data=count((3, 5)), chunks=(2, 2)), "earliest")
put("single", lambda f: f.create_dataset("x", data=count((3,)), chunks=(3,), compression="gzip"))
put("fixed", lambda f: f.create_dataset("x", data=count((3, 5)), chunks=(2, 2), maxshape=(4, 9)))
put("grows", lambda f: f.create_dataset("x", data=count((30,), "|u1"), chunks=(1,), maxshape=(None,)))
put("tree", lambda f: f.create_dataset("x", data=count((3, 5)), chunks=(2, 2), maxshape=(None, None)))
