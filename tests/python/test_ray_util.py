"""ray.util: pools, queues, groups, iterators, states."""
import threading

import pytest

from conftest import DEADLINE_S


@pytest.fixture
def doubler(ray):
    @ray.remote
    class Doubler:
        def double(self, x):
            return 2 * x

        def fail(self, x):
            raise ValueError(x)
    return Doubler


def test_actor_pool(ray, doubler):
    pool = ray.util.ActorPool([doubler.remote() for _ in range(2)])
    assert list(pool.map(lambda a, v: a.double.remote(v), range(5))) == [0, 2, 4, 6, 8]
    assert sorted(pool.map_unordered(lambda a, v: a.double.remote(v), range(5))) == [0, 2, 4, 6, 8]
    pool.submit(lambda a, v: a.fail.remote(v), 1)
    with pytest.raises(ValueError):
        pool.get_next()
    assert pool.has_free() and not pool.has_next()
    with pytest.raises(StopIteration):
        pool.get_next_unordered()
    idle = pool.pop_idle()
    pool.push(idle)
    with pytest.raises(ValueError):
        pool.push(idle)


@pytest.mark.parametrize("take", ["get_next", "get_next_unordered"])
def test_a_wait_for_an_actor_pool_that_is_interrupted_loses_nothing(python, tmp_path, take):
    out = python("-c", f"""
import os, signal, sys, time
import manta.ray as ray
ray.init(num_cpus=1)
@ray.remote
class A:
    def f(self, driver, submitted, go):
        while not os.path.exists(submitted): time.sleep(0.01)
        os.kill(driver, signal.SIGINT)
        while not os.path.exists(go): time.sleep(0.01)
        return "done"
pool, submitted, go = ray.util.ActorPool([A.remote()]), *sys.argv[1:]
pool.submit(lambda a, v: a.f.remote(*v), (os.getpid(), submitted, go))
try:
    open(submitted, "w").close()        # a submit() that is interrupted may lose its call
    print(pool.{take}())
except KeyboardInterrupt:
    open(go, "w").close()
print(pool.has_next(), pool.{take}(), pool.has_next(), pool.has_free())
""", tmp_path / "submitted", tmp_path / "go")
    assert out.stdout == "True done False True\n", out.stdout + out.stderr


def test_queue(ray):
    from manta.ray.util.queue import Empty, Full, Queue
    q = Queue(maxsize=2)
    q.put(1)
    q.put_nowait(2)
    assert q.full() and len(q) == 2
    for put in (lambda: q.put(3, timeout=0.05), lambda: q.put_nowait(3), lambda: q.put_nowait_batch([3])):
        with pytest.raises(Full):
            put()
    assert q.get() == 1 and q.get_nowait_batch(1) == [2] and q.empty()
    for get in (lambda: q.get(timeout=0.05), q.get_nowait, lambda: q.get_nowait_batch(1)):
        with pytest.raises(Empty):
            get()
    with pytest.raises(ValueError):
        q.get(timeout=-1)

    @ray.remote
    def fill(q):
        q.put("from a task")

    ray.get(fill.remote(q))
    assert q.get() == "from a task"
    q.shutdown()


def test_as_completed(ray):
    @ray.remote
    def f(x):
        return x

    assert sorted(ray.util.as_completed([f.remote(i) for i in range(25)], chunk_size=4)) == list(range(25))
    assert sorted(ray.util.map_unordered(f, range(25), backpressure_size=10)) == list(range(25))
    refs = list(ray.util.as_completed([f.remote(1)], yield_obj_refs=True))
    assert ray.get(refs) == [1]


def test_placement_groups(ray):
    from manta.ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    group = ray.util.placement_group([{"CPU": 1}, {"CPU": 1}], name="pair")
    with pytest.raises(ValueError, match="called pair already") as e:
        ray.util.placement_group([{"CPU": 1}], name="pair")
    assert type(e.value) is ValueError
    ray.get(group.ready())
    assert group.wait(DEADLINE_S) and group.bundle_count == 2 and group.bundle_specs == [{"CPU": 1}, {"CPU": 1}]

    @ray.remote(num_cpus=1)
    def f():
        return ray.util.get_current_placement_group()

    inside = f.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1))
    assert ray.get(inside.remote()) == group
    assert ray.util.get_placement_group("pair") == group
    assert ray.util.placement_group_table(group)["state"] == "CREATED"
    with pytest.raises(ValueError):
        f.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 2)).remote()
    ray.util.remove_placement_group(group)
    with pytest.raises(TypeError, match="of type int, expected a placement group"):
        ray.util.remove_placement_group(3)
    assert ray.util.get_current_placement_group() is None
    for wrong in ([], [{}], [{"CPU": 0}], "x"):
        with pytest.raises(ValueError):
            ray.util.placement_group(wrong)
    with pytest.raises(ValueError):
        ray.util.placement_group([{"CPU": 1}], strategy="NEAR")
    with pytest.raises(ValueError):
        ray.util.get_placement_group("none")


def test_groups_of_the_whole_node(ray):
    from manta.ray.util import state
    assert state.list_placement_groups() == [] and ray.util.placement_group_table() == {}
    placed = ray.util.placement_group([{"CPU": 1}], name="placed")
    ray.get(placed.ready())
    waits = ray.util.placement_group([{"CPU": 2}], strategy="STRICT_PACK")
    kept = ray.put(1)

    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            self.group = ray.util.placement_group([{"CPU": 1}], name="theirs")
            ray.get(self.group.ready())
            return self.group

    maker = Maker.remote()
    theirs = ray.get(maker.make.remote())
    table = ray.util.placement_group_table()
    assert {g: (row["state"], row["name"]) for g, row in table.items()} == {
        placed.id.hex(): ("CREATED", "placed"), waits.id.hex(): ("PENDING", ""), theirs.id.hex(): ("CREATED", "theirs")}
    assert table[waits.id.hex()]["strategy"] == "STRICT_PACK" and ray.get(kept) == 1
    assert [g.name for g in state.list_placement_groups(filters=[("state", "=", "CREATED"), ("name", "!=", "theirs")])] == ["placed"]
    assert state.get_placement_group(placed.id.hex())["bundles"][0]["unit_resources"] == {"CPU": 1.0}
    assert state.get_placement_group("00" * 8) is None
    ray.util.remove_placement_group(waits)
    assert {*ray.util.placement_group_table()} == {placed.id.hex(), theirs.id.hex()}


def test_columns_and_filters_of_lists(ray):
    from manta.ray.util import state

    @ray.remote
    class A:
        def f(self):
            pass

    a, group, ref = A.options(name="a").remote(), ray.util.placement_group([{"CPU": 1}]), ray.put(bytes(2 ** 20))
    ray.get([a.f.remote(), group.ready()])
    for noun, columns in state.COLUMNS.items():
        lister = getattr(state, f"list_{noun}")
        rows = lister()
        assert rows and all({*row} == {*columns} for row in rows), noun
        with pytest.raises(ValueError, match=f"no column 'colour' to filter by; there are {columns[0]}, "):
            lister(filters=[("colour", "=", "red")])
        with pytest.raises(state.RayStateApiException, match="= or !="):
            lister(filters=[(columns[0], "<", 1)])
    for name in ("list_runtime_envs", "list_cluster_events", "list_logs", "get_log"):
        with pytest.raises(NotImplementedError, match=f"ray.util.state.{name}"):
            getattr(state, name)()
    del ref


def test_iterators(ray):
    from manta.ray.util import iter as it
    assert list(it.from_range(4).for_each(lambda x: 2 * x).gather_sync()) == [0, 4, 2, 6]
    assert sorted(it.from_items([1, 2, 3, 4]).gather_async()) == [1, 2, 3, 4]
    assert list(it.from_items([[1, 2], [3]], 1).flatten().batch(2).gather_sync()) == [[1, 2], [3]]
    a, b = it.from_range(3, 1).gather_sync().duplicate(2)
    assert a.union(b).take(10) == [0, 0, 1, 1, 2, 2]
    assert set(it.from_range(9, 3).repartition(2).get_shard(0)) == {0, 2, 3, 5, 6, 8}


def test_why_something_cannot_be_sent(ray, capsys):
    lock = threading.Lock()

    def holds():
        return lock

    ok, failures = ray.util.inspect_serializability(holds)
    assert not ok and [f.name for f in failures] == ["lock"] and "lock" in capsys.readouterr().out
    assert ray.util.inspect_serializability(lambda: 1)[0]


class Handle:
    def __init__(self, n):
        self.n, self.lock = n, threading.Lock()


def test_a_serializer_of_ones_own(ray):
    with pytest.raises(Exception):
        ray.put(Handle(1))
    ray.util.register_serializer(Handle, serializer=lambda h: h.n, deserializer=lambda n: Handle(n))
    try:
        assert ray.get(ray.put([Handle(7)]))[0].n == 7
    finally:
        ray.util.deregister_serializer(Handle)
    with pytest.raises(Exception):
        ray.put(Handle(1))


def test_a_pool_of_processes(ray):
    from manta.ray.util.multiprocessing import Pool
    with Pool(2) as pool:
        assert pool.map(abs, [-1, -2, -3]) == [1, 2, 3]
        assert pool.starmap(pow, [(2, 3), (3, 2)]) == [8, 9]
        assert pool.apply(divmod, (7, 2)) == (3, 1)
        assert list(pool.imap(abs, [-1, 2])) == [1, 2] and sorted(pool.imap_unordered(abs, [-2, 1])) == [1, 2]
        bad = pool.apply_async(divmod, (1, 0))
        with pytest.raises(ZeroDivisionError):
            bad.get(DEADLINE_S)
        assert not bad.successful()
    with pytest.raises(ValueError):
        pool.map(abs, [1])


def test_metrics():
    from manta.ray.util.metrics import Counter, Gauge, Histogram
    c = Counter("c", tag_keys=("a",)).set_default_tags({"a": "1"})
    c.inc(2)
    c.inc(1, tags={"a": "1"})
    assert list(c.values.values()) == [3]
    with pytest.raises(ValueError):
        c.inc(1, tags={"b": "1"})
    g = Gauge("g")
    g.set(4)
    assert list(g.values.values()) == [4]
    h = Histogram("h", boundaries=[1, 10])
    for n in (0.5, 5, 50):
        h.observe(n)
    assert list(h.values.values()) == [[1, 1, 1]]
