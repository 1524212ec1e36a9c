"""ray.util.queue: a queue that any task or actor may use."""
from __future__ import annotations

import asyncio
import queue
from typing import Any, Iterable, Optional

from manta.ray import _worker


class Empty(queue.Empty):
    """There is nothing in the queue, or too little."""


class Full(queue.Full):
    """There is no room in the queue."""


class Queue:
    """A queue in an actor of its own.

    >>> from ray.util.queue import Queue
    >>> q = Queue(maxsize=10)
    >>> q.put(1)
    >>> q.get()
    1
    """

    def __init__(self, maxsize: int = 0, actor_options: Optional[dict[str, Any]] = None) -> None:
        self.maxsize = maxsize
        self.actor = _worker.remote(_QueueActor).options(**{"max_concurrency": 1000, **(actor_options or {})}).remote(maxsize)

    def __len__(self) -> int:
        return self.size()

    def size(self) -> int:
        """How many items there are."""
        return int(_worker.get(self.actor.qsize.remote()))

    qsize = size

    def empty(self) -> bool:
        return bool(_worker.get(self.actor.empty.remote()))

    def full(self) -> bool:
        return bool(_worker.get(self.actor.full.remote()))

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Puts an item in; waits for room, at most `timeout` seconds. Full."""
        if not block:
            self.put_nowait(item)
        else:
            _check(timeout)
            _worker.get(self.actor.put.remote(item, timeout))

    async def put_async(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """As put(), in a coroutine."""
        if not block:
            await self.actor.put_nowait.remote(item)
        else:
            _check(timeout)
            await self.actor.put.remote(item, timeout)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes an item out; waits for one, at most `timeout` seconds. Empty."""
        if not block:
            return self.get_nowait()
        _check(timeout)
        return _worker.get(self.actor.get.remote(timeout))

    async def get_async(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """As get(), in a coroutine."""
        if not block:
            return await self.actor.get_nowait.remote()
        _check(timeout)
        return await self.actor.get.remote(timeout)

    def put_nowait(self, item: Any) -> None:
        _worker.get(self.actor.put_nowait.remote(item))

    def put_nowait_batch(self, items: Iterable[Any]) -> None:
        """Puts all in, or none when there is not room for all. Full."""
        if not isinstance(items, Iterable):
            raise TypeError(f"items is of type {type(items).__name__}, expected something to go through")
        _worker.get(self.actor.put_nowait_batch.remote(list(items)))

    def get_nowait(self) -> Any:
        return _worker.get(self.actor.get_nowait.remote())

    def get_nowait_batch(self, num_items: int) -> list[Any]:
        """Takes so many out, or none when there are fewer. Empty."""
        if not isinstance(num_items, int):
            raise TypeError(f"num_items is of type {type(num_items).__name__}, expected a whole number")
        if num_items < 0:
            raise ValueError(f"num_items={num_items}, expected 0 or more")
        return list(_worker.get(self.actor.get_nowait_batch.remote(num_items)))

    def shutdown(self, force: bool = False, grace_period_s: int = 5) -> None:
        """Ends the actor: at once, or when what was asked of it is done, `grace_period_s` seconds at most."""
        if self.actor is None:
            return
        if not force:
            _worker.wait([self.actor.__ray_terminate__.remote()], timeout=grace_period_s)
        _worker.kill(self.actor, no_restart=True)
        self.actor = None


def _check(timeout: Optional[float]) -> None:
    if timeout is not None and timeout < 0:
        raise ValueError(f"timeout={timeout}, expected seconds from 0 on, or None")


class _QueueActor:
    def __init__(self, maxsize: int) -> None:
        self.maxsize = maxsize
        self.items: asyncio.Queue[Any] = asyncio.Queue(maxsize)

    async def qsize(self) -> int:
        return self.items.qsize()

    async def empty(self) -> bool:
        return self.items.empty()

    async def full(self) -> bool:
        return self.items.full()

    async def put(self, item: Any, timeout: Optional[float] = None) -> None:
        try:
            await asyncio.wait_for(self.items.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full from None

    async def get(self, timeout: Optional[float] = None) -> Any:
        try:
            return await asyncio.wait_for(self.items.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty from None

    async def put_nowait(self, item: Any) -> None:
        try:
            self.items.put_nowait(item)
        except asyncio.QueueFull:
            raise Full from None

    async def put_nowait_batch(self, items: list[Any]) -> None:
        if self.maxsize > 0 and len(items) + self.items.qsize() > self.maxsize:
            raise Full(f"the queue has {self.items.qsize()} of at most {self.maxsize} items, and no room for {len(items)} more")
        for item in items:
            self.items.put_nowait(item)

    async def get_nowait(self) -> Any:
        try:
            return self.items.get_nowait()
        except asyncio.QueueEmpty:
            raise Empty from None

    async def get_nowait_batch(self, num_items: int) -> list[Any]:
        if num_items > self.items.qsize():
            raise Empty(f"the queue has {self.items.qsize()} items, and {num_items} are asked for")
        return [self.items.get_nowait() for _ in range(num_items)]
