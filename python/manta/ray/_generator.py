"""Generators of references, with the methods that Ray's have besides manta's."""
from __future__ import annotations

from typing import Any, Optional

import manta
from manta._streams import DynamicObjectRefGenerator
from manta.ray.exceptions import GetTimeoutError, ObjectRefStreamEndOfStreamError

__all__ = ["DynamicObjectRefGenerator", "ObjectRefGenerator", "ObjectRefStreamEndOfStreamError"]


class ObjectRefGenerator(manta.ObjectRefGenerator):
    """What a generator's call returns. A failure is the last reference, and raised by get().

    >>> for ref in numbers.remote(3):
    ...     print(ray.get(ref))

    A call whose generator is let go goes on, and what it yields is dropped.
    """

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        stream.let_go_on()
        self._peeked: list[Any] = []

    @property
    def _generator_ref(self) -> Any:
        return self._end

    def _take(self, timeout: Optional[float]) -> Any:
        """The next reference. StopIteration; GetTimeoutError."""
        return self._peeked.pop(0) if self._peeked else self._next(timeout)

    def __next__(self) -> Any:
        return self._take(None)

    def _next_sync(self, timeout_s: Optional[float] = None) -> Any:
        """As next(), for at most so long; then a reference that is nil."""
        try:
            return self._take(None if timeout_s is None or timeout_s < 0 else timeout_s)
        except GetTimeoutError:
            return manta.ObjectRef.nil()

    async def _next_async(self, timeout_s: Optional[float] = None) -> Any:
        """As _next_sync(), in an event loop; StopAsyncIteration."""
        if not self._is_ready(0):
            from manta import _aio
            await _aio.in_thread(self._is_ready, timeout_s)
        try:
            return self._next_sync(0)
        except StopIteration:
            raise StopAsyncIteration from None

    def _is_ready(self, timeout: Optional[float]) -> bool:
        return bool(self._peeked) or bool(super()._is_ready(timeout))

    def next_ready(self) -> bool:
        """Whether next() gives a reference without waiting; not at the end."""
        return bool(self._peeked) or (not self._ended and self._stream.ready(0) is True)

    def is_finished(self) -> bool:
        """Whether nothing more comes."""
        return not self._peeked and (self._ended or self._stream.ready(0) is None)

    def _get_next_ref_n(self, num_refs: int) -> list[Any]:
        """The next references, which next() gives all the same; waits until they are there, or the end is."""
        if num_refs <= 0:
            raise ValueError("num_refs must be positive")
        while len(self._peeked) < num_refs:
            try:
                self._peeked.append(self._next(None))
            except StopIteration:
                break
        return self._peeked[:num_refs]

    def _consume_next_ref_n(self, num_refs: int) -> None:
        """Goes past the next references."""
        if num_refs <= 0:
            raise ValueError("num_refs must be positive")
        for _ in self._get_next_ref_n(num_refs):
            self._peeked.pop(0)

    def send(self, value: Any) -> Any:
        raise NotImplementedError("`gen.send` is not supported.")

    def throw(self, value: Any) -> Any:
        raise NotImplementedError("`gen.throw` is not supported.")
