"""The pool: chunks of calls go to actors in turns; results are taken by a thread of each AsyncResult."""
from __future__ import annotations

import os
import threading
import time
from multiprocessing import TimeoutError
from typing import Any, Callable, Iterable, Optional

import manta.ray as ray


class _Failed:
    """What a call raised, beside results of others that did not fail."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _PoolActor:
    """A process of the pool."""

    def __init__(self, initializer: Optional[Callable[..., Any]], initargs: tuple[Any, ...]) -> None:
        if initializer is not None:
            initializer(*initargs)

    def ping(self) -> None:
        """Returns when what was asked before is done."""

    def run(self, fn: Callable[..., Any], calls: list[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
        out: list[Any] = []
        for args, kwargs in calls:
            try:
                out.append(fn(*args, **kwargs))
            except Exception as e:
                out.append(_Failed(e))
        return out


class AsyncResult:
    """Results that will come: of one call, or a list of many."""

    def __init__(self, refs: list[Any], single: bool, callback: Optional[Callable[[Any], Any]] = None,
                 error_callback: Optional[Callable[[BaseException], Any]] = None) -> None:
        self._single = single
        self._done = threading.Event()
        self._value: list[Any] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._collect, args=(refs, callback, error_callback), daemon=True)
        self._thread.start()

    def _collect(self, refs: list[Any], callback: Any, error_callback: Any) -> None:
        try:
            for chunk in refs:
                for item in ray.get(chunk):
                    if isinstance(item, _Failed) and self._error is None:
                        self._error = item.error
                    self._value.append(item)
        except Exception as e:
            self._error = e
        try:
            if self._error is not None:
                if error_callback:
                    error_callback(self._error)
            elif callback:
                callback(self._value[0] if self._single else self._value)
        finally:
            self._done.set()

    def wait(self, timeout: Optional[float] = None) -> None:
        self._done.wait(timeout)

    def ready(self) -> bool:
        return self._done.is_set()

    def successful(self) -> bool:
        if not self.ready():
            raise ValueError(f"{self!r} not ready")
        return self._error is None

    def get(self, timeout: Optional[float] = None) -> Any:
        self.wait(timeout)
        if not self.ready():
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value[0] if self._single else self._value


class ResultIterator:
    """What imap() and imap_unordered() return. A call that failed gives its exception, as a value."""

    def __init__(self, refs: list[Any], in_order: bool) -> None:
        self._refs = refs
        self._in_order = in_order
        self._items: list[Any] = []

    def __iter__(self) -> "ResultIterator":
        return self

    def __next__(self) -> Any:
        return self.next()

    def next(self, timeout: Optional[float] = None) -> Any:
        """The next result. TimeoutError: there was none for so many seconds."""
        while not self._items:
            if not self._refs:
                raise StopIteration
            ready, _ = ray.wait(self._refs[:1] if self._in_order else self._refs, timeout=timeout)
            if not ready:
                raise TimeoutError
            self._refs = [ref for ref in self._refs if ref != ready[0]]
            self._items = list(ray.get(ready[0]))
        item = self._items.pop(0)
        return item.error if isinstance(item, _Failed) else item


class Pool:
    """A pool of processes, as multiprocessing.Pool is.

    >>> with Pool(2) as pool:
    ...     pool.map(abs, [-1, -2])
    [1, 2]
    """

    def __init__(self, processes: Optional[int] = None, initializer: Optional[Callable[..., Any]] = None,
                 initargs: Optional[Iterable[Any]] = None, maxtasksperchild: Optional[int] = None, context: Any = None,
                 ray_address: Optional[str] = None, ray_remote_args: Optional[dict[str, Any]] = None) -> None:
        if not ray.is_initialized():
            ray.init(address=ray_address, num_cpus=processes if ray_address is None else None)
        if processes is None:
            processes = int(ray.cluster_resources().get("CPU", 1)) or os.cpu_count() or 1
        if processes <= 0:
            raise ValueError(f"processes={processes}, expected 1 or more")
        if maxtasksperchild is not None:
            raise NotImplementedError("Pool(maxtasksperchild=...): processes of the pool live as long as it does")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer is of type {type(initializer).__name__}, expected a function")
        actor = ray.remote(**{"num_cpus": 0, **(ray_remote_args or {})})(_PoolActor)
        self._actors = [actor.remote(initializer, tuple(initargs or ())) for _ in range(processes)]
        self._next = 0
        self._closed = False
        self._running: list[Any] = []

    def _check(self) -> None:
        if self._closed:
            raise ValueError("Pool not running")

    def _run(self, fn: Callable[..., Any], calls: list[Any]) -> Any:
        actor = self._actors[self._next % len(self._actors)]
        self._next += 1
        ref = actor.run.remote(fn, calls)
        self._running = [r for r in self._running[-1000:]] + [ref]
        return ref

    def _chunks(self, fn: Callable[..., Any], calls: Iterable[Any], chunksize: Optional[int]) -> list[Any]:
        self._check()
        calls = list(calls)
        if chunksize is None:
            chunksize = max(1, -(-len(calls) // (4 * len(self._actors))))
        return [self._run(fn, calls[i:i + chunksize]) for i in range(0, len(calls), chunksize)]

    def apply(self, func: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None) -> Any:
        return self.apply_async(func, args, kwargs).get()

    def apply_async(self, func: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Optional[dict[str, Any]] = None,
                    callback: Any = None, error_callback: Any = None) -> AsyncResult:
        self._check()
        return AsyncResult([self._run(func, [(tuple(args or ()), kwargs or {})])], True, callback, error_callback)

    def map(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: Optional[int] = None) -> list[Any]:
        return list(self.map_async(func, iterable, chunksize).get())

    def map_async(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: Optional[int] = None,
                  callback: Any = None, error_callback: Any = None) -> AsyncResult:
        return AsyncResult(self._chunks(func, (((x,), {}) for x in iterable), chunksize), False, callback, error_callback)

    def starmap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: Optional[int] = None) -> list[Any]:
        return list(self.starmap_async(func, iterable, chunksize).get())

    def starmap_async(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: Optional[int] = None,
                      callback: Any = None, error_callback: Any = None) -> AsyncResult:
        return AsyncResult(self._chunks(func, ((tuple(x), {}) for x in iterable), chunksize), False, callback,
                           error_callback)

    def imap(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int = 1) -> ResultIterator:
        return ResultIterator(self._chunks(func, (((x,), {}) for x in iterable), chunksize), in_order=True)

    def imap_unordered(self, func: Callable[..., Any], iterable: Iterable[Any], chunksize: int = 1) -> ResultIterator:
        return ResultIterator(self._chunks(func, (((x,), {}) for x in iterable), chunksize), in_order=False)

    def __enter__(self) -> "Pool":
        self._check()
        return self

    def __exit__(self, *_: Any) -> None:
        self.terminate()

    def close(self) -> None:
        """No more calls; those that were made are done."""
        self._closed = True

    def terminate(self) -> None:
        """Ends the processes at once."""
        self._closed = True
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []

    def join(self) -> None:
        """Waits until all calls are done and ends the processes; after close() or terminate()."""
        if not self._closed:
            raise ValueError("the pool takes calls still: close() or terminate() comes before join()")
        if self._actors:
            ray.get([actor.ping.remote() for actor in self._actors])
            self.terminate()
        self._ended = time.monotonic()
