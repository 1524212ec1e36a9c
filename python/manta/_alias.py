"""`import ray` that finds manta.ray.

While the finder is installed, `ray` and `manta.ray` are one module object, and so is every
module below them: `ray.util.queue is manta.ray.util.queue`. Nothing is imported before it is
asked for, and a real Ray that is installed is never looked at. Classes keep the name of the
module that they are written in, so that pickles say `manta.ray` and can be read without the
finder.
"""
from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Sequence

ALIAS = "ray"
REAL = "manta.ray"


class _Loader(importlib.abc.Loader):
    """Hands out a module that is there already, or is imported under its own name."""

    def __init__(self) -> None:
        self._spec: Any = None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        real = REAL + spec.name[len(ALIAS):]
        try:
            module = importlib.import_module(real)
        except ModuleNotFoundError as e:
            if e.name is None or not (real + ".").startswith(e.name + "."):
                raise           # something that the module itself wants is missing
            raise ModuleNotFoundError(
                f"No module named {spec.name!r}: it is not part of {REAL}, which stands in for Ray here; "
                "docs/from-ray-python.md lists what is", name=spec.name) from None
        self._spec = module.__spec__        # the import system is about to put its own there
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None,
                  target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        if name != ALIAS and not name.startswith(ALIAS + "."):
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=True)


def is_installed() -> bool:
    """Whether `import ray` means manta.ray in this process."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install() -> None:
    """Makes `import ray` mean manta.ray from now on. A second call changes nothing.

    >>> import manta._alias
    >>> manta._alias.install()
    >>> import ray

    Raises ImportError when a real Ray has been imported before.
    """
    if is_installed():
        return
    there = sys.modules.get(ALIAS)
    if there is not None and there.__name__ != REAL:
        raise ImportError(f"a module {ALIAS!r} of {getattr(there, '__file__', None)} has been imported already, "
                          f"so {REAL} cannot take its name")
    sys.meta_path.insert(0, _Finder())
