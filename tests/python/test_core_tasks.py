"""Remote functions: calls, options, recursion, what they capture."""
import inspect
import os
import pydoc
import time

import numpy as np
import pytest

import manta
from conftest import DEADLINE_S

pytestmark = pytest.mark.sanitized


@pytest.fixture(scope="module", autouse=True)
def module_node():
    manta.init(num_cpus=2, resources={"disk": 2})
    yield
    manta.shutdown()


@manta.remote
def add(a, b=1):
    """Adds."""
    return a + b


def test_calls():
    assert manta.get(add.remote(1)) == 2
    assert manta.get(add.remote(1, 5)) == 6
    assert manta.get(add.remote(1, b=5)) == 6
    assert manta.get([add.remote(i) for i in range(100)]) == list(range(1, 101))
    assert manta.get([]) == [] and manta.get((add.remote(1), add.remote(2))) == [2, 3]


def test_arguments_are_resolved_and_nested_ones_are_not():
    x = add.remote(1)
    assert manta.get(add.remote(x, b=add.remote(x))) == 5

    @manta.remote
    def kind(x):
        return type(x[0]).__name__

    assert manta.get(kind.remote([x])) == "ObjectRef"


def test_a_remote_function_looks_like_its_function():
    assert add.__name__ == "add" and add.__doc__ == "Adds." and "add" in repr(add)
    assert add._function(1, 2) == 3
    assert inspect.signature(add) == inspect.signature(add._function) == inspect.signature(add.options(num_cpus=1))
    assert f"add{inspect.signature(add)}" in pydoc.plain(pydoc.render_doc(add))
    assert not hasattr(add, "shape")
    with pytest.raises(TypeError, match=r"add.remote\(\)"):
        add(1)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        manta.get(add.remote())


def test_several_results():
    @manta.remote(num_returns=3)
    def three():
        return 1, "b", np.zeros(3)

    a, b, c = three.remote()
    assert manta.get(a) == 1 and manta.get(b) == "b" and manta.get(c).shape == (3,)
    assert manta.get(three.options(num_returns=1).remote())[:2] == (1, "b")

    @manta.remote(num_returns=2)
    def wrong():
        return 1, 2, 3

    with pytest.raises(ValueError, match="returned 3 values, and the caller expects num_returns=2"):
        manta.get(wrong.remote()[0])

    @manta.remote(num_returns=2)
    def none():
        return None

    with pytest.raises(ValueError, match="num_returns=2"):
        manta.get(none.remote())

    @manta.remote(num_returns=0)
    def nothing():
        pass

    assert nothing.remote() is None


def test_recursion_of_itself_and_of_two():
    @manta.remote
    def factorial(n):
        return 1 if n < 2 else n * manta.get(factorial.remote(n - 1))

    assert manta.get(factorial.remote(10)) == 3628800

    @manta.remote
    def even(n):
        return n == 0 or manta.get(odd.remote(n - 1))

    @manta.remote
    def odd(n):
        return n != 0 and manta.get(even.remote(n - 1))

    assert manta.get(even.remote(10)) is True and manta.get(odd.remote(10)) is False


def test_what_can_be_called_can_be_remote():
    class Adder:
        def __call__(self, x):
            return x + 1

    import functools
    calls = [manta.remote(f) for f in (abs, functools.partial(max, 1), Adder(), [1, 7].count)]
    assert manta.get([f.remote(7) for f in calls]) == [7, 7, 8, 1]


@pytest.mark.parametrize("in_process", [False, True])
def test_a_call_that_its_waiter_runs_has_context_variables_of_its_own(python, in_process):
    """It runs on the waiter's thread, where the precision of decimals and the like are the waiter's."""
    out = python("-c", """
import decimal, os, sys, manta
def precision(): return decimal.getcontext().prec
@manta.remote
def inner(n):
    before = precision()
    decimal.getcontext().prec = 3
    return [(before, os.getpid()), *(manta.get(inner.remote(n - 1)) if n else [])]
@manta.remote
def yields():
    yield precision(), os.getpid()
    decimal.getcontext().prec = 4
    yield precision(), os.getpid()
@manta.remote
def outer():
    decimal.getcontext().prec = 50
    inners, items = manta.get(inner.remote(3)), manta.get(yields.options(num_returns=2).remote())
    return [prec for prec, pid in inners if pid == os.getpid()], [prec for prec, pid in items if pid == os.getpid()], precision()
manta.init(num_cpus=1, in_process=sys.argv[1] == "True")
seen, items = set(), []
while not seen or not items:        # until both have been run by their waiter
    inners, some, mine = manta.get(outer.remote())
    assert mine == 50, mine
    seen.update(inners)
    items = items or some
print(seen, items, precision())
""", in_process)
    assert out.stdout == "{28} [28, 4] 28\n", out.stdout + out.stderr


def test_calls_are_run_by_their_waiters_only_where_the_user_lets_them(python):
    out = python("-c", """
import os, manta
manta.init(num_cpus=1)
@manta.remote
def deep(n): return [os.getpid(), *(manta.get(deep.remote(n - 1)) if n else [])]
for _ in range(3): print(len(set(manta.get(deep.remote(5)))))
""", env={"MANTA_INLINE": "0"})
    assert out.stdout == "6\n" * 3, out.stdout + out.stderr


def test_functions_travel_as_values():
    @manta.remote
    def apply(f, x):
        return manta.get(f.remote(x))

    assert manta.get(apply.remote(add, 4)) == 5
    assert manta.get(apply.remote(add.options(num_cpus=0), 4)) == 5


def test_what_a_function_captures_travels_with_it():
    ref, n, array = manta.put("captured"), 5, np.arange(3)

    @manta.remote
    def show():
        return manta.get(ref), n, array.tolist()

    assert manta.get([show.remote() for _ in range(4)]) == [("captured", 5, [0, 1, 2])] * 4

    @manta.remote
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self):
            self.n += 1
            return self.n

    counter = Counter.remote()

    @manta.remote
    def count(times):
        if times > 1:
            manta.get(count.remote(times - 1))
        return manta.get(counter.add.remote())

    assert manta.get(count.remote(4)) == 4


def test_a_large_closure_is_named():
    big = np.zeros(11 << 17)

    @manta.remote
    def f():
        return big.nbytes

    with pytest.warns(UserWarning, match="in the variable big"):
        assert manta.get(f.remote()) == big.nbytes
    huge = np.zeros(101 << 17)

    @manta.remote
    def g():
        return huge.nbytes

    with pytest.raises(ValueError, match="in the variable huge"):
        g.remote()


def test_functions_with_a_cache_travel(python):
    out = python("-c", """
import functools, manta
manta.init(num_cpus=1)
@functools.lru_cache(maxsize=2, typed=True)
def square(x): return x * x
@functools.cache
def fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)
@manta.remote
def known():
    @functools.lru_cache
    def inner(x): return square(x) + 1
    return inner(3), inner(3), square.cache_info()[:3], square.cache_parameters(), fib(30)
print(manta.get(known.remote()), manta.get(manta.remote(square).remote(4)), manta.get(manta.remote(fib).remote(10)))
""")
    assert out.stdout == "(10, 10, (0, 1, 2), {'maxsize': 2, 'typed': True}, 832040) 16 55\n", out.stdout + out.stderr


def test_what_is_large_is_named_wherever_it_hides(python):
    out = python("-W", "always", "-c", """
import threading, manta
manta.init(num_cpus=1)
big, lock = bytes(11 << 20), threading.Lock()
def default(of_default=bytes(11 << 20)): return len(of_default)
def keyword(*, of_keyword=bytes(11 << 20)): return len(of_keyword)
def inside():
    def inner(): return len(big)
    return inner()
def helper(): return len(big)
def helped(): return helper()
class Attribute:
    of_class = bytes(11 << 20)
    def f(self): return len(self.of_class)
class Method:
    @staticmethod
    def f(): return len(big)
for function in (default, keyword, inside, helped):
    assert manta.get(manta.remote(function).remote()) == 11 << 20
for cls in (Attribute, Method):
    assert manta.get(manta.remote(cls).remote().f.remote()) == 11 << 20
def locked():
    def inner(): return lock
    return inner
try: manta.remote(locked).remote()
except TypeError as e: print(e)
""")
    named = [line.split("in the variable ")[1].split(")")[0] for line in out.stderr.splitlines() if "in the variable" in line]
    assert named == ["of_default", "of_keyword", "big", "big", "of_class", "big"], out.stderr
    assert "in the variable lock" in out.stdout, out.stdout + out.stderr


def test_what_cannot_be_sent_is_named():
    import threading
    lock = threading.Lock()

    @manta.remote
    def f():
        return lock

    with pytest.raises(TypeError, match="in the variable lock"):
        f.remote()


def test_options_are_checked():
    for options in ({"num_cpus": -1}, {"num_cpus": "2"}, {"resources": {"disk": -1}}, {"max_retries": -2}, {"num_returns": -1},
                    {"strategy": "x"}, {"resources": {"a=b": 1}}):
        with pytest.raises((ValueError, TypeError)):
            add.options(**options)
    with pytest.raises(TypeError, match="no option colour"):
        add.options(colour=1)
    with pytest.raises(TypeError, match="decorator"):
        manta.remote(1, 2)
    with pytest.raises(ValueError, match="async"):
        @manta.remote
        async def f():
            pass


def test_resources_are_held():
    @manta.remote
    def held():
        return manta.context()["resources"], manta.context()["cpus"]

    text, cpus = manta.get(held.options(num_cpus=2, resources={"disk": 1.5}).remote())
    assert cpus == 2 and "disk=1.5" in text
    with pytest.raises(manta.exceptions.ImpossibleError, match="licence"):
        manta.get(held.options(resources={"licence": 1}).remote())
    with pytest.raises(manta.exceptions.ImpossibleError):
        manta.get(held.options(num_cpus=1000).remote())


def test_contexts():
    @manta.remote
    def where():
        return manta.context()

    c = manta.get(where.remote())
    assert c["is_worker"] and c["pid"] != os.getpid() and c["task"] and c["cpus"] == 1
    mine = manta.context()
    assert not mine["is_worker"] and mine["node"] == c["node"] and mine["task"] == 0
    info = manta.node_info()
    assert info["total"]["cpu"] == 2 and info["total"]["disk"] == 2


def test_wait():
    @manta.remote
    def after(refs):
        return manta.get(refs[0])

    gate = [manta.put(1)]
    a, b = after.remote(gate), after.remote(gate)
    ready, others = manta.wait([a, b], num_returns=2)
    assert ready == [a, b] and others == []

    @manta.remote
    def slow(path):
        while not os.path.exists(path):
            time.sleep(0.005)

    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        s = slow.remote(folder + "/go")
        assert manta.wait([s], timeout=0) == ([], [s])
        assert manta.wait([s, a], timeout=None) == ([a], [s])
        with pytest.raises(manta.exceptions.TimeoutError):
            manta.get(s, timeout=0.01)
        with pytest.raises(TimeoutError):
            manta.get([s], timeout=0)
        open(folder + "/go", "w").close()
        assert manta.get(s) is None
    with pytest.raises(ValueError):
        manta.wait([a, a])
    with pytest.raises(ValueError):
        manta.wait([a], num_returns=2)
    assert manta.wait((a,)) == ([a], [])
    with pytest.raises(TypeError, match="list of ObjectRefs, given <class 'manta.ObjectRef'>"):
        manta.wait(a)
    with pytest.raises(TypeError):
        manta.get(1)
    with pytest.raises(TypeError, match="timeout is '5', expected None or a number"):
        manta.get(a, timeout="5")
    with pytest.raises(ValueError, match="timeout"):
        manta.get(a, timeout=-1)


def test_a_placement_group_of_too_many_bundles_is_refused_unread():
    class Unread(dict):
        def keys(self):
            raise AssertionError("a bundle was read")

        __iter__ = keys

    with pytest.raises(ValueError, match="has 1000000 bundles, at most 64 are possible"):
        manta.placement_group_new([Unread(num_cpus=1)] * 10**6)


def test_placement_groups():
    group = manta.placement_group_new([{"num_cpus": 1}, {"num_cpus": 1, "resources": {"disk": 1}}], "PACK", "mine")
    assert manta.placement_group_wait(group, DEADLINE_S)
    assert manta.get(manta.placement_group_ready(group)) is None
    assert manta.placement_group_find("mine") == group
    known = manta.placement_group_get(group)
    assert known["name"] == "mine" and known["strategy"] == "PACK" and len(known["bundles"]) == 2
    assert manta.get(add.options(placement_group=group, bundle=2).remote(1)) == 2
    manta.placement_group_remove(group)
    with pytest.raises(manta.exceptions.MantaError):
        manta.get(add.options(placement_group=group).remote(1))
    with pytest.raises(ValueError):
        manta.placement_group_find("mine")
    with pytest.raises(ValueError):
        manta.placement_group_new([{"num_cpus": 1}], "ANY")


def test_workers_draw_different_numbers():
    @manta.remote
    def draw():
        import random
        return random.random(), float(np.random.rand()), os.getpid()

    drawn = manta.get([draw.options(strategy="spread").remote() for _ in range(20)])
    assert len({d[0] for d in drawn}) == 20 and len({d[1] for d in drawn}) == 20


def test_workers_are_where_the_driver_is(tmp_path, python):
    (tmp_path / "helper.py").write_text("def twice(x): return 2 * x\n")
    (tmp_path / "numpy.py").write_text("raise RuntimeError('not this one')\n")
    (tmp_path / "main.py").write_text(
        "import os, sys\nimport manta, helper\n@manta.remote\ndef f(x): return helper.twice(x), os.getcwd(), sys.path[0]\n"
        "def g(x): return x\n"
        "print(manta.get(f.remote(2)), manta.get(manta.put(g))(3))\n")
    out = python("main.py", cwd=tmp_path)
    assert out.stdout == f"{(4, str(tmp_path), str(tmp_path))} 3\n", out.stderr


@pytest.mark.parametrize("given", [{"num_cpus": 2.5}, {"num_cpus": "2"}, {"num_cpus": -1}, {"num_cpus": 2**32 + 1}, {"num_gpus": -1},
                                   {"memory": "1G"}, {"store_memory": float("nan")}, {"resources": ["disk"]}, {"namespace": 5},
                                   {"address": 5}, {"spill_folder": 5}], ids=str)
def test_options_of_a_node_are_named(python, given):
    out = python("-c", f"""
import manta
nan = float("nan")
try: manta.init(**{given})
except (TypeError, ValueError) as e: print(e)
""")
    assert out.stdout.startswith(f"{next(iter(given))} is ") and "expected a" in out.stdout, out.stdout + out.stderr


@pytest.mark.parametrize("option", ["max_concurrency", "max_pending_calls", "max_restarts"])
@pytest.mark.parametrize("value", ["x", 1.5, 2**32 + 1])
def test_options_of_an_actor_are_named(option, value):
    with pytest.raises(ValueError, match=f"{option} is .* expected a whole number"):
        manta.remote(type("A", (), {})).options(**{option: value})


def test_a_working_folder_that_was_removed(python, tmp_path):
    out = python("-c", """
import os, sys, manta
os.mkdir("gone")
os.chdir("gone")
os.rmdir("../gone")
@manta.remote
def f(): return 1
print(manta.get(f.remote()), manta.get(f.options(working_dir=sys.argv[1]).remote()))
""", tmp_path, cwd=tmp_path)
    assert out.stdout == "1 1\n", out.stderr


def test_in_process():
    manta.shutdown()
    manta.init(in_process=True)
    try:
        @manta.remote
        class A:
            def pid(self):
                return os.getpid()

        assert manta.get(add.remote(1, b=add.remote(2))) == 4
        a = A.remote()
        assert manta.get(a.pid.remote()) == os.getpid()
        with pytest.raises(TypeError):
            manta.get(add.remote())

        @manta.remote
        class Async:
            async def f(self, x):
                import asyncio
                await asyncio.sleep(0.001)
                return x + 1

        assert manta.get(Async.remote().f.remote(1)) == 2

        @manta.remote
        def count(n):
            yield from range(n)

        assert manta.get(count.remote(3)) == [0, 1, 2]
    finally:
        manta.shutdown()
        manta.init(num_cpus=2, resources={"disk": 2})


def test_the_end_of_an_actor_in_this_process_may_call_the_runtime(python):
    """Its instance is let go without the runtime's lock."""
    out = python("-c", """
import manta, os, time
manta.init(in_process=True)
os.environ["ENDED"] = "0"
@manta.remote
class A:
    def f(self): return 1
    def __del__(self):
        os.environ["ENDED"] = str(int(os.environ["ENDED"]) + manta.get(manta.put(1)))
for i in range(50):
    a = A.remote()
    assert manta.get(a.f.remote()) == 1
    del a
    while os.environ["ENDED"] != str(i + 1): time.sleep(0.001)
manta.shutdown()
print("fine")
""")
    assert out.stdout == "fine\n", out.stderr


def test_a_long_name_of_a_call_is_cut_within_no_letter():
    @manta.remote
    def f():
        return 1

    assert manta.get(f.options(name="a" + "ä" * 63).remote()) == 1
    with pytest.raises(TypeError, match="the name of a call is 5, expected a text"):
        f.options(name=5)
