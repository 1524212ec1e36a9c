"""What programs for Ray count on besides its calls: who ends with whom, what a cancel leaves alone, what is reserved,
what is seen of devices and of the node."""
import os
import signal

import numpy as np
import pytest

import manta.ray as _ray
from conftest import until

MIB = 1 << 20


@pytest.fixture
def gate(ray):
    """An actor whose wait() ends when open() was called."""
    import asyncio

    @ray.remote(num_cpus=0)
    class Gate:
        def __init__(self):
            self.event, self.waiting = asyncio.Event(), 0

        async def wait(self):
            self.waiting += 1
            await self.event.wait()

        async def open(self):
            self.event.set()

        async def waiters(self):
            return self.waiting

    return Gate.remote()


# ---- ends ----

def test_an_actor_ends_with_the_actor_that_made_it(ray):
    @ray.remote(num_cpus=0)
    class Child:
        def here(self):
            return "here"

    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            return [Child.remote(), Child.options(lifetime="detached", name="stays").remote()]

        def pid(self):
            return os.getpid()

    maker = Maker.remote()
    child, detached = ray.get(maker.make.remote())
    own = Child.remote()
    assert ray.get([child.here.remote(), detached.here.remote()]) == ["here"] * 2
    os.kill(ray.get(maker.pid.remote()), signal.SIGKILL)

    def is_dead():
        try:
            return ray.get(child.here.remote()) != "here"
        except ray.exceptions.RayActorError:
            return True
    until(is_dead)
    assert ray.get([detached.here.remote(), own.here.remote()]) == ["here"] * 2
    ray.kill(detached)


def test_a_killed_actor_says_so_to_the_call_that_ran(ray, gate):
    @ray.remote(num_cpus=0)
    class A:
        def stay(self, gate):
            ray.get(gate.wait.remote())

    a = A.remote()
    ref = a.stay.remote(gate)
    until(lambda: ray.get(gate.waiters.remote()) == 1)
    ray.kill(a)
    with pytest.raises(ray.exceptions.ActorDiedError, match="killed by `ray.kill`"):
        ray.get(ref)


# ---- cancels ----

def test_a_cancel_names_the_function_as_people_do(ray, tmp_path):
    @ray.remote
    def forever(path):
        path.touch()
        while True:
            pass

    ref = forever.remote(tmp_path / "runs")
    until((tmp_path / "runs").exists)
    ray.cancel(ref, force=True)
    with pytest.raises(ray.exceptions.TaskCancelledError) as e:
        ray.get(ref)
    assert "ray::forever()" in str(e.value) and e.value.function_name == "forever"


def test_a_method_that_is_cancelled_looks_for_itself(ray, gate):
    @ray.remote(num_cpus=0)
    class A:
        def __init__(self):
            self.seen = False

        def stay(self, gate):
            ray.get(gate.wait.remote())                 # a cancel does not end this
            while not ray.get_runtime_context().is_canceled():
                pass
            self.seen = True

        def has_seen(self):
            return self.seen

    a = A.remote()
    ref = a.stay.remote(gate)
    until(lambda: ray.get(gate.waiters.remote()) == 1)
    ray.cancel(ref, recursive=False)
    assert ray.wait([ref], timeout=0) == ([], [ref])
    ray.get(gate.open.remote())
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(ref)
    assert ray.get(a.has_seen.remote())


def test_no_actor_is_ended_by_a_cancel(ray):
    @ray.remote(num_cpus=0)
    class A:
        def f(self):
            return 1

    a = A.remote()
    ref = a.f.remote()
    with pytest.raises(ValueError, match="force=True is not supported"):
        ray.cancel(ref, force=True)
    assert ray.get(ref) == 1
    ray.cancel(ray.put(1), force=True)


def test_a_function_that_is_cancelled_and_returns_has_its_result(ray, gate):
    @ray.remote
    def stay(gate):
        try:
            ray.get(gate.wait.remote())
        except KeyboardInterrupt:
            return ray.get_runtime_context().is_canceled()

    ref = stay.remote(gate)
    until(lambda: ray.get(gate.waiters.remote()) == 1)
    ray.cancel(ref)
    assert ray.get(ref) is True


# ---- prints ----

PRINTS = """
import io, sys
import manta.ray as ray
sys.stdout = io.StringIO()
ray.init(num_cpus=1)
@ray.remote
def f():
    print("caf\\u00e9")
    print("careful", file=sys.stderr)
    print("no end", end="")
ray.get(f.remote())
ray.shutdown()
shown = sys.stdout.getvalue()
sys.__stdout__.write(repr(shown))
"""


def test_prints_reach_the_drivers_own_stream(python):
    out = python("-c", PRINTS)
    lines = eval(out.stdout).splitlines()
    assert [line.partition(") ")[2] for line in lines] == ["caf\u00e9", "no end"] and lines[0].startswith("(f pid="), out.stderr
    assert out.stderr.endswith(") careful\n")


TALKS = """
import itertools, sys, threading
import manta
sent = threading.Semaphore(0)
@manta.remote
def keep(text): pass
@manta.remote
def talk():
    for i in itertools.count(): print(i)
class Tee:
    def write(self, text):
        keep.remote(text)
        manta.put(text)
        sent.release()
    def flush(self): pass
sys.stdout = Tee()
manta.init(num_cpus=2)
ref = talk.remote()
for _ in range(20): sent.acquire()
if sys.argv[1] == "shutdown": manta.shutdown()
"""


@pytest.mark.parametrize("how", ["shutdown", "exit"])
def test_a_stream_may_use_the_runtime_while_it_ends(python, how):
    """What workers print last is shown while the runtime ends, which waits for it; the stream is refused then, and does not wait."""
    assert python("-c", TALKS, how).returncode == 0


# ---- references by themselves ----

def test_a_reference_of_bytes_is_a_name(ray):
    import pickle
    name = bytes(range(28))
    ref = ray.ObjectRef(name)
    assert ref.binary() == name and ref.hex() == name.hex() and repr(ref) == f"ObjectRef({name.hex()})"
    assert ref == ray.ObjectRef(name) and hash(ref) == hash(ray.ObjectRef(name)) and ref != ray.ObjectRef.nil()
    assert pickle.loads(pickle.dumps(ref)) == ref and not ref.is_nil() and ray.ObjectRef.nil().is_nil()
    assert ray.ObjectRef.from_random() != ray.ObjectRef.from_random() and ref != ray.put(1)
    for wrong in (b"", name[1:], name + b"x"):
        with pytest.raises(ValueError, match="needs to have length 28"):
            ray.ObjectRef(wrong)
    for wrong in ((), (1,), (name, 1)):
        with pytest.raises(TypeError):
            ray.ObjectRef(*wrong)
    with pytest.raises(ValueError, match="names nothing here"):
        ray.get(ref)
    with pytest.raises(ValueError, match="names nothing here"):
        ray.put([ref])


def test_a_reference_that_is_pickled_by_itself_is_its_process_s(ray, monkeypatch):
    import pickle
    data = pickle.dumps(ray.put(5))
    assert ray.get(pickle.loads(data)) == 5

    @ray.remote
    def read(data):
        return pickle.loads(data)

    with pytest.raises(ValueError, match="was pickled by itself"):
        ray.get(read.remote(data))
    monkeypatch.setenv("RAY_allow_out_of_band_object_ref_serialization", "0")
    with pytest.raises(ray.exceptions.OufOfBandObjectRefSerializationException):
        pickle.dumps(ray.put(5))
    ray.shutdown()
    ray.init(num_cpus=1)
    with pytest.raises(ValueError, match="until ray.shutdown"):
        pickle.loads(data)


# ---- generators ----

def test_references_to_what_was_not_yielded_yet(ray, gate):
    @ray.remote
    def numbers(gate):
        ray.get(gate.wait.remote())
        yield 1
        yield np.arange(MIB)

    @ray.remote
    def total(x):
        return int(np.sum(x))

    generator = numbers.remote(gate)
    refs = generator._get_next_ref_n(3)
    assert len(set(refs)) == 3 and generator._get_next_ref_n(2) == refs[:2]
    assert ray.wait(refs, timeout=0) == ([], refs) and not generator.next_ready()
    with pytest.raises(ValueError):
        generator._consume_next_ref_n(1)
    sums = [total.options(num_cpus=0).remote(ref) for ref in refs]
    ray.get(gate.open.remote())
    assert ray.get(sums[:2]) == [1, MIB * (MIB - 1) // 2]
    assert ray.get(refs[0]) == 1 and np.array_equal(ray.get(refs[1]), np.arange(MIB))
    for late in (refs[2], sums[2]):
        with pytest.raises(ray.exceptions.ObjectRefStreamEndOfStreamError):
            ray.get(late)
    assert next(generator) == refs[0]
    generator._consume_next_ref_n(1)
    assert generator.is_finished()
    with pytest.raises(StopIteration):
        next(generator)


def test_references_to_what_is_never_yielded(ray, gate):
    @ray.remote(num_cpus=0)
    def stuck(gate):
        yield "first"
        ray.get(gate.wait.remote())
        yield "never"

    @ray.remote(num_cpus=0)
    def read(refs):
        try:
            return ray.get(refs[0])
        except ray.exceptions.TaskCancelledError:
            return "cancelled"

    generator = stuck.remote(gate)
    first, second = generator._get_next_ref_n(2)
    assert ray.get(first) == "first"
    answer = read.remote([second])
    until(lambda: ray.get(gate.waiters.remote()) == 1)
    ray.cancel(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(second)
    assert ray.get(answer) == "cancelled"


def test_a_generator_may_be_bounded(monkeypatch):
    monkeypatch.setenv("RAY_max_num_generator_returns", "2")

    @_ray.remote
    def numbers(n):
        yield from range(n)

    with _ray.init("local", num_cpus=1):
        assert [_ray.get(ref) for ref in numbers.remote(2)] == [0, 1]
        generator = numbers.remote(3)
        assert _ray.get([next(generator), next(generator)]) == [0, 1]
        with pytest.raises(ValueError, match="more than 2 items"):
            _ray.get(next(generator))


# ---- memory ----

def test_memory_is_reserved_and_no_limit():
    @_ray.remote(memory=2.9)
    def f():
        return _ray.get_runtime_context().get_assigned_resources()["memory"]

    with _ray.init("local", num_cpus=1, _memory=2.2):
        assert _ray.cluster_resources()["memory"] == 2
        assert _ray.get(f.remote()) == 2        # bytes, of which a process has more
        with pytest.raises(_ray.exceptions.GetTimeoutError):
            _ray.get(f.options(memory=3.1).remote(), timeout=0.1)


def test_what_was_read_may_leave_memory():
    @_ray.remote
    def ones(i):
        return np.full(MIB, i, dtype=np.float64)

    with _ray.init("local", num_cpus=1, object_store_memory=48 * MIB):
        refs = []
        for i in range(12):                     # twice what there is room for
            refs.append(ones.remote(i))
            assert _ray.get(refs[-1])[-1] == i
        assert [_ray.get(ref)[0] for ref in refs] == list(range(12))
        kept = _ray.get(refs[0])                # and what is looked at stays where it is
        assert [_ray.get(ref)[0] for ref in refs] == list(range(12)) and kept.sum() == 0


# ---- devices ----

def test_devices_of_other_accelerators():
    def mine():
        return (_ray.get_runtime_context().get_accelerator_ids()["neuron_cores"],
                os.environ.get("NEURON_RT_VISIBLE_CORES"))

    class Mine:
        def look(self):
            return mine()

    with _ray.init("local", num_cpus=3, resources={"neuron_cores": 3}):
        assert _ray.get(_ray.remote(mine).remote()) == ([], None)
        pair = _ray.remote(resources={"neuron_cores": 2})(mine)
        for ids, variable in _ray.get([pair.remote() for _ in range(4)]):
            assert len(set(ids)) == 2 and set(ids) <= {"0", "1", "2"} and variable == ",".join(ids)
        one = _ray.remote(num_cpus=0, accelerator_type=_ray.util.accelerators.AWS_NEURON_CORE)(Mine)
        actors = [one.options(resources={"neuron_cores": 1}).remote() for _ in range(3)]
        assert sorted(_ray.get([a.look.remote() for a in actors])) == [([i], i) for i in "012"]
        _ray.kill(actors[1])
        assert len(_ray.get(_ray.remote(resources={"neuron_cores": 1})(mine).remote())[0]) == 1


# ---- the node ----

def test_lists_call_things_by_their_names(ray):
    from manta.ray.util.state import list_actors, list_tasks

    @ray.remote(num_cpus=0)
    class Counter:
        def count(self):
            return 1

        async def later(self):
            return 2

    counter = Counter.remote()
    assert ray.get([counter.count.remote(), counter.later.remote()]) == [1, 2]
    assert [a.class_name for a in list_actors()] == ["Counter"]
    until(lambda: {"Counter.__init__", "Counter.count", "Counter.later"} <= {t.name for t in list_tasks()})
    assert {t.type for t in list_tasks(filters=[("name", "=", "Counter.count")])} == {"ACTOR_TASK"}
