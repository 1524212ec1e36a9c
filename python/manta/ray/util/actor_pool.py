"""ray.util.ActorPool: some actors that share the work."""
from __future__ import annotations

from collections import deque
from typing import Any, Callable, Iterable, Iterator, Optional

import manta.ray as ray


class ActorPool:
    """Gives each piece of work to an actor that has none.

    >>> pool = ray.util.ActorPool([Doubler.remote(), Doubler.remote()])
    >>> list(pool.map(lambda actor, n: actor.double.remote(n), [1, 2, 3]))
    [2, 4, 6]

    A call is numbered when it is handed to an actor; results are taken in that order, or as they come,
    and the two may not be mixed in the middle of the numbers.
    """

    def __init__(self, actors: Iterable[Any]) -> None:
        self._idle_actors = list(actors)
        self._running: dict[Any, tuple[int, Any]] = {}      # reference: its number and actor
        self._by_number: dict[int, Any] = {}
        self._next_number = 0           # of the next call
        self._next_result = 0           # that get_next() returns
        self._pending_submits: deque[tuple[Callable[[Any, Any], Any], Any]] = deque()

    def _drain(self) -> None:
        """Gives up what an earlier, unfinished map has left."""
        while self.has_next():
            try:
                self.get_next_unordered(timeout=0, ignore_if_timedout=True)
            except TimeoutError:
                pass        # an actor is still at it: nobody wants what it will return

    def map(self, fn: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """Results of fn(actor, value) for all values, in their order."""
        self._drain()
        for value in values:
            self.submit(fn, value)
        return self._results(self.get_next)

    def map_unordered(self, fn: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        """Results of fn(actor, value) for all values, as they come."""
        self._drain()
        for value in values:
            self.submit(fn, value)
        return self._results(self.get_next_unordered)

    def _results(self, take: Callable[[], Any]) -> Iterator[Any]:
        while self.has_next():
            yield take()

    def submit(self, fn: Callable[[Any, Any], Any], value: Any) -> None:
        """Does fn(actor, value) with an idle actor, or as soon as there is one."""
        if not self._idle_actors:
            self._pending_submits.append((fn, value))
            return
        actor = self._idle_actors.pop()
        ref = fn(actor, value)
        key = tuple(ref) if isinstance(ref, list) else ref
        self._running[key] = (self._next_number, actor)
        self._by_number[self._next_number] = ref
        self._next_number += 1

    def has_next(self) -> bool:
        """Whether a result is still to come."""
        return bool(self._running)

    def get_next(self, timeout: Optional[float] = None, ignore_if_timedout: bool = False) -> Any:
        """The next result in the order of the calls. TimeoutError, and nothing is lost; StopIteration."""
        if not self.has_next():
            raise StopIteration("the pool has given all results")
        if self._next_result not in self._by_number:
            raise ValueError("get_next() has lost the order: get_next_unordered() has taken the result that is next")
        ref = self._by_number[self._next_result]
        refs = ref if isinstance(ref, list) else [ref]
        timed_out = len(ray.wait(refs, num_returns=len(refs), timeout=timeout)[0]) < len(refs)  # Ctrl-C here loses nothing
        if timed_out and not ignore_if_timedout:
            raise TimeoutError(f"no result in {timeout} s")
        del self._by_number[self._next_result]
        self._next_result += 1
        _, actor = self._running.pop(tuple(ref) if isinstance(ref, list) else ref)
        return self._take(actor, ref, timed_out)

    def get_next_unordered(self, timeout: Optional[float] = None, ignore_if_timedout: bool = False) -> Any:
        """Any result that is there, or comes next. TimeoutError, and nothing is lost; StopIteration."""
        if not self.has_next():
            raise StopIteration("the pool has given all results")
        # Of a call with several results the last one says that it has ended.
        ends = {key[-1] if isinstance(key, tuple) else key: key for key in self._running}
        ready, _ = ray.wait(list(ends), num_returns=1, timeout=timeout)
        if not ready and not ignore_if_timedout:
            raise TimeoutError(f"no result in {timeout} s")
        ref = ends[ready[0]] if ready else next(iter(self._running))
        number, actor = self._running.pop(ref)
        del self._by_number[number]
        self._next_result = max(self._next_result, number + 1)
        return self._take(actor, list(ref) if isinstance(ref, tuple) else ref, not ready)

    def _take(self, actor: Any, ref: Any, timed_out: bool) -> Any:
        """The value of a reference; its actor is free again, unless it is dead."""
        if timed_out:
            self._free(actor)
            raise TimeoutError("the result is not there in time; its call is ignored from now on")
        try:
            value = ray.get(ref)
        except ray.exceptions.ActorDiedError:
            self._free(None)
            raise
        except BaseException:
            self._free(actor)
            raise
        self._free(actor)
        return value

    def _free(self, actor: Any) -> None:
        """An actor has done its work, or is dead (None): who is idle takes what waits."""
        if actor is not None:
            self._idle_actors.append(actor)
        if self._pending_submits and self._idle_actors:
            self.submit(*self._pending_submits.popleft())

    def has_free(self) -> bool:
        """Whether an actor is idle and nothing waits."""
        return bool(self._idle_actors) and not self._pending_submits

    def pop_idle(self) -> Optional[Any]:
        """Takes an idle actor out of the pool; None: there is none."""
        return self._idle_actors.pop() if self.has_free() else None

    def push(self, actor: Any) -> None:
        """Puts another actor into the pool."""
        busy = [a for _, a in self._running.values()]
        if actor in self._idle_actors or actor in busy:
            raise ValueError("the actor is in this pool already")
        self._free(actor)
