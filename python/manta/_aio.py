"""References in event loops: await, futures, async actors."""
import asyncio
import collections
import concurrent.futures
import itertools
import os
import queue
import select
import selectors
import threading
import types
import weakref

from manta import _manta

_tokens = itertools.count(1)


class _LoopWatch:
    """A watch whose descriptor an asyncio loop looks at."""

    def __init__(self, loop):
        self.watch = _manta.Watch()
        self.waiting = {}
        self.loop, self.file = weakref.ref(loop), self.watch.fileno()
        loop.add_reader(self.file, self.taken)

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

    def end(self):
        """The runtime has ended, in the loop: those who wait look at their references and are told."""
        loop = self.loop()
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self.file)
        for future in list(self.waiting.values()):
            if not future.done():
                future.set_result(None)


_loops = weakref.WeakKeyDictionary()  # loop: (life, watch)


def _watch_of(loop):
    known = _loops.get(loop)
    life = _manta.life()
    if known is None or known[0] != life:
        _loops[loop] = known = (life, _LoopWatch(loop))
    return known[1]


def end_waits():
    """The runtime has ended: no reference of it becomes ready any more."""
    for loop, known in list(_loops.items()):
        if _loops.get(loop) is known:
            del _loops[loop]
        if asyncio._get_running_loop() is loop:
            known[1].end()
            continue
        try:
            loop.call_soon_threadsafe(known[1].end)
        except RuntimeError:
            pass  # it was closed


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
_bell = -1  # of the loop: whoever rings it has the loop look for calls that arrived; -1: the loop is not ours, and has none
_loop_lock = threading.Lock()
_rooms = {}  # name of a concurrency group: a _Room, for as many coroutines as run at once; "": those in no group
_running = {}  # number of a call: its asyncio task
_arrived = collections.deque()  # calls that the loop is to begin, in their order
_is_called = False  # the loop was told of calls that arrived, and has not looked for them since
_calls = {}  # asyncio task: the call that it is, while it runs
_cancelled = set()  # numbers of calls whose asyncio task was told of it
_OF_ALL = "py.__manta_", "py.__ray_"  # methods that every actor has, which wait for no other
_leaves = False  # exit_actor() was called: no coroutine begins


class _Selector(selectors.BaseSelector):
    """What the actor's loop waits with: its own descriptors, and a bell for calls that arrive. asyncio's way to wake a loop is a
    socket that is read until it is empty, then one more turn to begin what was called: four system calls more for each call
    that comes alone, each of which gives the interpreter away. The bell is never read, since only its edge is looked at."""

    def __init__(self):
        self.files = selectors.DefaultSelector()
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.both = select.epoll()
        self.both.register(self.files.fileno(), select.EPOLLIN)
        self.both.register(self.bell, select.EPOLLIN | select.EPOLLET)

    def register(self, fileobj, events, data=None):
        return self.files.register(fileobj, events, data)

    def unregister(self, fileobj):
        return self.files.unregister(fileobj)

    def modify(self, fileobj, events, data=None):
        return self.files.modify(fileobj, events, data)

    def get_map(self):
        return self.files.get_map()

    def select(self, timeout=None):
        there = self.both.poll(-1 if timeout is None else max(timeout, 0))
        if _is_called:  # not _arrived: a call may be begun before its thread rings, and the next would then not ring
            _begin_all(_loop)
        for fd, _ in there:
            if fd != self.bell:
                return self.files.select(0)
        return []

    def close(self):
        self.files.close()
        self.both.close()
        os.close(self.bell)


def actor_loop():
    """The loop that coroutines of this process's actor run in, on a thread of its own."""
    global _loop, _bell
    with _loop_lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            if type(_loop) is asyncio.SelectorEventLoop:  # the program may have set another, which has ways of its own
                _loop.close()
                selector = _Selector()
                _bell = selector.bell
                _loop = asyncio.SelectorEventLoop(selector)
            threading.Thread(target=_run_loop, name="manta-loop", daemon=True).start()
    return _loop


def _run_loop():
    while not _loop.is_closed():  # a program that stops its loop does not mean the calls that come
        _loop.run_forever()


class _Room:
    """How many coroutines may still begin, and those that wait, in their order. A semaphore of asyncio costs two coroutines
    for each call; here one that finds room waits for nothing. All of it runs in the loop."""

    def __init__(self, most):
        self.free = most
        self.waiting = collections.deque()

    async def wait(self):
        """Waits for a place, which whoever leaves hands on."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self.waiting.remove(future)
            else:
                self.leave()  # it was given the place, and does not use it
            raise

    def leave(self):
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
                self.waiting.remove(future)
                return
        self.free += 1


def set_limit(n, groups):
    """How many coroutines run at once: n, and of each group its own number."""
    for name, most in {"": n, **(groups or {})}.items():
        _rooms[name] = _Room(most)


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
    if _loop is None:
        actor_loop()
    _arrived.append((awaitable, deferred, how))
    if not _is_called:  # waking the loop is a system call: once for all that arrive before it looks
        _is_called = True
        if _bell >= 0:
            _manta.ring_bell(_bell)  # which keeps the interpreter: the loop could do nothing without it
        else:
            _loop.call_soon_threadsafe(_begin_all, _loop)


def _begin_all(loop):
    global _is_called
    _is_called = False  # before it looks: who arrives from here on calls again
    while _arrived:
        awaitable, deferred, how = _arrived.popleft()
        task = loop.create_task(_run(awaitable, deferred, how))
        _running[deferred[1]] = task
        _calls[task] = deferred


async def _run(awaitable, deferred, how):
    """Awaits a coroutine, or gives the items of an async generator away, and ends the call. Most calls are coroutines that find
    room, so that way is kept short: a microsecond here is one of twenty."""
    value = error = room = None
    _, number, name, group = deferred
    try:
        if not name.startswith(_OF_ALL):
            place = _rooms.get(group)
            if place is not None:
                if place.free > 0:
                    place.free -= 1
                else:
                    await place.wait()
                room = place
        if _leaves:
            awaitable.close() if hasattr(awaitable, "close") else await awaitable.aclose()
            _manta.exit_actor(deferred)
        elif type(awaitable) is types.CoroutineType:
            value = await awaitable
        else:
            await _give_away(awaitable, deferred, how)
    except BaseException as e:
        error = e
        if type(awaitable) is types.CoroutineType:
            awaitable.close()  # one that was cancelled while it waited for room: nobody else ends it, and Python would say so
    if room is not None:
        room.leave()
    task = _running.pop(number, None)
    _calls.pop(task, None)
    _cancelled.discard(number)
    try:
        _manta.finish(deferred, value, error)
    finally:
        del value, error  # its traceback refers to this frame


async def _give_away(awaitable, deferred, how):
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
