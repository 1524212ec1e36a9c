"""Arrays as the library takes them: (buffer, dtype, shape), and samples in arrays as a dataset."""
from __future__ import annotations

from typing import Any

from manta import _manta
from manta.models._words import nearest

_KNOWN = {"float32", "float64", "float16", "int32", "int64", "uint8", "bool"}
_WIDENED = {"int8": "int64", "int16": "int64", "uint16": "int64", "uint32": "int64", "bfloat16": "float32"}


def array(what: str, value: Any) -> Any:
    """A contiguous array of a dtype that the library has."""
    import numpy

    out = numpy.asarray(value)
    name = out.dtype.name
    if name in _WIDENED:
        out = out.astype(_WIDENED[name])
    elif name not in _KNOWN:
        raise TypeError(f"{what} has the dtype {name}, expected one of {', '.join(sorted(_KNOWN | set(_WIDENED)))}")
    return numpy.ascontiguousarray(out, out.dtype.newbyteorder("="))


def lend(a: Any) -> tuple[Any, str, tuple[int, ...]]:
    """An array that array() gave, as the C module takes it."""
    return a, a.dtype.name, a.shape


def empty(shape: tuple[int, ...]) -> Any:
    import numpy

    return numpy.empty(shape, numpy.float32)


def by_port(what: str, value: Any, ports: list[tuple[Any, ...]]) -> list[Any]:
    """One array for each input or output: given alone, as a list in their order, or as a dict by their names."""
    names = [p[0] for p in ports]
    if isinstance(value, dict):
        for name in value:
            if name not in names:
                raise ValueError(f"{what} has an array for {name!r}, expected {', '.join(map(repr, names))}{nearest(name, names)}")
        missing = [n for n in names if n not in value]
        if missing:
            raise ValueError(f"{what} lacks an array for {missing[0]!r}; the model has {', '.join(map(repr, names))}")
        value = [value[n] for n in names]
    elif len(ports) > 1:
        if not isinstance(value, (list, tuple)) or len(value) != len(ports):
            given = f"{len(value)} arrays" if isinstance(value, (list, tuple)) else "one array"
            raise ValueError(f"{what} is {given}, expected {len(ports)}: for {', '.join(map(repr, names))}")
        value = list(value)
    elif isinstance(value, (list, tuple)) and len(value) == 1 and hasattr(value[0], "ndim") and value[0].ndim > 0:
        value = list(value)
    else:
        value = [value]
    return [array(what if len(ports) == 1 else f"{what} for {n!r}", v) for n, v in zip(names, value)]


def _check_shape(what: str, a: Any, port: tuple[Any, ...]) -> None:
    if a.ndim < 1:
        raise ValueError(f"{what} is one number, expected an array whose first dimension is the samples'")
    if tuple(a.shape[1:]) != tuple(port[2]):
        raise ValueError(f"{what} has the shape {a.shape}, expected {('samples', *port[2])!r} for input {port[0]!r}"
                         .replace("'samples'", "samples"))


def _check_count(columns: list[tuple[str, Any]]) -> None:
    first, a = columns[0]
    for name, other in columns[1:]:
        if other.ndim < 1 or len(other) != len(a):
            raise ValueError(f"{name} has {len(other) if other.ndim else 'no'} samples and {first} has {len(a)}, "
                             "expected as many")


def inputs_of(model: _manta.Model, x: Any) -> list[Any]:
    """The arrays of a model's inputs."""
    arrays = by_port("x", x, model.inputs)
    for a, port in zip(arrays, model.inputs):
        _check_shape("x" if len(arrays) == 1 else f"x for {port[0]!r}", a, port)
    return arrays


def columns_of(model: _manta.Model, x: Any, y: Any, sample_weight: Any) -> dict[str, Any]:
    """Samples in arrays, as the columns of a dataset. y None: they have no targets."""
    inputs, outputs = model.inputs, model.outputs
    alone = len(inputs) == 1 and (y is None or len(outputs) == 1)
    columns = [("x" if alone else str(p[0]), a) for p, a in zip(inputs, inputs_of(model, x))]
    if y is not None:
        columns += [("y" if alone else str(p[0]), a) for p, a in zip(outputs, by_port("y", y, outputs))]
    if sample_weight is not None:
        columns.append(("sample_weight", array("sample_weight", sample_weight).astype("float32")))
    _check_count(columns)
    return dict(columns)
