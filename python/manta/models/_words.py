"""Names and values that people write: what was meant, and what can be written in a configuration."""
from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def nearest(name: str, names: Iterable[str]) -> str:
    """"; did you mean 'Dense'?", or nothing."""
    known = {n.lower(): n for n in names}
    found = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.6)
    return f"; did you mean {known[found[0]]!r}?" if found else ""


def refuse_keyword(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuses keywords that `what` does not have."""
    known = list(known)
    for name in given:
        if name not in known:
            meant = nearest(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise TypeError(f"{what} has no option {name!r}{meant}")


def by_name(what: str, order: Sequence[str], args: Sequence[Any], options: Mapping[str, Any],
            known: Iterable[str]) -> dict[str, Any]:
    """All options by their names. order: of those that may be given without; known: all there are."""
    if len(args) > len(order):
        raise TypeError(f"{what} takes at most {len(order)} options without their names, not {len(args)}")
    out = dict(options)
    for key, value in zip(order, args):
        if key in out:
            raise TypeError(f"{what} is given {key} twice")
        out[key] = value
    refuse_keyword(what, out, known)
    return out


def plain(what: str, value: Any) -> Any:
    """A value as JSON has it: numbers that are finite, texts, lists, and objects with a configuration."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Config):
        return value.get_object()
    if isinstance(value, dict):
        return {str(k): plain(what, v) for k, v in value.items()}
    if hasattr(value, "tolist"):            # numpy's arrays and numbers
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(what, v) for v in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{what} is {value}, expected a finite number")
        return value
    try:
        return operator.index(value)
    except TypeError:
        name = getattr(value, "__name__", None)
        hint = f"; write its name, {name!r}" if callable(value) and name else ""
        raise TypeError(f"{what} is {value!r}, expected a number, a text or a list of them{hint}") from None


class Config:
    """A class of Keras's by name, with the options that were given: `L2(0.01)`, `SGD(0.1, momentum=0.9)`."""

    class_name: str
    keys: tuple[str, ...] = ()

    def __init__(self, *args: Any, **options: Any):
        what = self.class_name
        options = by_name(what, self.keys, args, options, [*self.keys, "name"])
        self.options = {k: plain(f"{what}: {k}", v) for k, v in options.items() if v is not None}

    def get_config(self) -> dict[str, Any]:
        return dict(self.options)

    def get_object(self) -> dict[str, Any]:
        return {"class_name": self.class_name, "config": self.get_config()}

    def __repr__(self) -> str:
        return f"{self.class_name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"
