"""manta.train: validations, callbacks, hooks of backends, what all ranks do together, and checkpoints that loops hand over."""
import json
import os
import shutil
import tempfile
import threading

import pytest
from conftest import until

import manta
from manta import train
from manta.train import (Backend, BackendConfig, Checkpoint, CheckpointConfig, CheckpointConsistencyMode, CheckpointUploadMode,
                         ControllerError, DataParallelTrainer, ReportedCheckpointStatus, Result, RunConfig, ScalingConfig, UserCallback,
                         ValidationConfig, ValidationTaskConfig, WorkerGroupError, _validate)

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture
def fit(tmp_path):
    """Trains a loop, in a storage of the test's own."""
    def run(loop, workers=2, callbacks=None, keep=None, score=None, **more):
        return DataParallelTrainer(
            loop, scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name="a", storage_path=tmp_path / "runs", callbacks=callbacks,
                                 checkpoint_config=CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute=score)),
            **more).fit()
    return run


def save(values):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "state.json"), "w") as f:
        json.dump(values, f)
    return Checkpoint.from_directory(folder)


def read(checkpoint):
    with checkpoint.as_directory() as folder, open(os.path.join(folder, "state.json")) as f:
        return json.load(f)


def twice(checkpoint, factor=2):
    return {"made": read(checkpoint) * factor}


# ---- validations ----

def test_a_function_tries_checkpoints_and_adds_to_their_metrics(fit, tmp_path):
    def loop():
        train.report({"loss": 1}, checkpoint=save(3), validation=True)
        train.report({"loss": 2}, checkpoint=save(4), validation=ValidationTaskConfig(fn_kwargs={"factor": 10}))
        train.report({"loss": 3}, checkpoint=save(5))
        reported = train.get_all_reported_checkpoints()
        assert [r.status.value for r in reported] == ["VALIDATED", "VALIDATED", "COMMITTED"], reported
        assert [r.metrics for r in reported] == [{"loss": 1, "made": 6}, {"loss": 2, "made": 40}, {"loss": 3}]
    result = fit(loop, workers=1, validation_config=ValidationConfig(fn=twice))
    wanted = [{"loss": 1, "made": 6}, {"loss": 2, "made": 40}, {"loss": 3}]
    assert [m for _, m in result.best_checkpoints] == wanted and result.metrics == {"loss": 3}
    assert [m for _, m in Result.from_path(result.path).best_checkpoints] == wanted
    assert Result.from_path(result.path).metrics == {"loss": 3}


def test_a_training_that_holds_all_processors_does_not_wait_for_its_validations(fit):
    def loop():
        train.report({}, checkpoint=save(1) if train.get_context().get_world_rank() == 0 else None,
                     validation=train.get_context().get_world_rank() == 0)
        train.get_all_reported_checkpoints()
    assert fit(loop, workers=2, validation_config=ValidationConfig(fn=twice)).metrics == {"made": 2}


def test_validations_that_fail_or_take_too_long_end_no_training(fit, capfd):
    forever = threading.Event

    def broken(checkpoint, how):
        if how == "long":
            forever().wait()
        raise ValueError("not good")

    def loop():
        train.report({"n": 0}, checkpoint=save(0), validation=ValidationTaskConfig(fn_kwargs={"how": "bad"}))
        train.report({"n": 1}, checkpoint=save(1), validation=ValidationTaskConfig(fn_kwargs={"how": "long"}, timeout_s=0.2))
        return [r.status.value for r in train.get_all_reported_checkpoints()]
    result = fit(loop, workers=1, validation_config=ValidationConfig(fn=broken))
    assert result.return_value == ["VALIDATION_FAILED", "VALIDATION_TIMEOUT"] and result.metrics == {"n": 1}
    told = capfd.readouterr().err
    assert "failed: ValueError: not good" in told and "took longer than 0.2 s" in told


def test_the_score_that_a_validation_gives_decides_what_is_kept(fit):
    def score(checkpoint):
        return {"score": read(checkpoint)}

    def loop():
        for value in (5, 9, 1, 2):
            train.report({"score": 0}, checkpoint=save(value), validation=True)
        train.get_all_reported_checkpoints()
    result = fit(loop, workers=1, keep=2, score="score", validation_config=ValidationConfig(fn=score))
    assert [(read(c), m["score"]) for c, m in result.best_checkpoints] == [(5, 5), (9, 9), (2, 2)]
    assert sorted(os.listdir(os.path.join(result.path, "checkpoints")))[1:] == [f"checkpoint-00000{n}" for n in (1, 2, 4)]


@pytest.mark.parametrize("keep, score", [(1, "score"), (2, "score"), (2, None)])
def test_what_is_kept_is_the_same_with_and_without_a_function_that_tries(fit, tmp_path, keep, score):
    def loop():
        for value in (5, 9, 1, 7, 2):
            train.report({"score": value}, checkpoint=save(value))
    kept = [[read(c) for c, _ in fit(loop, workers=1, keep=keep, score=score, **more).best_checkpoints]
            for more in ({}, {"validation_config": ValidationConfig(fn=twice)})]
    assert kept[0] == kept[1] == ([9, 2] if keep == 1 else [9, 7, 2] if score else [7, 2])


def test_a_run_that_is_taken_up_goes_on_with_what_was_not_tried(fit, tmp_path):
    class Stop(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            raise RuntimeError("the driver is broken")

    def first():
        train.report({"n": 1}, checkpoint=save(3), validation=ValidationTaskConfig(fn_kwargs={"factor": 5}))

    def second():
        return [(r.status.value, r.metrics) for r in train.get_all_reported_checkpoints()]
    with pytest.raises(ControllerError, match="the driver is broken"):
        fit(first, workers=1, callbacks=[Stop()], validation_config=ValidationConfig(fn=lambda checkpoint, factor: {}))
    notes = tmp_path / "runs" / "a" / "validations.jsonl"
    lines = notes.read_text().splitlines()
    assert ["PENDING_VALIDATION" in line for line in lines] == [True, False]
    notes.write_text(lines[0] + "\n{half")         # as a kill leaves it while the function tries the checkpoint
    result = fit(second, workers=1, validation_config=ValidationConfig(fn=twice))
    assert result.return_value == [("VALIDATED", {"n": 1, "made": 15})] and result.metrics == {"n": 1, "made": 15}


def test_an_interrupt_while_validations_are_waited_for_ends_the_run(fit, tmp_path, monkeypatch):
    """The run can be taken up by this very process; without a function nobody waits for what was not tried."""
    whole = _validate.Validations.end

    def interrupted(self, waits):
        if waits:
            raise KeyboardInterrupt
        whole(self, waits)

    def first():
        train.report({"n": 1}, checkpoint=save(3), validation=True)

    def second():
        return [(r.status.value, r.metrics) for r in train.get_all_reported_checkpoints()]
    monkeypatch.setattr(_validate.Validations, "end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fit(first, workers=1, validation_config=ValidationConfig(fn=lambda checkpoint: threading.Event().wait()))
    assert json.loads((tmp_path / "runs" / "a" / "result.json").read_text())["status"] == "interrupted"
    assert "manta-validate" not in [t.name for t in threading.enumerate()]
    assert fit(second, workers=1).return_value == [("PENDING_VALIDATION", {"n": 1})]


def test_what_cannot_be_validated_is_refused(fit):
    def loop():
        with pytest.raises(ValueError, match="without a checkpoint"):
            train.report({}, validation=True)
        with pytest.raises(ValueError, match="has no validation_config"):
            train.report({}, checkpoint=save(1), validation=True)
    fit(loop, workers=1)

    def odd():
        with pytest.raises(TypeError, match="validation is str, expected True"):
            train.report({}, checkpoint=save(1), validation="yes")
        with pytest.raises(TypeError, match="fn_kwargs of the validation cannot be sent"):
            train.report({}, checkpoint=save(1), validation=ValidationTaskConfig(fn_kwargs={"lock": threading.Lock()}))
    fit(odd, workers=1, validation_config=ValidationConfig(fn=twice))
    for make in (lambda: ValidationConfig(fn=3), lambda: ValidationTaskConfig(timeout_s=0),
                 lambda: ValidationTaskConfig(fn_kwargs=[1]), lambda: DataParallelTrainer(loop, validation_config=twice)):
        with pytest.raises(ValueError):
            make()


# ---- reported checkpoints ----

def test_reported_checkpoints_are_those_that_all_ranks_have_come_to(fit):
    def loop():
        rank = train.get_context().get_world_rank()
        assert train.get_all_reported_checkpoints() == []
        train.report({"n": 1}, checkpoint=save(1) if rank else None)
        first = train.get_all_reported_checkpoints(CheckpointConsistencyMode.COMMITTED)
        train.collective.barrier()
        train.report({"n": 2}, checkpoint=None if rank else save(2))
        return [len(first), [r.status for r in train.get_all_reported_checkpoints()]]
    assert fit(loop).return_value == [1, [ReportedCheckpointStatus.COMMITTED] * 2]


def test_reported_checkpoints_within_seconds(fit):
    def loop():
        rank = train.get_context().get_world_rank()
        if rank == 0:
            train.report({}, checkpoint=save(1))
            assert train.get_all_reported_checkpoints(timeout_s=0.05) == []     # rank 1 has not come so far
            train.collective.barrier()
        else:
            train.collective.barrier()
            train.report({})
        return len(train.get_all_reported_checkpoints())
    assert fit(loop).return_value == 1


def test_a_loop_that_looks_often_is_not_sent_answers_that_it_does_not_wait_for(fit, tmp_path):
    """They would fill the way back, and the driver would wait for the loop, which waits for the driver."""
    go = tmp_path / "go"

    def tried(checkpoint):
        while not go.exists():
            threading.Event().wait(0.01)
        return {}

    def loop():
        train.report({"text": "x" * 4000}, checkpoint=save(1), validation=True)
        for _ in range(300):
            assert len(train.get_all_reported_checkpoints(timeout_s=0)) <= 1
        go.touch()
        notes = os.path.join(train.get_context().get_trial_dir(), "validations.jsonl")
        while not os.path.exists(notes) or "VALIDATED" not in open(notes).read():      # the driver may not have begun with it
            threading.Event().wait(0.01)
        for n in range(2000):
            train.report({"text": "y" * 1000})
    assert len(fit(loop, workers=1, validation_config=ValidationConfig(fn=tried)).history) == 2001


# ---- together ----

def test_ranks_meet_and_share_what_rank_zero_has(fit, tmp_path):
    def loop():
        rank = train.get_context().get_world_rank()
        (tmp_path / f"came-{rank}").touch()
        train.collective.barrier()
        assert (tmp_path / "came-0").exists() and (tmp_path / "came-1").exists()
        return [train.collective.broadcast_from_rank_zero({"rank": rank, "n": n})["rank"] for n in range(3)]
    assert fit(loop).return_value == [0, 0, 0]


def test_a_rank_that_has_returned_or_does_something_else_ends_the_wait(fit):
    def leaves():
        if train.get_context().get_world_rank() == 0:
            train.collective.barrier()
    with pytest.raises(WorkerGroupError, match="rank 1 has returned without barrier"):
        fit(leaves)

    def differ():
        if train.get_context().get_world_rank() == 0:
            train.collective.barrier()
        else:
            train.collective.broadcast_from_rank_zero(1)
    with pytest.raises(WorkerGroupError, match="some are in barrier.* others in broadcast_from_rank_zero"):
        fit(differ)


# ---- callbacks, backends ----

def test_callbacks_hear_of_rounds_and_failures(fit):
    heard = []

    class Hear(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            heard.append((run_context.name, metrics, checkpoint and read(checkpoint)))

        def after_exception(self, run_context, worker_exceptions):
            heard.append({rank: str(e) for rank, e in worker_exceptions.items()})

    def loop():
        rank = train.get_context().get_world_rank()
        train.report({"rank": rank})
        train.report({"rank": rank + 10}, checkpoint=save(7) if rank == 0 else None)
        train.collective.barrier()
        if rank == 1:
            raise ValueError("no more")
        train.collective.barrier()
    with pytest.raises(WorkerGroupError):
        fit(loop, callbacks=[Hear()])
    assert heard == [("a", [{"rank": 0}, {"rank": 1}], None), ("a", [{"rank": 10}, {"rank": 11}], 7), {1: "no more"}]
    with pytest.raises(ValueError, match="expected UserCallback"):
        RunConfig(callbacks=[print])


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("error", [KeyError("accuracy"), SystemExit(3)], ids=["error", "exit"])
def test_a_callback_that_raises_ends_the_training_and_is_named(fit, workers, error):
    class Broken(UserCallback):
        def after_report(self, run_context, metrics, checkpoint):
            raise error
    with pytest.raises(ControllerError, match=rf"^Broken\.after_report\(\) failed: {type(error).__name__}: {error}$") as e:
        fit(lambda: train.report({}), workers=workers, callbacks=[Broken()])
    assert e.value.__cause__ is error


@pytest.mark.parametrize("workers", [0, 2])
def test_hooks_of_a_backend_of_ones_own_run_in_order(fit, workers):
    order = []

    def set_greeting(text):
        os.environ["GREETING"] = text
        return text

    class Greeting(Backend):
        def on_start(self, worker_group, backend_config):
            order.append(("start", worker_group.execute(set_greeting, backend_config.text)))

        def on_training_start(self, worker_group, backend_config):
            order.append(("training", worker_group.execute_single(0, os.getenv, "GREETING")))

        def on_shutdown(self, worker_group, backend_config):
            order.append(("shutdown", len(worker_group)))

    class GreetingConfig(BackendConfig):
        text = "hello"

        @property
        def backend_cls(self):
            return Greeting
    n = max(workers, 1)
    assert fit(lambda: os.environ["GREETING"], workers=workers, backend_config=GreetingConfig()).return_value == "hello"
    assert order == [("start", ["hello"] * n), ("training", "hello"), ("shutdown", n)]
    os.environ.pop("GREETING", None)


def test_a_hook_that_raises_ends_the_training_in_words(fit):
    class Broken(Backend):
        def on_start(self, worker_group, backend_config):
            raise ValueError("no way")

    class BrokenConfig(BackendConfig):
        backend_cls = Broken
    with pytest.raises(ControllerError, match="on_start.*ValueError: no way"):
        fit(lambda: None, backend_config=BrokenConfig())


@pytest.mark.parametrize("workers", [0, 2])
def test_the_last_hook_does_not_hide_what_the_loop_has_raised(fit, capfd, workers):
    class Broken(Backend):
        def on_shutdown(self, worker_group, backend_config):
            raise OSError("too late")

    class BrokenConfig(BackendConfig):
        backend_cls = Broken

    def loop():
        raise ValueError("the loop's own")
    with pytest.raises(WorkerGroupError if workers else ValueError, match="the loop's own"):
        fit(loop, workers=workers, backend_config=BrokenConfig())
    assert "on_shutdown() of the backend failed: OSError: too late" in capfd.readouterr().err


def test_the_last_hook_waits_for_no_loop_that_still_runs(fit, tmp_path):
    """Rank 1 runs until it is killed; rank 0 is asked as ever."""
    asked = []

    class Ask(Backend):
        def on_shutdown(self, worker_group, backend_config):
            asked.append(worker_group.execute_single(0, len, "abc"))
            worker_group.execute_single(1, len, "abc")

    class AskConfig(BackendConfig):
        backend_cls = Ask

    def loop():
        train.collective.barrier()
        if train.get_context().get_world_rank() == 0:
            raise ValueError("no more")
        threading.Event().wait()
    with pytest.raises(WorkerGroupError, match="no more"):
        fit(loop, backend_config=AskConfig())
    assert asked == [3]


def test_ranks_that_share_devices_see_those_of_ranks_and_not_of_the_driver(monkeypatch, tmp_path):
    class Share(Backend):
        share_cuda_visible_devices = True

    class ShareConfig(BackendConfig):
        backend_cls = Share
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    result = DataParallelTrainer(
        lambda: os.environ["CUDA_VISIBLE_DEVICES"], backend_config=ShareConfig(), scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=tmp_path, worker_runtime_env={"env_vars": {"CUDA_VISIBLE_DEVICES": "3"}})).fit()
    assert result.return_value == "3"


# ---- checkpoints that loops hand over ----

def test_a_checkpoint_that_lies_in_the_run_already_is_taken_and_stays_no_second_time(fit):
    def loop():
        at = train.get_context().get_storage().build_checkpoint_path_from_name("epoch-1")
        os.makedirs(at, exist_ok=True)
        with open(os.path.join(at, f"rank-{train.get_context().get_world_rank()}"), "w") as f:
            f.write("x")
        train.report({}, checkpoint=Checkpoint(at), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
    result = fit(loop)
    assert os.path.basename(result.checkpoint.path) == "epoch-1" and not os.path.exists(os.path.join(result.path, "epoch-1"))
    assert sorted(os.listdir(result.checkpoint.path)) == ["rank-0", "rank-1"]


def test_a_checkpoint_of_the_run_that_is_handed_over_again_stays(fit):
    def loop():
        train.report({"n": 1}, checkpoint=save(3))
        first, = train.get_all_reported_checkpoints()
        train.report({"n": 2}, checkpoint=first.checkpoint, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        train.report({"n": 3}, checkpoint=save(4), checkpoint_upload_fn=lambda checkpoint, name: first.checkpoint)
    assert [(read(c), m) for c, m in fit(loop, workers=1).best_checkpoints] == [(3, {"n": 1}), (3, {"n": 2}), (3, {"n": 3})]


def test_what_is_the_runs_own_is_no_checkpoint(fit):
    def loop():
        run = train.get_context().get_trial_dir()
        train.report({}, checkpoint=save(3))
        for name in ("checkpoints", "log"):
            with pytest.raises(ValueError, match="not the run's own"):
                train.get_context().get_storage().build_checkpoint_path_from_name(name)
        for path in (run, os.path.join(run, "log")):
            with pytest.raises(ValueError, match="the checkpoint lies in .*, expected a folder in"):
                train.report({}, checkpoint=Checkpoint(path), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        return sorted(os.listdir(run))
    assert {"checkpoints", "log"} <= set(fit(loop, workers=1).return_value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_checkpoint_that_is_a_name_alone_is_none(fit, capfd, workers):
    """A loop that has metrics alone names one, where the second version of Ray Train keeps no metrics without."""
    def loop():
        at = Checkpoint(train.get_context().get_storage().build_checkpoint_path_from_name("placeholder"))
        for n in range(4):          # none of them is waited for
            train.report({"n": n}, checkpoint=at, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD,
                         delete_local_checkpoint_after_upload=True)
        with pytest.raises(FileNotFoundError, match="there is no such folder"):
            train.report({"n": 9}, checkpoint=at)
        gone = Checkpoint(os.path.join(train.get_context().get_trial_dir(), "checkpoints", "checkpoint-000009", "x"))
        with pytest.raises(FileNotFoundError, match="there is no such folder"):
            train.report({"n": 9}, checkpoint=gone, checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD)
        train.report({"n": 4}, checkpoint=save(7))
    result = fit(loop, workers=workers)
    assert [m["n"] for m in result.history] == [0, 1, 2, 3, 4]
    assert [(read(c), m) for c, m in result.best_checkpoints] == [(7, {"n": 4})]
    told = []

    def is_told():
        told.append(capfd.readouterr().err)
        return "placeholder): there is no such folder, so the metrics are kept without a checkpoint" in "".join(told)
    until(is_told, "what a rank prints, which may be shown when it has ended")


def test_what_is_to_be_validated_is_no_name_alone(fit):
    def loop():
        at = train.get_context().get_storage().build_checkpoint_path_from_name("placeholder")
        train.report({}, checkpoint=Checkpoint(at), checkpoint_upload_mode=CheckpointUploadMode.NO_UPLOAD, validation=True)
    with pytest.raises(WorkerGroupError, match="there is no such folder") as e:
        fit(loop, workers=1, validation_config=ValidationConfig(fn=twice))
    assert isinstance(e.value.worker_failures[0], FileNotFoundError)


@pytest.mark.parametrize("mode", list(CheckpointUploadMode))
def test_a_checkpoint_that_is_none_is_refused_in_every_mode(fit, mode):
    def loop():
        with pytest.raises(TypeError, match="checkpoint is str, expected manta.train.Checkpoint"):
            train.report({}, checkpoint="/tmp/x", checkpoint_upload_mode=mode, checkpoint_upload_fn=lambda checkpoint, name: checkpoint)
        with pytest.raises(TypeError, match="checkpoint is str, expected manta.train.Checkpoint"):
            train.report({}, checkpoint="/tmp/x", checkpoint_upload_mode=mode)
        return 1
    assert fit(loop, workers=1).return_value == 1


def test_a_function_of_ones_own_writes_behind_the_loops_back(fit, tmp_path):
    go = tmp_path / "go"

    def upload(checkpoint, name):
        while not go.exists():
            threading.Event().wait(0.01)
        to = train.get_context().get_storage().build_checkpoint_path_from_name(name)
        shutil.copytree(checkpoint.path, to)
        return Checkpoint(to)

    def loop():
        train.report({"n": 1}, checkpoint=save(8), checkpoint_upload_fn=upload, checkpoint_dir_name="eight",
                     checkpoint_upload_mode=CheckpointUploadMode.ASYNC)
        assert train.get_all_reported_checkpoints(timeout_s=0.05) == []
        go.touch()
        train.report({"n": 2})
        return [r.metrics for r in train.get_all_reported_checkpoints()]
    result = fit(loop, workers=1)
    assert result.return_value == [{"n": 1}] and read(result.checkpoint) == 8 and result.metrics == {"n": 2}
    assert os.path.basename(result.checkpoint.path) == "eight"


@pytest.mark.parametrize("mode", [CheckpointUploadMode.SYNC, CheckpointUploadMode.ASYNC])
def test_what_a_function_of_ones_own_does_wrong_ends_the_training(fit, mode):
    def loop(upload):
        train.report({}, checkpoint=save(1), checkpoint_upload_fn=upload, checkpoint_upload_mode=mode)
    for upload, text in ((lambda checkpoint, name: None, "expected a Checkpoint"), (lambda checkpoint, name: checkpoint, "that it has returned lies in")):
        with pytest.raises(WorkerGroupError, match=text) as e:
            fit(lambda: loop(upload), workers=1)
        assert isinstance(e.value.worker_failures[0], ValueError)


# ---- configurations ----

def test_configurations_say_what_all_workers_ask_for():
    assert ScalingConfig(num_workers=2).total_resources == {"CPU": 2}
    assert ScalingConfig(num_workers=3, use_gpu=True, accelerator_type="A100").total_resources == \
        {"GPU": 3, "accelerator_type:A100": pytest.approx(0.003)}
    assert ScalingConfig(num_workers=2, label_selector={"zone": "a"})._label_selector_per_worker(2) == [{"zone": "a"}] * 2
    with pytest.raises(ValueError, match="expected one for each"):
        ScalingConfig(num_workers=2, label_selector=[{"zone": "a"}])
    with pytest.raises(ValueError, match="not for loops"):
        DataParallelTrainer(lambda: 0, run_config=RunConfig(checkpoint_config=CheckpointConfig(checkpoint_frequency=2))).fit()
    assert train.LoggingConfig(log_level="debug").log_level == "DEBUG"
    with pytest.raises(ValueError, match="log_level"):
        train.LoggingConfig(log_level=10)


def test_a_program_may_ask_for_the_second_version_alone(monkeypatch):
    train.FailureConfig(fail_fast=True)
    monkeypatch.setenv("RAY_TRAIN_V2_ENABLED", "1")
    for make in (lambda: train.FailureConfig(fail_fast=True), lambda: RunConfig(verbose=0),
                 lambda: ScalingConfig(trainer_resources={"CPU": 1}), lambda: DataParallelTrainer.restore("x"),
                 lambda: DataParallelTrainer.can_restore("x")):
        with pytest.raises(DeprecationWarning, match="RAY_TRAIN_V2_ENABLED"):
            make()
    train.FailureConfig(), RunConfig(), ScalingConfig()
    monkeypatch.delenv("RAY_TRAIN_V2_ENABLED")
    monkeypatch.setenv("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "1")
    with pytest.warns(DeprecationWarning, match="resume_from_checkpoint is of the first version"):
        DataParallelTrainer(lambda: 0, resume_from_checkpoint=Checkpoint("/x"))


def test_the_best_checkpoint_by_a_metric_in_a_dictionary():
    result = Result(metrics={}, checkpoint=None, error=None, path="/x", best_checkpoints=[
        (Checkpoint("/x/0"), {"test": {"accuracy": 0.5}}), (Checkpoint("/x/1"), {"test": {"accuracy": 0.7}}), (Checkpoint("/x/2"), {})])
    assert result.get_best_checkpoint("test/accuracy", "max").path == "/x/1"
    with pytest.raises(RuntimeError, match="no such folder"):
        Result.from_path("/nowhere/at/all")
