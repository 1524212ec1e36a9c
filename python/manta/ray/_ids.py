"""Identifiers: bytes with Ray's manners."""
from __future__ import annotations

from typing import Any


class BaseID:
    """Some bytes that name a thing; hashable, comparable, picklable."""
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
