"""ray.util.collective.types: reductions, and names of backends."""
from __future__ import annotations

import enum


class ReduceOp(enum.Enum):
    """How the elements of all ranks become one.

        def work(self, array): collective.allreduce(array, "mine", ReduceOp.MAX)
    """
    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
    AVERAGE = 4


class Backend:
    """Names of backends. "auto" and "gloo" are the same here: the collectives of this host's memory.

        Backend("gloo") == Backend.GLOO
    """
    AUTO = "auto"
    GLOO = "gloo"
    NCCL = "nccl"
    MPI = "mpi"
    NIXL = "nixl"
    UNRECOGNIZED = "unrecognized"

    def __new__(cls, name: str) -> str:                 # type: ignore[misc]
        names = (cls.AUTO, cls.GLOO, cls.NCCL, cls.MPI, cls.NIXL)
        if not isinstance(name, str) or name.lower() not in names:
            raise ValueError(f"{name!r} is no backend of collectives; there are \"auto\" and \"gloo\"")
        if name.lower() not in (cls.AUTO, cls.GLOO):
            raise NotImplementedError(f"backend={name!r}: collectives of manta.ray are of the memory of processors; expected "
                                      "\"auto\" or \"gloo\", which are the same here")
        return name.lower()
