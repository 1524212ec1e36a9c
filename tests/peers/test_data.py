"""manta.data with PyTorch, TensorFlow and Pillow: batches as their tensors, for loops and for model.fit()."""
import pathlib

import numpy
import pytest

import manta
import manta.data as data
from manta import train
from manta.train import DataParallelTrainer, RunConfig, ScalingConfig

pytestmark = pytest.mark.usefixtures("module_node")


def xy(n=100):
    x = numpy.arange(n, dtype="float32").reshape(n, 1) / n
    return data.from_numpy({"x": x, "y": 3 * x[:, 0] + 1})


def test_batches_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    batches = list(xy().iter_torch_batches(batch_size=32, dtypes={"y": torch.float64}))
    assert [len(b["x"]) for b in batches] == [32, 32, 32, 4]
    assert batches[0]["x"].dtype is torch.float32 and batches[0]["y"].dtype is torch.float64
    assert torch.allclose(torch.cat([b["x"][:, 0] for b in batches]), torch.arange(100) / 100)
    batches[0]["x"] += 1            # they are the loop's own
    assert list(data.range(4).iter_torch_batches(collate_fn=lambda b: b["id"].sum(), batch_size=2)) == [1, 5]
    with pytest.raises(TypeError, match="column 'item' holds string, of which PyTorch makes no tensor"):
        list(data.from_items(["a"]).iter_torch_batches())


def test_a_shard_trains_in_torch(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from manta.train.torch import TorchTrainer, prepare_model

    def loop(config):
        import torch
        torch.manual_seed(0)
        model = prepare_model(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        shard = train.get_dataset_shard("train")
        for _ in range(config["epochs"]):
            for batch in shard.iter_torch_batches(batch_size=8, local_shuffle_buffer_size=20):
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])
                loss.backward()
                optimizer.step()
        train.report({"loss": float(loss)})
    # 99 rows: one rank would have one more than the other, which it would wait for in the last step.
    ds = xy(101).filter(lambda row: row["y"] < 3.93)
    result = TorchTrainer(loop, train_loop_config={"epochs": 20}, datasets={"train": ds}, scaling_config=ScalingConfig(num_workers=2),
                          run_config=RunConfig(storage_path=tmp_path)).fit()
    assert result.metrics["loss"] < 0.01


def test_batches_of_tensorflow():
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    batches = list(xy().iter_tf_batches(batch_size=50, dtypes={"y": tensorflow.float64}))
    assert [b["x"].shape.as_list() for b in batches] == [[50, 1]] * 2 and batches[0]["y"].dtype == tensorflow.float64
    both = xy().to_tf("x", "y", batch_size=30)
    assert both.element_spec[0].shape.as_list() == [None, 1] and both.element_spec[1].dtype == tensorflow.float32
    for _ in range(2):              # each pass of it is one of ours
        assert [len(y) for _, y in both] == [30, 30, 30, 10]
    named = next(iter(xy().to_tf(["x"], ["y"], batch_size=2)))
    assert set(named[0]) == {"x"} and named[1]["y"].numpy().tolist() == [1.0, pytest.approx(1.03)]
    texts = data.from_items([{"s": "ä", "y": 1}]).to_tf("s", "y")
    assert next(iter(texts))[0].numpy().tolist() == ["ä".encode()]
    with pytest.raises(ValueError, match="to_tf: there is no column 'z'"):
        xy().to_tf("z", "y")


def test_a_shard_for_fit(tmp_path):
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")

    def loop(config):
        import keras
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.5), loss="mse")
        history = model.fit(train.get_dataset_shard("train").to_tf("x", "y", batch_size=8), epochs=10, verbose=0)
        train.report({"loss": history.history["loss"][-1]})
    ds = xy().filter(lambda row: True)
    result = DataParallelTrainer(loop, train_loop_config={}, datasets={"train": ds}, scaling_config=ScalingConfig(num_workers=2),
                                 run_config=RunConfig(storage_path=tmp_path)).fit()
    assert result.metrics["loss"] < 0.05


def test_images(tmp_path: pathlib.Path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    for i in range(3):
        image.fromarray(numpy.full((4, 6, 3), i, dtype="uint8")).save(tmp_path / f"{i}.png")
    assert data.read_images(tmp_path, size=(2, 3)).take_batch(3)["image"].shape == (3, 2, 3, 3)
