"""Tensors of PyTorch and TensorFlow as values: their elements travel as blocks beside the pickle.

Neither is imported here before a value of its kind is met. _values.dump() asks for a Layout when one of them has been imported, and
pickles with its table, which knows the types of tensors; pickles of the program itself are left alone.

Of a torch tensor travels the part of its storage that it spans, from its first element to its last, with its strides; of
one that has wide gaps a copy without them. Where tensors of one value overlap, as a tensor and its view do, they share
memory afterwards as well: what they span together is one block. That is known only when all of
them have been met, so such a value is pickled a second time, with the blocks that the first time has found.

What arrives is memory of its own, because torch has no tensors that are read-only: writing to it changes no object.
"""
import ctypes
import sys
from _pickle import PickleBuffer

from manta import _manta

WIDE = 2        # times as many bytes as its elements have: a view with more is copied without its gaps
ALIGN = 16      # a block begins at a multiple of the largest element


class _Table(dict):
    """The reducers of a Layout, and behind them the others of a pickler."""

    def __missing__(self, kind):
        return self.others[kind]


def _memory(tensor, address, size):
    """The bytes at an address as a buffer, which keeps the tensor that they belong to."""
    out = (ctypes.c_char * size).from_address(address)
    out.owner = tensor
    return PickleBuffer(out)


class _Block:
    """A part of a storage; pickled once, whichever tensors lie in it."""

    def __init__(self, tensor, address, size):
        self.tensor, self.address, self.size = tensor, address, size

    def __reduce__(self):
        return _storage, (_memory(self.tensor, self.address, self.size),)


class Layout:
    """Where the tensors of one value lie."""

    def __init__(self):
        self.parts = {}         # address of a storage: [(from, to), ...] of the tensors met in it
        self.kept = []          # those tensors: no other may come to lie there before all is done
        self.blocks = None      # the second time, (address of a storage, from): [to, _Block or None]
        self.torch = sys.modules.get("torch")

    def table(self, others):
        """The dispatch table of a pickler that is about to begin, which would have used `others`."""
        self.parts = {}
        out = _Table()
        out.others = others
        if self.torch is not None and hasattr(self.torch, "nn"):        # and not in the middle of its import
            out[self.torch.Tensor] = self.reduce_tensor
            out[self.torch.nn.Parameter] = self.reduce_parameter
        eager = _eager_tensor()
        if eager is not None:
            out[eager] = _reduce_eager
        return out

    def is_final(self):
        """Whether what was pickled is right; otherwise it is to be done again, with this layout."""
        if self.blocks is not None:
            return True
        joined = {at: _join(parts) for at, parts in self.parts.items() if len(parts) > 1}
        self.blocks = {(at, begin): [end, None] for at, parts in joined.items() for begin, end in parts}
        return all(len(joined[at]) == len(self.parts[at]) for at in joined)

    def reduce_parameter(self, p):
        if p._backward_hooks or type(p.data) is not self.torch.Tensor:
            return p.__reduce_ex__(5)
        return _parameter, (p.data, p.requires_grad), vars(p) or None, None, None, _set_attributes

    def reduce_tensor(self, t):
        if t.device.type != "cpu" or t.layout is not self.torch.strided or t.is_quantized or t._backward_hooks:
            return t.__reduce_ex__(5)
        block, offset, stride = self.place(t)
        how = (block, t.dtype, offset, tuple(t.shape), stride, t.requires_grad)
        return _tensor, how, vars(t) or None, None, None, _set_attributes

    def place(self, t):
        """(block, offset in it, stride) of a tensor's elements."""
        t = t.detach().resolve_conj().resolve_neg()
        if t.numel() == 0:
            return None, 0, t.stride()
        item, at = t.element_size(), t.untyped_storage().data_ptr()
        begin = t.storage_offset() * item
        end = begin + item + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) * item
        self.kept.append(t)
        if self.blocks is None:
            self.parts.setdefault(at, []).append((begin // ALIGN * ALIGN, end))
        else:
            for (where, first), found in self.blocks.items():
                if where == at and first <= begin and end <= found[0]:
                    if found[1] is None:
                        found[1] = _Block(t, at + first, found[0] - first)
                    return found[1], (begin - first) // item, t.stride()
        if end - begin > WIDE * t.numel() * item:
            t = t.clone()
            begin, end, at = 0, t.numel() * item, t.data_ptr()
        return _Block(t, at + begin, end - begin), 0, t.stride()


def _join(parts):
    """The parts of a storage, those that overlap as one."""
    out = []
    for begin, end in sorted(parts):
        if out and begin < out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def _eager_tensor():
    """The class of TensorFlow's tensors that have a value; None before TensorFlow has been imported."""
    ops = sys.modules.get("tensorflow.python.framework.ops")
    return getattr(ops, "EagerTensor", None)


def _reduce_eager(t):
    """TensorFlow's own way gives numpy's types to protocol 5; bfloat16 and its kin it would put inside the pickle."""
    import numpy
    array = numpy.asarray(t)
    if array.dtype.isbuiltin != 2 or not array.flags.c_contiguous:
        return t.__reduce__()
    return _eager, (t.dtype.name, array.shape, PickleBuffer(array.reshape(-1).view(numpy.uint8)))


# ---- what pickles name ----


def _storage(buffer):
    import torch
    return torch.frombuffer(_manta.own(buffer), dtype=torch.uint8).untyped_storage()


def _tensor(storage, dtype, offset, shape, stride, requires_grad):
    import torch
    if storage is None:
        t = torch.empty_strided(shape, stride, dtype=dtype)
    else:
        t = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    return t.requires_grad_() if requires_grad else t


def _parameter(data, requires_grad):
    import torch
    return torch.nn.Parameter(data, requires_grad)


def _set_attributes(tensor, attributes):
    vars(tensor).update(attributes)


def _eager(dtype, shape, buffer):
    import numpy
    import tensorflow
    dtype = tensorflow.dtypes.as_dtype(dtype).as_numpy_dtype
    return tensorflow.convert_to_tensor(numpy.frombuffer(buffer, numpy.uint8).view(dtype).reshape(shape))
