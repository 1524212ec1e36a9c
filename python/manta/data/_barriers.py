"""Operations that need all rows before they give the first: shuffles, sorts, other numbers of blocks, zip.

They take two rounds of calls. In the first each block is divided into parts, in the second the parts of a kind are put
together; nowhere is more than a few blocks in one process. All blocks lie in the store meanwhile, which writes to its
spill folder what does not fit into memory.
"""
from __future__ import annotations

import bisect
from typing import Any, Iterator, Optional, Sequence

from manta import _core as _plain_core
from manta.data import _block
from manta.data._block import Block
from manta.data._need import need
from manta.data._plan import Piece, dealt

__all__ = ["Repartition", "Shuffle", "Sort", "zipped"]

_core: Any = _plain_core            # which has no types
_MOST_PARTS = 64        # so that n blocks make no more than 64 n parts


def _columns(results: Sequence[Any], n: int) -> list[list[Any]]:
    """The parts of all blocks, by kind."""
    if n == 1:
        return [list(results)]
    return [[parts[j] for parts in results] for j in range(n)]


# ---- shuffle ----

def _scatter(block: Block, index: int, n: int, seed: Any) -> Any:
    numpy = need("numpy", "random_shuffle")
    order = numpy.random.default_rng([seed, 0, index]).permutation(_block.rows_of(block))
    parts = [_block.pick(block, order[len(order) * j // n:len(order) * (j + 1) // n]) for j in range(n)]
    return parts[0] if n == 1 else tuple(parts)


def _gather_shuffled(index: int, blocks: Sequence[Block], seed: Any) -> Block:
    numpy = need("numpy", "random_shuffle")
    block = _block.concat(blocks)
    return _block.pick(block, numpy.random.default_rng([seed, 1, index]).permutation(_block.rows_of(block)))


class Shuffle:
    """All rows in a random order: that of a seed, or another in each execution."""

    def __init__(self, seed: Optional[int]) -> None:
        self._seed = seed

    def __call__(self, execution: Any, pieces: list[Piece]) -> Iterator[Piece]:
        numpy = need("numpy", "random_shuffle")
        seed = self._seed if self._seed is not None else int(numpy.random.SeedSequence().generate_state(1)[0])
        n = max(1, min(len(pieces), _MOST_PARTS))
        parts = _columns(execution.call_each(_scatter, pieces, n, seed, results=n), n)
        pieces.clear()
        yield from execution.merge(_gather_shuffled, parts, seed)


# ---- sort ----

def _rank(value: Any) -> tuple[bool, Any]:
    """What values are ordered by: None, NaN and NaT behind all others, and like each other."""
    generic = need("numpy", "sort").generic
    is_missing = value is None or isinstance(value, (float, generic)) and bool(value != value)
    return is_missing, 0 if is_missing else value


def _ranked(values: Sequence[Any], ranks: Sequence[Any], down: bool, key: str) -> list[Any]:
    """The values in the order of their ranks, equal ones as they were."""
    try:
        return [values[i] for i in sorted(range(len(ranks)), key=ranks.__getitem__, reverse=down)]
    except TypeError as e:
        raise TypeError(f"sort: column {key!r} holds values that have no order ({e})") from None


def _order(block: Block, keys: Sequence[str], descending: Sequence[bool]) -> Any:
    """The rows' order by several columns, equal ones as they were."""
    numpy = need("numpy", "sort")
    order = numpy.arange(_block.rows_of(block))
    for key, down in zip(reversed(keys), reversed(descending)):
        column = block[key][order]
        if column.dtype == object:
            order = numpy.array(_ranked(order, [_rank(value) for value in column], down, key), dtype=order.dtype)
        elif down:          # of the reversed column, so that equal ones stay as they were
            order = order[(len(column) - 1 - numpy.argsort(column[::-1], kind="stable"))[::-1]]
        else:
            order = order[numpy.argsort(column, kind="stable")]
    return order


def _sample(block: Block, index: int, keys: Sequence[str]) -> Any:
    _block.check_columns(keys, block, "sort")
    rows = _block.rows_of(block)
    some = block[keys[0]][:: max(1, rows // 64)]
    return list(some) if some.dtype.kind in "mM" else some.tolist()     # Python's would have no NaT


def _cuts(column: Any, bounds: Sequence[Any], down: bool) -> list[int]:
    """Where a sorted column is to be divided so that what equals a bound is before the cut."""
    numpy = need("numpy", "sort")
    if column.dtype == object:
        ranks = [_rank(value) for value in (column[::-1] if down else column)]
        return [len(ranks) - bisect.bisect_left(ranks, _rank(b)) if down else bisect.bisect_right(ranks, _rank(b))
                for b in bounds]
    if down:
        return [len(column) - int(numpy.searchsorted(column[::-1], b, side="left")) for b in bounds]
    return [int(numpy.searchsorted(column, b, side="right")) for b in bounds]


def _divide(block: Block, index: int, keys: Sequence[str], descending: Sequence[bool], bounds: Sequence[Any]) -> Any:
    sorted_block = _block.pick(block, _order(block, keys, descending))
    ends = [0, *_cuts(sorted_block[keys[0]], bounds, descending[0]), _block.rows_of(block)]
    parts = [_block.cut(sorted_block, begin, end) for begin, end in zip(ends, ends[1:])]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _gather_sorted(index: int, blocks: Sequence[Block], keys: Sequence[str], descending: Sequence[bool]) -> Block:
    block = _block.concat(blocks)
    return _block.pick(block, _order(block, keys, descending))


class Sort:
    """All rows in the order of one or several columns."""

    def __init__(self, keys: Sequence[str], descending: Sequence[bool]) -> None:
        self._keys, self._descending = list(keys), list(descending)

    def __call__(self, execution: Any, pieces: list[Piece]) -> Iterator[Piece]:
        samples = execution.call_each(_sample, pieces, self._keys)
        values = [x for some in _core.get(samples) for x in some]
        values = _ranked(values, [_rank(x) for x in values], self._descending[0], self._keys[0])
        n = max(1, min(len(pieces), _MOST_PARTS))
        bounds = list({_rank(b): b for b in (values[len(values) * j // n] for j in range(1, n))}.values())
        parts = _columns(execution.call_each(_divide, pieces, self._keys, self._descending, bounds,
                                             results=len(bounds) + 1), len(bounds) + 1)
        pieces.clear()
        yield from self.gather(execution, parts)

    def gather(self, execution: Any, parts: list[list[Any]]) -> Iterator[Piece]:
        """The second round."""
        yield from execution.merge(_gather_sorted, parts, self._keys, self._descending)


# ---- other numbers of blocks ----

def _put_together(index: int, blocks: Sequence[Block], cuts: Sequence[Sequence[tuple[int, Optional[int]]]]) -> Block:
    return _block.concat([_block.cut(block, begin, _block.rows_of(block) if end is None else end)
                          for block, (begin, end) in zip(blocks, cuts[index])])


class Repartition:
    """The same rows in n blocks of equally many."""

    def __init__(self, n: int) -> None:
        self._n = n

    def __call__(self, execution: Any, pieces: list[Piece]) -> Iterator[Piece]:
        rows = sum(p.rows or 0 for p in pieces)
        parts = dealt(pieces, [rows * i // self._n for i in range(self._n + 1)])
        pieces.clear()
        cuts = [[(p.begin, p.end) for p in part] for part in parts if part]
        yield from execution.merge(_put_together, [[p.ref for p in part] for part in parts if part], cuts, whole=True)


# ---- zip ----

def _beside(index: int, blocks: Sequence[Block], cuts: Sequence[Sequence[tuple[int, Optional[int]]]]) -> Block:
    first = _put_together(0, blocks[:1], [cuts[index][:1]])
    second = _put_together(0, blocks[1:], [cuts[index][1:]])
    out = dict(first)
    for name, column in second.items():
        new, i = name, 0
        while new in out:
            i += 1
            new = f"{name}_{i}"
        out[new] = column
    return out


def zipped(execution: Any, first: list[Piece], second: list[Piece]) -> Iterator[Piece]:
    """The blocks of the first, each beside the same rows of the second."""
    bounds = [0]
    for piece in first:
        bounds.append(bounds[-1] + (piece.rows or 0))
    others = sum(p.rows or 0 for p in second)
    if others != bounds[-1]:
        raise ValueError(f"zip: one dataset has {bounds[-1]} rows and the other {others}, expected equally many")
    parts = [[a, *some] for a, some in zip(first, dealt(second, bounds))]
    cuts = [[(p.begin, p.end) for p in part] for part in parts]
    yield from execution.merge(_beside, [[p.ref for p in part] for part in parts], cuts)
