"""ray.util: results as they come."""
from __future__ import annotations

from typing import Any, Iterable, Iterator, Sequence

from manta.ray import _worker


def as_completed(refs: Sequence[Any], *, chunk_size: int = 10, yield_obj_refs: bool = False) -> Iterator[Any]:
    """Values of the references (or themselves), as they become ready.

    >>> sorted(ray.util.as_completed([f.remote(i) for i in range(3)]))
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size}, expected 1 or more")
    left = list(refs)
    while left:
        ready, left = _worker.wait(left, num_returns=min(chunk_size, len(left)))
        yield from ready if yield_obj_refs else _worker.get(ready)


def map_unordered(fn: Any, items: Iterable[Any], *, backpressure_size: int = 100, chunk_size: int = 10,
                  yield_obj_refs: bool = False) -> Iterator[Any]:
    """fn.remote(item) for every item, at most `backpressure_size` at a time; results as they come.

        for value in ray.util.map_unordered(f, [1, 2, 3]):
            print(value)
    """
    if backpressure_size < chunk_size:
        raise ValueError(f"backpressure_size={backpressure_size}, expected chunk_size or more, which is {chunk_size}")
    running: list[Any] = []
    for item in items:
        if len(running) >= backpressure_size:
            ready, running = _worker.wait(running, num_returns=min(chunk_size, len(running)))
            yield from ready if yield_obj_refs else _worker.get(ready)
        running.append(fn.remote(item))
    yield from as_completed(running, chunk_size=chunk_size, yield_obj_refs=yield_obj_refs)
