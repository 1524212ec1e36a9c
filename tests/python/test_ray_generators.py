"""Generators, options and processes as Ray has them."""
import gc
import os
import threading

import pytest

import manta
from conftest import until

pytestmark = pytest.mark.sanitized


def numbers(n, folder=None):
    for i in range(n):
        if folder is not None:
            (folder / str(i)).touch()
        yield i


def made(folder):
    return len(os.listdir(folder))


def test_get_of_a_generator_is_the_generator(ray):
    generator = ray.remote(numbers).remote(3)
    assert ray.get(generator) is generator
    assert [ray.get(ref) for ref in generator] == [0, 1, 2]
    assert generator.is_finished() and not generator.next_ready()


def test_a_generator_runs_ahead_unless_told_otherwise(ray, tmp_path):
    generator = ray.remote(numbers).remote(50, tmp_path)
    ray.get(generator.completed())
    assert made(tmp_path) == 50 and generator.next_ready() and not generator.is_finished()
    (tmp_path / "few").mkdir()
    few = ray.remote(_generator_backpressure_num_objects=2)(numbers).remote(9, tmp_path / "few")
    assert ray.wait([few]) == ([few], [])
    until(lambda: made(tmp_path / "few") == 2)
    ray.get(next(few))
    until(lambda: made(tmp_path / "few") == 3)
    del few
    gc.collect()
    until(lambda: made(tmp_path / "few") == 9)      # left, it goes on


def test_what_is_wrong_is_said(ray):
    for wrong in (0, -3):
        with pytest.raises(ValueError, match=f"_generator_backpressure_num_objects={wrong} is not allowed"):
            ray.remote(_generator_backpressure_num_objects=wrong)(numbers)
    with pytest.raises(ValueError, match="_num_objects_per_yield"):
        ray.remote(_num_objects_per_yield=0)(numbers)
    with pytest.raises(ValueError, match="_num_objects_per_yield"):
        ray.remote(numbers).options(_num_objects_per_yield=2)
    with pytest.raises(ValueError, match="can only be used with generator"):
        ray.remote(num_returns="dynamic")(len)
    with pytest.raises(ValueError, match="_actor_generator_backpressure_num_objects must be > 0"):
        ray.remote(_actor_generator_backpressure_num_objects=0)(threading.local)


def test_methods_that_yield(ray):
    @ray.remote
    class A:
        def several(self, n):
            yield from numbers(n)

        @ray.method(_num_objects_per_yield=2)
        async def pairs(self):
            yield 1, 2

    a = A.remote()
    assert ray.get(a.several.options(num_returns=3).remote(3)) == [0, 1, 2]
    assert [ray.get(r) for r in ray.get(a.several.options(num_returns="dynamic").remote(2))] == [0, 1]
    assert [ray.get(r) for r in a.several.remote(30)] == list(range(30))
    assert [ray.get(r) for r in a.pairs.remote()] == [1, 2]
    with pytest.raises(ValueError, match="_num_objects_per_yield"):
        a.several.options(_num_objects_per_yield=2)


def test_a_limit_of_all_generators_of_an_actor(ray, tmp_path):
    @ray.remote(max_concurrency=2, _actor_generator_backpressure_num_objects=3)
    class A:
        def made(self, n, folder):
            yield from numbers(n, folder)

    a = A.remote()
    first = a.made.remote(9, tmp_path)
    until(lambda: made(tmp_path) == 3)
    (tmp_path / "2").unlink()
    second = a.made.remote(1, tmp_path / "none")
    assert ray.get(next(first)) == 0
    until(lambda: made(tmp_path) == 3)
    del first
    gc.collect()
    with pytest.raises(FileNotFoundError):          # room came free, and it began
        ray.get(next(second))


def test_peeking(ray):
    generator = ray.remote(numbers).remote(3)
    peeked = generator._get_next_ref_n(2)
    assert ray.get(peeked) == [0, 1]
    assert ray.get(next(generator)) == 0
    generator._consume_next_ref_n(1)
    assert [ray.get(r) for r in generator] == [2]


def test_a_generator_that_is_cancelled(ray, tmp_path):
    @ray.remote
    def slow():
        yield 1
        while True:
            (tmp_path / "runs").touch()

    generator = slow.remote()
    assert ray.get(next(generator)) == 1
    until(lambda: (tmp_path / "runs").exists())
    ray.cancel(generator)
    with pytest.raises(ray.exceptions.TaskCancelledError, match="was cancelled") as e:
        ray.get(next(generator))
    assert isinstance(e.value, ray.exceptions.RayTaskError)
    with pytest.raises(StopIteration):
        next(generator)


def test_processes_are_called_by_what_they_run(ray):
    def title():
        with open("/proc/self/cmdline", "rb") as f:
            return f.read().split(b"\0")[0].decode()

    @ray.remote
    def its_name():
        return title()

    @ray.remote
    class Named:
        def __init__(self):
            self.first = title()

        def both(self):
            return self.first, title()

    assert ray.get(its_name.remote()) == "ray::its_name"
    assert ray.get(its_name.options(name="other").remote()) == "ray::other"
    assert ray.get(Named.remote().both.remote()) == ("ray::Named.__init__", "ray::Named.both")


def test_calls_with_devices_have_processes_of_their_own():
    import manta.ray as ray

    @ray.remote
    def pid():
        return os.getpid()

    ray.init(num_cpus=1, num_gpus=1)
    try:
        plain = ray.get(pid.remote())
        devices = [ray.get(pid.options(num_gpus=0.5).remote()) for _ in range(2)]
        assert plain not in devices and devices[0] != devices[1]      # and each call has its own
    finally:
        ray.shutdown()


def test_an_actor_waits_for_a_processor_and_holds_none():
    import manta.ray as ray

    @ray.remote
    class A:
        def f(self):
            return 1

    ray.init(num_cpus=0)
    try:
        waits = A.remote().f.remote()
        assert ray.wait([waits], timeout=0.05) == ([], [waits])
        assert ray.get(A.options(num_cpus=0).remote().f.remote()) == 1
        assert ray.wait([A.options(num_cpus=1).remote().f.remote()], timeout=0.05)[0] == []
    finally:
        ray.shutdown()
    ray.init(num_cpus=1)
    try:
        actors = [A.remote() for _ in range(3)]
        assert ray.get([a.f.remote() for a in actors]) == [1, 1, 1]
        holds = A.options(num_cpus=1).remote()
        assert ray.get(holds.f.remote()) == 1 and "CPU" not in ray.available_resources()
    finally:
        ray.shutdown()


def test_calls_inherit_a_placement_group(ray):
    from manta.ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as In

    @ray.remote
    class A:
        def group(self):
            return manta.context()["placement_group"]

    @ray.remote
    def child():
        return manta.context()["placement_group"]

    @ray.remote
    def parent():
        return (manta.context()["placement_group"], ray.get(child.remote()),
                ray.get(A.options(num_cpus=0).remote().group.remote()))

    group = ray.util.placement_group([{"CPU": 1}])
    ray.get(group.ready())
    assert len(set(ray.get(parent.options(scheduling_strategy=In(group, -1, True)).remote()))) == 1
    mine, childs, actors = ray.get(parent.options(scheduling_strategy=In(group)).remote())
    assert mine and not childs and not actors


def test_folders_of_a_runtime_environment(ray, tmp_path):
    (tmp_path / "beside.py").write_text("x = 1\n")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "__init__.py").write_text("y = 2\n")

    @ray.remote
    def look():
        import beside
        return beside.x, os.getcwd()

    @ray.remote
    def look_at_module():
        import m
        return m.y

    assert ray.get(look.options(runtime_env={"working_dir": str(tmp_path)}).remote()) == (1, str(tmp_path))
    assert ray.get(look_at_module.options(runtime_env={"py_modules": [str(tmp_path / "m")]}).remote()) == 2
    with pytest.raises(NotImplementedError, match="folder of this host"):
        look.options(runtime_env={"working_dir": "s3://bucket/x.zip"})


def test_captured_references_can_be_forbidden(ray, monkeypatch):
    ref = ray.put(1)

    @ray.remote
    def f():
        return ray.get(ref)

    assert ray.get(f.remote()) == 1
    monkeypatch.setenv("RAY_allow_out_of_band_object_ref_serialization", "0")

    @ray.remote
    def g():
        return ray.get(ref)

    with pytest.raises(ray.exceptions.OufOfBandObjectRefSerializationException, match="captured"):
        g.remote()


def test_a_store_that_fills_has_cycles_collected():
    import manta.ray as ray

    ray.init(num_cpus=1, object_store_memory=100 << 20)
    gc.disable()
    try:
        def cycle():
            inner = [ray.put(b"0" * (10 << 20))]
            inner.append(inner)
        for _ in range(30):         # three times the store
            cycle()
            assert manta.node_info()["spill_used"] == 0
    finally:
        gc.enable()
        ray.shutdown()


def test_sizes_and_iterators(ray, tmp_path):
    from manta.ray.util.multiprocessing import Pool, TimeoutError as Late

    ref = ray.put("123")
    assert ray.experimental.get_object_locations([ref])[ref]["object_size"] > 0

    def stays(path):
        while path is not None and not path.exists():
            pass
        if path is None:
            raise KeyError("there is none")
        return path.name

    with Pool(2) as pool:
        results = pool.imap(stays, [tmp_path / "go", None])
        with pytest.raises(Late):
            results.next(timeout=0.05)
        (tmp_path / "go").touch()
        assert results.next() == "go"
        assert isinstance(results.next(), KeyError)     # a value, as Ray has it
        with pytest.raises(StopIteration):
            results.next()
