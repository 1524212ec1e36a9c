"""Exceptions: none is lost, and each says where it arose."""
import os
import pickle
import signal
import subprocess
import sys

import pytest

import manta
from conftest import DEADLINE_S, until
from manta import exceptions

pytestmark = [pytest.mark.sanitized, pytest.mark.usefixtures("module_node")]


@manta.remote
def fail(e):
    raise e


class Odd(Exception):
    """One that cannot be pickled back: its arguments are not those of its constructor."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


class Stateful(Exception):
    def __init__(self, code):
        super().__init__(code)
        self.code = code


def test_what_was_raised_is_raised_here():
    with pytest.raises(ValueError, match="no") as e:
        manta.get(fail.remote(ValueError("no", 5)))
    assert isinstance(e.value, exceptions.TaskError) and e.value.args == ("no", 5)
    assert type(e.value.cause) is ValueError and e.value.type_name == "ValueError"
    assert e.value.pid not in (0, os.getpid()) and e.value.function == "fail"
    assert "raise e" in e.value.traceback and "manta/_worker" not in e.value.traceback


@pytest.mark.parametrize("error", [KeyError("x"), OSError(2, "gone", "file"), StopIteration(3), AssertionError(), RecursionError("r"),
                                   UnicodeDecodeError("utf8", b"x", 0, 1, "why"), MemoryError(), Stateful(7), Exception()],
                         ids=lambda e: type(e).__name__)
def test_every_class_is_caught_by_its_name(error):
    with pytest.raises(type(error)) as e:
        manta.get(fail.remote(error))
    assert repr(e.value.cause) == repr(error)
    if isinstance(error, Stateful):
        assert e.value.code == 7 and e.value.cause.code == 7
    for name in ("errno", "filename", "object", "reason", "value"):       # what the interpreter keeps outside of __dict__
        assert getattr(e.value, name, None) == getattr(error, name, None)


class Slots(Exception):
    __slots__ = ("where",)

    def __reduce__(self):
        return slots, (self.where,)


def slots(where):
    out = Slots()
    out.where = where
    return out


class Frozen(Exception):
    def __setattr__(self, name, value):
        raise AttributeError("frozen")


class Locked(Exception):
    args = property(lambda self: 1 / 0)


class Forwards(Exception):
    """Attributes that it lacks are looked up elsewhere, where they are not either."""

    def __getattr__(self, name):
        return {}[name]


class Anything(Exception):
    """It has every attribute."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return "anything"


class Leaves(Exception):
    """Whoever reads its pickle leaves."""

    def __reduce__(self):
        return sys.exit, (3,)


@pytest.mark.parametrize("make", [lambda: slots("here"), lambda: Frozen("x"), lambda: Locked("x"), lambda: Forwards("x"),
                                  lambda: Anything("x"), Leaves], ids=["slots", "frozen", "locked", "forwards", "anything", "leaves"])
def test_classes_with_manners_of_their_own(make):
    @manta.remote
    def odd():
        raise make()

    with pytest.raises(exceptions.TaskError) as e:
        manta.get(odd.remote())
    assert e.value.type_name == type(make()).__name__ and "raise make()" in e.value.traceback
    if not isinstance(make(), (Locked, Leaves)):            # they cannot be sent
        assert isinstance(e.value, type(make()))
    if isinstance(make(), Slots):
        assert e.value.where == "here"


def test_what_cannot_be_described_is_named():
    @manta.remote
    def odd():
        class Hidden(Exception):
            __dict__ = property(lambda self: 1 / 0)
        raise Hidden("x")

    with pytest.raises(exceptions.TaskError, match="odd raised Hidden, which cannot be described"):
        manta.get(odd.remote())


def test_a_group_of_exceptions_can_be_split():
    seen = []
    try:
        manta.get(fail.remote(ExceptionGroup("several", [ValueError(1), OSError(2, "gone")])))
    except* ValueError as group:
        seen += group.exceptions
    except* OSError as group:
        seen += group.exceptions
    assert [type(x) for x in seen] == [ValueError, FileNotFoundError]
    with pytest.raises(ExceptionGroup, match="several") as e:
        manta.get(fail.remote(ExceptionGroup("several", [ValueError(1)])))
    assert isinstance(e.value, exceptions.TaskError) and isinstance(pickle.loads(pickle.dumps(e.value)), ExceptionGroup)


def test_an_exception_that_cannot_be_pickled_arrives_as_text():
    @manta.remote
    def odd():
        raise Odd(1, 2)

    with pytest.raises(exceptions.TaskError, match="1 and 2") as e:
        manta.get(odd.remote())
    assert e.value.cause is None and e.value.type_name == "Odd" and "raise Odd(1, 2)" in e.value.traceback

    @manta.remote
    def locked():
        import threading
        error = ValueError("with a lock")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(exceptions.TaskError, match="with a lock"):
        manta.get(locked.remote())


@pytest.mark.parametrize("processors", [1, 2])
def test_what_was_raised_outlives_the_end_of_a_grant(processors):
    """A function with two processors gives one back when it ends, also by an exception."""
    @manta.remote(num_cpus=processors)
    def f(fails):
        if fails:
            raise ValueError("mine")
        return os.environ["OMP_NUM_THREADS"]
    for _ in range(2):
        with pytest.raises(ValueError, match="mine"):
            manta.get(f.remote(True))
    if "OMP_NUM_THREADS" not in os.environ:
        assert manta.get([f.remote(False), f.options(num_cpus=1).remote(False)]) == [str(processors), "1"]


def test_causes_are_in_the_traceback():
    @manta.remote
    def chained():
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise RuntimeError("outer") from e

    with pytest.raises(RuntimeError) as e:
        manta.get(chained.remote())
    assert "ZeroDivisionError" in e.value.traceback and "direct cause" in e.value.traceback


def test_an_exception_passes_through_calls():
    @manta.remote
    def outer():
        return manta.get(fail.remote(KeyError("deep")))

    @manta.remote
    def uses(x):
        return x

    for ref in (outer.remote(), uses.remote(fail.remote(KeyError("deep"))), uses.remote(uses.remote(outer.remote()))):
        with pytest.raises(KeyError) as e:
            manta.get(ref)
        assert "raise e" in e.value.traceback and e.value.function == "fail"


def test_the_first_failure_of_a_list_is_raised():
    refs = [manta.put(1), fail.remote(KeyError(1)), fail.remote(ValueError(2))]
    with pytest.raises(KeyError):
        manta.get(refs)
    ready, _ = manta.wait(refs, num_returns=3)
    assert ready == refs


def test_an_error_can_be_pickled_and_sent_on():
    with pytest.raises(ValueError) as e:
        manta.get(fail.remote(ValueError("again")))
    copy = pickle.loads(pickle.dumps(e.value))
    assert isinstance(copy, ValueError) and isinstance(copy, exceptions.TaskError) and copy.traceback == e.value.traceback
    with pytest.raises(ValueError, match="again"):
        manta.get(fail.remote(e.value))


def test_a_long_text_arrives_whole():
    with pytest.raises(ValueError) as e:
        manta.get(fail.remote(ValueError("x" * 100000)))
    assert len(e.value.args[0]) == 100000


def test_a_worker_that_dies_is_named():
    @manta.remote(max_retries=0)
    def die(how):
        if how == "exit":
            os._exit(3)
        if how == "leave":
            sys.exit(3)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        import ctypes
        ctypes.string_at(0)

    for how in ("exit", "leave", "kill", "crash"):
        with pytest.raises(exceptions.WorkerDiedError):
            manta.get(die.remote(how))
    assert manta.get(manta.put(1)) == 1


@pytest.mark.parametrize("how", ["kill", "end"])
def test_what_was_put_outlives_who_put_it(how):
    """Objects are the node's: nobody who reads one waits for who has made it, or is told that it is gone."""
    @manta.remote
    class Maker:
        def make(self):
            return os.getpid(), [manta.put([7]), manta.put(b"x" * (1 << 20)), manta.put([manta.put("inner")])]

    maker = Maker.remote()
    pid, refs = manta.get(maker.make.remote())
    under_way = maker.make.remote()
    if how == "kill":
        os.kill(pid, signal.SIGKILL)
    manta.kill(maker)
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the maker")
    small, large, [inner] = manta.get(refs, timeout=DEADLINE_S)
    assert (small, large, manta.get(inner)) == ([7], b"x" * (1 << 20), "inner")
    assert manta.get(reads.remote(refs), timeout=DEADLINE_S) == 1 << 20
    try:
        manta.get(under_way, timeout=DEADLINE_S)        # it may have been made before
    except exceptions.ActorError:
        pass


@manta.remote
def reads(refs):
    return len(manta.get(refs[1]))


def test_what_a_function_says_as_it_leaves_is_shown(python):
    out = python("-c", """
import sys, manta
manta.init(num_cpus=1)
@manta.remote(max_retries=0)
def leave(code, closes):
    if closes: sys.stdout.close()
    sys.exit(code)
for code, closes in (("why I left", False), (256 + 7, False), (3, True)):
    try: manta.get(leave.remote(code, closes))
    except manta.exceptions.WorkerDiedError as e: print(str(e).split(" ", 2)[2])
""")
    assert out.stdout.splitlines() == [f"exited with {n} while it ran leave" for n in (1, 7, 3)], out.stdout + out.stderr
    assert "why I left" in out.stderr


def test_a_worker_that_dies_is_replaced(tmp_path):
    @manta.remote
    def once(path):
        if not os.path.exists(path):
            open(path, "w").close()
            os._exit(1)
        return "second"

    assert manta.get(once.remote(str(tmp_path / "x"))) == "second"


def test_failures_of_the_function_are_retried_when_asked(tmp_path):
    @manta.remote(max_retries=2, retry_exceptions=True)
    def third(path):
        with open(path, "a") as f:
            f.write("x")
        if os.path.getsize(path) < 3:
            raise ValueError("not yet")
        return "third"

    assert manta.get(third.remote(str(tmp_path / "x"))) == "third"


def test_a_function_that_cannot_be_read_says_so(tmp_path):
    class Bad:
        def __reduce__(self):
            return int, ("not a number",)

    bad = Bad()

    @manta.remote
    def f(x=None):
        return bad if x is None else x

    with pytest.raises(ValueError, match="invalid literal"):
        manta.get(f.remote())

    @manta.remote
    def g(x):
        return 1

    with pytest.raises(ValueError, match="invalid literal"):
        manta.get(g.remote(Bad()))


def test_a_result_that_cannot_be_read_raises_here():
    class Bad:
        def __reduce__(self):
            return int, ("not a number",)

    with pytest.raises(ValueError, match="invalid literal"):
        manta.get(manta.put(Bad()))


def test_an_uncaught_error_ends_a_script_with_both_tracebacks(python):
    out = python("-c", "import manta\n@manta.remote\ndef inner(): return {}['key']\nmanta.get(inner.remote())\n")
    assert out.returncode == 1 and "KeyError" in out.stderr and "inner" in out.stderr and "manta.get" in out.stderr


def test_keyboard_interrupt_of_the_function_is_a_cancel():
    @manta.remote(max_retries=0)
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(exceptions.CancelledError):
        manta.get(interrupt.remote())


assert subprocess


@pytest.mark.parametrize("before", range(4))
def test_a_text_that_is_cut_within_a_letter(before):
    """The runtime has room for some hundred bytes of it; the exception itself is whole."""
    text = "x" * before + "\U0001f980" * 2000
    with pytest.raises(ValueError) as e:
        manta.get(fail.remote(ValueError(text)))
    assert e.value.args == (text,)
