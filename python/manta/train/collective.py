"""What the ranks of a training do together, whatever framework they use.

    from manta.train import collective

    config = collective.broadcast_from_rank_zero(read_config() if rank == 0 else None)
    collective.barrier()

Small values and no gradients: they pass through the driver. A rank that has returned or died ends what others wait for.
"""
from __future__ import annotations

from typing import TypeVar

from manta.train import _session

__all__ = ["barrier", "broadcast_from_rank_zero"]

T = TypeVar("T")


def barrier() -> None:
    """Returns when every rank has called it.

        manta.train.collective.barrier()
    """
    _session.current("barrier()").meet("barrier()", b"")


def broadcast_from_rank_zero(data: T) -> T:
    """What rank 0 was given, in every rank; it must be picklable. Every rank is to call it.

        seed = manta.train.collective.broadcast_from_rank_zero(random.random())
    """
    session = _session.current("broadcast_from_rank_zero()")
    is_zero = session.place.rank == 0
    brought = session.meet("broadcast_from_rank_zero()", _session.pickled_value(data) if is_zero else b"")
    out: T = data if is_zero else _session.unpickled(brought)
    return out
