"""Numbers of whole columns: each block is reduced where it lies, and the results here."""
from __future__ import annotations

import math
from typing import Any, Optional, Sequence, Union

from manta import _core as _plain_core
from manta.data import _block, _execute
from manta.data._block import Block
from manta.data._need import need

_core: Any = _plain_core            # which has no types
_Part = dict[str, tuple[int, int, Any, Any, Any, Any]]         # of each column: values, gaps, sum, squares, least, most


def reduced(block: Block, index: int, who: str, columns: Optional[Sequence[str]]) -> _Part:
    numpy = need("numpy", "manta.data")
    names = list(columns) if columns is not None else [n for n, c in block.items() if c.ndim == 1 and c.dtype.kind in "biuf"]
    _block.check_columns(names, block, who)
    out: _Part = {}
    for name in names:
        column = block[name]
        gaps = numpy.array([x is None for x in column]) if column.dtype == object else \
            numpy.isnan(column) if column.dtype.kind == "f" else numpy.zeros(len(column), dtype=bool)
        values = column[~gaps] if gaps.any() else column
        n, total, around, least, most = len(values), 0, 0.0, None, None
        if n:
            least, most = values.min(), values.max()
            if values.dtype.kind in "biuf":
                total = values.sum(axis=0)
                around = float(((values.astype("float64") - total / n) ** 2).sum())
            elif who not in ("min", "max"):
                raise TypeError(f"{who}: column {name!r} holds {_block.kinds_of({name: column})[0][1]}, expected numbers")
        out[name] = (n, int(gaps.sum()), _plain(total), around, _plain(least), _plain(most))
    return out


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def combined(parts: list[Any], what: str, ignore_nulls: bool, ddof: int) -> Any:
    parts_with = [p for p in parts if p[0]]
    n = sum(p[0] for p in parts_with)
    if not n or (not ignore_nulls and any(p[1] for p in parts)):
        return None
    if what == "sum":
        return sum(p[2] for p in parts_with)
    if what == "min":
        return min(p[4] for p in parts_with)
    if what == "max":
        return max(p[5] for p in parts_with)
    mean = sum(p[2] for p in parts_with) / n
    if what == "mean":
        return mean
    # The squares around the mean of all: those around each block's own, and of how far that is from it.
    around = sum(p[3] + p[0] * (p[2] / p[0] - mean) ** 2 for p in parts_with)
    return math.sqrt(around / (n - ddof)) if n > ddof else None


def each_block(dataset: Any, function: Any, *more: Any) -> list[Any]:
    """function(block, index, *more) of each block as it comes, a few at once; their results."""
    execution = _execute.Execution(dataset._context)
    out: list[Any] = []
    some: list[Any] = []

    def run() -> None:
        out.extend(_core.get(execution.call_each(function, some, *more, first=len(out))))
        some.clear()
    for piece in execution.stream(dataset._node):
        some.append(piece)
        if len(some) >= execution.wide():
            run()
    if some:
        run()
    return out


def reduce_columns(dataset: Any, what: str, on: Union[str, Sequence[str], None], ignore_nulls: bool, ddof: int = 1) -> Any:
    """One number of a column that is named, else a dictionary: {"mean(x)": 1.5}."""
    columns = [on] if isinstance(on, str) else None if on is None else list(on)
    parts = each_block(dataset, reduced, what, columns)
    names = columns if columns is not None else list(dict.fromkeys(name for part in parts for name in part))
    out = {f"{what}({name})": combined([part[name] for part in parts if name in part], what, ignore_nulls, ddof)
           for name in names}
    return out[f"{what}({on})"] if isinstance(on, str) else out


def _different(block: Block, index: int, column: str) -> list[Any]:
    _block.check_columns([column], block, "unique")
    return list(dict.fromkeys(block[column].tolist()))


def unique_values(dataset: Any, column: str) -> list[Any]:
    return list(dict.fromkeys(x for part in each_block(dataset, _different, column) for x in part))
