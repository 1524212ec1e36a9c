"""placement_group_capture_child_tasks: what a call makes in its turn is placed in its group, unless it says otherwise."""
from __future__ import annotations

import functools
import inspect
import threading
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Mapping, Optional

_here = threading.local()       # .group: of the call that runs in this thread
_process: list[Any] = []        # the group of the actor that this process is


def group() -> Optional[Any]:
    """The group that calls from here inherit; None: they inherit none."""
    return getattr(_here, "group", None) or (_process[0] if _process else None)


def is_wanted(given: Mapping[str, Any]) -> bool:
    """Whether options ask for it."""
    strategy = given.get("scheduling_strategy")
    return bool(given.get("placement_group_capture_child_tasks")
                or getattr(strategy, "placement_group_capture_child_tasks", False))


def is_placed(given: Mapping[str, Any]) -> bool:
    """Whether options say where a call is to run."""
    return given.get("scheduling_strategy") is not None or given.get("placement_group") is not None


def inheriting(inner: Any, given: Mapping[str, Any]) -> Callable[..., Any]:
    """inner.remote, in a worker, where the call that runs may hand its group on."""
    plain: Callable[..., Any] = inner.remote
    if is_placed(given):
        return plain

    def remote(*args: Any, **kwargs: Any) -> Any:
        inherited = group()
        if inherited is None:
            return plain(*args, **kwargs)
        return inner.options(placement_group=inherited).remote(*args, **kwargs)
    return remote


@contextmanager
def handing_on(its_group: Any) -> Iterator[None]:
    """What this thread calls meanwhile inherits the group."""
    before, _here.group = getattr(_here, "group", None), its_group
    try:
        yield
    finally:
        _here.group = before


def hand_on_for_good(its_group: Any) -> None:
    _process[:] = [its_group]


def of_function(function: Callable[..., Any], its_group: Any) -> Callable[..., Any]:
    """The function, whose calls inherit the group while it runs."""
    if inspect.isgeneratorfunction(function):
        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            with handing_on(its_group):
                yield from function(*args, **kwargs)
        return generate

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with handing_on(its_group):
            return function(*args, **kwargs)
    return call


def of_class(cls: type, its_group: Any) -> type:
    """The class, whose instances have their process hand the group on."""
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        hand_on_for_good(its_group)
        super(made, self).__init__(*args, **kwargs)
    made = type(cls.__name__, (cls,), {"__init__": __init__, "__module__": cls.__module__, "__doc__": cls.__doc__,
                                       "__qualname__": cls.__qualname__})
    return made
