"""A group that this process is a rank of, and its collectives over manta/comm.h."""
from __future__ import annotations

import hashlib
import operator
from typing import Any, Callable, Optional

from manta import _manta
from manta.ray.util.collective._memory import Row, memory_of, parts_of
from manta.ray.util.collective.types import ReduceOp

BARRIER, ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, _, SEND, RECEIVE = range(9)
REDUCTIONS = {ReduceOp.SUM: 0, ReduceOp.AVERAGE: 1, ReduceOp.MIN: 2, ReduceOp.MAX: 3, ReduceOp.PRODUCT: 4}


def address_of(*where: object) -> str:
    """A name of the host's, and no file: nothing is left of it when its process ends in whatever way."""
    return "unix:@manta-collective-" + hashlib.sha256(repr(where).encode()).hexdigest()[:32]


def whole_number(value: Any) -> Optional[int]:
    """A number of Python's or numpy's; None: it is none, or not a whole one."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _reduction(op: Any, what: str) -> int:
    if op not in REDUCTIONS:
        raise ValueError(f"{what}: op is {op!r}, expected one of {', '.join(str(o) for o in REDUCTIONS)}")
    return REDUCTIONS[op]


class Group:
    """Rank `rank` of `size`."""

    def __init__(self, name: str, rank: int, size: int, timeout_ms: int, address: str, token: Optional[str]) -> None:
        """token: of the declaration that it is of; None: of none."""
        self.name, self.rank, self.size, self.token = name, rank, size, token
        self._address = address
        self._ranks: Any = self._told("joining", lambda: _manta.Ranks(address, rank, size, timeout_ms, timeout_ms))

    def _told(self, doing: str, call: Callable[[], Any]) -> Any:
        """call(); its errors name the group."""
        try:
            return call()
        except (ValueError, OSError, RuntimeError) as e:
            text = str(e).replace(" at " + self._address, "")
            if "Address already in use" in text:
                text = "another process joins a group of this name as rank 0 at the moment"
            kind = (TimeoutError if isinstance(e, TimeoutError) else ValueError if isinstance(e, (ValueError, FileExistsError))
                    else RuntimeError)
            raise kind(f"{doing} the collective group {self.name!r} as rank {self.rank} of {self.size}: {text}") from None

    def _run(self, kind: int, source: int, target: int, n: int, dtype: int, reduction: int = 0, peer: int = 0) -> None:
        self._told("a call of", lambda: self._ranks.run(kind, source, target, n, dtype, reduction, peer))

    def _check_peer(self, peer: Any, what: str, may_be_own: bool = True) -> int:
        number = whole_number(peer)
        if number is None or not 0 <= number < self.size:
            raise ValueError(f"{what}: there is no rank {peer!r} in the group {self.name!r}; expected 0 to {self.size - 1}")
        if number == self.rank and not may_be_own:
            raise ValueError(f"{what}: rank {number} of the group {self.name!r} is the caller itself; expected another")
        return number

    def close(self) -> None:
        self._ranks.close()

    def barrier(self) -> None:
        self._run(BARRIER, 0, 0, 0, 0)

    def allreduce(self, tensor: Any, op: Any) -> None:
        m = memory_of(tensor, "allreduce()")
        self._run(ALL_REDUCE, m.address, m.address, m.n, m.reduced("allreduce()"), _reduction(op, "allreduce()"))

    def reduce(self, tensor: Any, root: Any, op: Any) -> None:
        m = memory_of(tensor, "reduce()", is_written=root == self.rank)
        self._run(REDUCE, m.address, m.address, m.n, m.reduced("reduce()"), _reduction(op, "reduce()"),
                  self._check_peer(root, "reduce()"))

    def broadcast(self, tensor: Any, root: Any) -> None:
        m = memory_of(tensor, "broadcast()", is_written=root != self.rank)
        n, dtype = m.moving()
        self._run(BROADCAST, m.address, m.address, n, dtype, 0, self._check_peer(root, "broadcast()"))

    def allgather(self, tensors: Any, tensor: Any) -> None:
        m = memory_of(tensor, "allgather()", is_written=False)
        parts = parts_of(tensors, self.size, m, "allgather()", is_written=True)
        row = Row(self.size, m)
        n, dtype = m.moving()
        self._run(ALL_GATHER, m.address, row.address, n, dtype)
        row.give(parts)

    def reducescatter(self, tensor: Any, tensors: Any, op: Any) -> None:
        m = memory_of(tensor, "reducescatter()")
        dtype, reduction = m.reduced("reducescatter()"), _reduction(op, "reducescatter()")
        row = Row(self.size, m)
        row.take(parts_of(tensors, self.size, m, "reducescatter()", is_written=False))
        self._run(REDUCE_SCATTER, row.address, m.address, m.n, dtype, reduction)

    def send(self, tensor: Any, to: Any) -> None:
        m = memory_of(tensor, "send()", is_written=False)
        n, dtype = m.moving()
        self._run(SEND, m.address, 0, n, dtype, 0, self._check_peer(to, "send()", may_be_own=False))

    def recv(self, tensor: Any, source: Any) -> None:
        m = memory_of(tensor, "recv()")
        n, dtype = m.moving()
        self._run(RECEIVE, 0, m.address, n, dtype, 0, self._check_peer(source, "recv()", may_be_own=False))
