"""CUDA_VISIBLE_DEVICES, and the like, of calls and actors that ask for devices; of all others they are left alone."""
from __future__ import annotations

import functools
import inspect
import os
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping

import manta
from manta.ray import _accelerators

VARIABLE = "CUDA_VISIBLE_DEVICES"
_before: list[str] = []         # what a driver that sees only some devices was told, in this worker


def ids() -> list[Any]:
    """Devices that this call may use, as the driver's own variable calls them, if it has one."""
    known = _before[0] if _before else os.environ.get(VARIABLE, "")
    names = [name for name in known.split(",") if name]
    return [names[i] if i < len(names) else i for i in manta.context()["gpu_ids"]]


def are_wanted(given: Mapping[str, Any]) -> bool:
    """Whether the options of a call or an actor ask for devices."""
    return bool(given.get("num_gpus")) or _accelerators.are_wanted(given)


@contextmanager
def visible(for_good: bool = False) -> Iterator[None]:
    """Sets the variable to the devices of this call, and takes that back unless it is for good."""
    before = os.environ.get(VARIABLE)
    devices = ids()
    if devices:
        _before[:] = [before or ""]
        os.environ[VARIABLE] = ",".join(map(str, devices))
    try:
        yield
    finally:
        if devices and not for_good:
            _before.clear()
            os.environ.pop(VARIABLE, None)
            if before is not None:
                os.environ[VARIABLE] = before


def of_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which sees its devices while it runs."""
    if inspect.isgeneratorfunction(function):
        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            with visible(), _accelerators.visible():
                yield from function(*args, **kwargs)
        return generate

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with visible(), _accelerators.visible():
            return function(*args, **kwargs)
    return call


def of_class(cls: type) -> type:
    """The class, whose instances see their devices from their constructor on."""
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with visible(for_good=True), _accelerators.visible(for_good=True):
            super(made, self).__init__(*args, **kwargs)
    made = type(cls.__name__, (cls,), {"__init__": __init__, "__module__": cls.__module__, "__doc__": cls.__doc__,
                                       "__qualname__": cls.__qualname__})
    return made
