"""Generators: how far they run ahead, several results, groups of items, what is tried again, waiting for them."""
import asyncio
import os

import pytest

import manta
from conftest import until

pytestmark = [pytest.mark.sanitized, pytest.mark.usefixtures("module_node")]


@manta.remote
def count(n, folder=None):
    for i in range(n):
        if folder is not None:
            (folder / str(i)).touch()
        yield i


def made(folder):
    return len(os.listdir(folder))


def values(generator):
    return [manta.get(ref) for ref in generator]


def test_how_far_a_generator_runs_ahead(tmp_path):
    generator = count.options(stream_window=1).remote(5, tmp_path)
    for i in range(5):
        ready, _ = manta.wait([generator])      # which takes nothing
        assert ready == [generator] and made(tmp_path) == i + 1
        assert manta.get(next(generator)) == i
    with pytest.raises(StopIteration):
        next(generator)
    assert manta.wait([generator]) == ([generator], [])


def test_a_generator_without_limit_ends_alone(tmp_path):
    generator = count.options(stream_window=-1).remote(300, tmp_path)
    manta.get(generator.completed())
    assert made(tmp_path) == 300 and values(generator) == list(range(300))
    for wrong in (0, -2, "all"):
        with pytest.raises(ValueError, match="stream_window"):
            count.options(stream_window=wrong)


def test_what_a_generator_yields_as_several_results():
    assert manta.get(count.options(num_returns=3).remote(3)) == [0, 1, 2]
    assert manta.get(count.options(num_returns=1).remote(1)) == 0
    assert manta.get(count.options(num_returns=2).remote(5)) == [0, 1]
    with pytest.raises(ValueError, match="yielded 1 values.*num_returns=3"):
        manta.get(count.options(num_returns=3).remote(1)[2])


@manta.remote
def fails_after(n, error=ValueError):
    for i in range(n):
        yield i
    raise error("after that")


def test_results_before_a_failure_stay():
    first, second, third = fails_after.options(num_returns=3).remote(1)
    assert manta.get(first) == 0
    for ref in second, third:
        with pytest.raises(ValueError, match="after that"):
            manta.get(ref)
    with pytest.raises(ValueError, match="after that"):
        manta.get(fails_after.options(num_returns=2).remote(0))


def test_dynamic_results():
    refs = manta.get(count.options(num_returns="dynamic").remote(4))
    assert len(refs) == 4 and [manta.get(r) for r in refs] == [0, 1, 2, 3]
    good, bad = manta.get(fails_after.options(num_returns="dynamic").remote(1))
    assert manta.get(good) == 0
    with pytest.raises(ValueError, match="after that"):
        manta.get(bad)


def test_a_generator_cannot_be_an_argument():
    @manta.remote
    def f(x):
        return x

    with pytest.raises(TypeError, match="cannot be pickled"):
        manta.get(f.remote([count.remote(1)]))


def test_only_these_exceptions_are_tried_again(tmp_path):
    class Mine(Exception):
        pass

    @manta.remote(max_retries=3)
    def f(kind, name):
        with (tmp_path / name).open("a") as out:
            out.write(".")
        if (tmp_path / name).stat().st_size < 3:
            raise kind()
        return "done"

    again = f.options(retry_exceptions=[Mine, OSError])
    assert manta.get(again.remote(Mine, "mine")) == "done"
    assert manta.get(again.remote(FileNotFoundError, "file")) == "done"
    with pytest.raises(KeyError):
        manta.get(again.remote(KeyError, "key"))
    assert (tmp_path / "key").read_text() == "."
    with pytest.raises(Mine):
        manta.get(f.remote(Mine, "never"))
    assert (tmp_path / "never").read_text() == "."


def test_groups_of_items():
    @manta.remote(num_objects_per_yield=2)
    def pairs(n):
        for i in range(n):
            yield i, str(i)
        yield "alone"

    generator = pairs.remote(2)
    assert [manta.get(next(generator)) for _ in range(4)] == [0, "0", 1, "1"]
    with pytest.raises(ValueError, match="_num_objects_per_yield=2"):
        manta.get(next(generator))


class Two:
    def __init__(self, folder):
        self.folder = folder

    def made(self, name, n):
        for i in range(n):
            (self.folder / f"{name}{i}").touch()
            yield i

    async def made_async(self, name, n):
        for i in range(n):
            (self.folder / f"{name}{i}").touch()
            yield i

    def ready(self):
        return True


@pytest.mark.parametrize("method", ["made", "made_async"])
def test_streams_of_an_actor_share_a_limit(tmp_path, method):
    actor = manta.remote(Two).options(stream_limit=3, max_concurrency=4).remote(tmp_path)
    a = getattr(actor, method).options(stream_window=-1).remote("a", 2)     # it ends, and its items count
    until(lambda: made(tmp_path) == 2)
    assert manta.get(actor.ready.remote())
    b = getattr(actor, method).options(stream_window=-1).remote("b", 5)
    until(lambda: made(tmp_path) == 3)
    assert manta.get(next(a)) == 0
    until(lambda: made(tmp_path) == 4)
    assert manta.get(next(b)) == 0
    until(lambda: made(tmp_path) == 5)
    assert values(a) == [1] and values(b) == [1, 2, 3, 4]


def test_waiting_for_generators_and_references():
    @manta.remote
    def stays(path):
        while not os.path.exists(path):
            pass

    ref, generator = manta.put(1), count.remote(2)
    ready, others = manta.wait([generator, ref], num_returns=2)
    assert ready == [generator, ref] and others == []
    assert values(generator) == [0, 1]


@pytest.mark.parametrize("wrong", (0, 3, -1))
def test_waiting_for_more_than_there_are_is_refused(wrong):
    generator, ref = count.remote(1), manta.put(1)
    for waitables in ([generator, ref], [ref, manta.put(2)]):
        with pytest.raises(ValueError, match=f"num_returns is {wrong}, expected 1 to 2"):
            manta.wait(waitables, num_returns=wrong)
    with pytest.raises(TypeError, match="list of ObjectRefs"):
        manta.wait(ref)
    with pytest.raises(TypeError, match="expected an ObjectRef"):
        manta.wait([ref, 1])


def test_many_async_generators_wait_at_once(tmp_path):
    actor = manta.remote(Two).options(max_concurrency=100).remote(tmp_path)
    all_of_them = [actor.made_async.options(stream_window=1).remote(f"{k}.", 3) for k in range(40)]
    for generator in reversed(all_of_them):     # none keeps a thread that another needs
        assert values(generator) == [0, 1, 2]

    async def take(generator):
        return [await ref async for ref in generator]

    async def take_all():
        return await asyncio.gather(*(take(count.remote(3)) for _ in range(20)))
    assert asyncio.run(take_all()) == [[0, 1, 2]] * 20


def test_options_of_processes(tmp_path):
    @manta.remote(max_calls=1)
    def pid():
        return os.getpid()

    pids = manta.get([pid.remote() for _ in range(3)])
    assert len(set(pids)) == 3
    with pytest.raises(ValueError, match="max_calls"):
        pid.options(max_calls=-1)

    (tmp_path / "its_own.py").write_text("where = 'there'\n")
    (tmp_path / "lib" / "packed").mkdir(parents=True)
    (tmp_path / "lib" / "packed" / "__init__.py").write_text("what = 'this'\n")

    @manta.remote(working_dir=str(tmp_path), py_modules=[str(tmp_path / "lib" / "packed")])
    def look():
        import its_own
        import packed
        return os.getcwd(), its_own.where, packed.what

    assert manta.get(look.remote()) == (str(tmp_path), "there", "this")
    with pytest.raises(ValueError, match="working_dir"):
        look.options(working_dir=str(tmp_path / "nowhere"))


def test_calls_out_of_order():
    class Box:
        def put(self, x):
            return x

    @manta.remote
    def waits(path):
        while not os.path.exists(path):
            pass
        return "late"

    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "go")
        box = manta.remote(Box).options(out_of_order=True).remote()
        late = box.put.remote(waits.remote(path))
        assert manta.get(box.put.remote("early")) == "early"
        open(path, "w").close()
        assert manta.get(late) == "late"


def test_what_can_never_run_may_wait():
    @manta.remote
    def f():
        return 1

    ref = f.options(num_cpus=1000, wait_infeasible=True).remote()
    assert manta.wait([ref], timeout=0.05) == ([], [ref])
    manta.cancel(ref)
    with pytest.raises(manta.exceptions.CancelledError):
        manta.get(ref)
