"""Execution: pieces that are pulled through a plan.

    pieces ── calls, so many at once ── calls ──▶ whoever asks

Nothing runs before the first piece is asked for. A stage is a chain of operations that are fused; it keeps a few calls
under way, each a generator whose results wait in the store until they are taken, in the order of the input. How far a call
may be ahead is its stream's window, so that the blocks of all stages together are no more than DataContext.room() and one in
the making for each call, however large the source is.

Calls hold no processor of the node: how many run at once is decided here. A training that holds all processors, or a pool of
actors, can therefore not starve the reading that it waits for.
"""
from __future__ import annotations

import collections
import functools
import itertools
import sys
import time
from typing import Any, Callable, Iterator, Optional, Sequence

from manta import _core as _plain_core
from manta.data import _block, _ops
from manta.data._block import Block
from manta.data._plan import Barrier, Input, Joined, Limited, Mapped, Node, Piece, Pool, Zipped
from manta.data.context import DataContext

__all__ = ["Execution", "fetch", "read_piece"]

_core: Any = _plain_core            # which has no types
_Bundle = list[Piece]
_CALLS_OF_AN_ACTOR = 2
_REFERENCES = 8192      # in one list: a value has room for some 15,000


# ---- in a worker ----

def read_piece(piece: Piece, value: Optional[Block], where: _ops.Where) -> Iterator[Block]:
    """The blocks of a piece; value: of one in the store, its block."""
    where.source = piece.name
    if piece.read is None:
        assert value is not None
        yield _block.cut(value, piece.begin, _end_of(piece, _block.rows_of(value)))
        return
    at = 0
    reading = iter(piece.read())
    while piece.end is None or at < piece.end:
        with where.blaming("the reading"):
            block = next(reading, None)
        if block is None:
            return
        rows = _block.rows_of(block)
        begin, end = max(piece.begin - at, 0), _end_of(piece, at + rows) - at
        if begin < end:
            yield _block.cut(block, begin, end)
        at += rows


def _end_of(piece: Piece, rows: int) -> int:
    return rows if piece.end is None else min(piece.end, rows)


def _run(ops: Sequence[_ops.Op], most: int, pieces: Sequence[Piece], values: Sequence[Any]) -> Iterator[Any]:
    """Yields of each block what is known of it, and the block."""
    where = _ops.Where()
    blocks = (block for piece, value in zip(pieces, values) for block in read_piece(piece, value, where))
    for block in _ops.run_all(ops, blocks, where, most):
        yield (_block.rows_of(block), _block.size_of(block), _block.kinds_of(block)), block


def _values(given: Sequence[Any]) -> list[Any]:
    """What _given() was given, as values; None of what was none."""
    out: list[Any] = []
    for one in given:
        if isinstance(one, list):
            known = iter(_core.get([ref for ref in one if ref is not None]))
            out += [None if ref is None else next(known) for ref in one]
        else:
            out.append(one)
    return out


def _run_stage(ops: Sequence[_ops.Op], most: int, pieces: Sequence[Piece], *given: Any) -> Iterator[Any]:
    for op in ops:
        op.prepare()
    yield from _run(ops, most, pieces, _values(given))


class _Runner:
    """An actor of a pool: the operations with the instance of the user's class."""

    def __init__(self, ops: Sequence[_ops.Op], most: int) -> None:
        self._ops, self._most = ops, most
        for op in ops:
            op.prepare()

    def run(self, pieces: Sequence[Piece], *given: Any) -> Iterator[Any]:
        yield from _run(self._ops, self._most, pieces, _values(given))


# ---- in the process that asks ----

def fetch(piece: Piece) -> Block:
    """The block of a piece that lies in the store, as views."""
    block: Block = _core.get(piece.ref)
    return _block.cut(block, piece.begin, _end_of(piece, _block.rows_of(block)))


@functools.cache
def _remote(function: Callable[..., Any]) -> Any:
    """The remote function of a function here: one, so that workers read its code once."""
    return _core.remote_function(function, num_cpus=0)


@functools.cache
def _runner_class() -> Any:
    return _core.actor_class(_Runner)


def _shown(pieces: _Bundle) -> list[Piece]:
    """The pieces as a call is told of them: their blocks are arguments of it."""
    return [Piece(p.name, begin=p.begin, end=p.end, read=p.read) for p in pieces]


def _given(refs: Sequence[Any]) -> list[Any]:
    """References to blocks as arguments of a call, which reads them by _values(). Small blocks would travel in the call's
    message, and of many even the references are more than it has room for: more than one are lists."""
    if len(refs) == 1:
        return list(refs)
    return [list(refs[i:i + _REFERENCES]) for i in range(0, len(refs), _REFERENCES)]


class Stage:
    """Operations that are fused, and who runs them."""

    def __init__(self, ops: Sequence[_ops.Op], pool: Optional[Pool], options: dict[str, Any]) -> None:
        self.ops, self.pool, self.options = list(ops), pool, options
        self.label = " -> ".join(op.label for op in ops) or "read"
        self.batch_size = next((op.batch_size for op in ops[:1]), None)


def stages_of(node: Node) -> tuple[Node, list[Stage]]:
    """What the mapped operations above begin with, and they themselves, fused. A class begins a stage of its own."""
    chain: list[Mapped] = []
    while isinstance(node, Mapped):
        chain.append(node)
        node = node.before
    stages: list[Stage] = []
    for one in reversed(chain):
        options = dict(one.options)
        if stages and not one.pool and (not options or options == stages[-1].options) \
                and (one.op.batch_size is None or not stages[-1].ops):
            stages[-1].ops.append(one.op)
            stages[-1].label += f" -> {one.op.label}"
        else:
            stages.append(Stage([one.op], one.pool, options))
    return node, stages


class Execution:
    """One run of a plan. stats: of each stage its label, and its numbers of calls, blocks, rows and bytes."""

    def __init__(self, context: DataContext) -> None:
        self.context = context
        self.stats: dict[str, list[int]] = {}
        self.began = time.monotonic()
        self.ended: Optional[float] = None
        self._wide: Optional[int] = None

    def wide(self) -> int:
        """How many calls run at once."""
        if self._wide is None:
            _core._ensure()
            self._wide = self.context.most_at_once(max(2, int(_core.node_info()["cpus"])))
        return min(self._wide, self.context.room())

    def stream(self, node: Node) -> Iterator[Piece]:
        """The pieces that a plan gives, all of blocks in the store. Closing the iterator ends the calls under way."""
        try:
            yield from self._stream(node)
        finally:
            self.ended = time.monotonic()

    def _stream(self, node: Node) -> Iterator[Piece]:
        if isinstance(node, (Input, Mapped)):
            return self._mapped(node)
        if isinstance(node, Limited):
            return self._limited(node)
        if isinstance(node, Barrier):
            return self._barrier(node)
        if isinstance(node, Joined):
            return itertools.chain.from_iterable(self._stream(part) for part in node.parts)
        if isinstance(node, Zipped):
            from manta.data import _barriers
            return _barriers.zipped(self, list(self._stream(node.first)), list(self._stream(node.second)))
        raise TypeError(f"{type(node).__name__} is no step of a plan")

    def _limited(self, node: Limited) -> Iterator[Piece]:
        left = node.n
        if left <= 0:
            return
        pieces = self._stream(node.before)
        try:
            for piece in pieces:
                rows = piece.rows or 0
                yield piece if rows <= left else piece.narrowed(0, left)
                left -= rows
                if left <= 0:
                    return
        finally:
            _close(pieces)

    def _barrier(self, node: Barrier) -> Iterator[Piece]:
        pieces = list(self._stream(node.before))
        if pieces:
            yield from node.run(self, pieces)

    # ---- stages ----

    def _mapped(self, node: Node) -> Iterator[Piece]:
        first, stages = stages_of(node)
        if isinstance(first, Input):
            pieces: Iterator[Piece] = iter(first.next_order())
            many = len(first.pieces) >= 2 * self.wide()
            reads = any(p.read is not None for p in first.pieces)
            apart = any(p.read is not None and not p.is_block for p in first.pieces) and not many
            if reads and (apart or not stages or stages[0].pool):
                stages.insert(0, Stage([], None, {}))       # so that the blocks of one file go to several processes
        else:
            pieces = self._stream(first)
        room = max(1, self.context.room() // max(len(stages), 1))
        for stage in stages:
            pieces = self._run_stage(stage, pieces, room)
        return pieces

    def _run_stage(self, stage: Stage, pieces: Iterator[Piece], room: int) -> Iterator[Piece]:
        bundles = _bundled(pieces, stage.batch_size)
        counts = self.stats.setdefault(stage.label, [0, 0, 0, 0])
        begin, wide = self._starter(stage, room)
        running: collections.deque[tuple[Any, str]] = collections.deque()
        try:
            while True:
                while len(running) < wide and (bundle := next(bundles, None)) is not None:
                    running.append((begin(bundle), bundle[0].name))
                    counts[0] += 1
                    del bundle              # the call holds its blocks; they go when it ends
                if not running:
                    return
                stream, name = running[0]
                for known in stream:
                    block = next(stream, None)
                    rows, size, kinds = _core.get(known)
                    counts[1:] = [counts[1] + 1, counts[2] + rows, counts[3] + size]
                    yield Piece(name, rows=rows, ref=block, size=size, kinds=kinds)
                    del block
                running.popleft()
        finally:
            for stream, _ in running:
                stream.close()
            _close(pieces)

    def _starter(self, stage: Stage, room: int) -> tuple[Callable[[_Bundle], Any], int]:
        """What begins a call with a bundle, and how many calls there may be at once."""
        most = self.context.target_max_block_size
        if stage.pool:
            return self._pool_starter(stage, stage.pool, room, most)
        wide = max(1, min(self.wide(), room))
        ops = _core.put(stage.ops)
        function = _remote(_run_stage).options(**stage.options, num_returns="streaming", num_objects_per_yield=2,
                                               stream_window=2 * max(1, room // wide))

        def begin(bundle: _Bundle) -> Any:
            return function.remote(ops, most, _shown(bundle), *_given([p.ref for p in bundle]))
        return begin, wide

    def _pool_starter(self, stage: Stage, pool: Pool, room: int, most: int) -> tuple[Callable[[_Bundle], Any], int]:
        ops = _core.put(stage.ops)
        cls = _runner_class()
        wide = max(1, min(pool.most * _CALLS_OF_AN_ACTOR, max(room, pool.least)))
        how = {"num_returns": "streaming", "num_objects_per_yield": 2, "stream_window": 2 * max(1, room // wide)}
        actors: list[Any] = []
        turn = itertools.count()

        def begin(bundle: _Bundle) -> Any:
            i = next(turn)
            if len(actors) < (pool.least if i < pool.least else pool.most):
                actors.append(cls.options(**{"num_cpus": 0, "max_restarts": 3, "max_task_retries": 3, **stage.options}).remote(
                    ops, most))
            # Not handle.run.options(): under manta.ray a handle takes Ray's names of options.
            run = _core._make_method(actors[i % len(actors)], "run", {}, how)
            return run.remote(_shown(bundle), *_given([p.ref for p in bundle]))
        return begin, wide

    # ---- for barriers and writers ----

    def call_each(self, function: Callable[..., Any], pieces: Sequence[Piece], *more: Any, results: int = 1,
                  first: int = 0) -> list[Any]:
        """function(block, index, *more) of each piece, so many at once: its results, as references, in the order of
        pieces, which are counted from `first`."""
        remote = _remote(_call_block).options(num_returns=results)
        shared = _core.put((function, more))
        out: list[Any] = []
        for i, piece in enumerate(pieces):
            if i >= self.wide():
                before = out[i - self.wide()]
                _core.wait([before if results == 1 else before[0]], num_returns=1)
            out.append(remote.remote(shared, _shown([piece])[0], first + i, piece.ref))
        return out

    def merge(self, function: Callable[..., Any], groups: Sequence[Sequence[Any]], *more: Any,
              whole: bool = False) -> Iterator[Piece]:
        """function(index, blocks, *more) of each group of references to blocks: a block, divided where it is too
        large, unless it is to be whole. A group is let go as soon as its call is under way."""
        remote = _remote(_merge_blocks).options(num_returns="streaming", num_objects_per_yield=2, stream_window=4)
        shared = _core.put((function, more, sys.maxsize if whole else self.context.target_max_block_size))
        running: collections.deque[Any] = collections.deque()
        left = collections.deque(enumerate(groups))
        try:
            while left or running:
                while left and len(running) < self.wide():
                    i, group = left.popleft()
                    running.append(remote.remote(shared, i, *_given(group)))
                    del group
                stream = running[0]
                for known in stream:
                    block = next(stream, None)
                    rows, size, kinds = _core.get(known)
                    yield Piece("rows of several blocks", rows=rows, ref=block, size=size, kinds=kinds)
                running.popleft()
        finally:
            for stream in running:
                stream.close()


def _call_block(shared: Any, piece: Piece, index: int, value: Block) -> Any:
    function, more = shared
    where = _ops.Where()
    block = next(read_piece(piece, value, where))
    with where.blaming(getattr(function, "__name__", "call").strip("_")):
        return function(block, index, *more)


def _merge_blocks(shared: Any, index: int, *given: Any) -> Iterator[Any]:
    function, more, most = shared
    for block in _block.slices(function(index, _values(given), *more), most):
        yield (_block.rows_of(block), _block.size_of(block), _block.kinds_of(block)), block


def _close(pieces: Iterator[Piece]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()


def _bundled(pieces: Iterator[Piece], size: Optional[int]) -> Iterator[_Bundle]:
    """Pieces one by one; where batches are wanted, so many together that a batch is full, if it is known."""
    bundle: _Bundle = []
    rows = 0
    for piece in pieces:
        if piece.rows == 0:
            continue
        if size is None or piece.rows is None:
            if bundle:
                yield bundle
                bundle, rows = [], 0
            yield [piece]
            continue
        bundle.append(piece)
        rows += piece.rows
        if rows >= size:
            yield bundle
            bundle, rows = [], 0
    if bundle:
        yield bundle
