"""manta.train with what hardly anybody gives it: odd values, names, folders and files. None of it may end a training that could
go on, and what is refused is refused in the loop, in words."""
import io
import json
import os
import pathlib
import pickle
import shutil
import threading

import pytest

import manta
from manta import train
from manta.train import (Checkpoint, CheckpointConfig, ControllerError, DataParallelTrainer, FailureConfig, Result, RunConfig,
                         ScalingConfig)


@pytest.fixture
def fit(tmp_path):
    """Trains a loop in this process, or in so many workers, in a storage of the test's own."""
    def run(loop, workers=0, keep=None, score=None):
        keeping = CheckpointConfig(num_to_keep=keep, checkpoint_score_attribute=score)
        return DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=workers), run_config=RunConfig(
            name="a", storage_path=tmp_path / "runs", checkpoint_config=keeping)).fit()
    return run


def lines_of(path, name="reports.jsonl"):
    return [json.loads(line) for line in (pathlib.Path(path) / name).read_text().splitlines()]


# ---- metrics ----

class Mute:
    def __repr__(self):
        raise ValueError("it says nothing")


def test_a_metric_that_cannot_be_told_ends_nothing(fit):
    """The values themselves are in the result, what can be written of them in the files."""
    itself = []
    itself.append(itself)
    given = {"": 1, "digits": 10**5000, "mute": Mute(), (1, 2): 3.5, "itself": itself, "fine": 0.5, "many": {1, 2}}
    result = fit(lambda: train.report(given))
    assert result.metrics["digits"] == 10**5000 and result.metrics[(1, 2)] == 3.5
    kept = lines_of(result.path)[0]["metrics"]
    assert kept == {"": 1, "digits": "<int>", "mute": "<Mute>", "(1, 2)": 3.5, "itself": "[[...]]", "fine": 0.5, "many": [1, 2]}
    curves = lines_of(result.path, "metrics.jsonl")[0]["metrics"]
    assert curves["fine"] == 0.5 and curves["?"] == 1.0


@pytest.mark.parametrize("name", ["z", "z" * 100])
def test_the_best_is_kept_by_any_metric(fit, name):
    """Also by one for which the record of curves would have had no room, or whose name is cut there."""
    def loop():
        for i in range(3):
            train.report({**{f"m{k}": k for k in range(100)}, name: -i}, checkpoint=Checkpoint.from_dict({"i": i}))
    result = fit(loop, keep=1, score=name)
    assert result.get_best_checkpoint(name, "max").to_dict() == {"i": 0}


def test_not_a_number_is_never_the_best(fit):
    def loop():
        for i, z in enumerate((float("nan"), 1.0, 2.0)):
            train.report({"z": z}, checkpoint=Checkpoint.from_dict({"i": i}))
    result = fit(loop)
    assert [result.get_best_checkpoint("z", mode).to_dict()["i"] for mode in ("min", "max")] == [1, 2]
    with pytest.raises(RuntimeError, match="a value of 'y'; their metrics are z"):
        result.get_best_checkpoint("y", "max")


# ---- folders ----

def test_links_that_lead_back_are_refused(fit, tmp_path):
    """Copied, such a folder would have no end."""
    one = tmp_path / "one"
    (one / "inner").mkdir(parents=True)
    (one / "state").write_text("x")

    def loop():
        for target in ("..", "../../one", train.get_context().get_trial_dir()):
            (one / "inner" / "back").symlink_to(target)
            with pytest.raises(ValueError, match="inner/.*is a link to a folder that it lies in"):
                train.report({}, checkpoint=Checkpoint.from_directory(one))
            (one / "inner" / "back").unlink()
        (one / "other").symlink_to("inner")         # a folder twice is none that holds itself
        train.report({"fine": 1}, checkpoint=Checkpoint.from_directory(one))
    result = fit(loop)
    assert result.history == [{"fine": 1}] and sorted(os.listdir(result.checkpoint.path)) == ["inner", "other", "state"]


def test_names_that_no_checkpoint_can_have_are_refused_in_the_loop(fit, tmp_path):
    one = tmp_path / "one"
    one.mkdir()

    def loop():
        checkpoint = Checkpoint.from_directory(one)
        for name in ("", "..", "a/b", "a\0b", "x" * 256, "\udcff", pathlib.Path("a"), 5):
            with pytest.raises(ValueError, match="expected the name of a folder"):
                train.report({}, checkpoint=checkpoint, checkpoint_dir_name=name)
        odd = os.path.join(os.fsencode(one), b"\xff\xfe")
        os.close(os.open(odd, os.O_CREAT | os.O_WRONLY, 0o600))
        with pytest.raises(ValueError, match="expected a name in UTF-8"):
            train.report({}, checkpoint=checkpoint)
        os.unlink(odd)
        train.report({"fine": 1}, checkpoint=checkpoint, checkpoint_dir_name="ü \n")
    result = fit(loop)
    assert result.history == [{"fine": 1}] and result.checkpoint.path.endswith("/ü \n")


def test_of_a_file_and_a_folder_of_one_name_the_lower_ranks_is_taken(tmp_path):
    from manta.train import _record
    for rank, files in enumerate((("x", "y/a"), ("x/b", "y", "z/c"), ("z/d", "y/e"))):
        for file in files:
            (tmp_path / f"{rank}" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / f"{rank}" / file).write_text(f"{rank}")
    out = pathlib.Path(_record._merge([str(tmp_path / f"{rank}") for rank in range(3)], "all")) / "all"
    assert {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()} == {
        "x": "0", "y/a": "0", "z/c": "1", "z/d": "2", "y/e": "2"}


# ---- what a loop returns and prints ----

def test_what_cannot_be_sent_back_fails_no_training(fit, capfd):
    def loop():
        train.report({"x": 1})
        return threading.Lock()
    manta.init(num_cpus=1)
    try:
        result = fit(loop, workers=1)
    finally:
        manta.shutdown()
    assert result.metrics == {"x": 1} and result.return_value is None
    assert "what the loop returned cannot be sent" in capfd.readouterr().err
    assert "cannot pickle" in (pathlib.Path(result.path) / "log" / "rank-0.txt").read_text()


def test_a_loop_of_this_process_may_train(fit, tmp_path):
    def loop():
        inner = DataParallelTrainer(lambda: train.report({"inner": 1}), scaling_config=ScalingConfig(num_workers=0),
                                    run_config=RunConfig(name="inner", storage_path=tmp_path)).fit()
        train.report(inner.metrics)
    assert fit(loop).metrics == {"inner": 1}
    with pytest.raises(RuntimeError, match="no loop runs"):
        train.report({})


def test_a_log_without_room_fails_no_loop():
    from manta.train._rank import Log
    full = os.open("/dev/full", os.O_WRONLY)
    stream = io.StringIO()
    print("here", file=Log(stream, full))
    os.close(full)
    assert stream.getvalue() == "here\n"


# ---- the run's files ----

def test_a_run_goes_on_behind_a_line_that_was_cut_off(fit):
    """What a killed driver, or a disk, has left of reports.jsonl."""
    def loop():
        train.report({"x": 2})
    path = pathlib.Path(fit(lambda: train.report({"x": 1})).path)
    whole = (path / "reports.jsonl").read_bytes()
    (path / "reports.jsonl").write_bytes(whole + b"\xff\xfe\n[1]\n7\n{}\n" + whole[:-20])
    (path / "result.json").unlink()                 # it has not ended
    result = fit(loop)
    assert result.path == str(path) and result.history == [{"x": 1}, {"x": 2}]
    assert Result.from_path(path).history == result.history


def test_a_run_whose_folder_goes_away_says_so(fit):
    """With the result, in which what was reported is; and nothing stays for the next one."""
    def loop():
        train.report({"x": 1})
        shutil.rmtree(train.get_context().get_trial_dir())
    before = threading.enumerate()          # tests before this one may have left the loop of coroutines, which stays
    with pytest.raises(ControllerError, match="the end of the run could not be kept.*went away") as e:
        fit(loop)
    assert e.value.result.history == [{"x": 1}]
    assert [t.name for t in threading.enumerate() if t.name.startswith("manta-") and t not in before] == []
    with pytest.raises(ZeroDivisionError):              # what was raised first is what is told
        fit(lambda: (loop(), 1 / 0))


def test_files_of_a_run_that_are_damaged(fit):
    """They are told of in words, or count as not there."""
    path = pathlib.Path(fit(lambda: train.report({"x": 1})).path)
    (path / "result.json").write_text("[1]")                # nobody knows how it ended
    assert Result.from_path(path).metrics == {"x": 1}
    kept = (path / "trainer.pkl").read_bytes()
    for data in (b"", kept[:50], kept[:-9], b"garbage", pickle.dumps([1]), pickle.dumps({"a": b"x"})):
        (path / "trainer.pkl").write_bytes(data)
        with pytest.raises(ValueError, match="trainer.pkl is damaged: make the trainer again"):
            DataParallelTrainer.restore(path)
    (path / "trainer.pkl").write_bytes(pickle.dumps({**pickle.loads(kept), "metadata": b"x"}))
    with pytest.raises(ValueError, match="metadata of this run cannot be read"):
        DataParallelTrainer.restore(path)
    (path / "trainer.pkl").write_bytes(kept)
    assert DataParallelTrainer.restore(path).fit().history == [{"x": 1}, {"x": 1}]


HALVES = """
import os, resource
from manta.train import _record
file = _record._open_reports("reports")
_record._add_line(file, "first")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))         # as a disk that is full within the next line
try:
    _record._add_line(file, "second")
except OSError as e:
    print(e.strerror)
"""


def test_no_line_is_added_by_halves(python, tmp_path):
    assert python("-c", HALVES, cwd=tmp_path).stdout == "File too large\n"
    assert (tmp_path / "reports").read_text() == "first\n"


def test_a_storage_that_is_no_folder_is_refused(monkeypatch, tmp_path):
    """docs/storage.md has programs set it for the trainers of C."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MANTA_STORAGE", "s3://bucket/runs")
    with pytest.raises(NotImplementedError, match="MANTA_STORAGE is s3://bucket/runs.*storage_path"):
        DataParallelTrainer(lambda: None, scaling_config=ScalingConfig(num_workers=0)).fit()
    assert not list(tmp_path.iterdir())


def test_configurations_of_a_wrong_kind_are_refused():
    for make, text in ((lambda: RunConfig(name=5), "name is 5, expected a text"),
                       (lambda: RunConfig(failure_config={"max_failures": 1}), "expected FailureConfig"),
                       (lambda: RunConfig(checkpoint_config=3), "expected CheckpointConfig"),
                       (lambda: RunConfig(worker_runtime_env={"env_vars": ["A"]}), "expected a dictionary of texts"),
                       (lambda: CheckpointConfig(num_to_keep=1.5), "num_to_keep"),
                       (lambda: CheckpointConfig(num_to_keep="2"), "num_to_keep"),
                       (lambda: CheckpointConfig(checkpoint_score_attribute=5), "the name of a metric"),
                       (lambda: FailureConfig(max_failures="3"), "max_failures"),
                       (lambda: ScalingConfig(resources_per_worker=[1]), "a dictionary of numbers")):
        with pytest.raises(ValueError, match=text):
            make()
