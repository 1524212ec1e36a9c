"""All of a run killed at once, storage that goes away, a clock that jumps: what was done is not lost."""
import json
import pathlib
import random
import shutil
import signal
import subprocess

import numpy as np
import pytest

from samples import digits
from waits import checkpoints, is_gone, read_event, wait_until

ENDLESS = ("--epochs", 1, "--steps-per-epoch", 100000000)


def processes_of(group):
    """The processes of a group that have not ended."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" ")
            state, _, pgrp = rest.rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(pgrp) == group and state != "Z":
            found.append(int(pid))
    return found


def shared_names(pid):
    """Files with a name that a process shares memory through."""
    try:
        maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [line for line in maps.splitlines() if "/dev/shm/" in line or "SYSV" in line]


@pytest.mark.parametrize("workers,seed", [(1, 1), (2, 2), (3, 3)])
def test_everything_killed_at_once_again_and_again(manta, start, storage, tmp_path, workers, seed):
    """At instants of chance, from before there is a folder to after the end; then it goes on to the same bytes."""
    chance = random.Random(seed)
    run = ("train", "mlp", "--data", digits(tmp_path), "--validation-split", 0.25, "--epochs", 4, "--workers", workers,
           "--global-batch", 6, "--shards", 3, "--seed", 7, "--csv-log", "log.csv", "--json")
    manta(*run, "--save", "calm.npz")
    log = (tmp_path / "log.csv").read_text()
    for _ in range(6):
        running = start(*run, "--name", "k", "--checkpoint-every", "1step", "--resume", "--save", "cut.npz")
        try:
            running.process.wait(chance.uniform(0, 0.25))
        except subprocess.TimeoutExpired:
            pass
        for pid in processes_of(running.process.pid):
            assert not shared_names(pid)  # so none can be left behind
        running.kill()
        wait_until(lambda: not processes_of(running.process.pid))
        running.process.wait(240)
    if (storage / "k" / "config.json").exists():
        manta("train", "--resume", "k", "--json")
    else:  # killed before it had a name each time
        manta(*run, "--name", "k", "--save", "cut.npz")
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()
    lines = [json.loads(line) for line in (storage / "k" / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert (tmp_path / "log.csv").read_text() == log
    assert not [p for p in (storage / "k" / "checkpoints").iterdir() if p.name.endswith("manta-tmp")]


@pytest.mark.parametrize("cut", [1, 9, 30])
def test_everything_killed_in_the_middle_of_things(manta, start, storage, tmp_path, cut):
    """The same at steps that are known, so that every one of them has something to go on from."""
    run = ("train", "mlp", "--data", digits(tmp_path, n=96), "--epochs", 3, "--workers", 2, "--batch", 4, "--seed",
           7, "--json")
    manta(*run, "--save", "calm.npz")
    running = start(*run, "--name", "k", "--checkpoint-every", "1step", "--save", "cut.npz")
    workers = [read_event(running, "worker")["pid"] for _ in range(2)]
    wait_until(lambda: checkpoints(storage / "k")[-1:] >= [f"checkpoint-{cut:06}"])
    running.kill()
    wait_until(lambda: all(is_gone(pid) for pid in workers))
    running.process.wait(240)
    done = manta("train", "--resume", "k", "--json")
    assert done.event("resumed")["checkpoint"].startswith(str(storage / "k"))
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()


def test_what_a_save_that_was_killed_left(manta, storage, tmp_path):
    """It goes with the next one; files of others stay."""
    for name in (".w.npz.2147483647-0.manta-tmp", ".other.npz.2147483647-0.manta-tmp"):
        (tmp_path / name).write_text("half")
    manta("train", "mlp", "--data", digits(tmp_path, n=32), "--json", "--save", "w.npz")
    assert [p.name for p in tmp_path.glob(".*manta-tmp")] == [".other.npz.2147483647-0.manta-tmp"]


# ---- storage ----

def remove(run):
    while run.exists():  # it is being written to
        shutil.rmtree(run, ignore_errors=True)


def replace(run):
    run.rename(run.with_name("away"))
    run.write_text("a file\n")


def lose_checkpoints(run):
    (run / "checkpoints").rename(run / "gone")


@pytest.mark.parametrize("lose,say", [(remove, "went away while it ran"), (replace, "went away while it ran"),
                                      (lose_checkpoints, "checkpoints")])
@pytest.mark.parametrize("workers", [1, 2])
def test_storage_that_goes_away(start, storage, tmp_path, lose, say, workers):
    running = start("train", "mlp", "--data", digits(tmp_path), *ENDLESS, "--workers", workers, "--checkpoint-every",
                    "1step", "--json", "--name", "a", "--save", "w.npz")
    wait_until(lambda: checkpoints(storage / "a"))
    lose(storage / "a")
    running.signal(signal.SIGTERM)
    done = running.wait()
    assert done.status == 1
    result = done.event("result")
    assert result["status"] == "failed" and say in result["error"] and result["path"] == "w.npz"
    said = [line for line in done.stderr.splitlines() if line.startswith("manta: ")]
    assert said == ["manta: " + result["error"]], done.stderr
    assert done.stderr.count("a checkpoint could not be written") <= 1
    with np.load(tmp_path / "w.npz") as f:
        assert int(f["optimizer/iterations"]) > 0 and np.isfinite(f["dense/kernel"]).all()


def hear(running, what):
    """Reads on until it is said; what is said before is that an old checkpoint was on its way out just then."""
    for line in iter(running.process.stderr.readline, ""):
        if what in line:
            return
        assert "an old checkpoint could not be removed" in line
    raise AssertionError(f"{what!r} was never said")


def test_storage_that_is_there_again(manta, start, storage, tmp_path):
    """What could not be written in between is said; the run ends well enough to go on from."""
    running = start("train", "mlp", "--data", digits(tmp_path), *ENDLESS, "--checkpoint-every", "1step", "--name", "a")
    wait_until(lambda: checkpoints(storage / "a"))
    lose_checkpoints(storage / "a")
    hear(running, "a checkpoint could not be written")
    (storage / "a" / "gone").rename(storage / "a" / "checkpoints")
    hear(running, "checkpoints can be written again")
    running.signal(signal.SIGTERM)
    assert running.wait().status == 1  # a checkpoint is missing
    assert checkpoints(storage / "a")
    assert json.loads(manta("runs", "--json").stdout)["status"] == "failed"
