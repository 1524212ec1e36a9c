"""Plans: what a dataset is before it is executed.

    Input ── Mapped ── Mapped ── Limited ── Barrier ── ...

A plan is a chain (with union and zip: a tree) of small objects without data. It begins with pieces: blocks that lie in
the store, or what reads some from a file. Plans are never changed; each operation of a dataset makes a new one around
the old.
"""
from __future__ import annotations

import dataclasses
import random
from typing import Any, Callable, Iterable, Iterator, Optional, Sequence

from manta.data._block import Block, Kinds
from manta.data._ops import Op

__all__ = ["Barrier", "Input", "Joined", "Limited", "Mapped", "Node", "Piece", "Pool", "ShuffledInput", "Zipped", "dealt", "known_rows"]


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some rows: a block in the store (ref), or a function that reads blocks (read). Of them the rows begin to end
    count. rows: how many those are; None: not known before they are read. is_block: `read` gives one block."""
    name: str
    rows: Optional[int] = None
    ref: Any = None
    read: Optional[Callable[[], Iterable[Block]]] = None
    begin: int = 0
    end: Optional[int] = None
    size: int = 0
    kinds: Kinds = ()
    is_block: bool = True

    def narrowed(self, begin: int, end: int) -> Piece:
        """Of its rows those from begin to end, which are counted from its own first."""
        assert self.rows is not None and 0 <= begin <= end <= self.rows
        size = self.size * (end - begin) // self.rows if self.rows else 0
        return dataclasses.replace(self, begin=self.begin + begin, end=self.begin + end, rows=end - begin, size=size)


class Node:
    """A step of a plan."""

    def known_rows(self) -> Optional[int]:
        """How many rows it gives, if that is known without reading."""
        return None


@dataclasses.dataclass(frozen=True)
class Input(Node):
    """The beginning: pieces, in order."""
    pieces: tuple[Piece, ...]

    def known_rows(self) -> Optional[int]:
        return known_rows(self.pieces)

    def next_order(self) -> Sequence[Piece]:
        """The pieces as an execution that begins reads them."""
        return self.pieces


@dataclasses.dataclass(frozen=True)
class ShuffledInput(Input):
    """A beginning whose files are read in a random order: that of the seed and of the number of the execution in this process,
    or, without reseeds, of the seed alone; without a seed another each time. of_file: the pieces of a file, in order."""
    of_file: tuple[tuple[Piece, ...], ...] = ()
    seed: Optional[int] = None
    reseeds: bool = True
    count: list[int] = dataclasses.field(default_factory=lambda: [0], compare=False)

    def next_order(self) -> Sequence[Piece]:
        n, self.count[0] = self.count[0], self.count[0] + 1
        seed = None if self.seed is None else self.seed + (n if self.reseeds else 0)
        files = list(self.of_file)
        random.Random(seed).shuffle(files)
        return [piece for file in files for piece in file]


@dataclasses.dataclass(frozen=True)
class Pool:
    """The actors that run an operation whose function is a class."""
    least: int
    most: int


@dataclasses.dataclass(frozen=True)
class Mapped(Node):
    """An operation on rows or batches. options: what its processes are given besides, such as num_gpus."""
    before: Node
    op: Op
    pool: Optional[Pool] = None
    options: tuple[tuple[str, Any], ...] = ()

    def known_rows(self) -> Optional[int]:
        return self.before.known_rows() if self.op.keeps_rows else None


@dataclasses.dataclass(frozen=True)
class Limited(Node):
    """The first n rows."""
    before: Node
    n: int

    def known_rows(self) -> Optional[int]:
        rows = self.before.known_rows()
        return None if rows is None else min(rows, self.n)


@dataclasses.dataclass(frozen=True)
class Barrier(Node):
    """What needs all rows before it gives the first: run(execution, pieces) gives new pieces."""
    before: Node
    label: str
    run: Callable[[Any, list[Piece]], Iterator[Piece]]
    keeps_rows: bool = True

    def known_rows(self) -> Optional[int]:
        return self.before.known_rows() if self.keeps_rows else None


@dataclasses.dataclass(frozen=True)
class Joined(Node):
    """The rows of several, one after the other."""
    parts: tuple[Node, ...]

    def known_rows(self) -> Optional[int]:
        counts = [part.known_rows() for part in self.parts]
        return None if any(c is None for c in counts) else sum(c for c in counts if c is not None)


@dataclasses.dataclass(frozen=True)
class Zipped(Node):
    """The columns of two, side by side; those of the second that have a name of the first's get a number."""
    first: Node
    second: Node

    def known_rows(self) -> Optional[int]:
        return self.first.known_rows()


def known_rows(pieces: Iterable[Piece]) -> Optional[int]:
    """The rows of all pieces; None: not known of each."""
    total = 0
    for piece in pieces:
        if piece.rows is None:
            return None
        total += piece.rows
    return total


def dealt(pieces: Sequence[Piece], bounds: Sequence[int]) -> list[list[Piece]]:
    """The pieces divided at these rows: [0, 10, 25] gives the rows 0 to 10 and 10 to 25. Their rows are known."""
    out: list[list[Piece]] = [[] for _ in bounds[1:]]
    begin, part = 0, 0
    for piece in pieces:
        rows = piece.rows or 0
        while part < len(out) and bounds[part + 1] <= begin:
            part += 1
        j, at = part, begin
        while j < len(out) and at < begin + rows:
            end = min(bounds[j + 1], begin + rows)
            if end > at:
                out[j].append(piece.narrowed(at - begin, end - begin))
            at = max(at, end)
            j += 1
        begin += rows
    return out
