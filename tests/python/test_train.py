"""manta.train: reports, checkpoints, results, failures, with loops that need no framework."""
import functools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import warnings

import pytest
from conftest import DEADLINE_S, run_python, until

import manta
from manta import train
from manta.train import (Backend, BackendConfig, Checkpoint, CheckpointConfig, DataParallelTrainer, FailureConfig, Result,
                         RunConfig, ScalingConfig, TrainingFailedError, UnequalReportsError, WorkerGroupError)

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture
def fit(tmp_path):
    """Trains a loop in two workers, in a storage of the test's own."""
    def run(loop, config=None, workers=2, failures=0, keep=None, score=None, order="max", name="a", **more):
        return DataParallelTrainer(
            loop, train_loop_config=config, scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name=name, storage_path=tmp_path / "runs",
                                 failure_config=FailureConfig(max_failures=failures),
                                 checkpoint_config=CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute=score,
                                                                    checkpoint_score_order=order)), **more).fit()
    return run


def save(values, name="state.json"):
    """A checkpoint with a file, in a folder that goes with this process."""
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, name), "w") as f:
        json.dump(values, f)
    return Checkpoint.from_directory(folder)


def read(checkpoint, name="state.json"):
    with checkpoint.as_directory() as folder, open(os.path.join(folder, name)) as f:
        return json.load(f)


# ---- reports and results ----

def test_metrics_without_checkpoints_are_all_there(fit, tmp_path):
    def loop(config):
        for i in range(config["n"]):
            train.report({"i": i, "name": f"step {i}", "rank": train.get_context().get_world_rank()})
    result = fit(loop, {"n": 50})
    assert [m["i"] for m in result.history] == list(range(50))
    assert result.metrics == {"i": 49, "name": "step 49", "rank": 0}
    assert result.checkpoint is None and result.error is None
    lines = [json.loads(x) for x in (pathlib.Path(result.path) / "metrics.jsonl").read_text().splitlines()]
    assert [x["metrics"]["i"] for x in lines if x["rank"] == 1] == list(range(50))
    again = Result.from_path(result.path)
    assert again.metrics == result.metrics and again.history == result.history


def test_names_of_metrics_that_no_curve_can_have(fit):
    names = ["é" * 40, "a\0b", "\ud800"]

    def loop():
        train.report({name: 1 for name in names})
    result = fit(loop, workers=1)
    assert list(result.metrics) == names
    line = json.loads((pathlib.Path(result.path) / "metrics.jsonl").read_text())
    assert list(line["metrics"]) == ["é" * 31, "a?b", "?"]


def test_a_report_before_a_kill_is_there(fit):
    """The rank dies with its report just sent, and no other one after it."""
    def loop():
        train.report({"x": 1.5})
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(WorkerGroupError) as e:
        fit(loop, workers=1)
    assert e.value.result.metrics == {"x": 1.5}


def test_context_and_what_a_loop_returns(fit):
    def loop():
        c = train.get_context()
        train.report({"rank": c.get_world_rank(), "size": c.get_world_size(), "local": c.get_local_rank(),
                      "name": c.get_experiment_name(), "dir": c.get_trial_dir()})
        return {"rank": c.get_world_rank()}
    result = fit(loop)
    assert result.metrics == {"rank": 0, "size": 2, "local": 0, "name": "a", "dir": result.path}
    assert result.return_value == {"rank": 0}


def test_loops_in_this_process(fit):
    """num_workers=0: breakpoints stop in the loop, and what it raises is raised as it is."""
    seen = []

    def loop(config):
        seen.append(os.getpid())
        train.report({"x": config["x"]}, checkpoint=save({"a": 1}))
    result = fit(loop, {"x": 3}, workers=0)
    assert seen == [os.getpid()] and result.metrics == {"x": 3} and read(result.checkpoint) == {"a": 1}

    def fails():
        raise KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        fit(fails, workers=0, name="b")


def test_unequal_numbers_of_reports_are_told_at_the_end(fit):
    """No rank waits for another, not even in its third checkpoint; the end names who has reported less often."""
    def loop():
        rank = train.get_context().get_world_rank()
        for i in range(5 if rank == 0 else 2):
            train.report({"i": i}, checkpoint=save({"i": i}))
    with pytest.raises(UnequalReportsError, match="rank 0 5, rank 1 2") as e:
        fit(loop)
    assert e.value.result.metrics == {"i": 4}
    assert read(e.value.result.checkpoint) == {"i": 4}


def test_only_rank_0_reports_and_the_others_wait_for_it(fit, tmp_path):
    """Rank 1 waits for rank 0 to get through five checkpoints, as in a collective."""
    def loop(config):
        done = pathlib.Path(config["done"])
        if train.get_context().get_world_rank() == 0:
            for i in range(5):
                train.report({"i": i}, checkpoint=save({"i": i}))
            done.touch()
        else:
            until(done.exists)
    with pytest.raises(UnequalReportsError, match="rank 0 5, rank 1 0"):
        fit(loop, {"done": str(tmp_path / "done")})


def test_a_rank_is_told_only_what_it_asked_for(tmp_path):
    """One that never reports a checkpoint reads nothing: its socket would fill, and the driver wait for it."""
    from manta import _manta
    from manta.train._record import Record
    told = []
    record = Record(_manta.Run(None, str(tmp_path), "a", None, False, None, 0, None, None))
    parts = pathlib.Path(record.begin_attempt(2, 0, lambda *message: told.append(message)))
    for i in range(3):
        (parts / f"round-{i}.rank-0").mkdir()
        record.heard(0, ("report", pickle.dumps({}), str(parts / f"round-{i}.rank-0"), None, None, None))
        record.heard(1, ("report", pickle.dumps({}), None, None, None, None))
    record.flush()
    record.heard(1, ("latest", 7))
    record.close()
    assert told == [(0, "written")] * 3 + [(1, "latest", 7, record.start.path)] and len(record.checkpoints) == 3


def test_what_cannot_be_reported_is_refused_in_words(fit):
    def loop():
        for metrics, checkpoint, text in (([1], None, "expected a dictionary"),
                                          ({}, "/tmp/x", "expected manta.train.Checkpoint"),
                                          ({}, Checkpoint("/nowhere/at/all"), "no such folder"),
                                          ({}, Checkpoint(train.get_context().get_trial_dir()), "folder of this run in it")):
            with pytest.raises((TypeError, FileNotFoundError, ValueError), match=text):
                train.report(metrics, checkpoint)
        train.report({"fine": 1})
    assert fit(loop, workers=1).metrics == {"fine": 1}


def test_calls_outside_of_loops_are_refused():
    for call in (lambda: train.report({}), train.get_checkpoint, train.get_context, train.get_dataset_shard):
        with pytest.raises(RuntimeError, match="no loop runs in this process"):
            call()


# ---- checkpoints ----

def test_folders_of_all_ranks_become_one_and_stay_where_they_are(fit, tmp_path):
    def loop(config):
        rank = train.get_context().get_world_rank()
        folder = pathlib.Path(config["at"]) / f"mine-{rank}"
        (folder / "inner").mkdir(parents=True)
        (folder / f"rank-{rank}").write_text("r")
        (folder / "same").write_text(str(rank))
        (folder / "inner" / "manifest.json").write_text("{}")
        train.report({"x": 1}, checkpoint=Checkpoint.from_directory(folder))
        assert (folder / "same").read_text() == str(rank)
        (folder / "same").write_text("written again")       # no link to what was reported
    result = fit(loop, {"at": str(tmp_path)})
    files = {str(p.relative_to(result.checkpoint.path)) for p in pathlib.Path(result.checkpoint.path).rglob("*")}
    assert files == {"inner", "inner/manifest.json", "rank-0", "rank-1", "same"}
    assert (pathlib.Path(result.checkpoint.path) / "same").read_text() == "0"
    for rank in (0, 1):
        assert (tmp_path / f"mine-{rank}" / "same").read_text() == "written again"


def test_the_best_and_the_latest_are_kept(fit):
    def loop():
        for i, score in enumerate((1, 5, 3, 2)):
            train.report({"score": score, "i": i}, checkpoint=save({"i": i}))
    result = fit(loop, workers=1, keep=2, score="score")
    assert [m["i"] for _, m in result.best_checkpoints] == [1, 2, 3]
    assert read(result.get_best_checkpoint("score", "max")) == {"i": 1}
    assert read(result.get_best_checkpoint("score", "min")) == read(result.checkpoint) == {"i": 3}
    again = Result.from_path(result.path)
    assert [m for _, m in again.best_checkpoints] == [m for _, m in result.best_checkpoints]
    assert again.checkpoint == result.checkpoint


def test_names_and_metadata_of_checkpoints(fit):
    def loop():
        checkpoint = save({})
        checkpoint.set_metadata({"model": "m"})
        checkpoint.update_metadata({"epoch": 1})
        train.report({}, checkpoint=checkpoint, checkpoint_dir_name="mine")
        train.report({}, checkpoint=Checkpoint.from_dict({"epoch": 2, "w": (1, 2)}))
    result = fit(loop, workers=1)
    first, second = (c for c, _ in result.best_checkpoints)
    assert pathlib.Path(first.path).name == "mine" and first.get_metadata() == {"model": "m", "epoch": 1}
    assert pathlib.Path(second.path).name == "checkpoint_000001"
    assert second.to_dict() == {"epoch": 2, "w": (1, 2)}
    with pytest.raises(ValueError, match="from_dict"):
        first.to_dict()
    folder = first.to_directory()
    assert sorted(os.listdir(folder)) == [".metadata.json", "state.json"]


def test_of_the_temporary_root_only_what_the_loop_wrote_is_taken(fit, tmp_path):
    """Everything that was there stays, and only the file that changed since the loop began is copied."""
    root = tmp_path / "tmp"
    (root / "others").mkdir(parents=True)
    (root / "old").write_text("old")
    os.utime(root / "old", (1, 1))
    (root / "others" / "file").write_text("theirs")

    def loop(config):
        tempfile.tempdir = config["root"]
        with open(os.path.join(tempfile.gettempdir(), "model.checkpoint"), "w") as f:
            f.write("mine")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            train.report({}, checkpoint=Checkpoint.from_directory(tempfile.gettempdir()))
        train.report({"told": str(told[0].message)})
    result = fit(loop, {"root": str(root)})
    assert os.listdir(result.checkpoint.path) == ["model.checkpoint"]
    assert "everybody's temporary files" in result.metrics["told"] and "model.checkpoint" in result.metrics["told"]
    assert (root / "old").read_text() == "old" and (root / "others" / "file").read_text() == "theirs"
    assert (root / "model.checkpoint").read_text() == "mine"


def test_a_file_that_is_being_written_is_not_taken_half(tmp_path, monkeypatch):
    from manta.train import _copy
    (tmp_path / "a").write_text("whole")
    out = tmp_path / "out"
    out.mkdir()
    with open(tmp_path / "a", "a"):
        assert not _copy._copy_leased(str(tmp_path / "a"), str(out / "a"))
    assert _copy._copy_leased(str(tmp_path / "a"), str(out / "a")) and (out / "a").read_text() == "whole"


def test_a_link_to_nowhere_is_refused(fit):
    def loop():
        checkpoint = save({})
        os.symlink("/nowhere/at/all", os.path.join(checkpoint.path, "link"))
        with pytest.raises(FileNotFoundError, match="link to what is not there"):
            train.report({}, checkpoint=checkpoint)
        os.unlink(os.path.join(checkpoint.path, "link"))
        train.report({"fine": 1}, checkpoint=checkpoint)
    result = fit(loop, workers=1)
    assert result.history == [{"fine": 1}] and read(result.checkpoint) == {}


# ---- failures ----

def epochs(config):
    """Goes on from its checkpoint; rank 1 kills itself once in epoch 2."""
    start, checkpoint = 0, train.get_checkpoint()
    if checkpoint:
        start = read(checkpoint)["epoch"] + 1
    for epoch in range(start, config["epochs"]):
        flag = pathlib.Path(config["flag"])
        if epoch == 2 and train.get_context().get_world_rank() == 1 and not flag.exists():
            until(lambda: (train.get_checkpoint() and read(train.get_checkpoint())["epoch"] == 1))
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        train.report({"epoch": epoch, "start": start}, checkpoint=save({"epoch": epoch}))


def test_a_killed_rank_begins_again_from_the_last_checkpoint(fit, tmp_path, capfd):
    result = fit(epochs, {"epochs": 4, "flag": str(tmp_path / "flag")}, failures=1)
    assert result.metrics == {"epoch": 3, "start": 2} and read(result.checkpoint) == {"epoch": 3}
    told = capfd.readouterr().err
    assert "manta: worker 1 failed" in told and "killed by signal 9" in told
    assert "all ranks begin again from checkpoint_000001; failure 1 of 1" in told
    assert "worker 0 failed" not in told
    log = (pathlib.Path(result.path) / "log" / "rank-1.txt").read_text()
    assert "killed by signal 9" in log


def test_what_a_loop_raises_names_its_rank(fit, capfd):
    def loop():
        print("said by", train.get_context().get_world_rank())
        if train.get_context().get_world_rank() == 1:
            raise ValueError("of the loop")
    with pytest.raises(WorkerGroupError, match="worker 1 failed") as e:
        fit(loop)
    assert list(e.value.worker_failures) == [1] and isinstance(e.value.worker_failures[1], ValueError)
    told = capfd.readouterr().err
    assert "ValueError: of the loop" in told and "in loop" in told and told.count("worker 1 failed") == 1
    assert "_rank.py" not in told
    assert "said by 1" in (pathlib.Path(e.value.result.path) / "log" / "rank-1.txt").read_text()
    assert isinstance(Result.from_path(e.value.result.path).error, TrainingFailedError)


class Missing(Backend, BackendConfig):
    """A framework that cannot be started."""

    def make_backend(self):
        return self

    def start(self, place):
        raise ImportError("the framework is not here")


def test_a_loop_does_not_run_without_its_framework(fit, capfd):
    def loop():
        train.report({"ran": 1})
    with pytest.raises(WorkerGroupError, match="the framework is not here") as e:
        fit(loop, workers=1, backend_config=Missing())
    assert e.value.result.metrics is None and isinstance(e.value.worker_failures[0], ImportError)
    assert "before its loop began" in capfd.readouterr().err


def test_a_death_is_not_told_as_the_failure_of_who_noticed_it(fit, tmp_path, monkeypatch):
    """Rank 0 raises when it sees that rank 1 is gone, which may be known sooner than the death itself."""
    monkeypatch.setattr("manta.train._controller.DEATHS_S", DEADLINE_S)     # a node on a busy machine may need more than a second
    def loop(config):
        at = pathlib.Path(config["at"])
        if train.get_context().get_world_rank() == 1:
            at.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        pid = until(lambda: at.exists() and at.read_text())
        until(lambda: not os.path.exists(f"/proc/{pid}"))
        raise RuntimeError("the other one is gone")
    with pytest.raises(WorkerGroupError, match="worker 1 failed") as e:
        fit(loop, {"at": str(tmp_path / "pid")})
    assert "worker 0" not in str(e.value)


def test_restore_goes_on_in_the_same_folder(fit, tmp_path):
    with pytest.raises(WorkerGroupError) as e:
        fit(epochs, {"epochs": 4, "flag": str(tmp_path / "flag")})
    path = e.value.result.path
    assert DataParallelTrainer.can_restore(path)
    result = DataParallelTrainer.restore(path).fit()
    assert result.path == path and result.metrics == {"epoch": 3, "start": 2}
    assert [m["epoch"] for m in result.history][:2] == [0, 1] and len(result.best_checkpoints) == 4
    lines = [json.loads(x) for x in (pathlib.Path(path) / "metrics.jsonl").read_text().splitlines()]
    assert [x["step"] for x in lines if x["rank"] == 1] == [1, 2, 3, 4]
    again = Result.from_path(path)
    assert again.history == result.history and [m["epoch"] for _, m in again.best_checkpoints] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="ended well"):
        DataParallelTrainer.restore(path)
    with pytest.raises(ValueError, match="no run"):
        DataParallelTrainer.restore(tmp_path)


def test_what_cannot_be_kept_for_restore_is_no_failure(tmp_path):
    """A local class of the trainer, a lock in the configuration: only restore() needs them."""
    class Mine(DataParallelTrainer):
        pass

    def loop(config):
        train.report({"x": 1})
        raise ValueError("once")
    with pytest.raises(WorkerGroupError) as e:
        Mine(loop, run_config=RunConfig(storage_path=tmp_path, logging_config=threading.Lock())).fit()
    until(lambda: manta._core.node_info()["available"]["cpu"] == 2, "the processors")
    path = e.value.result.path
    with pytest.raises(ValueError, match="run_config of this run could not be kept"):
        Mine.restore(path)
    assert type(Mine.restore(path, run_config=RunConfig(storage_path=tmp_path))) is Mine


def test_a_half_written_checkpoint_is_not_taken_up(fit, tmp_path):
    """What a killed driver leaves, a copy that was no checkpoint yet and a damaged one, is passed over."""
    with pytest.raises(WorkerGroupError) as e:
        fit(epochs, {"epochs": 4, "flag": str(tmp_path / "flag")})
    run = pathlib.Path(e.value.result.path)
    left = run / ".parts.1.0" / "round-9.rank-0"
    left.mkdir(parents=True)
    (left / "state.json").write_text("{")
    (run / "checkpoints" / "checkpoint-000002" / "checkpoint_000001" / "state.json").write_text("{")
    result = DataParallelTrainer.restore(run).fit()
    assert result.metrics == {"epoch": 3, "start": 1} and not left.exists()


STOPPED = """
import sys, time
from manta import train

def loop():
    checkpoint = train.get_checkpoint()
    if checkpoint:
        return train.report({"from": checkpoint.to_dict()["x"]})
    train.report({"x": 1}, checkpoint=train.Checkpoint.from_dict({"x": 1}))
    while train.get_checkpoint() is None:
        time.sleep(0.005)
    print("ready", flush=True)
    time.sleep(600)

if __name__ == "__main__":
    train.DataParallelTrainer(loop, run_config=train.RunConfig(name="a", storage_path="runs")).fit()
"""


@pytest.mark.parametrize("number, status", [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 75)])
def test_a_run_that_is_stopped_goes_on(tmp_path, number, status):
    (tmp_path / "program.py").write_text(STOPPED)
    program = subprocess.Popen([sys.executable, tmp_path / "program.py"], cwd=tmp_path, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert "ready" in program.stdout.readline()
    program.send_signal(number)
    _, told = program.communicate(timeout=DEADLINE_S)
    assert program.returncode == status, told
    assert json.loads((tmp_path / "runs" / "a" / "result.json").read_text())["status"] == "interrupted"
    assert not list((tmp_path / "runs" / "a").glob(".parts.*"))
    assert DataParallelTrainer.restore(tmp_path / "runs" / "a").fit().metrics == {"from": 1}


def test_resuming_from_a_checkpoint_of_another_run(fit, tmp_path):
    first = fit(epochs, {"epochs": 2, "flag": str(tmp_path / "none")})
    second = fit(epochs, {"epochs": 4, "flag": str(tmp_path)}, name="b", resume_from_checkpoint=first.checkpoint)
    assert second.metrics == {"epoch": 3, "start": 2}


def test_a_name_that_is_done_gets_a_number(fit):
    def loop():
        train.report({"x": 1})
    first, second = fit(loop, workers=1), fit(loop, workers=1)
    assert first.path != second.path and second.path.startswith(first.path)


def test_more_than_the_node_has_is_an_error_at_once(fit):
    with pytest.raises(Exception, match="3 cpu"):
        fit(lambda: None, workers=3)
    with pytest.raises(ValueError, match="no GPU"):
        DataParallelTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=1, use_gpu=True)).fit()


# ---- other promises ----

def test_ranks_draw_different_random_numbers(fit):
    def loop():
        import random
        import numpy
        train.report({"random": random.random(), "numpy": float(numpy.random.rand())})
    result = fit(loop)
    lines = (pathlib.Path(result.path) / "reports.jsonl").read_text().splitlines()
    one, other = (json.loads(x)["metrics"] for x in lines)
    assert one["random"] != other["random"] and one["numpy"] != other["numpy"]


def test_datasets_are_divided_into_equally_many_batches(fit):
    import numpy

    def loop():
        shard = train.get_dataset_shard("train")
        batches = [b["x"].tolist() for b in shard.iter_batches(batch_size=3)]
        train.report({"batches": batches, "all": len(train.get_dataset_shard("all"))})
        with pytest.raises(KeyError, match="train"):
            train.get_dataset_shard("none")
    from manta.train import DataConfig
    result = fit(loop, datasets={"train": {"x": numpy.arange(9)}, "all": [1, 2, 3]},
                 dataset_config=DataConfig(datasets_to_split=["train"]))
    lines = (pathlib.Path(result.path) / "reports.jsonl").read_text().splitlines()
    assert sorted(json.loads(x)["metrics"]["batches"] for x in lines) == [[[0, 1, 2], [3]], [[4, 5, 6], [7]]]
    assert result.metrics["all"] == 3


def test_importing_it_imports_no_framework():
    done = run_python("-c", "import sys, manta.train, manta.train.torch, manta.train.tensorflow.keras, manta.ray.train.torch, "
                      "manta.ray.air\nprint([m for m in ('torch', 'tensorflow', 'keras', 'pandas', 'pyarrow', 'numpy') "
                      "if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_ports_are_held_while_others_listen_there():
    """A held port is nobody else's, and who says SO_REUSEPORT (TensorFlow) or SO_REUSEADDR (torch's store) can listen at it."""
    import socket
    from manta._ports import reserve_port
    for option in (socket.SO_REUSEPORT, socket.SO_REUSEADDR):
        held = reserve_port()
        at = ("127.0.0.1", held.getsockname()[1])
        with socket.socket() as plain:
            with pytest.raises(OSError):
                plain.bind(at)
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind(("", at[1]))
        server.listen()
        client = socket.create_connection(at)
        server.accept()[0].close()
        for s in (client, server, held):
            s.close()


def test_too_many_workers_are_refused_before_anything_is_divided():
    class Undivided:
        def streaming_split(self, n, **how):
            raise AssertionError("the dataset was divided")

    for n in (65, 10**6):
        trainer = DataParallelTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=n), datasets={"train": Undivided()})
        with pytest.raises(ValueError, match=f"num_workers is {n}, expected at most 64"):
            trainer.fit()


def test_configurations_say_what_is_wrong():
    async def later():
        raise AssertionError("a call of it runs nothing")

    def items(config):
        yield config

    for make, text in ((lambda: ScalingConfig(num_workers=-1), "num_workers"),
                       (lambda: CheckpointConfig(num_to_keep=0), "num_to_keep"),
                       (lambda: CheckpointConfig(checkpoint_score_order="up"), "checkpoint_score_order"),
                       (lambda: FailureConfig(max_failures=-2), "max_failures"),
                       (lambda: DataParallelTrainer(lambda a, b: 0), "expected none or one"),
                       (lambda: DataParallelTrainer(3), "expected a function"),
                       (lambda: DataParallelTrainer(later), "train_loop_per_worker is async or a generator"),
                       (lambda: DataParallelTrainer(functools.partial(items, 1)), "train_loop_per_worker is async or a generator")):
        with pytest.raises(ValueError, match=text):
            make()
    def trainer(**how):
        return DataParallelTrainer(lambda: 0, scaling_config=ScalingConfig(**how))
    for make in (lambda: trainer(num_workers=(1, 2)), lambda: trainer(accelerator_type="A100"),
                 lambda: trainer(label_selector={"a": "b"}), lambda: RunConfig(stop={"x": 1}),
                 lambda: RunConfig(storage_path="s3://x"), lambda: Checkpoint("gs://x")):
        with pytest.raises(NotImplementedError):
            make()
