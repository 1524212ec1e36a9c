"""ray.util.annotations: marks of an interface, which change nothing here."""
from __future__ import annotations

from typing import Any

__all__ = ["Deprecated", "DeveloperAPI", "PublicAPI", "RayDeprecationWarning"]


class RayDeprecationWarning(DeprecationWarning):
    """A warning of what will go, in programs that name it."""


def _mark(*args: Any, **known: Any) -> Any:
    """What is decorated; or, of keywords alone, a decorator."""
    if len(args) == 1 and not known and callable(args[0]):
        return args[0]
    return lambda what: what


def PublicAPI(*args: Any, **known: Any) -> Any:
    """Marks what users may call, and returns it as it is.

        from ray.util.annotations import PublicAPI
        @PublicAPI(stability="beta")
        def f(): pass
    """
    return _mark(*args, **known)


def DeveloperAPI(*args: Any, **known: Any) -> Any:
    """Marks what libraries may call, and returns it as it is.

        from ray.util.annotations import DeveloperAPI
        @DeveloperAPI
        def f(): pass
    """
    return _mark(*args, **known)


def Deprecated(*args: Any, **known: Any) -> Any:
    """Marks what will go, and returns it as it is.

        from ray.util.annotations import Deprecated
        @Deprecated(message="call g() instead")
        def f(): pass
    """
    return _mark(*args, **known)
