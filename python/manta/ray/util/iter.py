"""ray.util.iter: items of several actors, transformed where they are and gathered here.

A ParallelIterator names shards, each an actor with its items and the transforms to be done to them
there. Gathering gives a LocalIterator, whose transforms are done here. What a local iterator hands on
is an item or NOT_READY, which says that it would have to wait: unions of them use that to go on
with another. Transforms pass it on untouched.
"""
from __future__ import annotations

import collections
import random
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Optional

import manta.ray as ray


class _NotReady:
    """There is no item yet; ask again."""

    def __reduce__(self) -> str:
        return "NOT_READY"


NOT_READY = _NotReady()
Transform = Callable[["LocalIterator"], "LocalIterator"]


class MetricsContext:
    """Counters and more that transforms of one local iterator share."""

    def __init__(self) -> None:
        self.counters: Any = collections.defaultdict(int)
        self.timers: Any = collections.defaultdict(float)
        self.info: dict[str, Any] = {}
        self.current_actor: Any = None


class SharedMetrics:
    """A box with a context; those of iterators that were united hold the same one."""

    def __init__(self, parents: Iterable["SharedMetrics"] = ()) -> None:
        self.parents = list(parents)
        self._context = MetricsContext()
        self.set(self._context)

    def set(self, context: MetricsContext) -> None:
        self._context = context
        for parent in self.parents:
            parent.set(context)

    def get(self) -> MetricsContext:
        return self._context


# ---- transforms, on anything that can be iterated ----

def _for_each(items: Iterable[Any], fn: Callable[[Any], Any]) -> Iterator[Any]:
    for item in items:
        yield item if item is NOT_READY else fn(item)


def _for_each_remote(items: Iterable[Any], fn: Callable[[Any], Any], most: int, resources: dict[str, Any]) -> Iterator[Any]:
    """fn in tasks, at most so many at a time."""
    function = ray.remote(**resources)(fn) if resources else ray.remote(fn)
    running: list[Any] = []
    for item in items:
        if item is NOT_READY:
            yield item
            continue
        if len(running) >= most:
            ready, running = ray.wait(running)
            yield from ray.get(ready)
        running.append(function.remote(item))
    while running:
        ready, running = ray.wait(running)
        yield from ray.get(ready)


def _filter(items: Iterable[Any], fn: Callable[[Any], bool]) -> Iterator[Any]:
    for item in items:
        if item is NOT_READY or fn(item):
            yield item


def _batch(items: Iterable[Any], n: int) -> Iterator[Any]:
    batch: list[Any] = []
    for item in items:
        if item is NOT_READY:
            yield item
            continue
        batch.append(item)
        if len(batch) >= n:
            yield batch
            batch = []
    if batch:
        yield batch


def _flatten(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        if item is NOT_READY:
            yield item
        else:
            yield from item


def _shuffle(items: Iterable[Any], size: int, seed: Optional[int]) -> Iterator[Any]:
    """Keeps `size` items and hands on a random one of them for each that comes."""
    choose, kept = random.Random(seed), []
    for item in items:
        if item is NOT_READY:
            yield item
            continue
        kept.append(item)
        if len(kept) >= size:
            yield kept.pop(choose.randrange(len(kept)))
    while kept:
        yield kept.pop(choose.randrange(len(kept)))


def _transformed(items: Iterable[Any], fn: Callable[[Iterable[Any]], Iterable[Any]]) -> Iterator[Any]:
    yield from fn(items)


class LocalIterator:
    """Items that are gathered in this process. May be sent to another, and is iterated there.

    >>> list(from_range(4).gather_sync().for_each(lambda x: 2 * x))
    """
    thread_local = threading.local()

    def __init__(self, base_iterator: Callable[[Optional[float]], Iterable[Any]], shared_metrics: SharedMetrics,
                 local_transforms: Optional[list[Callable[[Iterable[Any]], Iterable[Any]]]] = None,
                 timeout: Optional[float] = None, name: Optional[str] = None) -> None:
        self.base_iterator = base_iterator
        self.shared_metrics = shared_metrics
        self.local_transforms = local_transforms or []
        self.timeout = timeout
        self.name = name or "unknown"
        self._built: Optional[Iterator[Any]] = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_built": None}

    @staticmethod
    def get_metrics() -> MetricsContext:
        """Inside a transform: the context of the iterator."""
        metrics = getattr(LocalIterator.thread_local, "metrics", None)
        if metrics is None:
            raise ValueError("there is a context while an iterator gives items, and none of them does now")
        return metrics.get()        # type: ignore[no-any-return]

    @contextmanager
    def _metrics_context(self) -> Iterator[None]:
        before = getattr(self.thread_local, "metrics", None)
        self.thread_local.metrics = self.shared_metrics
        try:
            yield
        finally:
            self.thread_local.metrics = before

    def _build_once(self) -> Iterator[Any]:
        if self._built is None:
            items: Iterable[Any] = self.base_iterator(self.timeout)
            for fn in self.local_transforms:
                items = fn(items)
            self._built = iter(items)
        return self._built

    def _step(self) -> Any:
        """The next item, or NOT_READY."""
        with self._metrics_context():
            return next(self._build_once())

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                item = self._step()
            except StopIteration:
                return
            if item is not NOT_READY:
                yield item

    def __next__(self) -> Any:
        while True:
            item = self._step()
            if item is not NOT_READY:
                return item

    def __repr__(self) -> str:
        return f"LocalIterator[{self.name}]"

    __str__ = __repr__

    def _with(self, fn: Callable[[Iterable[Any]], Iterable[Any]], name: str) -> "LocalIterator":
        return LocalIterator(self.base_iterator, self.shared_metrics, self.local_transforms + [fn], name=self.name + name)

    def transform(self, fn: Callable[[Iterable[Any]], Iterable[Any]]) -> "LocalIterator":
        return self._with(lambda items: _transformed(items, fn), ".transform()")

    def for_each(self, fn: Callable[[Any], Any], max_concurrency: int = 1,
                 resources: Optional[dict[str, Any]] = None) -> "LocalIterator":
        if max_concurrency == 1 and not resources:
            return self._with(lambda items: _for_each(items, fn), ".for_each()")
        return self._with(lambda items: _for_each_remote(items, fn, max_concurrency, resources or {}), ".for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> "LocalIterator":
        return self._with(lambda items: _filter(items, fn), ".filter()")

    def batch(self, n: int) -> "LocalIterator":
        return self._with(lambda items: _batch(items, n), f".batch({n})")

    def flatten(self) -> "LocalIterator":
        return self._with(_flatten, ".flatten()")

    def shuffle(self, shuffle_buffer_size: int, seed: Optional[int] = None) -> "LocalIterator":
        return self._with(lambda items: _shuffle(items, shuffle_buffer_size, seed),
                          f".shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})")

    def combine(self, fn: Callable[[Any], list[Any]]) -> "LocalIterator":
        return self._with(lambda items: _flatten(_for_each(items, fn)), ".combine()")

    def zip_with_source_actor(self) -> "LocalIterator":
        """(actor, item) for each item; of gather_async() alone."""
        def pairs(items: Iterable[Any]) -> Iterator[Any]:
            for item in items:
                yield item if item is NOT_READY else (LocalIterator.get_metrics().current_actor, item)
        return self._with(pairs, ".zip_with_source_actor()")

    def take(self, n: int) -> list[Any]:
        """The next n items, or as many as there are."""
        out: list[Any] = []
        for item in self:
            out.append(item)
            if len(out) >= n:
                break
        return out

    def show(self, n: int = 20) -> None:
        for item in self.take(n):
            print(item)

    def duplicate(self, n: int) -> list["LocalIterator"]:
        """n iterators over the same items. One that is ahead of the others is not ready until they have come along."""
        if n < 2:
            raise ValueError(f"duplicate({n}), expected 2 copies or more")
        queues: list[Any] = [collections.deque() for _ in range(n)]

        def copy(i: int) -> LocalIterator:
            def items(timeout: Optional[float]) -> Iterator[Any]:
                while True:
                    if len(queues[i]) < max(map(len, queues)):
                        yield NOT_READY
                        continue
                    if not queues[i]:
                        try:
                            item = self._step()
                        except StopIteration:
                            return
                        if item is NOT_READY:
                            yield item
                            continue
                        for queue in queues:
                            queue.append(item)
                    yield queues[i].popleft()
            return LocalIterator(items, self.shared_metrics, name=f"{self.name}.duplicate[{i}]")
        return [copy(i) for i in range(n)]

    def union(self, *others: "LocalIterator", deterministic: bool = False,
              round_robin_weights: Optional[list[Any]] = None) -> "LocalIterator":
        """Items of all: in turns, or (not deterministic) of whichever is ready."""
        for it in others:
            if not isinstance(it, LocalIterator):
                raise ValueError(f"union() with a value of type {type(it).__name__}, expected a LocalIterator")
        all_of = [self, *others]
        united = SharedMetrics([it.shared_metrics for it in all_of])
        weights = [1 if w == "*" else max(1, round(w)) for w in round_robin_weights or [1] * len(all_of)]
        parts = [LocalIterator(it.base_iterator, it.shared_metrics, it.local_transforms,
                               timeout=None if deterministic else 0, name=it.name) for it in all_of]

        def items(timeout: Optional[float]) -> Iterator[Any]:
            left = list(zip(weights, parts))
            while left:
                any_ready = False
                for weight, part in list(left):
                    for _ in range(weight):
                        try:
                            item = next(part) if deterministic else part._step()
                        except StopIteration:
                            left.remove((weight, part))
                            any_ready = True
                            break
                        if item is NOT_READY:
                            break
                        any_ready = True
                        yield item
                if not any_ready:
                    if timeout is not None:
                        yield NOT_READY
                    time.sleep(0.001)
        return LocalIterator(items, united, name=f"LocalUnion[{', '.join(map(str, all_of))}]")


class ParallelIteratorWorker:
    """What an actor must be to be a shard: base of the user's class, or the whole actor.

    item_generator: something to iterate, or a function that makes it. repeat: without end.
    """

    def __init__(self, item_generator: Any, repeat: bool) -> None:
        self.item_generator, self.repeat = item_generator, repeat
        self.transforms: list[Transform] = []
        self.local_it: Optional[Iterator[Any]] = None
        self._slices: dict[int, Any] = {}
        self._next_index = 0

    def _items(self, timeout: Optional[float] = None) -> Iterator[Any]:
        while True:
            yield from self.item_generator() if callable(self.item_generator) else self.item_generator
            if not self.repeat:
                return

    def par_iter_init(self, transforms: list[Transform]) -> None:
        """Begins anew, with these transforms."""
        it = LocalIterator(self._items, SharedMetrics())
        for fn in transforms:
            it = fn(it)
        self.local_it = iter(it)
        self._slices, self._next_index = {}, 0

    def par_iter_next(self) -> list[Any]:
        """[the next item]; [] when there is none."""
        assert self.local_it is not None, "must call par_iter_init()"
        for item in self.local_it:
            return [item]
        return []

    def par_iter_next_batch(self, batch_ms: int) -> list[Any]:
        """Items of so many milliseconds, at least one; [] when there is none."""
        return self._timed(self.par_iter_next, batch_ms)

    @staticmethod
    def _timed(take: Callable[[], list[Any]], batch_ms: int) -> list[Any]:
        out = take()
        if not out or batch_ms == 0:
            return out
        end = time.monotonic() + batch_ms / 1000
        while time.monotonic() < end:
            more = take()
            if not more:
                break
            out += more
        return out

    def par_iter_slice(self, step: int, start: int) -> list[Any]:
        """As par_iter_next(), of the items start, start + step, ... alone; the others are kept for whoever asks."""
        mine = self._slices.setdefault(start, collections.deque())
        while not mine:
            item = self.par_iter_next()
            if not item:
                return []
            self._slices.setdefault(self._next_index % step, collections.deque()).append(item[0])
            self._next_index += 1
        return [mine.popleft()]

    def par_iter_slice_batch(self, step: int, start: int, batch_ms: int) -> list[Any]:
        return self._timed(lambda: self.par_iter_slice(step, start), batch_ms)


class _ActorSet:
    """Actors, and what is to be done to their items there."""

    def __init__(self, actors: list[Any], transforms: list[Transform]) -> None:
        self.actors, self.transforms = actors, transforms

    def init_actors(self) -> None:
        ray.get([a.par_iter_init.remote(self.transforms) for a in self.actors])

    def with_transform(self, fn: Transform) -> "_ActorSet":
        return _ActorSet(self.actors, self.transforms + [fn])


def _as_they_come(asks: dict[Any, Callable[[], Any]], num_async: int, timeout: Optional[float]) -> Iterator[Any]:
    """Items of actors, each asked `num_async` times ahead; of one that has no more nothing is asked."""
    running = {ask(): (actor, ask) for actor, ask in asks.items() for _ in range(num_async)}
    while running:
        ready, _ = ray.wait(list(running), num_returns=1, timeout=timeout)
        if not ready:
            yield NOT_READY
            continue
        actor, ask = running.pop(ready[0])
        batch = ray.get(ready[0])
        if not batch:
            continue
        running[ask()] = (actor, ask)
        LocalIterator.get_metrics().current_actor = actor
        yield from batch


class ParallelIterator:
    """Items in several actors.

    >>> list(from_items([1, 2, 3, 4], num_shards=2).for_each(lambda x: x + 1).gather_sync())
    """

    def __init__(self, actor_sets: list[_ActorSet], name: str, parent_iterators: list["ParallelIterator"]) -> None:
        self.actor_sets, self.name, self.parent_iterators = actor_sets, name, parent_iterators

    def __iter__(self) -> Any:
        raise TypeError("a ParallelIterator gives items by gather_sync() or gather_async()")

    def __repr__(self) -> str:
        return f"ParallelIterator[{self.name}]"

    __str__ = __repr__

    def _with_transform(self, fn: Transform, name: str) -> "ParallelIterator":
        return ParallelIterator([s.with_transform(fn) for s in self.actor_sets], self.name + name, self.parent_iterators)

    def transform(self, fn: Callable[[Iterable[Any]], Iterable[Any]]) -> "ParallelIterator":
        return self._with_transform(lambda it: it.transform(fn), ".transform()")

    def for_each(self, fn: Callable[[Any], Any], max_concurrency: int = 1,
                 resources: Optional[dict[str, Any]] = None) -> "ParallelIterator":
        return self._with_transform(lambda it: it.for_each(fn, max_concurrency, resources), ".for_each()")

    def filter(self, fn: Callable[[Any], bool]) -> "ParallelIterator":
        return self._with_transform(lambda it: it.filter(fn), ".filter()")

    def batch(self, n: int) -> "ParallelIterator":
        return self._with_transform(lambda it: it.batch(n), f".batch({n})")

    def flatten(self) -> "ParallelIterator":
        return self._with_transform(lambda it: it.flatten(), ".flatten()")

    def combine(self, fn: Callable[[Any], list[Any]]) -> "ParallelIterator":
        return self._with_transform(lambda it: it.combine(fn), ".combine()")

    def local_shuffle(self, shuffle_buffer_size: int, seed: Optional[int] = None) -> "ParallelIterator":
        return self._with_transform(lambda it: it.shuffle(shuffle_buffer_size, seed),
                                    f".local_shuffle(shuffle_buffer_size={shuffle_buffer_size}, seed={seed})")

    def _actors(self) -> list[Any]:
        return [a for s in self.actor_sets for a in s.actors]

    def repartition(self, num_partitions: int, batch_ms: int = 0) -> "ParallelIterator":
        """The same items in so many shards: of each old shard every num_partitions-th item."""
        actors = self._actors()

        def part(index: int) -> Callable[[], Iterator[Any]]:
            def items() -> Iterator[Any]:
                asks = {a: (lambda a=a: a.par_iter_slice_batch.remote(num_partitions, index, batch_ms)) for a in actors}
                return _as_they_come(asks, 1, None)
            return items
        # Begun once, here: each new shard reads a part of the same pass.
        for actor_set in self.actor_sets:
            actor_set.init_actors()
        new = from_iterators([part(i) for i in range(num_partitions)])
        return ParallelIterator(new.actor_sets, self.name + f".repartition[num_partitions={num_partitions}]", [self])

    def gather_sync(self) -> LocalIterator:
        """An item of each shard in turns."""
        it = self.batch_across_shards().flatten()
        it.name = f"{self}.gather_sync()"
        return it

    def batch_across_shards(self) -> LocalIterator:
        """Lists with an item of each shard that has one left."""
        def items(timeout: Optional[float]) -> Iterator[Any]:
            for actor_set in self.actor_sets:
                actor_set.init_actors()
            left = self._actors()
            asked = [a.par_iter_next.remote() for a in left]
            while asked:
                if timeout is not None and len(ray.wait(asked, num_returns=len(asked), timeout=timeout)[0]) < len(asked):
                    yield NOT_READY
                    continue
                answers = ray.get(asked)
                left = [a for a, answer in zip(left, answers) if answer]
                asked = [a.par_iter_next.remote() for a in left]
                row = [answer[0] for answer in answers if answer]
                if row:
                    yield row
        return LocalIterator(items, SharedMetrics(), name=f"{self}.batch_across_shards()")

    def gather_async(self, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """Items of the shards as they come."""
        if num_async < 1:
            raise ValueError("num_async is the depth of a queue, expected 1 or more")
        if batch_ms < 0:
            raise ValueError(f"batch_ms={batch_ms}, expected milliseconds from 0 on")

        def items(timeout: Optional[float]) -> Iterator[Any]:
            for actor_set in self.actor_sets:
                actor_set.init_actors()
            asks = {a: (lambda a=a: a.par_iter_next_batch.remote(batch_ms)) for a in self._actors()}
            return _as_they_come(asks, num_async, timeout)
        return LocalIterator(items, SharedMetrics(), name=f"{self}.gather_async()")

    def take(self, n: int) -> list[Any]:
        return self.gather_sync().take(n)

    def show(self, n: int = 20) -> None:
        self.gather_sync().show(n)

    def union(self, other: "ParallelIterator") -> "ParallelIterator":
        if not isinstance(other, ParallelIterator):
            raise TypeError(f"union() with a value of type {type(other).__name__}, expected a ParallelIterator")
        return ParallelIterator([*self.actor_sets, *other.actor_sets], f"ParallelUnion[{self}, {other}]",
                                [*self.parent_iterators, *other.parent_iterators])

    def select_shards(self, shards_to_keep: list[int]) -> "ParallelIterator":
        if len(self.actor_sets) > 1:
            raise ValueError("shards are selected before union(), not after it")
        actors = [a for i, a in enumerate(self._actors()) if i in shards_to_keep]
        return ParallelIterator([_ActorSet(actors, self.actor_sets[0].transforms)],
                                f"{self}.select_shards({len(shards_to_keep)} total)", self.parent_iterators)

    def num_shards(self) -> int:
        return len(self._actors())

    def shards(self) -> list[LocalIterator]:
        return [self.get_shard(i) for i in range(self.num_shards())]

    def get_shard(self, shard_index: int, batch_ms: int = 0, num_async: int = 1) -> LocalIterator:
        """Items of one shard."""
        places = [(a, s) for s in self.actor_sets for a in s.actors]
        if not 0 <= shard_index < len(places):
            raise ValueError(f"there is no shard {shard_index}, expected 0 to {len(places) - 1}")
        actor, actor_set = places[shard_index]

        def items(timeout: Optional[float]) -> Iterator[Any]:
            ray.get(actor.par_iter_init.remote(actor_set.transforms))
            asked = collections.deque(actor.par_iter_next_batch.remote(batch_ms) for _ in range(num_async))
            while asked:
                if timeout is not None and not ray.wait([asked[0]], timeout=timeout)[0]:
                    yield NOT_READY
                    continue
                batch = ray.get(asked.popleft())
                if batch:
                    asked.append(actor.par_iter_next_batch.remote(batch_ms))
                    yield from batch
        return LocalIterator(items, SharedMetrics(), name=f"{self.name}.shard[{shard_index}]")


def from_items(items: list[Any], num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """Items dealt to so many shards in turns."""
    shards = [items[i::num_shards] for i in range(num_shards)]
    kind = type(items[0]).__name__ if items else "None"
    name = f"from_items[{kind}, {len(items)}, shards={num_shards}{', repeat=True' if repeat else ''}]"
    return from_iterators(shards, repeat=repeat, name=name)


def from_range(n: int, num_shards: int = 2, repeat: bool = False) -> ParallelIterator:
    """0 .. n - 1, cut into so many pieces."""
    size = n // num_shards
    shards = [range(i * size, (i + 1) * size if i + 1 < num_shards else n) for i in range(num_shards)]
    name = f"from_range[{n}, shards={num_shards}{', repeat=True' if repeat else ''}]"
    return from_iterators(shards, repeat=repeat, name=name)


def from_iterators(generators: list[Any], repeat: bool = False, name: Optional[str] = None) -> ParallelIterator:
    """A shard for each: something to iterate, or a function that makes it."""
    worker = ray.remote(ParallelIteratorWorker)
    actors = [worker.remote(g, repeat) for g in generators]
    name = name or f"from_iterators[shards={len(generators)}{', repeat=True' if repeat else ''}]"
    return from_actors(actors, name=name)


def from_actors(actors: list[Any], name: Optional[str] = None) -> ParallelIterator:
    """Actors whose classes derive from ParallelIteratorWorker."""
    return ParallelIterator([_ActorSet(actors, [])], name or f"from_actors[shards={len(actors)}]", [])
