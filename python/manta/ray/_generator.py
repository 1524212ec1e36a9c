"""Generators of references, with the methods that Ray's have besides manta's."""
from __future__ import annotations

import threading
from typing import Any, Optional

import manta
from manta import _manta
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
        self._lock = threading.Lock()       # of what follows
        self._peeked: list[Any] = []        # references that were asked for before next() gives them,
        self._open: list[Any] = []          # those at their end that have no value yet
        self._void: list[Any] = []          # and those for which there never will be one

    @property
    def _generator_ref(self) -> Any:
        return self._end

    def _take(self, timeout: Optional[float]) -> Any:
        """The next reference. StopIteration; GetTimeoutError."""
        if not self._peeked:
            return self._next(timeout)
        if not self._is_ready(timeout):
            raise GetTimeoutError(f"the generator has given no item for {timeout} s")
        with self._lock:
            ref = self._peeked.pop(0)
            if ref in self._void:
                raise StopIteration
            return ref

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
        if self._peeked:
            return bool(_manta.wait([self._peeked[0]], 1, timeout)[0])
        return bool(super()._is_ready(timeout))

    def next_ready(self) -> bool:
        """Whether next() gives a reference without waiting; not at the end."""
        if self._peeked:
            return self._is_ready(0) and self._peeked[0] not in self._void
        return not self._ended and self._stream.ready(0) is True

    def is_finished(self) -> bool:
        """Whether nothing more comes."""
        if self._peeked:
            return self._peeked[0] in self._void
        return self._ended or self._stream.ready(0) is None

    def _get_next_ref_n(self, num_refs: int) -> list[Any]:
        """The next references, which next() gives all the same; nothing is waited for. One without an item fails as
        the call does, or with ObjectRefStreamEndOfStreamError."""
        if num_refs <= 0:
            raise ValueError("num_refs must be positive")
        with self._lock:
            while len(self._peeked) < num_refs:
                self._peeked.append(self._peek())
            return self._peeked[:num_refs]

    def _peek(self) -> Any:
        """The reference after those that were asked for: the item's own where that is there, else a promise."""
        if not self._open and not self._ended and self._stream.ready(0) is True:
            return self._next(0)
        ref = _manta.promise()
        self._open.append(ref)
        if len(self._open) == 1:
            threading.Thread(target=self._settle, name="manta-ahead", daemon=True).start()
        return ref

    def _settle(self) -> None:
        """Gives the promises what comes. A thread of its own, as long as there are some."""
        while True:
            try:
                item = self._next(None)
            except StopIteration:
                item = None
            except Exception:       # the runtime has ended, and with it who could ask
                return
            with self._lock:
                ref = self._open[0]
                try:
                    self._fulfil(ref, item)
                except ValueError:  # the same
                    return
                except Exception as e:
                    _manta.promise_break(ref, str(e))
                self._open.pop(0)
                if not self._open:
                    return

    def _fulfil(self, ref: Any, item: Any) -> None:
        if item is None:
            self._void.append(ref)
            _manta.promise_break(ref, "the generator has ended, and there is no such item")
            return
        _manta.wait([item], 1, None)        # the failure of the call may be told before its reference is ready
        _manta.promise_settle(ref, item)

    def _consume_next_ref_n(self, num_refs: int) -> None:
        """Goes past the next references, all of which must be there. ValueError: they are not."""
        refs = self._get_next_ref_n(num_refs)
        if len(_manta.wait(refs, len(refs), 0)[0]) < len(refs):
            raise ValueError(f"the generator has not given the next {num_refs} items yet")
        with self._lock:
            del self._peeked[:num_refs]

    def send(self, value: Any) -> Any:
        raise NotImplementedError("`gen.send` is not supported.")

    def throw(self, value: Any) -> Any:
        raise NotImplementedError("`gen.throw` is not supported.")
