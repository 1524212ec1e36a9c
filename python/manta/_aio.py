"""References in event loops: await, futures, async actors."""
import asyncio
import collections
import concurrent.futures
import contextlib
import itertools
import queue
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
_rooms = {}  # name of a concurrency group: a semaphore, of as many coroutines as run at once; "": those in no group
_running = {}  # number of a call: its asyncio task
_arrived = collections.deque()  # calls that the loop is to begin, in their order
_is_called = False  # the loop was told of them
_calls = {}  # asyncio task: the call that it is, while it runs
_cancelled = set()  # numbers of calls whose asyncio task was told of it
_leaves = False  # exit_actor() was called: no coroutine begins


def actor_loop():
    """The loop that coroutines of this process's actor run in, on a thread of its own."""
    global _loop
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="manta-loop", daemon=True).start()
    return _loop


def set_limit(n, groups):
    """How many coroutines run at once: n, and of each group its own number."""
    for name, most in {"": n, **(groups or {})}.items():
        _rooms[name] = asyncio.Semaphore(most)


def construct(cls, args, kwargs):
    """Makes the actor in the loop, on its thread."""
    async def make():
        return cls(*args, **kwargs)
    return asyncio.run_coroutine_threadsafe(make(), actor_loop()).result()


def in_loop():
    """Whether this runs in the actor's loop."""
    return _loop is not None and asyncio._get_running_loop() is _loop


def call_here():
    """The call that this runs in, in the loop; None: a coroutine that the program began itself."""
    task = asyncio.current_task()
    return _calls.get(task) if task is not None else None


def leave():
    """exit_actor() is called in the loop: no coroutine begins any more. The call that it is called in; None: in none."""
    global _leaves
    _leaves = True
    return call_here()


def begin(awaitable, deferred, how):
    """Runs a coroutine, or an async generator, in the loop; deferred: the call that it is."""
    global _is_called
    loop = actor_loop()
    _arrived.append((awaitable, deferred, how))
    if not _is_called:  # waking the loop is a system call: once for all that arrive before it looks
        _is_called = True
        loop.call_soon_threadsafe(_begin_all, loop)


def _begin_all(loop):
    global _is_called
    _is_called = False  # before it looks: who arrives from here on calls again
    while _arrived:
        awaitable, deferred, how = _arrived.popleft()
        _running[deferred[1]] = loop.create_task(_run(awaitable, deferred, how))


def _room_of(deferred):
    """The semaphore of a call; None: it is a method that every actor has, which waits for no other."""
    _, _, name, group = deferred
    return None if name.startswith(("py.__manta_", "py.__ray_")) else _rooms.get(group)


async def _run(awaitable, deferred, how):
    value = error = None
    task = asyncio.current_task()
    _calls[task] = deferred
    try:
        async with _room_of(deferred) or contextlib.nullcontext():
            if _leaves:
                awaitable.close() if hasattr(awaitable, "close") else await awaitable.aclose()
                _manta.exit_actor(deferred)
            else:
                value = await _result_of(awaitable, deferred, how)
    except BaseException as e:
        error = e
    _running.pop(deferred[1], None)
    _cancelled.discard(deferred[1])
    _calls.pop(task, None)
    try:
        _manta.finish(deferred, value, error)
    finally:
        del value, error  # its traceback refers to this frame


async def _result_of(awaitable, deferred, how):
    if not hasattr(awaitable, "__anext__"):
        return await awaitable
    try:
        await _yield_all(awaitable, deferred, how)
    finally:
        await awaitable.aclose()
    if "limit" in how:
        await _in_thread_whole(_manta.yield_taken, deferred)


async def _yield_all(items, deferred, how):
    """Gives the items of an async generator away. It is asked for the next when there is room for that."""
    terms = deferred, how.get("group", 1), how.get("limit", 0)
    while True:
        room = _manta.yield_room(*terms, False)
        if room is None:
            room = await _in_thread_whole(_manta.yield_room, *terms, True)
        try:
            item = await anext(items) if room else None
        except StopAsyncIteration:
            return
        if not room or not await _in_thread_whole(_manta.yield_item, deferred, item):
            return


# ---- threads that wait ----

class _Waiters:
    """Threads that wait for streams, as many as are waited for: a loop's own executor has few, and would be full
    of those that wait for what the others are to do. The process ends without them."""

    def __init__(self):
        self.jobs = queue.SimpleQueue()
        self.idle = 0
        self.lock = threading.Lock()

    def add(self, *job):
        with self.lock:
            is_short = self.idle == 0
            self.idle -= not is_short
        self.jobs.put(job)
        if is_short:
            threading.Thread(target=self.run, name="manta-items", daemon=True).start()

    def run(self):
        while True:
            loop, future, function, args = self.jobs.get()
            value = error = None
            try:
                value = function(*args)
            except BaseException as e:
                error = e
            try:
                loop.call_soon_threadsafe(_set, future, value, error)
            except RuntimeError:
                pass  # the loop was closed, and nobody waits
            del loop, future, function, args, value, error
            with self.lock:
                self.idle += 1


def _set(future, value, error):
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


_waiters = _Waiters()


def _start_in_thread(function, args):
    """A future of what the function returns, which may wait."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    _waiters.add(loop, future, function, args)
    return future


async def in_thread(function, *args):
    """What the function returns, which may wait."""
    return await _start_in_thread(function, args)


async def _in_thread_whole(function, *args):
    """As in_thread(), for functions that use a call: a coroutine that is cancelled meanwhile goes on when the function has
    returned, since the call ends with the coroutine. A call that was cancelled lets the function return at once."""
    waiting = _start_in_thread(function, args)
    cancelled = None
    while not waiting.done():
        try:
            await asyncio.wait((waiting,))
        except asyncio.CancelledError as e:
            cancelled = e
    if cancelled is not None:
        waiting.exception()  # nobody asks for it any more
        raise cancelled
    return waiting.result()


def cancel(task):
    """The call was cancelled: so is its coroutine."""
    if _loop is not None:
        _loop.call_soon_threadsafe(_cancel, task)


def _cancel(task):
    """Once, also if it is told twice: the coroutine may be cleaning up. Behind its first step, which may wait in the loop as this
    does: a task that is cancelled before that never enters _run(), and its call would never end."""
    running = _running.get(task)
    if running is not None and task not in _cancelled:
        _cancelled.add(task)
        _loop.call_soon(running.cancel)
