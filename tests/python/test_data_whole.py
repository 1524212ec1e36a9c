"""manta.data: what needs all rows, parts of datasets, and shards that ranks of a training read."""
import json
import math
import os
import pathlib
import signal
import threading

import numpy
import pytest
from conftest import run_python

import manta
import manta.data as data
from manta import train
from manta.data import DataContext
from manta.train import DataParallelTrainer, FailureConfig, RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(DataContext.get_current(), "target_max_block_size", 2 << 10)


def ids(ds, column="id"):
    return [row[column] for row in ds.take_all()]


# ---- barriers ----

def test_shuffle():
    ds = data.range(500)
    assert ids(ds.random_shuffle(seed=1)) == ids(ds.random_shuffle(seed=1)) != ids(ds.random_shuffle(seed=2))
    free = ds.random_shuffle()
    assert ids(free) != ids(free) and sorted(ids(free)) == list(range(500))
    # It is no shuffle of blocks: rows of every eighth come into every eighth.
    assert len({i // 63 for i in ids(ds.random_shuffle(seed=1))[:60]}) > 5


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending):
    values = numpy.random.default_rng(0).integers(0, 50, size=400)
    ds = data.from_numpy({"k": values, "i": numpy.arange(400)})
    rows = ds.sort("k", descending=descending).take_all()
    expected = sorted(range(400), key=lambda i: -values[i] if descending else values[i])
    assert [row["i"] for row in rows] == expected


def test_sort_by_texts_and_by_several_columns():
    ds = data.from_items([{"s": "bac"[i % 3], "i": i} for i in range(30)])
    rows = ds.sort(["s", "i"], descending=[False, True]).take_all()
    assert [(r["s"], r["i"]) for r in rows] == sorted(((r["s"], r["i"]) for r in ds.take_all()), key=lambda p: (p[0], -p[1]))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("column", [
    numpy.where(numpy.arange(400) % 3 == 0, numpy.nan, numpy.arange(400) * 7 % 400),
    numpy.where(numpy.arange(400) % 3 == 0, numpy.datetime64("NaT"), numpy.datetime64("2020-01-01", "ns") + numpy.arange(400) * 7 % 400),
    [None if i % 3 == 0 else str(i * 7 % 400) for i in range(400)]], ids=["NaN", "NaT", "None"])
def test_what_is_missing_is_sorted_behind_all_others_and_is_a_group(column, descending):
    rows = [{"x": x, "i": i} for i, x in enumerate(column)]
    got = data.from_items(rows).repartition(7).sort("x", descending=descending).take_all()
    missing = [r["i"] for r in got if r["i"] % 3 == 0]
    others = [r["x"] for r in got if r["i"] % 3]
    assert missing == list(range(0, 400, 3)) and others == sorted(others, reverse=descending)
    assert [r["i"] for r in (got[:134] if descending else got[-134:])] == missing
    groups = data.from_items([{"x": x, "n": i} for i, x in enumerate(list(column) * 2)]).repartition(5).groupby("x").count().take_all()
    counts = sorted(r["count()"] for r in groups)
    assert counts == [2] * 266 + [2 * 134]


def test_values_without_an_order_are_refused_with_their_column():
    for blocks in (1, 2):
        with pytest.raises(TypeError, match="column 'x'.*no order"):
            data.from_items([{"x": 1}, {"x": "1"}]).repartition(blocks).sort("x").take_all()


@pytest.mark.parametrize("rows, blocks", [(5000, 8), (600, 600)])       # blocks that nearly fit into a message, and many
def test_any_number_of_small_blocks_becomes_one(rows, blocks):
    class Same:
        def __call__(self, batch):
            return batch

    x = numpy.arange(float(rows))
    small = data.from_numpy({"x": x}).repartition(blocks).materialize()
    assert small.num_blocks() == blocks
    for ds in (small.repartition(1), small.map_batches(lambda batch: batch, batch_size=rows),
               small.map_batches(Same, concurrency=1, batch_size=rows), small.sort("x")):
        batch = ds.take_batch(rows)
        assert numpy.array_equal(batch["x"], x)
    assert small.random_shuffle(seed=1).sum("x") == x.sum()
    assert len(data.from_numpy({"y": x}).zip(small).take_all()) == rows


def test_repartition_and_materialize():
    ds = data.range(103).filter(lambda row: row["id"] != 50).repartition(5).materialize()
    assert ds.num_blocks() == 5 and ds.count() == 102 and ids(ds) == [i for i in range(103) if i != 50]
    assert sorted(ids(data.range(30).repartition(3, shuffle=True))) == list(range(30))
    assert data.range(2).repartition(5).count() == 2


def test_barriers_of_nothing():
    nothing = data.range(10).filter(lambda row: False)
    for ds in (nothing, nothing.random_shuffle(), nothing.sort("id"), nothing.repartition(3)):
        assert ds.take_all() == [] and list(ds.iter_batches()) == []
    assert nothing.count() == 0 and nothing.schema() is None and nothing.sum("id") is None


# ---- groups ----

def test_groups_have_numbers():
    ds = data.from_items([{"k": "abc"[i % 3], "x": i, "y": float(i)} for i in range(30)])
    assert ds.groupby("k").count().take_all() == [{"k": k, "count()": 10} for k in "abc"]
    assert ds.groupby("k").sum("x").take_all() == [{"k": "abc"[i], "sum(x)": sum(range(i, 30, 3))} for i in range(3)]
    means = ds.groupby("k").mean().take_all()
    assert means[1] == {"k": "b", "mean(x)": 14.5, "mean(y)": 14.5}
    assert ds.groupby("k").std("x").take(1)[0]["std(x)"] == pytest.approx(numpy.std(range(0, 30, 3), ddof=1))
    assert ds.groupby(["k", "x"]).max("y").count() == 30
    with pytest.raises(ValueError, match="there is no column 'key'"):
        ds.groupby("key").count().take_all()
    with pytest.raises(NotImplementedError, match=r"GroupedData.aggregate\(\) of Ray Data"):
        ds.groupby("k").aggregate()


def test_a_function_has_each_group_whole(small_blocks):
    """Groups of very different sizes, in many blocks."""
    keys = numpy.random.default_rng(0).permutation(numpy.repeat(numpy.arange(20), numpy.arange(20) * 10))
    ds = data.from_numpy({"k": keys})
    assert ds.num_blocks() > 5
    made = ds.groupby("k").map_groups(lambda group: {"k": group["k"][:1], "n": [len(group["k"])]}).take_all()
    assert made == [{"k": k, "n": k * 10} for k in range(1, 20)]
    frames = ds.groupby("k").map_groups(lambda df: df.head(1), batch_format="pandas")
    assert ids(frames, "k") == list(range(1, 20))

    def broken(group):
        raise OSError("no")
    with pytest.raises(OSError, match=r"manta.data: in map_groups\(broken\), on rows of a group of 10 rows"):
        ds.groupby("k").map_groups(broken).take_all()


# ---- numbers ----

def test_numbers_of_columns():
    values = numpy.random.default_rng(1).normal(100, 3, size=1000)
    ds = data.from_numpy({"x": values, "n": numpy.arange(1000)})
    assert ds.sum("n") == 499500 and ds.min("n") == 0 and ds.max("n") == 999
    assert ds.mean("x") == pytest.approx(values.mean()) and ds.std("x") == pytest.approx(values.std(ddof=1))
    assert ds.std("x", ddof=0) == pytest.approx(values.std())
    assert ds.mean(["n"]) == {"mean(n)": 499.5} and set(ds.max()) == {"max(x)", "max(n)"}
    gaps = data.from_numpy({"x": numpy.array([1.0, math.nan, 3.0])})
    assert gaps.sum("x") == 4 and gaps.mean("x") == 2 and gaps.sum("x", ignore_nulls=False) is None
    assert data.from_items(["b", "a", "b"]).unique("item") == ["b", "a"] and data.from_items(["b", "a"]).min("item") == "a"
    with pytest.raises(ValueError, match="sum: there is no column 'm'"):
        ds.sum("m")
    with pytest.raises(TypeError, match="sum: column 'item' holds string, expected numbers"):
        data.from_items(["a"]).sum("item")


# ---- parts ----

def test_split_and_train_test_split():
    ds = data.range(103)
    parts = ds.split(4)
    assert [p.count() for p in parts] == [25, 26, 26, 26] and sum((ids(p) for p in parts), []) == list(range(103))
    assert [p.count() for p in ds.split(4, equal=True)] == [25] * 4
    learn, test = ds.train_test_split(0.2)
    assert ids(test) == list(range(83, 103)) and learn.count() == 83
    learn, test = ds.train_test_split(10, shuffle=True, seed=0)
    assert sorted(ids(learn) + ids(test)) == list(range(103)) and ids(test) != list(range(93, 103))
    with pytest.raises(ValueError, match="test_size is 1.5"):
        ds.train_test_split(1.5)


def read_at_once(shards, passes=1, batch_size=10):
    """What each shard gives in each pass, read by threads of their own."""
    out = [[] for _ in shards]

    def run(rank):
        for _ in range(passes):
            out[rank].append([int(x) for b in shards[rank].iter_batches(batch_size=batch_size) for x in b["id"]])
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(shards))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return out


def test_shards_of_known_rows_are_plans_of_their_own():
    shards = data.range(103).map(lambda row: {"id": row["id"] + 1}).streaming_split(4, equal=True)
    assert [s.count() for s in shards] == [25] * 4
    got = [[int(x) for b in s.iter_batches() for x in b["id"]] for s in shards]     # one after the other, and twice
    assert sum(got, []) == list(range(1, 101)) and got[1] == [row["id"] for row in shards[1].iter_rows()]


def test_shards_of_unknown_rows_are_equal_and_have_every_pass(small_blocks):
    ds = data.range(5003).filter(lambda row: row["id"] % 3 != 0)
    rows = [i for i in range(5003) if i % 3]
    out = read_at_once(ds.streaming_split(3, equal=True), passes=2)
    for number in range(2):
        got = [shard[number] for shard in out]
        assert [len(g) for g in got] == [len(rows) // 3] * 3
        together = sorted(sum(got, []))
        assert len(set(together)) == len(together) and set(together) <= set(rows)


def test_shards_that_need_not_be_equal_have_every_row(small_blocks):
    ds = data.range(3001).filter(lambda row: row["id"] % 2 == 0)
    out = read_at_once(ds.streaming_split(2))
    assert sorted(out[0][0] + out[1][0]) == list(range(0, 3001, 2))


def test_a_shard_that_leaves_early_holds_nobody_up(small_blocks):
    shards = data.range(20_000).filter(lambda row: True).streaming_split(2, equal=True)
    batches = shards[0].iter_batches(batch_size=5)
    got = []
    reader = threading.Thread(target=lambda: got.append(sum(len(b["id"]) for b in shards[1].iter_batches(batch_size=100))))
    reader.start()
    next(batches)
    batches.close()
    reader.join()
    assert got == [10_000]
    assert [len(r[0]) for r in read_at_once(shards)] == [10_000] * 2       # and the next pass is whole


def test_a_failure_reaches_every_shard(small_blocks):
    def broken(row):
        return 1 // (row["id"] - 900) < 5
    shards = data.range(5000).filter(broken).streaming_split(2, equal=True)
    errors = []

    def run(shard):
        try:
            list(shard.iter_batches())
        except ZeroDivisionError as e:
            errors.append("in filter(broken)" in str(e))
    threads = [threading.Thread(target=run, args=(shard,)) for shard in shards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [True, True]


# ---- training ----

def reports(result):
    return [json.loads(line)["metrics"] for line in (pathlib.Path(result.path) / "reports.jsonl").read_text().splitlines()]


def fit(loop, datasets, tmp_path, config=None, failures=0, **more):
    return DataParallelTrainer(loop, train_loop_config=config or {}, scaling_config=ScalingConfig(num_workers=2), datasets=datasets,
                               run_config=RunConfig(name="a", storage_path=tmp_path / "runs",
                                                    failure_config=FailureConfig(max_failures=failures)), **more).fit()


@pytest.mark.parametrize("is_known", [True, False])
def test_ranks_have_equally_many_batches(tmp_path, is_known):
    """Both processors are the ranks': the reading does not wait for one."""
    def loop(config):
        shard = train.get_dataset_shard("train")
        for epoch in range(2):
            sizes = [len(b["id"]) for b in shard.iter_batches(batch_size=16)]
            train.report({"sizes": sizes, "epoch": epoch})
    ds = data.range(101) if is_known else data.range(202).filter(lambda row: row["id"] % 2 == 0)
    assert [(m["epoch"], m["sizes"]) for m in sorted(reports(fit(loop, {"train": ds}, tmp_path)), key=lambda m: m["epoch"])] == \
        [(0, [16, 16, 16, 2])] * 2 + [(1, [16, 16, 16, 2])] * 2


def test_a_new_attempt_begins_with_the_first_row(tmp_path):
    def loop(config):
        rank = train.get_context().get_world_rank()
        shard = train.get_dataset_shard("train")
        seen = 0
        for batch in shard.iter_batches(batch_size=10):
            seen += len(batch["id"])
            if rank == 1 and seen == 100 and not os.path.exists(config["killed"]):
                open(config["killed"], "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
        train.report({"seen": seen})
    ds = data.range(4000).filter(lambda row: row["id"] % 2 == 0)
    result = fit(loop, {"train": ds}, tmp_path, {"killed": str(tmp_path / "killed")}, failures=1)
    assert [m["seen"] for m in reports(result)][-2:] == [1000, 1000] and (tmp_path / "killed").exists()


def test_a_dataset_that_is_not_split_is_whole_in_each_rank(tmp_path):
    def loop(config):
        train.report({"rows": train.get_dataset_shard("valid").count()})
    result = fit(loop, {"valid": data.range(30)}, tmp_path, dataset_config=train.DataConfig(datasets_to_split=[]))
    assert [m["rows"] for m in reports(result)] == [30, 30]


# ---- the alias ----

PROGRAM = """
import ray
import ray.data
import manta.data
from ray import train
from ray.data import Dataset
from ray.data.context import DataContext
from ray.train import ScalingConfig, RunConfig
from ray.train.data_parallel_trainer import DataParallelTrainer

assert ray.data.range is manta.data.range and Dataset is manta.data.Dataset


class Twice:
    def __call__(self, batch):
        return {"x": batch["id"] * 2}


def loop(config):
    for batch in train.get_dataset_shard("train").iter_batches(batch_size=10):
        train.report({"sum": int(batch["x"].sum())})


ray.init(num_cpus=2)
ds = ray.data.range(40).map_batches(Twice, concurrency=2)
print("TAKEN", ds.take(2), ds.random_shuffle().count())
result = DataParallelTrainer(loop, train_loop_config={}, datasets={"train": ds}, scaling_config=ScalingConfig(num_workers=2),
                             run_config=RunConfig(storage_path="runs")).fit()
print("REPORTS", len(result.history))
try:
    ray.data.range(3).map(lambda row: 1 // row["id"]).take_all()
except ray.exceptions.RayTaskError as e:
    print("RAISED", isinstance(e, ZeroDivisionError), "in map(<lambda>)" in str(e))
"""


def test_a_program_of_rays(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_python("-m", "manta", "run", tmp_path / "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith(("TAKEN", "REPORTS", "RAISED"))]
    assert lines == ["TAKEN [{'x': 0}, {'x': 2}] 40", "REPORTS 2", "RAISED True True"], done.stderr
