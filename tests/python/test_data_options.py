"""manta.data: options of executions, values that travel with them, files in random order, preprocessors."""
import numpy
import pytest

import manta
from manta import data, train
from manta.data import DataContext, ExecutionOptions, ExecutionResources, FileShuffleConfig
from manta.data.preprocessor import Concatenator, Preprocessor
from manta.train import DataConfig, DataParallelTrainer, RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture(autouse=True)
def same_context():
    """The context is after a test what it was before."""
    before = DataContext.get_current().copy()
    yield
    DataContext._set_current(before)


@pytest.fixture
def fit(tmp_path):
    """Trains a loop in two workers, in a storage of the test's own; what rank 0's loop returned."""
    def run(loop, datasets, config=None):
        return DataParallelTrainer(loop, datasets=datasets, dataset_config=config, scaling_config=ScalingConfig(num_workers=2),
                                   run_config=RunConfig(storage_path=tmp_path / "runs")).fit().return_value
    return run


# ---- options ----

def test_options_are_compared_by_what_they_say():
    assert ExecutionResources() == ExecutionResources.zero() != ExecutionResources.for_limits()
    assert ExecutionResources.for_limits(cpu=2).copy(gpu=1) == ExecutionResources.for_limits(cpu=2, gpu=1)
    assert ExecutionOptions().is_resource_limits_default()
    assert not ExecutionOptions(resource_limits=ExecutionResources.for_limits(cpu=1)).is_resource_limits_default()
    with pytest.raises(ValueError, match="resource_limits"):
        ExecutionOptions(resource_limits=2)


def test_a_limit_of_processors_is_kept():
    context = DataContext.get_current()
    assert context.most_at_once(8) == 8
    context.execution_options.resource_limits = ExecutionResources.for_limits(cpu=3)
    assert context.most_at_once(8) == 3 and context.most_at_once(2) == 2
    ds = data.range(10)
    context.execution_options.resource_limits = ExecutionResources.for_limits()
    assert ds.context.most_at_once(8) == 3 and ds.count() == 10         # it has a copy


def test_options_by_dataset_reach_the_loops(fit):
    context = DataContext.get_current()
    context.execution_options.verbose_progress = True
    config = DataConfig(datasets_to_split=["a"], execution_options={
        "a": ExecutionOptions(resource_limits=ExecutionResources.for_limits(cpu=1))})

    def loop():
        a, b = (train.get_dataset_shard(name) for name in "ab")
        options = [s.get_context().execution_options for s in (a, b)]
        return [options[0].resource_limits.cpu, options[1].is_resource_limits_default(), options[1].verbose_progress,
                sum(1 for _ in a.iter_rows()), sum(1 for _ in b.iter_rows())]
    assert fit(loop, {"a": data.range(10), "b": data.range(10)}, config) == [1, True, True, 5, 10]


def test_values_of_the_context_reach_the_loops(fit):
    DataContext.get_current().set_config("folder", "/data")
    assert fit(lambda: DataContext.get_current().get_config("folder"), {"a": data.range(2)}) == "/data"
    DataContext.get_current().remove_config("folder")
    assert DataContext.get_current().get_config("folder", 3) == 3


def test_a_class_of_ones_own_divides_as_it_likes(fit):
    class Halves(DataConfig):
        def configure(self, datasets, world_size, **more):
            return [{"a": datasets["a"].limit(3 + rank)} for rank in range(world_size)]
    assert fit(lambda: train.get_dataset_shard("a").count(), {"a": data.range(100)}, Halves()) == 3
    with pytest.raises(TypeError, match="datasets_to_split"):
        DataConfig(datasets_to_split={})


# ---- files in random order ----

@pytest.fixture
def files(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for i in range(6):
        parquet.write_table(pyarrow.table({"file": [i, i], "row": [2 * i, 2 * i + 1]}), tmp_path / f"{i}.parquet")
    return tmp_path


def orders(ds, n=4):
    return [[row["row"] for row in ds.iter_rows()] for _ in range(n)]


def test_files_are_read_in_an_order_of_the_seed_and_the_execution(files):
    made = [orders(data.read_parquet(files, shuffle=FileShuffleConfig(seed=42))) for _ in range(2)]
    assert made[0] == made[1] and len({tuple(o) for o in made[0]}) > 1
    for order in made[0]:
        assert sorted(order) == list(range(12)) and all(b == a + 1 for a, b in zip(order[::2], order[1::2]))    # files stay whole
    same = orders(data.read_parquet(files, shuffle=FileShuffleConfig(seed=42, reseed_after_execution=False)))
    assert all(o == same[0] for o in same)
    assert len({tuple(o) for o in orders(data.read_parquet(files, shuffle="files"), 8)}) > 1
    with pytest.raises(ValueError, match="FileShuffleConfig"):
        data.read_parquet(files, shuffle=3)


def test_ranks_read_shuffled_files_in_equal_parts(files, fit):
    def loop():
        shard = train.get_dataset_shard("a")
        return [[row["row"] for row in shard.iter_rows()] for _ in range(3)]
    made = fit(loop, {"a": data.read_parquet(files, shuffle=FileShuffleConfig(seed=1))})
    assert [len(o) for o in made] == [6, 6, 6] and len({tuple(o) for o in made}) > 1


# ---- preprocessors ----

class Scale(Preprocessor):
    def _fit(self, dataset):
        self.most = dataset.max("x")

    def _transform_numpy(self, batch):
        return {**batch, "x": batch["x"] / self.most}


class Named(Preprocessor):
    def _transform_pandas(self, frame):
        return frame.rename(columns={"x": "y"})


def test_a_preprocessor_learns_and_transforms():
    ds = data.from_items([{"x": float(i)} for i in range(5)])
    with pytest.raises(RuntimeError, match="not fitted"):
        Scale().transform(ds)
    scale = Scale()
    assert [row["x"] for row in scale.fit_transform(ds).take_all()] == [0, 0.25, 0.5, 0.75, 1]
    assert scale.transform_batch({"x": numpy.array([8.0])})["x"].tolist() == [2]


def test_a_preprocessor_of_frames():
    pandas = pytest.importorskip("pandas")
    ds = data.from_items([{"x": 1}])
    assert Named().transform(ds).take_all() == [{"y": 1}]
    assert list(Named().transform_batch(pandas.DataFrame({"x": [1]}))) == ["y"] and list(Named().transform_batch({"x": [1]})) == ["y"]


def test_columns_become_one():
    ds = data.from_items([{"a": 1, "b": 2.5, "c": 3}])
    row, = Concatenator(["a", "b"], output_column_name="x", dtype="float32").transform(ds).take_all()
    assert row["c"] == 3 and row["x"].tolist() == [1, 2.5] and row["x"].dtype == numpy.float32 and "a" not in row
    with pytest.raises(ValueError, match="no column d"):
        Concatenator(["a", "d"]).transform_batch({"a": numpy.array([1])})
    with pytest.raises(ValueError, match="list of names"):
        Concatenator("ab")
