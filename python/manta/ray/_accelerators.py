"""Devices of accelerators other than GPUs, which the node counts as resources: which of them a call has.

That there are enough is the scheduler's word. Which they are is settled between the processes: who has device 2 of
`neuron_cores` has bound a socket of that name, which the kernel gives back when its process ends, however it does.
"""
from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager
from typing import Any, Iterator, Mapping

import manta

# The variable that says which devices of a resource a process may use.
VARIABLES = {"neuron_cores": "NEURON_RT_VISIBLE_CORES", "TPU": "TPU_VISIBLE_CHIPS", "HPU": "HABANA_VISIBLE_MODULES",
             "NPU": "ASCEND_RT_VISIBLE_DEVICES"}
PATIENCE_S = 10.0       # for a process that is about to end, and has devices that are free by the scheduler's count
_held: dict[str, list[int]] = {}


def are_wanted(given: Mapping[str, Any]) -> bool:
    """Whether the options of a call or an actor ask for some."""
    return any((given.get("resources") or {}).get(name) for name in VARIABLES)


def ids() -> dict[str, list[str]]:
    """Devices of this call, by resource."""
    return {name: [str(i) for i in _held.get(name, [])] for name in VARIABLES}


def _claim(name: str, i: int, node: int) -> Any:
    """The socket that stands for a device; None: another process has it."""
    out = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        out.bind(f"\0manta-{node:016x}-{name}-{i}")
        return out
    except OSError:
        out.close()
        return None


def _take(name: str, n: int, sockets: list[Any]) -> list[int]:
    """Claims n devices of a resource. RuntimeError: there are not so many."""
    info = manta.node_info()
    found: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while len(found) < n:
        for i in range(int(info["total"].get(name, 0))):
            claimed = _claim(name, i, info["node"]) if len(found) < n and i not in found else None
            if claimed is not None:
                sockets.append(claimed)
                found.append(i)
        if len(found) < n:
            if time.monotonic() > end:
                raise RuntimeError(f"{n} devices of {name} were promised, and {len(found)} are free")
            time.sleep(0.01)
    return sorted(found)


def _release(sockets: list[Any], before: Mapping[str, str | None]) -> None:
    _held.clear()
    for one in sockets:
        one.close()
    for variable, value in before.items():
        os.environ.pop(variable, None)
        if value is not None:
            os.environ[variable] = value


@contextmanager
def visible(for_good: bool = False) -> Iterator[None]:
    """Claims the devices of this call and names them in their variables; takes that back unless it is for good."""
    from manta.ray.runtime_context import resources

    amounts = {name: int(n) for name, n in resources(dict(manta.context())).items() if name in VARIABLES and n >= 1}
    before = {VARIABLES[name]: os.environ.get(VARIABLES[name]) for name in amounts}
    sockets: list[Any] = []
    try:
        for name, n in amounts.items():
            _held[name] = _take(name, n, sockets)
            os.environ[VARIABLES[name]] = ",".join(map(str, _held[name]))
        yield
    except BaseException:
        _release(sockets, before)
        raise
    if not for_good:
        _release(sockets, before)
    else:
        _kept.extend(sockets)


_kept: list[Any] = []       # sockets of an actor's devices, as long as its process lives
