"""Identifiers: bytes with Ray's manners."""
from __future__ import annotations

import os
from typing import Any

from manta import _manta


class BaseID:
    """Some bytes that name a thing; hashable, comparable, picklable.

        node = ray.NodeID.from_hex(ray.nodes()[0]["NodeID"])
        node.hex(), node.binary()
    """
    SIZE = 8

    def __init__(self, data: bytes) -> None:
        self._data = bytes(data)

    @classmethod
    def from_hex(cls, text: str) -> Any:
        return cls(bytes.fromhex(text))

    @classmethod
    def nil(cls) -> Any:
        return cls(b"\xff" * cls.SIZE)

    @classmethod
    def from_random(cls) -> Any:
        import os
        return cls(os.urandom(cls.SIZE))

    @classmethod
    def size(cls) -> int:
        return cls.SIZE

    def is_nil(self) -> bool:
        return self._data == b"\xff" * len(self._data)

    def binary(self) -> bytes:
        return self._data

    def hex(self) -> str:
        return self._data.hex()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._data == self._data       # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    def __reduce__(self) -> Any:
        return type(self), (self._data,)


class ActorID(BaseID):
    pass


class TaskID(BaseID):
    pass


class JobID(BaseID):
    SIZE = 4

    @classmethod
    def from_int(cls, n: int) -> "JobID":
        return cls(n.to_bytes(4, "big"))

    def int(self) -> Any:
        return int.from_bytes(self._data, "big")


class NodeID(BaseID):
    pass


class WorkerID(BaseID):
    pass


class UniqueID(BaseID):
    SIZE = 28


class PlacementGroupID(BaseID):
    pass


_kept: dict[bytes, Any] = {}     # of references that were pickled by themselves
_life = 0       # of the runtime, in which they were


def loosen(ref: Any) -> Any:
    """What pickle wants of a reference by itself. Nobody can tell when the pickle is gone, so its object stays."""
    global _life
    if _life != _manta.life():
        _life = _manta.life()
        _kept.clear()
    _kept[ref.binary()] = ref
    return _found, (os.getpid(), _life, ref.binary())


def _found(pid: int, life: int, name: bytes) -> Any:
    if pid != os.getpid() or life != _manta.life():
        raise ValueError(f"ObjectRef({name.hex()}) was pickled by itself, by process {pid}, and can be read by it alone and until "
                         "ray.shutdown(): send it inside a value that goes to ray.put() or to a remote call")
    return _kept[name]
