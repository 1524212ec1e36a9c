"""Generators of references, with the methods that Ray's have besides manta's."""
from __future__ import annotations

from typing import Any, Optional

import manta
from manta.ray.exceptions import GetTimeoutError


class ObjectRefGenerator(manta.ObjectRefGenerator):
    """What a generator's call returns. A failure is the last reference, and raised by get().

    >>> for ref in numbers.remote(3):
    ...     print(ray.get(ref))
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._peeked: Any = None

    def _take(self, timeout: Optional[float]) -> Any:
        """The next reference. StopIteration; GetTimeoutError."""
        if self._peeked is not None:
            ref, self._peeked = self._peeked, None
            return ref
        return self._next(timeout)

    def __next__(self) -> Any:
        return self._take(None)

    def _next_sync(self, timeout_s: Optional[float] = None) -> Any:
        """As next(), for at most so long; then a reference that is nil."""
        try:
            return self._take(timeout_s)
        except GetTimeoutError:
            return manta.ObjectRef.nil()

    def next_ready(self, seconds: float = 0) -> bool:
        """Whether next() would not wait, now or within some seconds."""
        if self._peeked is None and not self._ended:
            try:
                self._peeked = self._take(seconds)
            except GetTimeoutError:
                return False
            except StopIteration:
                pass
        return True

    def is_finished(self) -> bool:
        """Whether nothing more comes."""
        return bool(self._ended) and self._peeked is None
