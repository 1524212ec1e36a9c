"""What version 0.1 left behind: runs go on to the bytes that it would have ended with, and files load."""
import json
import shutil

import pytest

from conftest import ROOT

OLD = ROOT / "tests" / "golden" / "runs-0.1"


@pytest.fixture
def old(tmp_path):
    """A copy of the old runs' folder, in which the commands are given as they were then."""
    for name in ("flowers.csv", "small.json", "saved.keras"):
        shutil.copy(OLD / name, tmp_path)
    shutil.copytree(OLD / "runs", tmp_path / "runs")
    return tmp_path


@pytest.mark.parametrize("name", ["workers", "alone", "served"])
def test_an_old_run_goes_on_to_the_same_bytes(manta, old, name):
    manta("train", "--resume", name, "--storage", "runs", "--epochs", 4, "--save", "end.npz")
    assert (old / "end.npz").read_bytes() == (OLD / f"whole-{name}.npz").read_bytes()
    result = json.loads((old / "runs" / name / "result.json").read_text())
    assert result["status"] == "done" and result["epoch"] == 4


@pytest.mark.parametrize("name, other", [("alone", ("--workers", 2)), ("workers", ("--workers", 1))])
def test_an_old_run_goes_on_with_other_workers(manta, old, name, other):
    manta("train", "--resume", name, "--storage", "runs", "--epochs", 4, *other, "--save", "end.npz")
    assert (old / "end.npz").read_bytes() == (OLD / f"whole-{name}.npz").read_bytes()


def test_an_old_run_is_listed_and_its_checkpoint_read(manta, old):
    listed = [json.loads(line) for line in manta("runs", "--storage", "runs", "--json").stdout.splitlines()]
    assert {(run["name"], run["status"], run["epoch"], run["checkpoints"]) for run in listed} == {
        (name, "done", 2, 2) for name in ("workers", "alone", "served")}
    shown = manta("inspect", "runs/workers/checkpoints/checkpoint-000002")
    assert "first" in shown.stdout


@pytest.mark.parametrize("axis", [(), ("--x", "time")])
def test_an_old_run_is_drawn(manta, old, axis):
    manta("runs", "plot", "workers", "--storage", "runs", "--metrics", "loss,rate", *axis, "-o", "old.svg")
    assert (old / "old.svg").read_text().count("<path") == 2


def test_an_old_keras_file_evaluates_and_trains_on(manta, old):
    done = manta("evaluate", "saved.keras", "--data", "flowers.csv:label=kind", "--json")
    metrics = done.event("result")["metrics"]
    assert metrics["accuracy"] == pytest.approx(0.375) and metrics["loss"] == pytest.approx(8.3818, abs=1e-4)
    done = manta("train", "saved.keras", "--data", "flowers.csv:label=kind", "--batch", 16, "--json")
    assert done.event("result")["status"] == "done"
