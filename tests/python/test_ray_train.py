"""manta.ray.train and manta.ray.air: Ray Train's names, also as `import ray` under `python -m manta run`."""
import json

import pytest
from conftest import run_python

from manta.train import DataParallelTrainer

PROGRAM = """
import ray
from ray import train
from ray.air import session, Checkpoint, RunConfig, ScalingConfig
from ray.train.data_parallel_trainer import DataParallelTrainer
import manta.ray.train, manta.train

assert ray.train is manta.ray.train and ray.air.session is session
assert train.Checkpoint is Checkpoint is manta.train.Checkpoint
assert train.report is manta.train.report


def loop(config):
    start = session.get_checkpoint().to_dict()["epoch"] + 1 if session.get_checkpoint() else 0
    for epoch in range(start, config["epochs"]):
        session.report({"epoch": epoch, "size": session.get_world_size()}, checkpoint=Checkpoint.from_dict({"epoch": epoch}))


def fit(epochs, **more):
    return DataParallelTrainer(loop, train_loop_config={"epochs": epochs}, scaling_config=ScalingConfig(num_workers=2),
                               run_config=RunConfig(storage_path="runs"), **more).fit()


ray.init(num_cpus=2)
first = fit(2)
second = fit(4, resume_from_checkpoint=first.checkpoint)
print("RESULT", __import__("json").dumps([first.metrics, second.metrics, len(second.history), second.checkpoint.to_dict()]))


def fails():
    raise ValueError("mine")


try:
    DataParallelTrainer(fails, run_config=RunConfig(storage_path="runs")).fit()
except ray.train.TrainingFailedError as e:
    assert isinstance(e.worker_failures[0], ValueError), e.worker_failures
    print("RAISED", "mine" in str(e))
"""


def test_a_program_of_rays(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    done = run_python("-m", "manta", "run", tmp_path / "program.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("RESULT ", "RAISED ")))
    assert json.loads(lines["RESULT"]) == [{"epoch": 1, "size": 2}, {"epoch": 3, "size": 2}, 2, {"epoch": 3}]
    assert lines["RAISED"] == "True"
    assert "manta: worker 0 failed" in done.stderr


def test_every_module_is_there():
    import importlib
    for name in ("train", "train.torch", "train.tensorflow", "train.tensorflow.keras", "train.base_trainer", "train.trainer",
                 "train.data_parallel_trainer", "train.backend", "train.context", "air", "air.session", "air.config",
                 "air.checkpoint", "air.result", "air.integrations.keras"):
        module = importlib.import_module("manta.ray." + name)
        for public in getattr(module, "__all__", ()):
            assert hasattr(module, public), (name, public)


def test_configurations_of_ray_air_are_of_the_first_version(monkeypatch):
    import pickle

    import manta.ray.air as air
    import manta.ray.train as train

    names = ("CheckpointConfig", "FailureConfig", "RunConfig", "ScalingConfig")
    for module in (air, air.config):
        assert [getattr(module, name) for name in names] == [getattr(train, name) for name in names]
    DataParallelTrainer(lambda: 0, scaling_config=air.ScalingConfig(), run_config=air.RunConfig(failure_config=air.FailureConfig()))
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
    for given, name in (({"scaling_config": air.ScalingConfig(num_workers=2)}, "ScalingConfig"), ({"run_config": air.RunConfig()}, "RunConfig"),
                        ({"run_config": train.RunConfig(failure_config=air.FailureConfig())}, "FailureConfig"),
                        ({"run_config": train.RunConfig(checkpoint_config=air.config.CheckpointConfig())}, "CheckpointConfig")):
        with pytest.raises(ValueError, match=f"is ray.air.{name}.*expected ray.train.{name}"):
            DataParallelTrainer(lambda: 0, **given)
    assert pickle.loads(pickle.dumps(air.ScalingConfig(num_workers=2))) == air.ScalingConfig(num_workers=2)
    DataParallelTrainer(lambda: 0, scaling_config=train.ScalingConfig(), run_config=train.RunConfig())


def test_no_host_is_taken_away(tmp_path):
    import pickle

    import manta
    from manta.ray import train

    def loop():
        told = train.get_preemption_info()
        return told is None and "val" in str(pytest.raises(KeyError, train.get_dataset_shard, "val").value)
    manta.init(num_cpus=1)
    try:
        result = DataParallelTrainer(loop, run_config=train.RunConfig(storage_path=tmp_path),
                                     datasets={train.TRAIN_DATASET_KEY: [1, 2]}).fit()
    finally:
        manta.shutdown()
    assert result.return_value is True
    with pytest.raises(RuntimeError, match="no loop runs in this process"):
        train.get_preemption_info()
    info = train.PreemptionInfo(deadline_ms=None, preempted_node_to_ranks={"b": [3, 1], "a": [1]})
    assert (info.preempted_node_ids, info.preempted_ranks) == (["a", "b"], [1, 3])
    error = pickle.loads(pickle.dumps(train.PreemptionError(info, drain_timed_out=True)))
    assert isinstance(error, train.TrainingFailedError) and error.preemption_info == info and error.drain_timed_out
    assert "ranks 1, 3" in str(error)
