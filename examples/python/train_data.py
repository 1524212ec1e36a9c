"""A CSV file that streams to two workers: read, changed on the way, dealt in equal parts, and trained on."""
import os
import tempfile
from typing import Any

import numpy

import manta
import manta.data
from manta import train


class Scaler:
    """Runs in an actor of its own, and is constructed there once."""

    def __init__(self, largest: float) -> None:
        self.largest = largest

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"x": batch["x"] / self.largest, "y": batch["y"]}


def loop(config: dict[str, Any]) -> None:
    """Fits y = a x + b by gradient descent on this rank's rows."""
    shard = train.get_dataset_shard("train")
    a = b = 0.0
    for epoch in range(config["epochs"]):
        batches = 0
        for batch in shard.iter_batches(batch_size=50, local_shuffle_buffer_size=200, local_shuffle_seed=epoch):
            error = a * batch["x"] + b - batch["y"]
            a -= config["rate"] * float((error * batch["x"]).mean())
            b -= config["rate"] * float(error.mean())
            batches += 1
        train.report({"a": a, "b": b, "batches": batches})


def main() -> None:
    manta.init(num_cpus=2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "points.csv")
        with open(path, "w") as f:
            f.write("x,y,ok\n")
            for x in numpy.random.default_rng(0).permutation(2000):
                f.write(f"{x},{2 * x / 2000 - 1:.4f},{int(x % 10 != 0)}\n")
        ds = manta.data.read_csv(path).filter(lambda row: row["ok"] == 1)
        ds = ds.map_batches(Scaler, fn_constructor_args=(2000.0,), concurrency=1)
        print(ds.schema())
        trainer = train.DataParallelTrainer(
            loop, train_loop_config={"epochs": 8, "rate": 1.0}, datasets={"train": ds},
            scaling_config=train.ScalingConfig(num_workers=2), run_config=train.RunConfig(storage_path=folder))
        result = trainer.fit()
        assert result.metrics is not None
        print(f"a: {result.metrics['a']:.2f}, b: {result.metrics['b']:.2f}, batches of an epoch: {result.metrics['batches']}")


if __name__ == "__main__":
    main()
