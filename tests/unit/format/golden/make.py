"""Writes the files that numpy_test.c reads, with NumPy itself.

Every array holds arange(24) of its dtype, in the shape (2, 3, 4) unless the
name says otherwise, so that the test needs no second copy of the values."""
import os

import numpy as np

os.chdir(os.path.dirname(os.path.abspath(__file__)))
a = np.arange(24).reshape(2, 3, 4)
for t in ["<f4", ">f4", "<f8", ">f8", "<f2", ">f2", "<i4", ">i4", "<i8", ">i8", "|u1", "|i1", "<i2", ">i2", "<u2", "<u4",
          "<u8"]:
    name = {"<": "little", ">": "big", "|": "byte"}[t[0]] + "-" + t[1:]
    np.save(name + ".npy", a.astype(np.dtype(t)))
np.save("bool.npy", (a % 2).astype(bool))
np.save("fortran.npy", np.asfortranarray(a.astype("<f4")))
np.save("scalar.npy", np.float32(7))
np.save("empty.npy", np.zeros((0, 3), "<f4"))
for version in (2, 3):
    with open("version-%d.npy" % version, "wb") as f:
        np.lib.format.write_array(f, a.astype("<i4"), version=(version, 0))
np.save("complex.npy", np.zeros(2, np.complex64))
np.save("record.npy", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
np.savez("stored.npz", x=a.astype("<f4"), y=np.arange(2))
np.savez_compressed("deflated.npz", x=a.astype("<f4"), y=np.arange(2, dtype="u1"))
