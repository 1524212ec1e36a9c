"""ray.util.metrics: numbers that a program counts.

They are kept in the process that counts them; nothing exports them.
"""
from __future__ import annotations

from typing import Any, Optional, Sequence


class Metric:
    """A name, a description, and the keys of its tags."""

    def __init__(self, name: str, description: str = "", tag_keys: Optional[Sequence[str]] = None) -> None:
        if not name:
            raise ValueError("name='' is no name of a metric")
        if tag_keys is not None and not isinstance(tag_keys, (tuple, list)):
            raise TypeError(f"tag_keys is of type {type(tag_keys).__name__}, expected a tuple of texts")
        for key in tag_keys or ():
            if not isinstance(key, str):
                raise TypeError(f"tag_keys has a value of type {type(key).__name__}, expected texts")
        self._name, self._description, self._tag_keys = name, description, tuple(tag_keys or ())
        self._default_tags: dict[str, str] = {}
        self.values: dict[tuple[tuple[str, str], ...], Any] = {}

    @property
    def info(self) -> dict[str, Any]:
        return {"name": self._name, "description": self._description, "tag_keys": self._tag_keys,
                "default_tags": self._default_tags}

    def set_default_tags(self, default_tags: dict[str, str]) -> "Metric":
        for key, value in default_tags.items():
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}.")
            if not isinstance(value, str):
                raise TypeError(f"a tag has a value of type {type(value).__name__}, expected a text")
        self._default_tags = dict(default_tags)
        return self

    def _key(self, tags: Optional[dict[str, str]]) -> tuple[tuple[str, str], ...]:
        for key in tags or {}:
            if key not in self._tag_keys:
                raise ValueError(f"Unrecognized tag key {key}.")
        merged = {**self._default_tags, **(tags or {})}
        missing = [key for key in self._tag_keys if key not in merged]
        if missing:
            raise ValueError(f"tags say nothing of {', '.join(missing)}")
        return tuple(sorted(merged.items()))


class Counter(Metric):
    """A number that only grows."""

    def inc(self, value: float = 1.0, tags: Optional[dict[str, str]] = None) -> None:
        if not isinstance(value, (int, float)):
            raise TypeError(f"value is of type {type(value).__name__}, expected a number")
        if value <= 0:
            raise ValueError(f"value={value}, expected more than 0")
        key = self._key(tags)
        self.values[key] = self.values.get(key, 0.0) + value


class Gauge(Metric):
    """A number that is what it was last set to."""

    def set(self, value: float, tags: Optional[dict[str, str]] = None) -> None:
        if not isinstance(value, (int, float)):
            raise TypeError(f"value is of type {type(value).__name__}, expected a number")
        self.values[self._key(tags)] = value


class Histogram(Metric):
    """How many observations lie below each boundary."""

    def __init__(self, name: str, description: str = "", boundaries: Optional[Sequence[float]] = None,
                 tag_keys: Optional[Sequence[str]] = None) -> None:
        super().__init__(name, description, tag_keys)
        if not boundaries:
            raise ValueError("a Histogram needs boundaries=, a list of numbers")
        if any(b <= 0 for b in boundaries):
            raise ValueError(f"boundaries={boundaries}, expected numbers above 0")
        self.boundaries = list(boundaries)

    def observe(self, value: float, tags: Optional[dict[str, str]] = None) -> None:
        if not isinstance(value, (int, float)):
            raise TypeError(f"value is of type {type(value).__name__}, expected a number")
        counts = self.values.setdefault(self._key(tags), [0] * (len(self.boundaries) + 1))
        counts[sum(value > b for b in self.boundaries)] += 1

    @property
    def info(self) -> dict[str, Any]:
        return {**super().info, "boundaries": self.boundaries}
