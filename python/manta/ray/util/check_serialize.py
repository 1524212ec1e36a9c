"""ray.util.check_serialize: why something cannot be sent."""
from __future__ import annotations

import inspect
from typing import Any, Optional

import cloudpickle


class FailureTuple:
    """What fails to be pickled, its name, and what holds it."""

    def __init__(self, obj: Any, name: str, parent: Any) -> None:
        self.obj, self.name, self.parent = obj, name, parent

    def __repr__(self) -> str:
        return f"FailTuple({self.name} [obj={self.obj}, parent={self.parent}])"


def _can_pickle(obj: Any) -> bool:
    try:
        cloudpickle.dumps(obj)
        return True
    except Exception:
        return False


def _parts(obj: Any) -> list[tuple[str, Any]]:
    """What an object is made of, as far as its pickle goes."""
    if inspect.isfunction(obj) or inspect.ismethod(obj):
        closure = inspect.getclosurevars(obj)
        return [*closure.globals.items(), *closure.nonlocals.items()]
    if isinstance(obj, dict):
        return [(str(k), v) for k, v in obj.items()]
    if isinstance(obj, (list, tuple, set)):
        return [(f"[{i}]", v) for i, v in enumerate(obj)]
    members = getattr(obj, "__dict__", {})
    return [(k, v) for k, v in list(members.items()) if not k.startswith("__") or inspect.isfunction(v)]


def inspect_serializability(base_obj: Any, name: Optional[str] = None, depth: int = 3,
                            print_file: Any = None) -> tuple[bool, set[FailureTuple]]:
    """Whether an object can be sent to a worker and, if not, which parts of it are in the way.

    >>> ok, failures = ray.util.inspect_serializability(lambda: lock)
    """
    label = name or getattr(base_obj, "__qualname__", None) or str(base_obj)
    lines = ["=" * 60, f"Checking Serializability of {base_obj}", "=" * 60]
    failures: list[FailureTuple] = []
    ok = _can_pickle(base_obj)
    if not ok:
        _search(base_obj, label, None, depth, failures, lines, "", set())
        lines += ["=" * 60, "These cannot be pickled, and there may be more:", *(f"\t{f}" for f in failures),
                  "Make them inside the function or class, or pass what they are made from.", "=" * 60]
    print("\n".join(lines), file=print_file)
    return ok, set(failures)


def _search(obj: Any, name: str, parent: Any, depth: int, failures: list[FailureTuple], lines: list[str], indent: str,
            seen: set[int]) -> None:
    """Goes down to the smallest parts that fail."""
    found = False
    if depth > 0 and id(obj) not in seen:
        seen.add(id(obj))
        if inspect.isfunction(obj):
            lines.append(f"{indent}Detected variables of '{obj.__qualname__}':")
        for part_name, part in _parts(obj):
            if not _can_pickle(part):
                lines.append(f"{indent}    Serializing '{part_name}' {part}...")
                lines.append(f"{indent}    !!! FAIL serialization")
                found = True
                _search(part, part_name, obj, depth - 1, failures, lines, indent + "    ", seen)
    if not found and not any(f.obj is obj for f in failures):
        failures.append(FailureTuple(obj, name, parent))
        if parent is None:
            lines.append(f"WARNING: {name} cannot be pickled, and none of its parts is in the way. Look at its __reduce__ "
                         "or __getstate__, or call inspect_serializability() with a greater depth.")
