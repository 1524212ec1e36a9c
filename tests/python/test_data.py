"""manta.data: sources, operations, iteration; what streams and how much of it is alive."""
import gc
import os
import signal

import numpy
import pandas
import pyarrow
import pytest
from conftest import run_python, until

import manta
import manta.data as data
from manta import _manta
from manta.data import DataContext

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 KiB, so that little data makes many."""
    monkeypatch.setattr(DataContext.get_current(), "target_max_block_size", 8 << 10)


def ids(ds, column="id"):
    return [row[column] for row in ds.take_all()]


# ---- sources ----

def test_items_are_rows_or_the_column_item():
    assert data.from_items([{"x": 1, "s": "a"}, {"x": 2, "s": "b"}]).take_all() == [{"x": 1, "s": "a"}, {"x": 2, "s": "b"}]
    assert data.from_items([3, 4]).take_all() == [{"item": 3}, {"item": 4}]
    assert data.from_items([]).take_all() == [] and data.from_items([]).schema() is None


def test_range_and_tensors():
    ds = data.range(100)
    assert ds.count() == 100 and ids(ds) == list(range(100)) and ds.columns() == ["id"]
    tensors = data.range_tensor(10, shape=(2, 3))
    assert tensors.take_batch(10)["data"].shape == (10, 2, 3)
    assert tensors.take(3)[2]["data"].tolist() == [[2, 2, 2], [2, 2, 2]]
    assert str(tensors.schema()).splitlines()[2].split() == ["data", "int64[2,", "3]"]


def test_arrays_frames_and_tables():
    x = numpy.arange(12, dtype="float32").reshape(6, 2)
    assert (data.from_numpy(x).take_batch(6)["data"] == x).all()
    both = data.from_numpy({"x": x, "y": numpy.arange(6)})
    assert both.count() == 6 and both.take(2)[1]["y"] == 1
    assert data.from_numpy([x, x]).num_blocks() == 2
    frame = pandas.DataFrame({"a": [1, 2], "s": ["x", "y"]})
    assert data.from_pandas(frame).take_all() == [{"a": 1, "s": "x"}, {"a": 2, "s": "y"}]
    assert data.from_pandas(frame).to_pandas().to_dict("list") == frame.to_dict("list")
    table = pyarrow.table({"a": [1, 2], "v": [[1.0, 2.0], [3.0, 4.0]]})
    assert data.from_arrow(table).take_batch(2)["v"].tolist() == [[1, 2], [3, 4]]


def test_what_cannot_be_a_source():
    with pytest.raises(ValueError, match=r"row 1 has the columns \['y'\], expected those of the first row"):
        data.from_items([{"x": 1}, {"y": 2}])
    with pytest.raises(ValueError, match="from_numpy: the columns have .* rows, expected equally many"):
        data.from_numpy({"x": numpy.arange(3), "y": numpy.arange(4)})
    with pytest.raises(ValueError, match="range: n is -1, expected a whole number from 0 on"):
        data.range(-1)
    with pytest.raises(TypeError, match="from_pandas expects a DataFrame, given list"):
        data.from_pandas([[1]])


# ---- operations ----

def test_rows_and_batches_in_order():
    ds = data.range(50)
    assert ids(ds.map(lambda row: {"x": row["id"] * 2}), "x") == list(range(0, 100, 2))
    assert ids(ds.filter(lambda row: row["id"] % 7 == 0)) == list(range(0, 50, 7))
    assert ids(ds.flat_map(lambda row: [row] * (row["id"] % 3))) == [i for i in range(50) for _ in range(i % 3)]
    assert ids(ds.map_batches(lambda b: {"id": b["id"] + 1})) == list(range(1, 51))
    assert ids(ds.map(lambda row: row).map_batches(lambda b: {"id": b["id"][::-1]}, batch_size=50)) == list(range(49, -1, -1))


def test_batches_have_the_size_and_format_that_was_asked_for():
    sizes = data.range(100, override_num_blocks=1).map_batches(lambda b: {"n": [len(b["id"])]}, batch_size=30).take_all()
    assert [row["n"] for row in sizes] == [30, 30, 30, 10]
    # Blocks that are smaller than a batch are put together.
    sizes = data.range(100, override_num_blocks=20).map_batches(lambda b: {"n": [len(b["id"])]}, batch_size=50).take_all()
    assert [row["n"] for row in sizes] == [50, 50]
    frames = data.range(4).map_batches(lambda df: df.assign(y=df["id"] + 1), batch_format="pandas")
    assert frames.take(1) == [{"id": 0, "y": 1}]
    tables = data.range(4).map_batches(lambda t: t.append_column("y", t["id"]), batch_format="pyarrow")
    assert tables.take(1) == [{"id": 0, "y": 0}]


def test_a_generator_gives_several_batches():
    def twice(batch):
        yield batch
        yield {"id": -batch["id"]}
    assert ids(data.range(3, override_num_blocks=1).map_batches(twice)) == [0, 1, 2, 0, -1, -2]


def test_arguments_of_functions():
    def add(batch, k, sign=1):
        return {"id": batch["id"] + sign * k}
    assert ids(data.range(3).map_batches(add, fn_args=(5,), fn_kwargs={"sign": -1})) == [-5, -4, -3]


def test_a_batch_may_be_written_to():
    def add(batch):
        batch["data"] += 1
        return batch
    assert ids(data.from_numpy(numpy.zeros(3)).map_batches(add), "data") == [1, 1, 1]
    for batch in data.from_numpy(numpy.zeros(3)).iter_batches():
        batch["data"] += 1


class Adder:
    """Adds how often it was constructed in its process, which is once."""
    made = 0

    def __init__(self, k, *, more=0):
        Adder.made += 1
        self.k = k + more

    def __call__(self, batch, scale=1):
        assert Adder.made == 1
        return {"id": (batch["id"] + self.k) * scale}


@pytest.mark.parametrize("concurrency", [None, 2, (1, 3)])
def test_a_class_is_a_pool_of_actors(concurrency):
    ds = data.range(200, override_num_blocks=20).map_batches(
        Adder, fn_constructor_args=(5,), fn_constructor_kwargs={"more": 1}, fn_kwargs={"scale": 2}, concurrency=concurrency)
    assert ids(ds) == [(i + 6) * 2 for i in range(200)]


def test_columns():
    ds = data.from_items([{"a": i, "b": i * 2} for i in range(5)])
    assert ds.select_columns(["b", "a"]).columns() == ["b", "a"]
    assert ds.drop_columns("a").take(1) == [{"b": 0}]
    assert ds.rename_columns({"a": "c"}).columns() == ["c", "b"]
    assert ds.rename_columns(["x", "y"]).columns() == ["x", "y"]
    assert ids(ds.add_column("s", lambda b: b["a"] + b["b"], batch_format="numpy"), "s") == [0, 3, 6, 9, 12]
    assert ids(ds.add_column("s", lambda df: df["a"] * 3), "s") == [0, 3, 6, 9, 12]


def test_texts_and_objects():
    ds = data.from_items(["a b", "c"]).flat_map(lambda row: [{"w": w, "list": [1] * len(w)} for w in row["item"].split()])
    assert ids(ds, "w") == ["a", "b", "c"]
    assert ds.schema().types == ["string", "int64"]
    uneven = data.from_items([{"v": numpy.arange(i)} for i in range(3)])
    assert [len(row["v"]) for row in uneven.map(lambda row: row).take_all()] == [0, 1, 2]


def test_limit_union_zip():
    ds = data.range(100)
    assert ids(ds.limit(7)) == list(range(7)) and ds.limit(7).count() == 7 and ids(ds.limit(0)) == []
    assert ids(ds.limit(30).map(lambda row: {"id": row["id"] + 1}).limit(2)) == [1, 2]
    assert ids(ds.limit(2).union(ds.limit(3))) == [0, 1, 0, 1, 2]
    other = data.range(100, override_num_blocks=3).map(lambda row: {"id": -row["id"], "y": 1})
    assert ds.zip(other).take_all()[99] == {"id": 99, "id_1": -99, "y": 1}
    with pytest.raises(ValueError, match="zip: one dataset has 100 rows and the other 5"):
        ds.zip(ds.limit(5)).take_all()


# ---- iteration ----

def test_iter_batches():
    ds = data.range(103)
    assert [len(b["id"]) for b in ds.iter_batches(batch_size=25)] == [25, 25, 25, 25, 3]
    assert [len(b["id"]) for b in ds.iter_batches(batch_size=25, drop_last=True)] == [25] * 4
    assert sum(len(b["id"]) for b in ds.iter_batches(batch_size=None)) == 103
    assert list(next(ds.iter_batches(batch_size=3, batch_format="pandas"))["id"]) == [0, 1, 2]
    assert next(ds.iter_batches(batch_size=3, batch_format="pyarrow")).num_rows == 3


def test_a_local_shuffle_has_every_row_once():
    ds = data.range(500)

    def order(seed):
        return [x for b in ds.iter_batches(batch_size=50, local_shuffle_buffer_size=200, local_shuffle_seed=seed) for x in b["id"]]
    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(500)) != order(1)


def test_looking(capsys):
    ds = data.from_items([{"x": 1.5, "s": "a"}] * 3)
    ds.show(1)
    assert capsys.readouterr().out == "{'x': 1.5, 's': 'a'}\n"
    assert (ds.schema().names, ds.schema().types) == (["x", "s"], ["float64", "string"])
    with pytest.raises(ValueError, match="more than 2 rows"):
        ds.take_all(limit=2)
    with pytest.raises(ValueError, match="no rows"):
        ds.limit(0).take_batch()
    mapped = ds.map(lambda row: row)
    assert mapped.stats() == "not executed yet"
    list(mapped.iter_rows())
    assert "map(<lambda>): 3 calls, 3 blocks, 3 rows" in mapped.stats()
    assert repr(mapped) == "Dataset(3 blocks -> map(<lambda>), rows=3)"
    assert "<li>map(&lt;lambda&gt;)</li>" in mapped._repr_html_()


def test_a_dataset_travels():
    @manta.remote
    def count(ds):
        return ds.count(), sum(len(b["id"]) for b in ds.iter_batches(batch_size=7))
    assert manta.get(count.remote(data.range(40).filter(lambda row: row["id"] < 30))) == (30, 30)


# ---- memory ----

FEW = 24        # of some 50 and 100 blocks: 4 in flight, those in the making, or being read


def alive():
    """Blocks of these tests in the store: what is as large as half of one."""
    return sum(o["size"] > 4 << 10 for o in _manta.view()["objects"])


def few_are_alive():
    """What was let go may still be there for a moment; what is held, or made ahead, stays as long as nobody reads on."""
    until(lambda: alive() <= FEW, f"an end of all but {FEW} blocks")


def test_few_blocks_are_alive_however_large_the_source_is(small_blocks, monkeypatch):
    monkeypatch.setattr(DataContext.get_current(), "blocks_in_flight", 4)
    ds = data.range(100_000).map_batches(lambda b: {"x": b["id"] * 2})
    assert ds._node.before.known_rows() == 100_000 and len(ds._node.before.pieces) > 90
    rows = 0
    for batch in ds.iter_batches(batch_size=1000):
        rows += len(batch["x"])
        few_are_alive()
    assert rows == 100_000


def test_a_file_of_many_blocks_streams(small_blocks, tmp_path, monkeypatch):
    monkeypatch.setattr(DataContext.get_current(), "blocks_in_flight", 4)
    path = tmp_path / "x.csv"
    path.write_text("a,b\n" + "".join(f"{i},{i / 2}\n" for i in range(40_000)))
    rows = 0
    for batch in data.read_csv(path).map_batches(lambda b: {"a": b["a"], "c": b["b"]}).iter_batches(batch_size=500):
        rows += len(batch["a"])
        few_are_alive()
    assert rows == 40_000


def test_blocks_are_gone_when_nobody_reads_any_more(small_blocks):
    batches = data.range(100_000).map_batches(lambda b: b).iter_batches(batch_size=10)
    next(batches)
    batches.close()
    gc.collect()                    # tests before this one may have left some in cycles
    until(lambda: alive() == 0, "the end of all blocks")


def test_a_block_that_grows_is_divided(small_blocks):
    ds = data.range(10, override_num_blocks=1).map_batches(lambda b: {"x": numpy.zeros((10, 1024))}).materialize()
    assert ds.num_blocks() == 10 and ds.count() == 10


# ---- failures ----

def test_what_a_function_raises_names_it():
    def broken(row):
        return {"x": 1 // (row["id"] - 3)}
    with pytest.raises(ZeroDivisionError) as info:
        data.range(8, override_num_blocks=2).map(broken).take_all()
    text = str(info.value)
    assert "return {\"x\": 1 // (row[\"id\"] - 3)}" in text
    assert "manta.data: in map(broken), on rows of range(8), rows 0 to 4" in text


def die_once(path):
    """Kills this process, unless one has died before."""
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def test_rows_come_once_when_a_worker_dies(small_blocks, tmp_path):
    """It dies in the middle of a file, of which some blocks were taken, perhaps."""
    (tmp_path / "csv").mkdir()
    for k in range(5):
        (tmp_path / "csv" / f"{k}.csv").write_text("id\n" + "".join(f"{i}\n" for i in range(k * 3000, (k + 1) * 3000)))

    def kill(row):
        if row["id"] == 5000:
            die_once(tmp_path / "killed")
        return row
    assert ids(data.read_csv(tmp_path / "csv").map(kill)) == list(range(15_000)) and (tmp_path / "killed").exists()


class Mortal:
    def __init__(self, path):
        self.path = path

    def __call__(self, batch):
        if 700 in batch["id"]:
            die_once(self.path)
        return batch


def test_an_actor_of_a_pool_that_dies_is_replaced(tmp_path):
    ds = data.range(1000, override_num_blocks=10).map_batches(Mortal, fn_constructor_args=(tmp_path / "killed",))
    assert ids(ds) == list(range(1000)) and (tmp_path / "killed").exists()


class Refuses:
    def __init__(self):
        raise OSError("no model here")

    def __call__(self, batch):
        return batch


def test_what_a_constructor_raises_is_told():
    with pytest.raises(Exception, match="no model here"):
        data.range(4).map_batches(Refuses).take_all()


@pytest.mark.parametrize("make, sentence", [
    (lambda ds: ds.map(lambda row: 1), r"map\(<lambda>\) returned int, expected a dictionary of values by column"),
    (lambda ds: ds.flat_map(lambda row: row), r"flat_map\(<lambda>\) returned dict, expected a list of rows"),
    (lambda ds: ds.map_batches(lambda b: b["id"]), r"map_batches\(<lambda>\) returned ndarray, expected a dictionary of arrays"),
    (lambda ds: ds.map_batches(lambda b: {"a": [1], "b": [1, 2]}), r"the columns have \{'a': 1, 'b': 2\} rows, expected equally many"),
    (lambda ds: ds.map_batches(lambda b: {"a": 1}), "column 'a' is one int64, expected an array"),
    (lambda ds: ds.select_columns("idd"), "there is no column 'idd'; did you mean 'id'"),
    (lambda ds: ds.sort("it"), "there is no column 'it'"),
])
def test_bad_results_get_a_sentence(make, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make(data.range(5)).take_all()


@pytest.mark.parametrize("make, sentence", [
    (lambda ds: ds.map_batches(lambda b: b, batch_size=-1), "map_batches: batch_size is -1, expected a whole number from 1 on"),
    (lambda ds: ds.map_batches(lambda b: b, batch_format="panda"), "batch_format is 'panda', .*did you mean 'pandas'"),
    (lambda ds: ds.map_batches(3), "the function is int, expected a function or a class"),
    (lambda ds: ds.map_batches(object), "the class object has no __call__"),
    (lambda ds: ds.map_batches(lambda b: b, fn_constructor_args=(1,)), "fn_constructor_args are for a class"),
    (lambda ds: ds.map_batches(lambda b: b, num_cpu=1), "there is no option 'num_cpu'; did you mean 'num_cpus'"),
    (lambda ds: ds.map_batches(Adder, concurrency=0), "concurrency is 0"),
    (lambda ds: ds.iter_batches(batch_size=0), "iter_batches: batch_size is 0"),
    (lambda ds: ds.limit(-2), "limit: limit is -2"),
    (lambda ds: ds.union(3), "union expects a Dataset, given int"),
    (lambda ds: ds.drop_columns([]), "drop_columns: the columns are"),
])
def test_bad_arguments_are_refused_where_they_are_given(make, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        make(data.range(5))


def test_what_is_not_here_names_itself():
    with pytest.raises(NotImplementedError, match=r"Dataset.to_dask\(\) of Ray Data is not part of manta.data"):
        data.range(3).to_dask()
    with pytest.raises(NotImplementedError, match="ray.data.read_sql is not part of manta.data"):
        data.read_sql
    with pytest.raises(AttributeError, match="did you mean 'take_batch'"):
        data.range(3).takebatch
    with pytest.raises(AttributeError, match="did you mean 'read_csv'"):
        data.read_cvs


def test_packages_are_imported_when_they_are_asked_for():
    done = run_python("-c", "import sys, manta, manta.train; assert 'numpy' not in sys.modules\n"
                            "import manta.data as d; d.range(3).take_all()\n"
                            "print(sorted({'pandas', 'pyarrow', 'torch', 'tensorflow', 'PIL'} & set(sys.modules)))")
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_package_that_is_missing_is_named():
    done = run_python("-c", "import sys; sys.modules['torch'] = None\nimport manta.data as d\n"
                            "try: d.range(3).iter_torch_batches()\nexcept ImportError as e: print(e)")
    assert done.stdout == "iter_torch_batches needs the package torch, which is not installed: pip install torch\n", done.stderr
