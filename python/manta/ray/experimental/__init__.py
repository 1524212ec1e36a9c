"""ray.experimental: where objects lie; the weights of graphs of TensorFlow 1."""
from __future__ import annotations

import sys
from typing import Any

from manta.ray import _worker
from manta.ray.exceptions import RaySystemError


def _size(ref: Any) -> int:
    """Bytes of a value with its frame, as Python has it."""
    try:
        value = _worker.get(ref, timeout=0)
        return sys.getsizeof(value) + int(getattr(value, "nbytes", 0))
    except Exception:       # a failure has none
        return 0


def get_object_locations(obj_refs: list[Any], timeout_ms: int = -1) -> dict[Any, dict[str, Any]]:
    """For each reference: the nodes that have its object, and its size. There is one node.

    >>> get_object_locations([ray.put(b"x" * 1000)])
    """
    from manta.ray.util import state

    if not _worker.is_initialized():
        raise RuntimeError("no session is there: ray.init() begins one")
    try:
        rows = {row["object_id"]: row for row in state._objects()}
    except Exception as e:
        raise RaySystemError(e) from e
    node = _worker.nodes()[0]["NodeID"]
    out: dict[Any, dict[str, Any]] = {}
    for ref in obj_refs:
        row = rows.get(ref.hex())           # a small one may lie in this process alone
        there = bool(_worker.wait([ref], timeout=0)[0])
        out[ref] = {"node_ids": [node] if there else [], "did_spill": False,
                    "object_size": max(row["object_size"] if row else 0, _size(ref) if there else 0)}
    return out


get_local_object_locations = get_object_locations


def __getattr__(name: str) -> object:
    if name == "TensorFlowVariables":
        from manta.ray.experimental.tf_utils import TensorFlowVariables
        return TensorFlowVariables
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
