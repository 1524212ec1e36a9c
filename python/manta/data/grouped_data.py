"""Groups: the rows of a dataset that have the same values in some columns."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from manta.data import _aggregate, _barriers, _block, _ops
from manta.data._block import Block
from manta.data._need import need
from manta.data._plan import Barrier, Piece

if TYPE_CHECKING:
    from manta.data.dataset import Dataset

__all__ = ["GroupedData"]

_On = Union[str, Sequence[str], None]


def _groups_in(block: Block, keys: Sequence[str]) -> Iterator[Block]:
    """The groups of a block that is sorted by its keys."""
    numpy = need("numpy", "groupby")
    rows = _block.rows_of(block)
    changes = numpy.zeros(rows, dtype=bool)
    for key in keys:
        here, before = block[key][1:], block[key][:-1]
        changes[1:] |= (here != before) & ((here == here) | (before == before))     # NaN is like NaN
    bounds = [0, *numpy.flatnonzero(changes).tolist(), rows] if rows else []
    for begin, end in zip(bounds, bounds[1:]):
        yield _block.cut(block, begin, end)


def _gather_groups(index: int, blocks: Sequence[Block], keys: Sequence[str], each: Callable[[Block], Block]) -> Block:
    block = _barriers._gather_sorted(index, blocks, keys, [False] * len(keys))
    return _block.concat([each(group) for group in _groups_in(block, keys)])


class _Grouped(_barriers.Sort):
    """A sort whose second round makes something of each group: rows with equal keys are in one part."""

    def __init__(self, keys: Sequence[str], each: Callable[[Block], Block]) -> None:
        super().__init__(keys, [False] * len(keys))
        self._each = each

    def gather(self, execution: Any, parts: list[list[Any]]) -> Iterator[Piece]:
        yield from execution.merge(_gather_groups, parts, self._keys, self._each)


class _Reduce:
    """One row of a group: its keys, and numbers of columns."""

    def __init__(self, keys: Sequence[str], what: str, on: Optional[Sequence[str]], ignore_nulls: bool, ddof: int) -> None:
        self._keys, self._what, self._on, self._ignore, self._ddof = keys, what, on, ignore_nulls, ddof

    def __call__(self, group: Block) -> Block:
        row = {key: group[key][0] for key in self._keys}
        if self._what == "count":
            return _block.from_rows([{**row, "count()": _block.rows_of(group)}])
        columns = self._on
        if columns is None:
            columns = [n for n, c in group.items() if n not in self._keys and c.ndim == 1 and c.dtype.kind in "biuf"]
        parts = _aggregate.reduced(group, 0, self._what, columns)
        numbers = {f"{self._what}({name})": _aggregate.combined([part], self._what, self._ignore, self._ddof)
                   for name, part in parts.items()}
        return _block.from_rows([{**row, **numbers}])


class _MapGroup:
    """What a function of the user makes of a group."""

    def __init__(self, fn: Any, batch_format: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._fn, self._format, self._args, self._kwargs = fn, batch_format, tuple(args), dict(kwargs)

    def __call__(self, group: Block) -> Block:
        label = f"map_groups({_ops.name_of(self._fn)})"
        with _ops.Where(f"a group of {_block.rows_of(group)} rows").blaming(label):
            made = self._fn(_block.to_batch(_block.copied(group), self._format), *self._args, **self._kwargs)
            return _block.from_batch(made, label)


class GroupedData:
    """What Dataset.groupby() gives."""

    def __init__(self, dataset: Dataset, keys: Sequence[str]) -> None:
        self._dataset, self._keys = dataset, list(keys)

    def _made(self, label: str, each: Callable[[Block], Block]) -> Dataset:
        node = Barrier(self._dataset._node, f"groupby({', '.join(self._keys)}).{label}", _Grouped(self._keys, each),
                       keeps_rows=False)
        return self._dataset._with(node)

    def _reduce(self, what: str, on: _On, ignore_nulls: bool = True, ddof: int = 1) -> Dataset:
        columns = [on] if isinstance(on, str) else None if on is None else list(on)
        return self._made(what, _Reduce(self._keys, what, columns, ignore_nulls, ddof))

    def count(self) -> Dataset:
        """How many rows each group has, in the column "count()"."""
        return self._reduce("count", None)

    def sum(self, on: _On = None, ignore_nulls: bool = True) -> Dataset:
        """The sums of columns, as "sum(x)"."""
        return self._reduce("sum", on, ignore_nulls)

    def min(self, on: _On = None, ignore_nulls: bool = True) -> Dataset:
        """The least values of columns, as "min(x)"."""
        return self._reduce("min", on, ignore_nulls)

    def max(self, on: _On = None, ignore_nulls: bool = True) -> Dataset:
        """The largest values of columns, as "max(x)"."""
        return self._reduce("max", on, ignore_nulls)

    def mean(self, on: _On = None, ignore_nulls: bool = True) -> Dataset:
        """The means of columns, as "mean(x)"."""
        return self._reduce("mean", on, ignore_nulls)

    def std(self, on: _On = None, ddof: int = 1, ignore_nulls: bool = True) -> Dataset:
        """The standard deviations of columns, as "std(x)"."""
        return self._reduce("std", on, ignore_nulls, ddof)

    def map_groups(self, fn: Any, *, batch_format: Optional[str] = "default", fn_args: Optional[Sequence[Any]] = None,
                   fn_kwargs: Optional[Mapping[str, Any]] = None) -> Dataset:
        """A batch for each group, which a function makes of all its rows.

            ds.groupby("city").map_groups(lambda group: {"city": group["city"][:1], "n": [len(group["city"])]})
        """
        if not callable(fn) or isinstance(fn, type):
            raise TypeError(f"map_groups: the function is {getattr(fn, '__name__', type(fn).__name__)}, expected a function")
        return self._made(f"map_groups({_ops.name_of(fn)})",
                          _MapGroup(fn, _block.check_format(batch_format), fn_args or (), fn_kwargs or {}))

    def aggregate(self, *aggs: Any) -> Any:
        raise NotImplementedError("GroupedData.aggregate() of Ray Data is not part of manta.data: count, sum, min, max, mean, std "
                                  "and map_groups are")

    def __repr__(self) -> str:
        return f"GroupedData({self._dataset!r}, by {', '.join(self._keys)})"
