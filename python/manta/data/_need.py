"""Packages that are imported when they are asked for, and the nearest name to one that is not there."""
from __future__ import annotations

import importlib
from typing import Any, Iterable

_OF_PYPI = {"PIL": "pillow"}


def need(package: str, who: str) -> Any:
    """The package, imported. ImportError says who wants it and how to get it.

        numpy = need("numpy", "manta.data")
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as e:
        if e.name is None or not (package + ".").startswith(e.name + "."):
            raise           # it is there, and something that it wants is not
        name = _OF_PYPI.get(package.partition(".")[0], package.partition(".")[0])
        raise ImportError(f"{who} needs the package {name}, which is not installed: pip install {name}",
                          name=e.name) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """"; did you mean 'x'?" of the nearest name, or nothing."""
    import difflib
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_count(who: str, name: str, value: Any, least: int = 1) -> int:
    """A whole number from `least` on."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < least:
        raise ValueError(f"{who}: {name} is {value!r}, expected a whole number from {least} on")
    return int(value)
