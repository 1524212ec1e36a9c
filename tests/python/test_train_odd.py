"""manta.train with what hardly anybody gives it: odd values, names, folders and files. None of it may end a training that could
go on, and what is refused is refused in the loop, in words."""
import io
import json
import os
import pathlib
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
