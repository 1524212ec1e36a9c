"""Operations on rows and batches: what is done to blocks on their way, in one process.

An operation is a small object that travels to workers with the user's function. Operations that follow each other
are fused: run_all() passes the blocks of one call through all of them, one after the other, without keeping more than
a batch. What the user's function raises is raised as it is, with a note that names operation, function and source.
"""
from __future__ import annotations

import contextlib
import inspect
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence

from manta.data import _block
from manta.data._block import Block
from manta.data._need import check_count

__all__ = ["AddColumn", "BatchMap", "DropColumns", "Filter", "FlatMap", "Op", "RenameColumns", "RowMap", "SelectColumns",
           "Where", "name_of", "rebatched", "run_all"]


class Where:
    """Which rows are on their way: of what the user knows, for failures."""

    def __init__(self, source: str = "") -> None:
        self.source = source

    @contextlib.contextmanager
    def blaming(self, label: str) -> Iterator[None]:
        """What is raised inside gets a note that says where it was."""
        try:
            yield
        except Exception as e:
            if not any("manta.data:" in note for note in getattr(e, "__notes__", ())):
                e.add_note(f"manta.data: in {label}, on rows of {self.source}")
            raise


def name_of(fn: Any) -> str:
    """What people call a function, a class or an object that is called."""
    fn = getattr(fn, "func", fn)            # of a partial
    return str(getattr(fn, "__name__", type(fn).__name__))


def rebatched(blocks: Iterable[Block], size: Optional[int]) -> Iterator[Block]:
    """Batches of so many rows across blocks, the last one smaller; None: blocks as they are."""
    if size is None:
        yield from (b for b in blocks if _block.rows_of(b))
        return
    kept: list[Block] = []
    n = 0
    for block in blocks:
        rows, begin = _block.rows_of(block), 0
        while n + rows - begin >= size:
            end = begin + size - n
            yield _block.concat([*kept, _block.cut(block, begin, end)])
            kept, n, begin = [], 0, end
        if begin < rows:
            kept.append(_block.cut(block, begin, rows))
            n += rows - begin
    if n:
        yield _block.concat(kept)


class Op:
    """One operation. keeps_rows: as many rows come out as go in, in their order; batch_size: rows that it wants at
    once; is_actor: its function is a class, constructed once in each process of a pool."""
    label = ""
    keeps_rows = False
    batch_size: Optional[int] = None
    is_actor = False

    def prepare(self) -> None:
        """In the process that runs it, before the first block."""

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        raise NotImplementedError


class _UserOp(Op):
    """An operation with a function of the user, or a class whose instances are called."""

    def __init__(self, verb: str, fn: Any, args: Optional[Sequence[Any]] = None, kwargs: Optional[Mapping[str, Any]] = None,
                 constructor_args: Optional[Sequence[Any]] = None,
                 constructor_kwargs: Optional[Mapping[str, Any]] = None) -> None:
        if not callable(fn):
            raise TypeError(f"{verb}: the function is {type(fn).__name__}, expected a function or a class that can be called")
        called = getattr(fn, "__call__", None) if isinstance(fn, type) else fn
        if isinstance(fn, type) and "__call__" not in {k for c in fn.__mro__ for k in vars(c)}:
            raise TypeError(f"{verb}: the class {fn.__name__} has no __call__, which is given the rows")
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise NotImplementedError(f"{verb}: {name_of(fn)} is async, which manta.data does not run")
        self.fn, self.label = fn, f"{verb}({name_of(fn)})"
        self.is_actor = isinstance(fn, type)
        if not self.is_actor and (constructor_args or constructor_kwargs):
            raise ValueError(f"{verb}: fn_constructor_args are for a class, and {name_of(fn)} is a function; fn_args go with "
                             "each call")
        self._args, self._kwargs = tuple(args or ()), dict(kwargs or {})
        self._made_with = (tuple(constructor_args or ()), dict(constructor_kwargs or {}))
        self._call: Optional[Callable[..., Any]] = None

    def prepare(self) -> None:
        fn = self.fn
        if self.is_actor:
            with Where("none yet: its constructor ran").blaming(self.label):
                fn = fn(*self._made_with[0], **self._made_with[1])
        self._call = fn

    def call(self, value: Any, where: Where) -> Any:
        assert self._call is not None
        with where.blaming(self.label):
            return self._call(value, *self._args, **self._kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_call": None}


_GATHERED = 1024        # rows that functions of rows return before they become a block


class RowMap(_UserOp):
    """map: a row for each row."""
    keeps_rows = True

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        for block in blocks:
            rows = [self._row(self.call(row, where), where) for row in _block.rows_in(block)]
            with where.blaming(self.label):
                out = _block.from_rows(rows)
            yield out

    def _row(self, row: Any, where: Where) -> Mapping[str, Any]:
        if isinstance(row, Mapping):
            return row
        with where.blaming(self.label):
            raise TypeError(f"{self.label} returned {type(row).__name__}, expected a dictionary of values by column")


class FlatMap(_UserOp):
    """flat_map: any number of rows for each row."""

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        for block in blocks:
            rows: list[Mapping[str, Any]] = []
            for row in _block.rows_in(block):
                made = self.call(row, where)
                with where.blaming(self.label):
                    if isinstance(made, (Mapping, str, bytes)) or not hasattr(made, "__iter__"):
                        raise TypeError(f"{self.label} returned {type(made).__name__}, expected a list of rows")
                    rows.extend(made)
                    if any(not isinstance(r, Mapping) for r in rows[-1:]):
                        raise TypeError(f"{self.label} returned a list of {type(rows[-1]).__name__}, expected dictionaries")
                    while len(rows) >= _GATHERED:
                        full = _block.from_rows(rows[:_GATHERED])
                        del rows[:_GATHERED]
                        yield full
            with where.blaming(self.label):
                out = _block.from_rows(rows)
            yield out


class Filter(_UserOp):
    """filter: the rows of which the function says so."""

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        import numpy
        for block in blocks:
            mask = numpy.fromiter((bool(self.call(row, where)) for row in _block.rows_in(block)), dtype=bool,
                                  count=_block.rows_of(block))
            yield _block.pick(block, mask)


class BatchMap(_UserOp):
    """map_batches: a batch, or several, for each batch."""

    def __init__(self, fn: Any, *, batch_size: Optional[int], batch_format: str, zero_copy: bool, **more: Any) -> None:
        super().__init__("map_batches", fn, **more)
        self.batch_size = None if batch_size is None else check_count("map_batches", "batch_size", batch_size)
        self._format, self._zero_copy = batch_format, zero_copy

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        for block in rebatched(blocks, self.batch_size):
            given = block if self._zero_copy else _block.copied(block)
            made = self.call(_block.to_batch(given, self._format), where)
            if isinstance(made, Iterator):
                while True:
                    with where.blaming(self.label):
                        try:
                            one = next(made)
                        except StopIteration:
                            break
                    yield self._checked(one, where)
            else:
                yield self._checked(made, where)

    def _checked(self, made: Any, where: Where) -> Block:
        with where.blaming(self.label):
            return _block.from_batch(made, self.label)


class AddColumn(_UserOp):
    """add_column: one more column, computed from batches."""
    keeps_rows = True

    def __init__(self, name: str, fn: Any, batch_format: str) -> None:
        super().__init__("add_column", fn)
        self._name, self._format = name, batch_format

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        for block in blocks:
            column = self.call(_block.to_batch(_block.copied(block), self._format), where)
            with where.blaming(self.label):
                if hasattr(column, "to_numpy"):
                    column = column.to_numpy()
                out = _block.as_block({**block, self._name: column}, self.label)
            yield out


class _ColumnOp(Op):
    """What is done to columns whole, by their names."""
    keeps_rows = True

    def __init__(self, verb: str, names: Iterable[str]) -> None:
        self.label, self._names = f"{verb}({', '.join(names)})", names

    def run(self, blocks: Iterator[Block], where: Where) -> Iterator[Block]:
        for block in blocks:
            if _block.rows_of(block):
                with where.blaming(self.label):
                    _block.check_columns(self._names, block, self.label)
                yield self.changed(block)

    def changed(self, block: Block) -> Block:
        raise NotImplementedError


class SelectColumns(_ColumnOp):
    def changed(self, block: Block) -> Block:
        return {name: block[name] for name in self._names}


class DropColumns(_ColumnOp):
    def changed(self, block: Block) -> Block:
        return {name: column for name, column in block.items() if name not in self._names}


class RenameColumns(_ColumnOp):
    def __init__(self, verb: str, names: Mapping[str, str]) -> None:
        super().__init__(verb, names)
        self._new = dict(names)

    def changed(self, block: Block) -> Block:
        out = {self._new.get(name, name): column for name, column in block.items()}
        if len(out) < len(block):
            raise ValueError(f"{self.label}: two columns would have one name")
        return out


def run_all(ops: Sequence[Op], blocks: Iterator[Block], where: Where, most: int) -> Iterator[Block]:
    """The blocks behind all operations, put together or divided so that each has about `most` bytes. Empty ones are
    left out."""
    for op in ops:
        blocks = op.run(blocks, where)
    kept: list[Block] = []
    size = 0
    for block in blocks:
        if not _block.rows_of(block):
            continue
        n = _block.size_of(block)
        if kept and (size + n > most or block.keys() != kept[0].keys()):
            yield _block.concat(kept)
            kept, size = [], 0
        if n > most:
            yield from _block.slices(block, most)
        else:
            kept.append(block)
            size += n
    if kept:
        yield _block.concat(kept)
