"""Arrays of a program as addresses, without importing what they are of."""
from __future__ import annotations

import ctypes
import sys
from typing import Any

REDUCED = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5, "uint8": 6}
BYTES = REDUCED["uint8"]
MOVED = ("bool", "int8", "int16", "uint16", "uint32", "uint64", "complex64", "complex128")


class Memory:
    """The elements of an array: where they are, how many, and of which type."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: str, itemsize: int) -> None:
        self.address, self.shape, self.dtype, self.itemsize = address, shape, dtype, itemsize
        self.n = 1
        for length in shape:
            self.n *= length

    @property
    def nbytes(self) -> int:
        return self.n * self.itemsize

    def moving(self) -> tuple[int, int]:
        """(elements, type) by which it is moved: bytes where there is no such type."""
        if self.dtype in REDUCED:
            return self.n, REDUCED[self.dtype]
        return self.nbytes, BYTES

    def reduced(self, what: str) -> int:
        """The type by which it is reduced."""
        if self.dtype not in REDUCED:
            raise TypeError(f"{what} does not reduce elements of {self.dtype}; expected one of {', '.join(REDUCED)}")
        return REDUCED[self.dtype]


def _of_torch(tensor: Any, what: str) -> Memory:
    if tensor.device.type != "cpu":
        raise TypeError(f"{what} takes tensors in the processor's memory, given one on {tensor.device}")
    if tensor.layout != sys.modules["torch"].strided or not tensor.is_contiguous():
        raise ValueError(f"{what} takes tensors whose elements lie one after the other; give it tensor.contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"{what} takes tensors as they lie in memory, given one that is conjugated or negated when it is read; give it "
                         "tensor.resolve_conj().resolve_neg()")
    return Memory(tensor.data_ptr(), tuple(tensor.shape), str(tensor.dtype).rpartition(".")[2], tensor.element_size())


def _of_numpy(array: Any, what: str, is_written: bool) -> Memory:
    if not array.flags.c_contiguous:
        raise ValueError(f"{what} takes arrays that are contiguous in C order; give it numpy.ascontiguousarray(array)")
    if is_written and not array.flags.writeable:
        raise ValueError(f"{what} writes into the array, and it is read-only; give it a copy, such as ray.get(ref).copy()")
    if not array.dtype.isnative:
        raise TypeError(f"{what} takes elements in the byte order of this machine, given {array.dtype}")
    return Memory(array.__array_interface__["data"][0], tuple(array.shape), array.dtype.name, array.dtype.itemsize)


def memory_of(array: Any, what: str, is_written: bool = True) -> Memory:
    """The memory of an array of numpy, or of a tensor of torch."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(array, torch.Tensor):
        out = _of_torch(array, what)
    elif numpy is not None and isinstance(array, numpy.ndarray):
        out = _of_numpy(array, what, is_written)
    else:
        raise TypeError(f"{what} takes an array of numpy or a tensor of torch, given {type(array).__name__}")
    if out.dtype not in REDUCED and out.dtype not in MOVED:
        raise TypeError(f"{what} does not take elements of {out.dtype}; expected one of {', '.join((*REDUCED, *MOVED))}")
    return out


def parts_of(arrays: Any, size: int, like: Memory, what: str, is_written: bool) -> list[Memory]:
    """The memory of one array for each rank, all like one."""
    if not isinstance(arrays, (list, tuple)) or len(arrays) != size:
        given = f"{len(arrays)} arrays" if isinstance(arrays, (list, tuple)) else type(arrays).__name__
        raise ValueError(f"{what} takes a list of {size} arrays, one for each rank, given {given}")
    out = [memory_of(array, what, is_written) for array in arrays]
    for i, part in enumerate(out):
        if (part.shape, part.dtype) != (like.shape, like.dtype):
            raise ValueError(f"{what}: array {i} of the list is {part.dtype} of shape {part.shape}, expected {like.dtype} of shape "
                             f"{like.shape}, as the array beside the list")
    return out


class Row:
    """Memory for one part of each rank, one after the other."""

    def __init__(self, size: int, part: Memory) -> None:
        self._step = part.nbytes
        self._bytes = (ctypes.c_char * max(1, size * self._step))()
        self.address = ctypes.addressof(self._bytes)

    def take(self, parts: list[Memory]) -> None:
        for i, part in enumerate(parts):
            ctypes.memmove(self.address + i * self._step, part.address, self._step)

    def give(self, parts: list[Memory]) -> None:
        for i, part in enumerate(parts):
            ctypes.memmove(part.address, self.address + i * self._step, self._step)
