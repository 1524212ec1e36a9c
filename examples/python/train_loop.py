"""A training loop in two workers that one kill does not end: reports, checkpoints, and going on from the last."""
import json
import os
import signal
import tempfile
from typing import Any

import manta
from manta import train


def loop(config: dict[str, Any]) -> None:
    """Finds the minimum of (w - 3)^2; rank 1 is killed once on the way."""
    rank = train.get_context().get_world_rank()
    step, w = 0, 0.0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder, open(os.path.join(folder, "state.json")) as f:
            step, w = json.load(f)
    elif rank == 1 and not os.path.exists(config["killed"]):
        open(config["killed"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    for step in range(step, config["steps"]):
        w -= config["rate"] * 2 * (w - 3)
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "state.json"), "w") as f:
                json.dump([step + 1, w], f)
            train.report({"w": w}, checkpoint=train.Checkpoint.from_directory(folder) if rank == 0 else None)


def main() -> None:
    manta.init(num_cpus=2)
    with tempfile.TemporaryDirectory() as storage:
        trainer = train.DataParallelTrainer(
            loop, train_loop_config={"steps": 30, "rate": 0.1, "killed": os.path.join(storage, "killed")},
            scaling_config=train.ScalingConfig(num_workers=2),
            run_config=train.RunConfig(name="minimum", storage_path=storage,
                                       failure_config=train.FailureConfig(max_failures=-1),
                                       checkpoint_config=train.CheckpointConfig(num_to_keep=2)))
        result = trainer.fit()
        assert result.metrics is not None
        print(f"w: {result.metrics['w']:.2f}")
        print("checkpoints kept:", len(result.best_checkpoints))


if __name__ == "__main__":
    main()
