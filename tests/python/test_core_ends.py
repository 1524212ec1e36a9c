"""How actors end themselves: what is finished, what fails, what runs last; and their concurrency groups."""
import asyncio
import atexit
import os
import signal
import threading

import pytest

from conftest import until

import manta
from manta.exceptions import ActorDiedError

pytestmark = pytest.mark.sanitized


class Gate:
    """Calls wait here until the gate is open."""

    def __init__(self):
        self.open, self.lock, self.here, self.most = threading.Event(), threading.Lock(), 0, 0

    def wait(self):
        with self.lock:
            self.here += 1
            self.most = max(self.most, self.here)
        self.open.wait()
        with self.lock:
            self.here -= 1


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@manta.remote
class Leaver:
    def __init__(self, folder, leaves=False):
        self.folder = folder
        atexit.register(lambda: self.tell("atexit"))
        if leaves:
            manta.exit_actor()
            self.tell("goes on")

    def tell(self, what):
        with open(f"{self.folder}/told", "a") as f:
            f.write(what + "\n")

    def __manta_shutdown__(self):
        self.tell("shutdown")

    def leave(self):
        manta.exit_actor()
        self.tell("goes on")

    def leave_and_catch(self):
        try:
            manta.exit_actor()
        except SystemExit:
            return "caught"

    def pid(self):
        return os.getpid()


def told(folder):
    path = folder / "told"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("method", ["leave", "leave_and_catch"])
def test_an_actor_that_leaves_ends_in_order(node, method, tmp_path):
    actor = Leaver.options(max_restarts=-1, max_task_retries=-1).remote(str(tmp_path))
    pid = manta.get(actor.pid.remote())
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        manta.get(getattr(actor, method).remote())
    until(lambda: told(tmp_path) == ["shutdown", "atexit"])
    until(lambda: not is_there(pid))
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        manta.get(actor.pid.remote())


def test_an_actor_leaves_in_its_constructor(node, tmp_path):
    actor = Leaver.remote(str(tmp_path), leaves=True)
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        manta.get(actor.pid.remote())
    until(lambda: told(tmp_path) == ["atexit"])


def test_the_last_handle_ends_an_actor_in_order(node, tmp_path):
    actor = Leaver.remote(str(tmp_path))
    manta.get(actor.pid.remote())
    del actor
    until(lambda: told(tmp_path) == ["shutdown", "atexit"])


def test_an_end_that_raises_is_shown_and_does_no_harm(tmp_path, python):
    (tmp_path / "main.py").write_text(f"""
import atexit, manta, os
PATH = "{tmp_path}/ended"
@manta.remote
class A:
    def __init__(self):
        atexit.register(lambda: open(PATH, "w").close())
    def __manta_shutdown__(self):
        raise ValueError("not today")
a = A.remote()
manta.get(a.__manta_ready__.remote())
del a
while not os.path.exists(PATH):
    pass
""")
    out = python(tmp_path / "main.py")
    assert out.returncode == 0 and "ValueError: not today" in out.stdout + out.stderr


def test_calls_that_run_are_finished_and_others_fail(node):
    @manta.remote(max_concurrency=3, concurrency_groups={"look": 1})
    class A:
        def __init__(self):
            self.gate = Gate()

        def wait(self, x):
            self.gate.wait()
            return x if x else 1 / 0

        @manta.method(concurrency_group="look")
        def here(self):
            return self.gate.here

        @manta.method(concurrency_group="look")
        def leave(self):
            self.gate.open.set()
            manta.exit_actor()

    a = A.remote()
    running = [a.wait.remote(i) for i in range(3)]
    until(lambda: manta.get(a.here.remote()) == 3)
    left = a.leave.remote()
    assert manta.get(running[1:]) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        manta.get(running[0])
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        manta.get(left)
    with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
        manta.get(a.wait.remote(1))     # made now: before, the one that leaves might have opened the gate and not left yet


def test_coroutines_that_run_are_finished_and_others_fail(node):
    @manta.remote(max_concurrency=2)
    class A:
        def __init__(self):
            self.event, self.begun = asyncio.Event(), 0

        async def wait(self, x):
            self.begun += 1
            await self.event.wait()
            return x

        async def leave_when_it_is_full(self):
            while self.begun < 1:
                await asyncio.sleep(0)
            self.event.set()
            manta.exit_actor()

    a = A.remote()
    first, left = a.wait.remote(1), a.leave_when_it_is_full.remote()
    waiting = [a.wait.remote(i) for i in range(5)]  # for room
    assert manta.get(first) == 1
    for ref in [left, *waiting]:
        with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
            manta.get(ref)


def test_a_coroutine_that_the_actor_began_itself_may_leave(node, tmp_path):
    @manta.remote
    class A:
        def __init__(self, path):
            atexit.register(lambda: open(path, "w").close())
            self.task = asyncio.create_task(self.leave_later())
            self.event = asyncio.Event()

        async def leave_later(self):
            await self.event.wait()
            manta.exit_actor()

        async def go(self):
            self.event.set()
            return 1

    a = A.remote(str(tmp_path / "ended"))
    assert manta.get(a.go.remote()) == 1
    until((tmp_path / "ended").exists)
    with pytest.raises(ActorDiedError):
        manta.get(a.go.remote())


def test_all_methods_of_an_actor_with_coroutines_run_on_one_thread(node):
    @manta.remote
    class A:
        def __init__(self):
            self.thread = threading.get_ident()

        def plain(self):
            return self.thread == threading.get_ident()

        async def coroutine(self):
            return self.thread == threading.get_ident() and manta.context()["task"] != 0

    a = A.remote()
    assert manta.get([a.plain.remote(), a.coroutine.remote(), a.__manta_call__.remote(lambda self: self.plain())]) \
        == [True] * 3


def test_many_coroutines_wait_for_the_last(node):
    @manta.remote(max_concurrency=3000)
    class A:
        def __init__(self):
            self.n, self.event = 0, asyncio.Event()

        async def meet(self, n):
            self.n += 1
            if self.n == n:
                self.event.set()
            await self.event.wait()
            return self.n

    a = A.remote()
    assert manta.get([a.meet.remote(1500) for _ in range(1500)]) == [1500] * 1500


class Threads:
    """Its wait() waits for a file, and has made another when it does."""

    def wait(self, path):
        open(f"{path}.waits", "w").close()
        while not os.path.exists(path):
            threading.Event().wait(0.005)
        return "waited"

    def term(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return os.getpid()


class Coroutines(Threads):
    async def wait(self, path):
        open(f"{path}.waits", "w").close()
        while not os.path.exists(path):
            await asyncio.sleep(0.005)
        return "waited"


@pytest.mark.parametrize("cls", [Threads, Coroutines])
def test_sigterm_ends_an_actor_when_its_calls_have_ended(node, cls, tmp_path):
    a = manta.remote(max_concurrency=3)(cls).remote()
    ref = a.wait.remote(str(tmp_path / "go"))
    until((tmp_path / "go.waits").exists)
    pid = manta.get(a.term.remote())

    def is_over():
        try:
            return not manta.get(a.term.remote())
        except ActorDiedError:
            return True

    until(is_over)
    assert is_there(pid)
    (tmp_path / "go").touch()
    assert manta.get(ref) == "waited"
    until(lambda: not is_there(pid))


def test_a_process_that_an_actor_forks_dies_of_sigterm(node):
    @manta.remote(max_concurrency=2)
    class A:
        def child(self):
            pid = os.fork()
            if pid == 0:
                threading.Event().wait()
            os.kill(pid, signal.SIGTERM)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert manta.get(A.remote().child.remote()) == -signal.SIGTERM


def test_an_actor_knows_its_own_handle(node):
    @manta.remote
    class A:
        def __init__(self):
            self.n = 0

        def me(self):
            return manta.current_actor()

        def add(self):
            self.n += 1
            return self.n

    a = A.remote()
    me = manta.get(a.me.remote())
    assert me == a
    del a
    assert manta.get([me.add.remote(), me.add.remote()]) == [1, 2]
    with pytest.raises(AttributeError):
        me.subtract  # noqa: B018
    with pytest.raises(RuntimeError, match="there is none here"):
        manta.current_actor()


def test_groups_have_places_of_their_own(node):
    @manta.remote(concurrency_groups={"slow": 2, "look": 1})
    class A:
        def __init__(self):
            self.gate = Gate()

        @manta.method(concurrency_group="slow")
        def wait(self):
            self.gate.wait()

        def wait_in_none(self):
            self.gate.wait()

        @manta.method(concurrency_group="look")
        def here(self):
            return self.gate.here

        @manta.method(concurrency_group="look")
        def open(self):
            self.gate.open.set()
            return self.gate.most

    a = A.remote()
    refs = [a.wait.remote() for _ in range(4)] + [a.wait_in_none.remote() for _ in range(4)]
    refs += [a.wait_in_none.options(concurrency_group="slow").remote() for _ in range(4)]
    until(lambda: manta.get(a.here.remote()) == 3)
    assert manta.get(a.open.remote()) == 3
    manta.get(refs)


def test_groups_of_coroutines_have_places_of_their_own(node):
    @manta.remote(concurrency_groups={"slow": 2}, max_concurrency=1)
    class A:
        def __init__(self):
            self.running, self.most, self.event = 0, 0, asyncio.Event()

        @manta.method(concurrency_group="slow")
        async def wait(self):
            self.running += 1
            self.most = max(self.most, self.running)
            await self.event.wait()
            self.running -= 1

        async def open(self):
            while self.running < 2:
                await asyncio.sleep(0)
            self.event.set()

        def seen(self):
            return self.most

    a = A.remote()
    refs = [a.wait.remote() for _ in range(6)]
    manta.get([a.open.remote(), *refs])
    assert manta.get(a.seen.remote()) == 2


def test_groups_that_are_none_are_refused(node):
    class A:
        @manta.method(concurrency_group="io")
        def f(self):
            return 1

    with pytest.raises(ValueError, match="the class does not have"):
        manta.remote(A)
    a = manta.remote(concurrency_groups={"io": 1})(A).remote()
    with pytest.raises(manta.exceptions.TaskError, match="which its actor does not have"):
        manta.get(a.f.options(concurrency_group="disk").remote())
    for wrong in ({"io": 0}, {"": 1}, {"a=b": 1}, {"io": True}):
        with pytest.raises(ValueError):
            manta.remote(concurrency_groups=wrong)(A)


def test_without_other_processes_an_actor_leaves_too():
    @manta.remote
    class A:
        def leave(self):
            manta.exit_actor()

        def me(self):
            return manta.current_actor()

        def f(self):
            return 1

    manta.init(in_process=True)
    try:
        a = A.remote()
        assert manta.get(manta.get(a.me.remote()).f.remote()) == 1
        with pytest.raises(ActorDiedError, match=r"exit_actor\(\)"):
            manta.get(a.leave.remote())
        with pytest.raises(TypeError, match="there is none here"):
            manta.exit_actor()  # of the driver, which has made one
    finally:
        manta.shutdown()
