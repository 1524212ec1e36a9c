"""Shards: the parts of a dataset that the ranks of a training read at the same time.

Where it is known how many rows there are, a shard is a plan of its own, and ranks have nothing to do with each other. Else one
actor, the dealer, executes the plan once for all of them, and deals the rows of each block as they come:

    plan ── blocks ──▶ dealer ── rows 0 to 3 of block 7 ──▶ rank 0
                          └───── rows 3 to 6 of block 7 ──▶ rank 1

equal: all ranks get equally many rows, so that they take equally many steps; fewer rows than there are ranks are left out
at the end. A rank that runs ahead waits for the others, so that the dealer keeps few blocks. A pass begins when all ranks
have left the one before; a new attempt of a training begins with its first pass, whatever the one before has left.
"""
from __future__ import annotations

import collections
import sys
import threading
from typing import Any, Iterator, Optional, Sequence

from manta import _core as _plain_core
from manta.data import _block, _execute
from manta.data._block import Kinds
from manta.data._plan import Input, Mapped, Node, Piece, ShuffledInput, dealt
from manta.data.context import DataContext
from manta.data.iterator import DataIterator

__all__ = ["PlanShard", "Shard", "split_plan", "stream_shards"]

_core: Any = _plain_core            # which has no types
_SAY_S = 10.0           # after which a rank that waits for others says so


class PlanShard(DataIterator):
    """A shard that is a plan of its own."""

    def __init__(self, node: Node, context: DataContext, name: str) -> None:
        self._node, self._context, self._name = node, context, name

    def _pieces(self) -> Iterator[Piece]:
        return _execute.Execution(self._context).stream(self._node)

    def _kinds(self) -> Kinds:
        return first_kinds(self._node, self._context)

    def count(self) -> int:
        """How many rows there are."""
        return self._node.known_rows() or 0

    def __repr__(self) -> str:
        return f"<{self._name} of a dataset: {self.count()} rows>"


def first_kinds(node: Node, context: DataContext) -> Kinds:
    """What the columns of a plan hold, by its first block; () when it has no row."""
    pieces = _execute.Execution(context).stream(node)
    try:
        for piece in pieces:
            return piece.kinds or _block.kinds_of(_execute.fetch(piece))
        return ()
    finally:
        pieces.close()          # type: ignore[attr-defined]  # it is a generator


def split_plan(node: Node, bounds: Sequence[int]) -> Optional[list[Node]]:
    """Plans of the rows between these bounds; None where rows cannot be told apart before they are made."""
    chain: list[Mapped] = []
    first = node
    while isinstance(first, Mapped):
        if not first.op.keeps_rows:
            return None
        chain.append(first)
        first = first.before
    if not isinstance(first, Input) or isinstance(first, ShuffledInput) or first.known_rows() is None:
        return None
    out = []
    for pieces in dealt(first.pieces, bounds):
        part: Node = Input(tuple(pieces))
        for one in reversed(chain):
            part = Mapped(part, one.op, one.pool, one.options)
        out.append(part)
    return out


# ---- the dealer ----

class Dealer:
    """Deals the rows of a plan to n ranks; an actor, whose calls wait in threads of their own."""

    def __init__(self, node: Node, context: DataContext, n: int, equal: bool) -> None:
        self._node, self._context, self._n, self._equal = node, context, n, equal
        self._most = max(2, context.room() // 2)           # pieces that may wait for one rank
        self._changed = threading.Condition()
        self._attempt = 0
        self._reset()

    def _reset(self) -> None:
        self._pass = -1
        self._left = [-1] * self._n         # of each rank the last pass that it has left
        self._stream: Optional[Iterator[Piece]] = None
        self._begin_queues()

    def _begin_queues(self) -> None:
        self._queues: list[collections.deque[Piece]] = [collections.deque() for _ in range(self._n)]
        self._over: list[Piece] = []        # rows that are too few to be dealt
        self._is_pulling = False
        self._error: Optional[BaseException] = None
        self._ended = False

    def take(self, rank: int, attempt: int, number: int) -> Optional[Piece]:
        """The next rows for a rank in a pass; None: the pass is over."""
        with self._changed:
            if attempt > self._attempt:
                self._close()
                self._attempt = attempt
                self._reset()
                self._changed.notify_all()
            self._left[rank] = max(self._left[rank], number - 1)
            self._changed.notify_all()
            while True:
                self._check(attempt)
                if self._pass < number and min(self._left) >= number - 1:
                    self._close()
                    self._pass = number
                    self._begin_queues()
                    self._stream = _execute.Execution(self._context).stream(self._node)
                if self._pass == number:
                    if self._queues[rank]:
                        piece = self._queues[rank].popleft()
                        self._changed.notify_all()
                        return piece
                    if self._error is not None:
                        raise self._error
                    if self._ended:
                        return None
                    if not self._is_pulling and not self._ahead(rank):
                        self._pull(attempt, number)
                        continue
                self._wait(rank)

    def leave(self, rank: int, attempt: int, number: int) -> None:
        """A rank needs no more of a pass."""
        with self._changed:
            if attempt == self._attempt:
                self._left[rank] = max(self._left[rank], number)
                if self._pass == number:
                    self._queues[rank].clear()
                    if min(self._left) >= number:
                        self._close()
                self._changed.notify_all()

    def _check(self, attempt: int) -> None:
        if attempt < self._attempt:
            raise RuntimeError("another attempt of this training reads the dataset now")

    def _ahead(self, rank: int) -> bool:
        """Whether others have so much waiting for them that nothing more is made for now."""
        return any(len(q) >= self._most for r, q in enumerate(self._queues) if r != rank)

    def _wait(self, rank: int) -> None:
        if not self._changed.wait(_SAY_S):
            behind = [r for r in range(self._n) if r != rank and (len(self._queues[r]) >= self._most
                                                                  or self._left[r] < self._pass)]
            print(f"manta.data: shard {rank} waits for rows until shard {', '.join(map(str, behind)) or 'of others'} takes "
                  "its own: shards of streaming_split() are read at the same time", file=sys.stderr, flush=True)

    def _pull(self, attempt: int, number: int) -> None:
        """One piece of the plan into the queues. The lock is given back while it is made."""
        stream = self._stream
        assert stream is not None
        self._is_pulling = True
        self._changed.release()
        piece, error = None, None
        try:
            piece = next(stream, None)
        except Exception as e:  # noqa: BLE001  it is every rank's
            error = e
        finally:
            self._changed.acquire()
        if attempt != self._attempt or number != self._pass or stream is not self._stream:
            getattr(stream, "close")()
            self._changed.notify_all()
            return
        self._is_pulling = False
        if error is not None:
            self._error = error
        elif piece is None:
            self._ended = True
        else:
            self._deal(piece)
        self._changed.notify_all()

    def _deal(self, piece: Piece) -> None:
        if not self._equal:
            self._give(min(range(self._n), key=lambda r: (self._left[r] >= self._pass, len(self._queues[r]))), piece)
            return
        n = self._n
        self._over.append(piece)
        rows = sum(p.rows or 0 for p in self._over)
        each = rows // n
        bounds = [each * r for r in range(n + 1)] + [rows]
        *parts, self._over = dealt(self._over, bounds)
        for rank, part in enumerate(parts):
            for one in part:
                self._give(rank, one)

    def _give(self, rank: int, piece: Piece) -> None:
        if self._left[rank] < self._pass:
            self._queues[rank].append(piece)

    def _close(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None and not self._is_pulling:
            getattr(stream, "close")()


class Shard(DataIterator):
    """A rank's side of a dealer."""

    def __init__(self, dealer: Any, rank: int, node: Node, context: DataContext) -> None:
        self._dealer, self._rank, self._node, self._context = dealer, rank, node, context
        self._attempt, self._passes = 0, 0

    def _for_attempt(self, attempt: int) -> None:
        """Before the first pass of an attempt of a training, in its process."""
        if attempt != self._attempt:
            self._attempt, self._passes = attempt, 0

    def _pieces(self) -> Iterator[Piece]:
        number, self._passes = self._passes, self._passes + 1
        at = (self._rank, self._attempt, number)
        try:
            while (piece := _core.get(self._dealer.take.remote(*at))) is not None:
                yield piece
                del piece
        finally:
            self._dealer.leave.remote(*at)

    def _kinds(self) -> Kinds:
        return first_kinds(self._node, self._context)

    def __repr__(self) -> str:
        return f"<shard {self._rank} of a dataset>"


def stream_shards(node: Node, context: DataContext, n: int, equal: bool) -> list[DataIterator]:
    """n shards of a plan."""
    if n == 1:
        return [PlanShard(node, context, "the whole")]
    rows = node.known_rows()
    if rows is not None:
        each = rows // n
        bounds = [each * r for r in range(n + 1)] if equal else [rows * r // n for r in range(n + 1)]
        parts = split_plan(node, bounds)
        if parts is not None:
            return [PlanShard(part, context, f"shard {r}") for r, part in enumerate(parts)]
    cls = _core.actor_class(Dealer)
    dealer = cls.options(num_cpus=0, max_concurrency=2 * n + 2).remote(node, context, n, equal)
    return [Shard(dealer, r, node, context) for r in range(n)]
