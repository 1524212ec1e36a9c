"""References in event loops: await, futures, async actors."""
import asyncio
import concurrent.futures
import itertools
import selectors
import threading
import weakref

from manta import _manta

_tokens = itertools.count(1)


class _LoopWatch:
    """A watch whose descriptor an asyncio loop looks at."""

    def __init__(self, loop):
        self.watch = _manta.Watch()
        self.waiting = {}
        loop.add_reader(self.watch.fileno(), self.taken)

    def add(self, ref, future):
        token = next(_tokens)
        self.waiting[token] = future
        self.watch.add(ref, token)
        future.add_done_callback(lambda _: self.waiting.pop(token, None))

    def taken(self):
        for token in self.watch.take():
            future = self.waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(None)


_loops = weakref.WeakKeyDictionary()  # loop: (life, watch)


def _watch_of(loop):
    known = _loops.get(loop)
    life = _manta.life()
    if known is None or known[0] != life:
        _loops[loop] = known = (life, _LoopWatch(loop))
    return known[1]


async def wait_for(ref):
    """The value of a reference, in an event loop."""
    if not _manta.wait([ref], 1, 0)[0]:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        _watch_of(loop).add(ref, future)
        await future
    return _manta.get(ref, 0)


def await_ref(ref):
    return wait_for(ref).__await__()


# ---- concurrent futures ----

class _FutureThread:
    """A thread that sets futures of references that have become ready."""

    def __init__(self):
        self.watch = _manta.Watch()
        self.life = _manta.life()
        self.waiting = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.run, name="manta-futures", daemon=True).start()

    def add(self, ref, future):
        token = next(_tokens)
        with self.lock:
            self.waiting[token] = ref, future
        self.watch.add(ref, token)

    def run(self):
        selector = selectors.DefaultSelector()
        selector.register(self.watch.fileno(), selectors.EVENT_READ)
        while self.life == _manta.life():
            selector.select(0.5)
            for token in self.watch.take():
                with self.lock:
                    ref, future = self.waiting.pop(token)
                set_from(future, ref)
        for _, future in self.waiting.values():
            future.cancel()


def set_from(future, ref):
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = _manta.get(ref, 0)
    except BaseException as e:
        future.set_exception(e)
    else:
        future.set_result(value)


_futures = None
_futures_lock = threading.Lock()


def future(ref):
    """A concurrent.futures.Future of a reference."""
    global _futures
    out = concurrent.futures.Future()
    if _manta.wait([ref], 1, 0)[0]:
        set_from(out, ref)
        return out
    with _futures_lock:
        if _futures is None or _futures.life != _manta.life():
            _futures = _FutureThread()
        _futures.add(ref, out)
    return out


# ---- async actors ----

_loop = None
_loop_lock = threading.Lock()
_room = None  # a semaphore: how many coroutines run at once
_running = {}  # task: its asyncio task


def actor_loop():
    """The loop that coroutines of this process's actor run in, on a thread of its own."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="manta-loop", daemon=True).start()
    return _loop


def set_limit(n):
    global _room
    _room = asyncio.Semaphore(n)


def begin(awaitable, deferred):
    """Runs a coroutine, or an async generator, in the loop; deferred: the call that it is."""
    loop = actor_loop()
    loop.call_soon_threadsafe(_begin, loop, awaitable, deferred)


def _begin(loop, awaitable, deferred):
    _running[deferred[1]] = loop.create_task(_run(awaitable, deferred))


async def _run(awaitable, deferred):
    value = error = None
    try:
        if _room is None:
            value = await _result_of(awaitable, deferred)
        else:
            async with _room:
                value = await _result_of(awaitable, deferred)
    except BaseException as e:
        error = e
    _running.pop(deferred[1], None)
    _manta.finish(deferred, value, error)


async def _result_of(awaitable, deferred):
    if not hasattr(awaitable, "__anext__"):
        return await awaitable
    loop = asyncio.get_running_loop()
    try:
        async for item in awaitable:
            if not await loop.run_in_executor(None, _manta.yield_item, deferred, item):
                break
    finally:
        await awaitable.aclose()


def cancel(task):
    """The call was cancelled: so is its coroutine."""
    if _loop is not None:
        _loop.call_soon_threadsafe(_cancel, task)


def _cancel(task):
    running = _running.get(task)
    if running is not None:
        running.cancel()
