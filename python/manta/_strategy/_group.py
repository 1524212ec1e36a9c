"""The ranks that train one Keras model, and how they agree on what to do next.

    rank 0   exchange(STEP, ...) ─ all-reduce ─ exchange(STEP, ...) ─ all-reduce ─ exchange(JOIN, ...)
    rank 1   exchange(STEP, ...) ─ all-reduce ─ exchange(JOIN, ...) ─ all-reduce ─ exchange(JOIN, ...)

Before each collective every rank says what it is about to do, and hears it of all others: a rank whose batches are over
takes part in the updates of those that still have some, and ranks that do different things are all told so, and do not wait.
"""
from __future__ import annotations

import atexit
import os
import sys
from typing import Any, Optional

import numpy as np

from manta import _manta

STEP, JOIN, FIT, BEGIN, METRICS, EPOCH = range(6)
_DOING = {STEP: "is in a step", JOIN: "has ended its epoch", FIT: "begins fit()", BEGIN: "gives its weights",
          METRICS: "puts its metrics together", EPOCH: "is between two epochs"}
_FIELDS = 5                 # what is being done, and four numbers
_ALL_REDUCE, _BROADCAST, _ALL_GATHER = 1, 2, 4
_SUM, _MEAN = 0, 1
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3, "int32": 4, "int64": 5, "uint8": 6}
_JOIN_MS = 600_000


class Group:
    """The ranks. With one of them nothing is exchanged."""

    def __init__(self, rank: int, size: int, address: Optional[str]) -> None:
        self.rank, self.size = rank, size
        self._ranks: Any = None
        if size > 1:
            self._ranks = _manta.Ranks(str(address), rank, size, -1, _JOIN_MS)
            atexit.register(self.close)         # the others are told that this one has left

    def close(self) -> None:
        """Leaves; the others are told, if they wait."""
        if self._ranks is not None:
            atexit.unregister(self.close)
            self._ranks.close()

    def exchange(self, doing: int, *numbers: int) -> Any:
        """A row of what each rank does, and its four numbers; raises on every rank if they do not fit together."""
        row = np.zeros(_FIELDS, np.int64)
        row[0] = doing
        row[1:1 + len(numbers)] = numbers
        table = self.gather(row)
        kinds = set(table[:, 0].tolist())
        if len(kinds) > 1 and kinds != {STEP, JOIN}:
            said = "; ".join(f"rank {i} {_DOING.get(kind, '?')}" for i, kind in enumerate(table[:, 0].tolist()))
            raise RuntimeError(f"the ranks of a Keras model do different things: {said}. All call fit(), evaluate() and "
                               "train_on_batch() in the same order")
        return table

    def gather(self, row: Any) -> Any:
        """One row of each rank."""
        row = np.ascontiguousarray(row)
        if self._ranks is None:
            return row.reshape(1, -1).copy()
        out = np.empty((self.size, row.size), row.dtype)
        self._run(_ALL_GATHER, row.ctypes.data, out.ctypes.data, row.size, row.dtype.name, 0, 0)
        return out

    def broadcast(self, data: Any, root: int = 0) -> None:
        """The root's bytes, in place."""
        if self._ranks is not None and data.nbytes:
            self._run(_BROADCAST, data.ctypes.data, data.ctypes.data, data.nbytes, "uint8", 0, root)

    def add_up(self, address: int, n: int, dtype: str, is_mean: bool = False) -> None:
        """The sum of all ranks' n elements, or their mean, in place."""
        if self._ranks is not None and n:
            self._run(_ALL_REDUCE, address, address, n, dtype, _MEAN if is_mean else _SUM, 0)

    def _run(self, kind: int, source: int, target: int, n: int, dtype: str, reduction: int, peer: int) -> None:
        if dtype not in _TYPES:
            raise TypeError(f"gradients of {dtype} cannot be averaged; expected one of {', '.join(_TYPES)}")
        self._ranks.run(kind, source, target, n, _TYPES[dtype], reduction, peer)


_joined: Optional[tuple[tuple[int, int, Optional[str]], Group]] = None


def _place() -> tuple[int, int, Optional[str]]:
    """(rank, size, where the ranks meet): of the trainer's loop that runs here, of `manta launch`, or alone."""
    current = getattr(sys.modules.get("manta.train._session"), "_current", None)
    if current is not None:
        return current.place.rank, current.place.world_size, current.place.address
    try:
        return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")), os.environ.get("MANTA_RANKS")
    except ValueError:
        raise RuntimeError(f"keras_strategy(): RANK is {os.environ.get('RANK')!r} and WORLD_SIZE {os.environ.get('WORLD_SIZE')!r}, "
                           "expected numbers") from None


def current_group() -> Group:
    """The group of this process, which is joined once."""
    global _joined
    place = _place()
    if _joined is None or _joined[0] != place:
        rank, size, address = place
        if size > 1 and not address:
            raise RuntimeError(f"keras_strategy(): this is one of {size} processes, and nothing says where they meet; start them by "
                               "`python -m manta launch -n N`, or in the loop of a trainer of manta.train")
        leave()
        _joined = place, Group(rank, size, address)
    return _joined[1]


def leave() -> None:
    """Leaves the group, if this process is in one: who still waits for it is told."""
    global _joined
    joined, _joined = _joined, None
    if joined is not None:
        joined[1].close()
