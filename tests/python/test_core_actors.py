"""Actors: order, names, restarts, concurrency, handles, ends."""
import gc
import inspect
import os
import signal
import threading
import time

import pytest

import manta
from conftest import until
from manta import exceptions

pytestmark = [pytest.mark.sanitized, pytest.mark.usefixtures("module_node")]


@manta.remote
class Counter:
    """Counts."""

    def __init__(self, n=0):
        self.n = n

    def add(self, k=1):
        self.n += k
        return self.n

    def pid(self):
        return os.getpid()

    def die(self):
        os._exit(1)

    def fail(self):
        raise ValueError("no")

    @manta.method(num_returns=2)
    def both(self):
        return self.n, -self.n

    def _hidden(self):
        return "hidden"

    def items(self, n):
        for i in range(n):
            yield i

    def me(self):
        return manta.context()


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def test_calls_run_in_order():
    c = Counter.remote(10)
    assert manta.get([c.add.remote() for _ in range(200)]) == list(range(11, 211))
    assert manta.get(c.add.remote(k=manta.put(5))) == 215
    assert manta.get(c.both.remote()) == [215, -215]
    assert manta.get(c.both.options(num_returns=1).remote()) == (215, -215)
    assert manta.get(c._hidden.remote()) == "hidden"
    assert [manta.get(r) for r in c.items.remote(3)] == [0, 1, 2]


def test_classes_and_handles_look_like_themselves():
    c = Counter.remote()
    assert Counter.__doc__ == "Counts." and "Counter" in repr(c) and Counter.__name__ == "Counter"
    assert inspect.signature(Counter) == inspect.signature(Counter._class)
    with pytest.raises(AttributeError, match="no method subtract"):
        c.subtract
    with pytest.raises(TypeError, match=r"Counter.remote\(\)"):
        Counter()
    with pytest.raises(TypeError, match="no option colour"):
        Counter.options(colour=1)
    with pytest.raises(TypeError):
        manta.get(c.add.remote(1, 2, 3))


def test_an_exception_does_not_end_an_actor():
    c = Counter.remote()
    with pytest.raises(ValueError, match="no") as e:
        manta.get(c.fail.remote())
    assert e.value.function == "Counter.fail"
    assert manta.get(c.add.remote()) == 1


def test_methods_travel():
    c = Counter.remote(5)

    @manta.remote
    def call(method, *args):
        return manta.get(method.remote(*args))

    assert manta.get(call.remote(c.add, 2)) == 7
    assert manta.get(call.remote(c.both.options(num_returns=1))) == (7, -7)
    with pytest.raises(TypeError, match="add.remote"):
        c.add()


def test_an_attribute_does_not_hide_a_method():
    @manta.remote
    class Shadow:
        def __init__(self):
            self.value = 5

        def value(self):
            return 6

    assert manta.get(Shadow.remote().value.remote()) == 6


def test_environment_variables_of_an_actor():
    @manta.remote
    class Env:
        def get(self):
            return os.environ.get("MANTA_TEST_VARIABLE")

    assert manta.get(Env.options(env_vars={"MANTA_TEST_VARIABLE": "x"}).remote().get.remote()) == "x"
    assert manta.get(Env.remote().get.remote()) is None

    @manta.remote
    def task():
        return os.environ.get("MANTA_TEST_VARIABLE")

    refs = [task.options(env_vars={"MANTA_TEST_VARIABLE": str(i % 2)}).remote() for i in range(8)] + [task.remote()]
    assert manta.get(refs) == ["0", "1"] * 4 + [None]
    with pytest.raises(TypeError, match="env_vars"):
        task.options(env_vars={"A": 1})


def test_a_constructor_that_fails_fails_every_call():
    @manta.remote
    class Bad:
        def __init__(self):
            raise RuntimeError("at the start")

        def f(self):
            pass

    b = Bad.remote()
    for _ in range(2):
        with pytest.raises(exceptions.ActorDiedError, match="at the start") as e:
            manta.get(b.f.remote())
        assert isinstance(e.value.__cause__, RuntimeError)


def test_an_actor_ends_with_its_last_handle():
    c = Counter.remote()
    pid = manta.get(c.pid.remote())
    again = manta.get(manta.put([c]))[0]
    assert again == c and hash(again) == hash(c)
    del c
    gc.collect()
    assert manta.get(again.add.remote()) == 1
    method = again.add
    del again
    assert manta.get(method.remote()) == 2
    del method
    until(lambda: not is_alive(pid), "the end of the actor")


def test_handles_travel():
    c = Counter.remote()

    @manta.remote
    def use(counter, n):
        return manta.get([counter.add.remote() for _ in range(n)])

    assert manta.get(use.remote(c, 3)) == [1, 2, 3]
    assert manta.get(use.remote(counter=c, n=2)) == [4, 5]

    @manta.remote
    class Parent:
        def __init__(self, child):
            self.child = child

        def add(self):
            return manta.get(self.child.add.remote())

        def make(self):
            return Counter.remote(100)

    p = Parent.remote(c)
    assert manta.get(p.add.remote()) == 6
    assert manta.get(manta.get(p.make.remote()).add.remote()) == 101


def test_names():
    c = Counter.options(name="one").remote(5)
    found = manta.get_actor("one")
    assert found == c and manta.get(found.add.remote()) == 6 and manta.get(found.both.remote()) == [6, -6]
    with pytest.raises(ValueError, match="one"):
        manta.get(Counter.options(name="one").remote().add.remote())
    same = Counter.options(name="one", get_if_exists=True).remote(5)
    assert manta.get(same.add.remote()) == 7
    with pytest.raises(ValueError, match="nobody"):
        manta.get_actor("nobody")
    other = Counter.options(name="one", namespace="other").remote(50)
    assert manta.get(manta.get_actor("one", namespace="other").add.remote()) == 51
    assert manta.get(other.me.remote())["actor_name"].endswith("one")
    with pytest.raises(TypeError):
        Counter.options(name=5)


def test_kill():
    c = Counter.remote()
    pid = manta.get(c.pid.remote())
    manta.kill(c)
    with pytest.raises(exceptions.ActorError):
        manta.get(c.add.remote())
    until(lambda: not is_alive(pid))
    with pytest.raises(ValueError, match="handle"):
        manta.kill("x")


def test_restarts():
    c = Counter.options(max_restarts=1, max_task_retries=0).remote(7)
    first = manta.get(c.pid.remote())
    with pytest.raises(exceptions.ActorError):
        manta.get(c.die.remote())
    assert manta.get(c.add.remote()) == 8 and manta.get(c.pid.remote()) != first
    assert manta.get(c.me.remote())["was_restarted"]
    os.kill(manta.get(c.pid.remote()), signal.SIGKILL)
    with pytest.raises(exceptions.ActorDiedError):
        while True:
            try:
                manta.get(c.add.remote())
            except exceptions.ActorUnavailableError:
                pass


def test_calls_are_tried_again_when_asked(tmp_path):
    @manta.remote(max_restarts=-1, max_task_retries=-1)
    class Flaky:
        def once(self, path):
            if not os.path.exists(path):
                open(path, "w").close()
                os._exit(1)
            return "again"

    assert manta.get(Flaky.remote().once.remote(str(tmp_path / "x"))) == "again"


def test_an_actor_that_dies_under_a_call_says_so():
    c = Counter.remote()
    with pytest.raises(exceptions.ActorError):
        manta.get(c.die.remote())
    with pytest.raises(exceptions.ActorDiedError):
        manta.get(c.add.remote())


def test_several_calls_at_once():
    @manta.remote(max_concurrency=3)
    class Meet:
        def __init__(self):
            self.barrier = threading.Barrier(3)
            self.local = threading.local()

        def meet(self):
            self.local.x = 1
            return self.barrier.wait(240)

    m = Meet.remote()
    assert sorted(manta.get([m.meet.remote() for _ in range(3)])) == [0, 1, 2]


@pytest.mark.parametrize("method", ["leave", "leave_async"])
def test_exit_actor(method, tmp_path):
    @manta.remote(max_restarts=1)
    class Leaver:
        def __init__(self, path):
            import atexit
            atexit.register(lambda: open(path, "w").close())

        def leave(self):
            manta.exit_actor()

        async def leave_async(self):
            manta.exit_actor()

        def pid(self):
            return os.getpid()

    a = Leaver.remote(str(tmp_path / "ended"))
    pid = manta.get(a.pid.remote())
    with pytest.raises(exceptions.ActorError):
        manta.get(getattr(a, method).remote())
    assert (tmp_path / "ended").exists()
    with pytest.raises(exceptions.ActorError):
        manta.get(a.pid.remote())
    until(lambda: not is_alive(pid))
    with pytest.raises(TypeError, match="actor"):
        manta.exit_actor()


def test_what_every_actor_can():
    c = Counter.remote(3)
    assert manta.get(c.__manta_ready__.remote()) is True
    assert manta.get(c.__manta_call__.remote(lambda self, x: self.n + x, 4)) == 7


def test_most_pending_calls():
    @manta.remote(max_pending_calls=2)
    class Slow:
        def wait(self, path):
            while not os.path.exists(path):
                time.sleep(0.005)

        def many(self, path):
            yield path

    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        s = Slow.remote()
        refs = [s.wait.remote(folder + "/go") for _ in range(2)]
        for refused in (s.wait, s.wait.options(num_returns=0), s.wait.options(num_returns=2), s.many):
            with pytest.raises(exceptions.PendingCallsError, match="2 calls"):
                refused.remote(folder + "/go")      # here, and not of what it would return
        open(folder + "/go", "w").close()
        manta.get(refs)
        assert [manta.get(r) for r in s.many.remote(1)] == [1] and manta.get(s.wait.remote(folder + "/go")) is None


def test_calls_that_nobody_waits_for_are_no_longer_pending_when_they_have_ended():
    @manta.remote(max_pending_calls=1)
    class Plain:
        def add(self):
            return 1

    def is_taken():
        try:
            p.add.remote()
        except exceptions.PendingCallsError:
            return False
        return True

    p = Plain.remote()
    assert is_taken()
    for _ in range(3):
        until(is_taken, "room for another call")


def test_inheritance():
    class Base:
        def f(self):
            return "base"

    @manta.remote
    class Derived(Base):
        def g(self):
            return super().f() + " derived"

    d = Derived.remote()
    assert manta.get([d.f.remote(), d.g.remote()]) == ["base", "base derived"]


def test_many_actors():
    actors = [Counter.options(num_cpus=0).remote(i) for i in range(20)]
    assert manta.get([a.add.remote() for a in actors]) == list(range(1, 21))
    assert len(set(manta.get([a.pid.remote() for a in actors]))) == 20
