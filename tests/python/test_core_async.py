"""await, futures, async actors, streams."""
import asyncio
import collections
import os
import queue
import threading
import time

import pytest

import manta
from conftest import DEADLINE_S, until
from manta import _aio, exceptions

pytestmark = [pytest.mark.sanitized, pytest.mark.usefixtures("module_node")]


@manta.remote
def add(a, b=1):
    return a + b


@manta.remote
def fail():
    raise ValueError("no")


@manta.remote
def hold(path):
    while not os.path.exists(path):
        time.sleep(0.005)
    return "held"


def test_await():
    async def main():
        assert await add.remote(1) == 2
        assert await asyncio.gather(*[add.remote(i) for i in range(50)]) == list(range(1, 51))
        assert await manta.put(5) == 5
        with pytest.raises(ValueError, match="no"):
            await fail.remote()

    for _ in range(3):  # each with a loop of its own
        asyncio.run(main())


def test_await_gives_up_with_its_timeout(tmp_path):
    async def main():
        ref = hold.remote(str(tmp_path / "go"))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(ref, 0.05)
        other = await add.remote(1)
        (tmp_path / "go").touch()
        return other, await ref

    assert asyncio.run(main()) == (2, "held")


def test_futures():
    assert add.remote(1).future().result(DEADLINE_S) == 2
    assert manta.put(3).future().result(0) == 3
    with pytest.raises(ValueError):
        fail.remote().future().result(DEADLINE_S)
    futures = [add.remote(i).future() for i in range(100)]
    assert [f.result(DEADLINE_S) for f in futures] == list(range(1, 101))

    async def main():
        return await asyncio.wrap_future(add.remote(5).future())

    assert asyncio.run(main()) == 6


@manta.remote
class Loop:
    def __init__(self):
        self.events = {}
        self.seen = []

    async def wait(self, name):
        self.seen.append(name)
        await self.events.setdefault(name, asyncio.Event()).wait()
        return name

    async def set(self, name):
        self.events.setdefault(name, asyncio.Event()).set()

    async def fail(self):
        await asyncio.sleep(0)
        raise KeyError("async")

    async def items(self, n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def nested(self, refs):
        return [await r for r in refs]

    def plain(self):
        return "plain"

    async def was_seen(self):
        return list(self.seen)

    async def forever(self):
        try:
            await asyncio.sleep(1000)
        finally:
            self.seen.append("cancelled")

    async def two(self):
        return 1, 2


def test_an_async_actor_interleaves():
    a = Loop.remote()
    refs = [a.wait.remote(i) for i in range(100)]
    for i in reversed(range(100)):
        a.set.remote(i)
    assert manta.get(refs) == list(range(100))
    with pytest.raises(KeyError):
        manta.get(a.fail.remote())
    assert manta.get(a.plain.remote()) == "plain"
    assert manta.get(a.nested.remote([add.remote(i) for i in range(5)])) == [1, 2, 3, 4, 5]
    assert manta.get(a.two.options(num_returns=2).remote()) == [1, 2]


def test_a_loop_that_is_stopped_goes_on():
    @manta.remote
    class A:
        async def stop(self):
            asyncio.get_running_loop().stop()
            return 1

        async def wait(self):
            await asyncio.sleep(0.01)
            return 2

    a = A.remote()
    for _ in range(3):
        assert manta.get([a.stop.remote(), a.wait.remote()], timeout=DEADLINE_S) == [1, 2]


def test_an_async_actor_has_a_limit():
    a = Loop.options(max_concurrency=2).remote()
    refs = [a.wait.remote(i) for i in range(3)]
    until(lambda: len(manta.get(a.__manta_call__.remote(lambda self: self.seen))) == 2)
    manta.get(a.__manta_call__.remote(lambda self: self.events[0]._loop if False else None))
    assert manta.wait(refs, num_returns=1, timeout=0.1)[0] == []
    manta.get(a.__manta_call__.remote(release_all))
    assert sorted(manta.get(refs)) == [0, 1, 2]


def release_all(self):
    import manta._aio
    for i in range(3):
        manta._aio.actor_loop().call_soon_threadsafe(self.events.setdefault(i, asyncio.Event()).set)


def test_a_cancelled_coroutine_is_cancelled():
    a = Loop.remote()
    ref = a.forever.remote()
    manta.get(a.plain.remote())
    manta.cancel(ref)
    with pytest.raises(exceptions.CancelledError):
        manta.get(ref)
    until(lambda: "cancelled" in manta.get(a.was_seen.remote()))


def test_streams_of_async_actors():
    a = Loop.remote()
    assert [manta.get(r) for r in a.items.remote(20)] == list(range(20))

    async def main():
        return [await r async for r in a.items.remote(5)]

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


@manta.remote
def count(n, fail_at=None):
    for i in range(n):
        if i == fail_at:
            raise ValueError(f"at {i}")
        yield i


def test_streams():
    assert [manta.get(r) for r in count.remote(50)] == list(range(50))
    assert list(count.remote(0)) == []
    assert manta.get(count.remote(3)) == [0, 1, 2]

    @manta.remote(num_returns="streaming")
    def listed():
        return ["a", "b"]

    assert [manta.get(r) for r in listed.remote()] == ["a", "b"]


def test_a_stream_that_fails_gives_what_came_before():
    got, refs = [], count.remote(5, fail_at=2)
    with pytest.raises(ValueError, match="at 2"):
        for r in refs:
            got.append(manta.get(r))
    assert got == [0, 1]
    with pytest.raises(StopIteration):
        next(refs)


def test_a_stream_that_is_dropped_ends_its_call(tmp_path):
    @manta.remote
    def endless(path):
        try:
            while True:
                yield 1
        finally:
            open(path, "w").close()

    s = endless.remote(str(tmp_path / "ended"))
    assert manta.get(next(s)) == 1
    del s
    until(lambda: (tmp_path / "ended").exists(), "the end of the generator")
    s = endless.remote(str(tmp_path / "closed"))
    next(s)
    s.close()
    until(lambda: (tmp_path / "closed").exists())


def test_cancel(tmp_path):
    @manta.remote
    def sleep(path):
        open(path, "w").close()
        time.sleep(1000)

    ref = sleep.remote(str(tmp_path / "began"))
    until((tmp_path / "began").exists)
    manta.cancel(ref)
    with pytest.raises(exceptions.CancelledError, match="^sleep was interrupted$"):
        manta.get(ref)

    @manta.remote
    def spin(path):
        try:
            open(path, "w").close()     # from here on the interrupt may come
            while True:
                pass
        except KeyboardInterrupt:
            open(path + ".seen", "w").close()
            raise

    ref = spin.remote(str(tmp_path / "spins"))
    until((tmp_path / "spins").exists)
    manta.cancel(ref)
    with pytest.raises(exceptions.CancelledError):
        manta.get(ref)
    until((tmp_path / "spins.seen").exists)

    @manta.remote
    def outer(path):
        return manta.get(sleep.remote(path))

    ref = outer.remote(str(tmp_path / "inner"))
    until((tmp_path / "inner").exists)
    manta.cancel(ref)
    with pytest.raises(exceptions.CancelledError):
        manta.get(ref)
    forced = sleep.remote(str(tmp_path / "forced"))
    until((tmp_path / "forced").exists)
    manta.cancel(forced, force=True)
    with pytest.raises(exceptions.MantaError):
        manta.get(forced)
    assert manta.get([add.remote(i) for i in range(20)]) == list(range(1, 21))


def test_ipython_can_await(python, tmp_path):
    pytest.importorskip("IPython")
    (tmp_path / "cell.ipy").write_text("import manta\n@manta.remote\ndef f(x): return x + 1\nprint(await f.remote(4))\n")
    out = python("-m", "IPython", "--no-banner", "--quick", "--colors=NoColor", str(tmp_path / "cell.ipy"),
                 env={"IPYTHONDIR": str(tmp_path)})
    assert "5" in out.stdout.split(), out.stdout + out.stderr


assert threading


def test_a_cancel_in_the_turn_of_the_loop_that_begins_the_call(monkeypatch):
    """The coroutine has not made its first step then; its call ends all the same."""
    from manta import _aio
    ended, held = queue.Queue(), threading.Event()
    monkeypatch.setattr(_aio._manta, "finish", lambda *how: ended.put(how))
    _aio.actor_loop().call_soon_threadsafe(held.wait)
    _aio.begin(asyncio.sleep(3600), (0, 7, "py.f", ""), {})
    _aio.cancel(7)
    _aio.cancel(7)
    held.set()
    deferred, value, error = ended.get(timeout=DEADLINE_S)
    assert deferred[1] == 7 and value is None and isinstance(error, asyncio.CancelledError)
    assert not _aio._running and not _aio._cancelled and not _aio._calls


def test_a_cancel_while_the_arguments_are_read(tmp_path):
    def waits(begun, go):
        open(begun, "w").close()
        while not os.path.exists(go):
            time.sleep(0.002)

    class Late:
        def __init__(self, n):
            self.paths = str(tmp_path / f"begun{n}"), str(tmp_path / f"go{n}")

        def __reduce__(self):
            return waits, self.paths

    @manta.remote
    class A:
        async def f(self, x):
            await asyncio.sleep(3600)

    a = A.remote()
    for n in range(5):
        late = Late(n)
        ref = a.f.remote(late)
        until(lambda: os.path.exists(late.paths[0]))
        manta.cancel(ref)
        open(late.paths[1], "w").close()
        with pytest.raises(exceptions.CancelledError):
            manta.get(ref, timeout=DEADLINE_S)


def test_a_stream_that_is_held_back_is_cancelled():
    @manta.remote
    class A:
        async def items(self):
            for i in range(1000):
                yield i

        async def answer(self):
            return "here"

    a = A.remote()
    for _ in range(30):
        items = a.items.options(stream_window=1).remote()
        assert manta.get(next(items)) == 0
        items.close()
        assert manta.get(a.answer.remote(), timeout=DEADLINE_S) == "here"


def test_a_coroutine_that_is_cancelled_while_it_waits_leaves_its_place():
    a = Loop.options(max_concurrency=1).remote()
    first, second, third = (a.wait.remote(i) for i in range(3))
    until(lambda: manta.get(a.__manta_call__.remote(lambda self: list(self.seen))) == [0])
    manta.cancel(second)
    with pytest.raises(exceptions.CancelledError):
        manta.get(second, timeout=DEADLINE_S)
    manta.get(a.__manta_call__.remote(release_all))
    assert manta.get([first, third], timeout=DEADLINE_S) == [0, 2]


def test_a_coroutine_that_is_cancelled_before_it_begins_is_no_mistake_of_the_program():
    """Python warns of one that was never awaited."""
    @manta.remote(max_concurrency=1)
    class One:
        def __init__(self):
            import warnings
            self.go, self.told = asyncio.Event(), []
            warnings.showwarning = lambda message, *where: self.told.append(str(message))

        async def wait(self):
            await self.go.wait()

        async def warnings(self):
            return self.told

    a = One.remote()
    first, second = a.wait.remote(), a.wait.remote()
    manta.get(a.__manta_call__.remote(lambda self: None))       # they are in the loop
    manta.cancel(second)
    with pytest.raises(exceptions.CancelledError):
        manta.get(second, timeout=DEADLINE_S)
    manta.get(a.__manta_call__.remote(lambda self: self.go.set()))
    manta.get(first)
    assert manta.get(a.warnings.remote()) == []


@manta.remote
class Echo:
    """Reads sockets in the loop that its calls arrive in."""

    async def echo(self, n):
        async def answer(reader, writer):
            writer.write(await reader.readexactly(n))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"x" * n)
        out = await reader.readexactly(n)
        writer.close()
        server.close()
        return out

    async def one(self):
        return 1


def test_calls_and_sockets_share_the_loop():
    a = Echo.remote()
    echoes, ones = [a.echo.remote(100000) for _ in range(3)], [a.one.remote() for _ in range(500)]
    assert sum(manta.get(ones, timeout=DEADLINE_S)) == 500
    assert manta.get(echoes, timeout=DEADLINE_S) == [b"x" * 100000] * 3


@manta.remote
def begin_before_the_bell():
    """Two calls of coroutines arrive in this worker; the loop begins the first between its arrival and its bell, as it may when
    another bell rings. Those that are begun."""
    begun = queue.SimpleQueue()

    def let_it_look():
        looked = threading.Event()
        _aio.actor_loop().call_soon_threadsafe(looked.set)
        assert looked.wait(DEADLINE_S)

    class Watched(collections.deque):
        def append(self, call):
            super().append(call)
            _aio._is_called = True
            let_it_look()

    async def run(name, deferred, how):
        begun.put(name)

    _aio._run = run
    _aio._arrived = Watched()
    _aio.begin("first", (None, 1, "", ""), {})
    let_it_look()  # and hear the first one's bell
    _aio._arrived = collections.deque()
    _aio.begin("second", (None, 2, "", ""), {})
    return [begun.get(timeout=DEADLINE_S) for _ in range(2)]


def test_a_call_that_the_loop_begins_before_its_bell_does_not_silence_the_next():
    assert manta.get(begin_before_the_bell.options(max_calls=1).remote()) == ["first", "second"]


def test_a_shutdown_ends_what_is_awaited(python):
    """In a loop of another thread, and in the loop that ends it; nothing of a life of the runtime stays in the loop."""
    out = python("-c", """
import asyncio, os, threading, time, manta
@manta.remote
def sleep(): time.sleep(1000)
@manta.remote
def one(): return 1
async def wait(ref):
    try: await ref
    except (ValueError, manta.exceptions.MantaError) as e: return type(e).__name__
async def waits(ready):
    task = asyncio.create_task(wait(sleep.remote()))
    await asyncio.sleep(0)
    ready()
    print(await task)
async def lives():
    for i in range(4):
        manta.init(num_cpus=1)
        print(await one.remote())
        await waits(manta.shutdown)
        if i == 0: before = os.listdir("/proc/self/fd")
    print(len(os.listdir("/proc/self/fd")) == len(before))
manta.init(num_cpus=1)
begun = threading.Event()
t = threading.Thread(target=lambda: asyncio.run(waits(begun.set)))
t.start()
begun.wait()
manta.shutdown()
t.join()
asyncio.run(lives())
""")
    assert out.stdout == "ValueError\n" + "1\nValueError\n" * 4 + "True\n", out.stdout + out.stderr
