"""Ray's core on Manta: tasks, objects, actors, waits, as programs use them."""
import asyncio
import os
import threading
import time

import numpy as np
import pytest

import manta
import manta.ray as _ray
from conftest import DEADLINE_S, run_python, until

pytestmark = pytest.mark.sanitized


def test_tasks_and_objects(ray):
    @ray.remote
    def f(x, y=1):
        return x + y

    assert ray.get(f.remote(1)) == 2
    assert ray.get([f.remote(i, y=i) for i in range(20)]) == [2 * i for i in range(20)]
    assert ray.get(f.remote(f.remote(1), y=ray.put(5))) == 7
    assert ray.get(f.options(num_cpus=2, name="twice").remote(3)) == 4
    array = ray.get(ray.put(np.arange(100_000)))
    assert array[99_999] == 99_999 and not array.flags.writeable


def test_what_can_be_called_can_be_remote(ray):
    class Adder:
        def __call__(self, x):
            return x + 1

    import functools
    for function, name in ((max, "max"), (functools.partial(max, 1), "partial"), (Adder(), "Adder"), ([1, 7].count, "list.count")):
        remote = ray.remote(function)
        assert remote.__qualname__ == name and name in repr(remote)
        assert ray.get(remote.remote(7, 7) if name == "max" else remote.remote(7)) == {"Adder": 8, "list.count": 1}.get(name, 7)


def test_several_results(ray):
    @ray.remote(num_returns=2)
    def two():
        return 1, "b"

    @ray.remote(num_return_vals=2)
    def old():
        return 1, 2

    a, b = two.remote()
    assert ray.get([a, b]) == [1, "b"]
    assert ray.get(old.remote()) == [1, 2]
    one = two.options(num_returns=1).remote()
    assert ray.get(one) == (1, "b")


def test_references_inside_stay_references(ray):
    @ray.remote
    def look(box):
        return isinstance(box[0], ray.ObjectRef), ray.get(box[0])

    assert ray.get(look.remote([ray.put(3)])) == (True, 3)


def test_wait(ray):
    @ray.remote
    def f(x):
        return x

    refs = [f.remote(i) for i in range(4)]
    ready, others = ray.wait(refs, num_returns=4)
    assert ready == refs and others == []
    assert ray.wait([]) == ([], [])
    for wrong, error in ((refs[0], TypeError), ([1], TypeError), ([refs[0]] * 2, ValueError)):
        with pytest.raises(error):
            ray.wait(wrong)
    with pytest.raises(ValueError):
        ray.wait(refs, num_returns=5)


def test_get_refuses_what_is_no_reference(ray):
    for wrong in (3, (ray.put(1),), [3], "x"):
        with pytest.raises(ValueError):
            ray.get(wrong)
    with pytest.raises(TypeError, match="put"):
        ray.put(ray.put(1))


def test_numbers_that_are_none_are_refused_by_name(ray):
    ref = ray.put(1)
    for call, name in ((lambda: ray.get(ref, timeout="1"), "timeout='1'"), (lambda: ray.wait([ref], timeout=[]), r"timeout=\[\]")):
        with pytest.raises(TypeError, match=f"^{name} is of type (str|list), expected a number"):
            call()
    done = run_python("-c", "import manta.ray as ray; ray.init(num_cpus='2')")
    assert done.stderr.endswith("TypeError: num_cpus='2' is of type str, expected a number\n"), done.stderr


def test_a_timeout(ray):
    @ray.remote
    class Slow:
        async def f(self):
            await asyncio.sleep(3600)

    slow = Slow.remote()
    ref = slow.f.remote()
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(ref, timeout=0.1)
    with pytest.raises(TimeoutError):
        ray.get(ref, timeout=0)
    ray.kill(slow)


def test_errors_are_of_both_classes(ray):
    @ray.remote
    def f():
        raise ValueError("mine")

    @ray.remote
    def outer():
        return ray.get(f.remote())

    for ref in (f.remote(), outer.remote()):
        with pytest.raises(ray.exceptions.RayTaskError) as caught:
            ray.get(ref)
        assert isinstance(caught.value, ValueError) and "mine" in str(caught.value)


def test_a_worker_that_dies(ray):
    @ray.remote(max_retries=0)
    def f():
        os._exit(1)

    with pytest.raises(ray.exceptions.WorkerCrashedError):
        ray.get(f.remote())


def test_actors(ray):
    @ray.remote
    class Counter:
        step = 2

        def __init__(self, n=0):
            self.n = n

        def add(self, k=1):
            self.n += k
            return self.n

        @ray.method(num_returns=2)
        def two(self):
            return 1, 2

    a = Counter.remote(5)
    assert ray.get([a.add.remote() for _ in range(3)]) == [6, 7, 8]
    assert ray.get(a.two.remote()) == [1, 2]
    assert Counter.step == 2
    assert ray.get(a.__ray_ready__.remote()) is True
    assert ray.get(a.__ray_call__.remote(lambda self, k: self.n + k, 1)) == 9
    with pytest.raises(TypeError):
        Counter.remote(1, 2, 3)
    with pytest.raises(AttributeError):
        a.no_such_method
    ray.kill(a)
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(a.add.remote())


def test_handles_travel(ray):
    @ray.remote
    class Box:
        def __init__(self):
            self.n = 0

        def put(self, n):
            self.n = n

        def get(self):
            return self.n

    @ray.remote
    def fill(box):
        ray.get(box.put.remote(4))
        return box

    box = Box.remote()
    again = ray.get(fill.remote(box))
    assert again == box and hash(again) == hash(box) and again._actor_id == box._actor_id
    assert ray.get(again.get.remote()) == 4


def test_named_actors(ray):
    @ray.remote
    class A:
        def f(self):
            return 3

    a = A.options(name="a").remote()
    assert ray.get(ray.get_actor("a").f.remote()) == 3
    b = A.options(name="a", get_if_exists=True).remote()
    assert b == a
    with pytest.raises(ValueError):
        ray.get_actor("b")
    with pytest.raises(ValueError):
        ray.get_actor("")


def test_a_constructor_that_fails(ray):
    @ray.remote
    class A:
        def __init__(self):
            raise ValueError("oops")

        def f(self):
            pass

    with pytest.raises(ray.exceptions.RayActorError, match="oops"):
        ray.get(A.remote().f.remote())


def test_streams(ray):
    @ray.remote
    def numbers(n):
        yield from range(n)

    assert [ray.get(ref) for ref in numbers.remote(20)] == list(range(20))


def test_a_stream_that_fails(ray):
    @ray.remote
    def numbers():
        yield 1
        raise ValueError("in the middle")

    stream = numbers.remote()
    assert ray.get(next(stream)) == 1
    last = next(stream)
    with pytest.raises(ValueError, match="in the middle"):
        ray.get(last)
    with pytest.raises(StopIteration):
        next(stream)
    assert stream.is_finished()


def test_wait_for_streams(ray):
    @ray.remote
    def numbers():
        yield 1

    @ray.remote
    class Slow:
        async def f(self):
            await asyncio.sleep(3600)

    slow = Slow.remote()
    stream, never = numbers.remote(), slow.f.remote()
    assert ray.wait([never, stream]) == ([stream], [never])
    assert ray.wait([never, stream], num_returns=2, timeout=0.05) == ([stream], [never])
    assert ray.get(next(stream)) == 1
    ray.kill(slow)


def test_a_dynamic_generator(ray):
    @ray.remote(num_returns="dynamic")
    def numbers(n):
        yield from range(n)

    assert ray.get(list(ray.get(numbers.remote(3)))) == [0, 1, 2]


def test_await(ray):
    @ray.remote
    def f(x):
        return x

    async def main():
        return await f.remote(1), await asyncio.gather(*[f.remote(i) for i in range(3)])

    assert asyncio.run(main()) == (1, [0, 1, 2])
    assert f.remote(5).future().result(timeout=DEADLINE_S) == 5


def test_an_async_actor(ray):
    @ray.remote
    class A:
        def __init__(self):
            self.event = asyncio.Event()

        async def wait(self):
            await self.event.wait()
            return 1

        async def set(self):
            self.event.set()

    a = A.remote()
    waiting = [a.wait.remote() for _ in range(3)]
    ray.get(a.set.remote())
    assert ray.get(waiting) == [1, 1, 1]


def test_a_call_that_waits_in_its_actor_is_cancelled_before_it_began(ray, tmp_path):
    @ray.remote(num_cpus=0)
    class Slow:
        def wait(self, path, begun):
            open(begun, "w").close()
            until(lambda: os.path.exists(path))

    s = Slow.remote()
    first, second = (s.wait.remote(str(tmp_path / "go"), str(tmp_path / f"begun-{i}")) for i in range(2))
    until(lambda: (tmp_path / "begun-0").exists())
    ray.cancel(second)
    with pytest.raises(ray.exceptions.TaskCancelledError) as told:
        ray.get(second)
    assert "cancelled" in str(told.value) and "while it ran" not in str(told.value) and "ray::()" not in str(told.value)
    (tmp_path / "go").touch()
    ray.get(first)


def test_cancel_what_has_not_begun(ray, tmp_path):
    @ray.remote(num_cpus=2)
    def block(box):
        while not os.path.exists(box):
            time.sleep(0.01)

    @ray.remote(num_cpus=2)
    def never():
        return 1

    first = block.remote(tmp_path / "go")
    second = never.remote()
    ray.cancel(second)
    with pytest.raises(ray.exceptions.TaskCancelledError):
        ray.get(second)
    (tmp_path / "go").touch()
    ray.get(first)


def test_variables_of_an_environment(ray):
    @ray.remote
    def look():
        return os.environ.get("MANTA_TEST_A")

    @ray.remote(runtime_env={"env_vars": {"MANTA_TEST_A": "actor"}})
    class A:
        def look(self):
            return os.environ.get("MANTA_TEST_A")

    assert ray.get(look.options(runtime_env={"env_vars": {"MANTA_TEST_A": "1"}}).remote()) == "1"
    assert ray.get(look.remote()) is None
    assert ray.get(A.remote().look.remote()) == "actor"


def test_devices_are_seen_by_those_who_ask(monkeypatch):
    ray = _ray
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    ray.init(num_cpus=1, num_gpus=2)
    try:
        @ray.remote
        def look():
            return os.environ.get("CUDA_VISIBLE_DEVICES"), ray.get_gpu_ids()

        @ray.remote(num_gpus=1)
        class A:
            def __init__(self):
                self.first = os.environ["CUDA_VISIBLE_DEVICES"]

            def look(self):
                return self.first, os.environ["CUDA_VISIBLE_DEVICES"], ray.get_gpu_ids()

        assert ray.get(look.remote()) == ("5,7", [])
        variable, ids = ray.get(look.options(num_gpus=1).remote())
        assert variable in ("5", "7") and ids == [variable]
        assert ray.get(look.remote()) == ("5,7", [])
        first, variable, ids = ray.get(A.remote().look.remote())
        assert first == variable and ids == [variable]
    finally:
        ray.shutdown()


def test_context(ray):
    @ray.remote
    class A:
        def where(self):
            c = ray.get_runtime_context()
            return c.get_actor_id(), c.get_node_id(), c.get_task_id()

    a = A.remote()
    actor, node, task = ray.get(a.where.remote())
    here = ray.get_runtime_context()
    assert actor == a._actor_id.hex() and node == here.get_node_id() and task
    assert here.get_actor_id() is None and here.get_task_id() is None
    assert ray.cluster_resources()["CPU"] == 2.0 and ray.nodes()[0]["Alive"]


def test_the_context_names_what_runs(ray):
    def names():
        here = ray.get_runtime_context()
        return here.get_task_name(), here.get_task_function_name(), manta.context()["function"]

    @ray.remote
    def f():
        return names()

    @ray.remote
    class A:
        def __init__(self):
            self.made = names()

        def m(self):
            return self.made, names()

        def g(self):
            yield names()

    @ray.remote
    class Async:
        async def m(self):
            return names()

    assert names() == (None, None, "")
    assert ray.get([f.remote(), f.options(name="given").remote()]) == [("f",) * 3, ("given", "f", "f")]
    a = A.remote()
    assert ray.get(a.m.remote()) == (("A.__init__",) * 3, ("A.m",) * 3)
    assert [ray.get(ref) for ref in a.g.remote()] == [("A.g",) * 3]
    assert ray.get(Async.remote().m.remote()) == ("Async.m",) * 3


def test_older_names_of_the_context(ray):
    group = ray.util.placement_group([{"CPU": 1}])

    @ray.remote(num_cpus=1)
    def where():
        c = ray.get_runtime_context()
        return c.task_id.hex() == c.get_task_id(), c.current_placement_group_id, c.get_resource_ids() == c.get_accelerator_ids()

    strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(group)
    assert ray.get(where.options(scheduling_strategy=strategy).remote()) == (True, group.id, True)
    here = ray.get_runtime_context()
    assert here.current_placement_group_id.is_nil() and "GPU" in here.get_resource_ids()
    with pytest.raises(AssertionError, match="in calls and methods of actors alone"):
        here.task_id


def test_calls_beyond_the_limit_are_refused_where_they_are_made(ray, tmp_path):
    @ray.remote(num_cpus=0)
    class Slow:
        def wait(self, path, n):
            until(lambda: os.path.exists(path))
            return n

    s = Slow.options(max_pending_calls=2).remote()
    refs, refused = [], 0
    while len(refs) < 6:            # what a program does that backs off; two calls each wait for one file
        try:
            refs.append(s.wait.remote(str(tmp_path / f"go{len(refs) // 2}"), len(refs)))
        except ray.exceptions.PendingCallsLimitExceeded:
            (tmp_path / f"go{refused}").touch()
            refused += 1
            ray.wait(refs, num_returns=len(refs))
    (tmp_path / "go2").touch()
    assert refused == 2 and ray.get(refs) == list(range(6))
    go = str(tmp_path / "go")

    @ray.remote(num_cpus=0)
    def call(s):                    # a handle that came from elsewhere has the limit too, for this caller
        ray.get(s.wait.remote(__file__, 0))
        refs = [s.wait.remote(go, n) for n in range(2)]
        with pytest.raises(ray.exceptions.PendingCallsLimitExceeded):
            s.wait.remote(go, 2)
        open(go, "w").close()
        return ray.get(refs)
    assert ray.get(call.remote(s), timeout=DEADLINE_S) == [0, 1]


def test_what_is_idle_is_free(ray):
    @ray.remote
    def f():
        return 1

    assert ray.get([f.remote() for _ in range(4)]) == [1] * 4
    assert ray.available_resources()["CPU"] == 2.0


def test_init_and_shutdown():
    ray = _ray
    assert not ray.is_initialized()
    with ray.init(num_cpus=1, include_dashboard=False, _system_config={"a": 1}) as context:
        assert ray.is_initialized() and "node_id" in context.address_info
        with pytest.raises(RuntimeError, match="called twice"):
            ray.init()
        ray.init(ignore_reinit_error=True)
    assert not ray.is_initialized()
    ray.shutdown()
    with pytest.raises(RuntimeError, match="is no option of ray.init"):
        ray.init(nonsense=1)
    with pytest.raises(NotImplementedError, match="client"):
        ray.init("ray://host:10001")


def test_a_program_begins_without_init():
    ray = _ray

    @ray.remote
    def f():
        return 1

    try:
        assert ray.get(f.remote()) == 1
    finally:
        ray.shutdown()


def test_local_mode():
    ray = _ray
    ray.init(local_mode=True)
    try:
        @ray.remote
        def f():
            return os.getpid()

        assert ray.get(f.remote()) == os.getpid()
    finally:
        ray.shutdown()


def test_the_ends_of_an_actor_are_rays(ray, tmp_path):
    @ray.remote
    class A:
        def __ray_shutdown__(self):
            (tmp_path / "shutdown").touch()

        def leave(self):
            _ray.actor.exit_actor()

        def me(self):
            return _ray.get_runtime_context().current_actor

        def add(self, x):
            return x + 1

    a = A.remote()
    assert ray.get(ray.get(a.me.remote()).add.remote(1)) == 2
    with pytest.raises(TypeError):
        ray.get(a.me.remote()).add.remote()
    with pytest.raises(ray.exceptions.ActorDiedError, match=r"INTENDED_USER_EXIT.*exit_actor\(\)"):
        ray.get(a.leave.remote())
    assert (tmp_path / "shutdown").exists()
    b = A.remote()
    ray.kill(b)
    with pytest.raises(ray.exceptions.ActorDiedError, match="killed by `ray.kill`"):
        ray.get(b.add.remote(1))
    with pytest.raises(TypeError, match="exit_actor API is called on a non-actor worker"):
        _ray.actor.exit_actor()


def test_concurrency_groups(ray):
    @ray.remote(concurrency_groups={"io": 2})
    class A:
        def __init__(self):
            self.both = threading.Barrier(2)

        @ray.method(concurrency_group="io")
        def meet(self):
            return self.both.wait(240) >= 0

        def plain(self):
            return 1

    a = A.remote()
    assert ray.get([a.meet.remote(), a.meet.remote()]) == [True, True]
    assert ray.get(a.plain.options(concurrency_group="io").remote()) == 1
    groups = [{"name": "io", "max_concurrency": 1}]
    assert ray.get(ray.remote(concurrency_groups=groups)(A.__ray_actor_class__).remote().plain.remote()) == 1


def test_a_callback_of_a_reference(ray):
    @ray.remote
    def f(x):
        return 1 // x

    seen = []
    for x in (1, 0):
        f.remote(x)._on_completed(seen.append)
        until(lambda: len(seen) == 2 - x)
    assert seen[0] == 1 and isinstance(seen[1], ZeroDivisionError)


def test_a_decorator_of_calls_of_a_method(ray):
    def calls(method):
        return lambda args, kwargs: (method([args[0], args[0]], {}), kwargs)

    def runs(f):
        def both(self, a, b):
            return f(self, a + b)
        both.__ray_invocation_decorator__ = calls
        return both

    @ray.remote
    class A:
        @runs
        def f(self, x):
            return x + 1

    ref, rest = A.remote().f.remote(3, more=4)
    assert ray.get(ref) == 7 and rest == {"more": 4}


def test_a_node_without_processors():
    _ray.init(num_cpus=0)
    try:
        assert "CPU" not in _ray.cluster_resources()

        @_ray.remote(num_cpus=0)
        def f():
            return 1

        assert _ray.get(f.remote()) == 1
    finally:
        _ray.shutdown()
