"""Several workers: the same bytes as one process, also when workers are killed."""
import os
import signal

import pytest

from samples import digits
from waits import is_gone, read_event, wait_until

TRAIN = ("--global-batch", 32, "--shards", 4, "--seed", 7, "--json")


def test_workers_say_who_they_are(manta, tmp_path):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--workers", 2, *TRAIN)
    workers = [e for e in done.events if e["event"] == "worker"]
    assert [w["rank"] for w in workers] == [0, 1]
    assert len({w["pid"] for w in workers}) == 2
    assert all(is_gone(w["pid"]) for w in workers)
    assert done.event("result")["status"] == "done"


@pytest.mark.parametrize("model", ["mnist-cnn", "mlp"])
def test_same_bytes_for_any_number_of_workers(manta, tmp_path, model):
    data = digits(tmp_path)
    for n in (1, 2, 3, 4):
        done = manta("train", model, "--data", data, "--validation", data, "--workers", n, "--epochs", 2, *TRAIN,
                     "--save", f"{n}.npz")
        epochs = [{k: v for k, v in e.items() if k not in ("images_per_s", "seconds")}
                  for e in done.events if e["event"] == "epoch"]
        if n == 1:
            first = epochs
        assert epochs == first and len(epochs) == 2
        assert (tmp_path / f"{n}.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()


def test_batch_is_per_worker(manta, tmp_path):
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--workers", 2, "--batch", 16, "--json", "--save", "a.npz")
    manta("train", "mlp", "--data", data, "--shards", 2, "--batch", 32, "--json", "--save", "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


@pytest.mark.parametrize("rank", [0, 1])
def test_kill_9_changes_nothing(manta, start, tmp_path, rank):
    data = digits(tmp_path, n=32)
    run = ("train", "mnist-cnn", "--data", data, "--epochs", 100, *TRAIN)
    manta(*run, "--save", "calm.npz")
    running = start(*run, "--workers", 2, "--save", "killed.npz", held=True)
    workers = [read_event(running, "worker") for _ in range(2)]
    read_event(running, "epoch")
    os.kill(workers[rank]["pid"], signal.SIGKILL)
    successor = read_event(running, "worker")
    assert successor["rank"] == rank and successor["pid"] != workers[rank]["pid"]
    recovered = read_event(running, "recovered")
    done = running.wait()
    assert done.status == 0, done.stderr
    assert (tmp_path / "killed.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()
    assert recovered["rank"] == rank and recovered["pid"] == workers[rank]["pid"]
    assert recovered["cause"] == "killed by signal 9 (Killed)" and recovered["ms"] > 0


@pytest.mark.parametrize("workers", [1, 2])
def test_rates_of_ranks(manta, tmp_path, workers):
    """Who did what adds up to the epoch; to people it is a line for each."""
    run = ("train", "mlp", "--data", digits(tmp_path), "--validation", "x.npy,y.npy", "--workers", workers, "--epochs", 3,
           "--global-batch", 32, "--shards", 2, "--rates")
    done = manta(*run, "--json")
    epochs = [e for e in done.events if e["event"] == "epoch"]
    assert len(epochs) == 3
    for e in epochs:
        assert [r["rank"] for r in e["ranks"]] == list(range(workers))
        assert sum(r["samples"] for r in e["ranks"]) == 256
        assert sum(r["samples_per_s"] for r in e["ranks"]) == pytest.approx(e["images_per_s"], rel=1e-6)
        assert all(0 < r["computing"] <= 1 for r in e["ranks"])
    lines = manta(*run).stdout.splitlines()
    for rank in range(workers):
        assert len([l for l in lines if l.startswith(f"  rank {rank}: ") and "% of the time" in l]) == 3
    assert "ranks" not in manta("train", "mlp", "--data", "x.npy,y.npy", "--workers", workers, "--json").event("epoch")


def test_rates_that_make_no_sense(manta, tmp_path):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--strategy", "parameter-server", "--rates", status=2)
    assert "--rates" in done.stderr


def test_parameter_servers(manta, tmp_path):
    """Without staleness it is one process's training, byte for byte; with it every step is done too."""
    data = digits(tmp_path)
    run = ("train", "mlp", "--data", data, "--batch", 16, "--epochs", 2, "--seed", 7, "--json")
    manta(*run, "--save", "one.npz")
    done = manta(*run, "--strategy", "parameter-server", "--workers", 2, "--servers", 2, "--staleness", 0, "--save",
                 "served.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "served.npz").read_bytes()
    workers = [e for e in done.events if e["event"] == "worker"]
    assert [w["rank"] for w in workers] == [0, 1] and all(is_gone(w["pid"]) for w in workers)
    one = [e["steps"] for e in manta(*run).events if e["event"] == "epoch"]
    free = manta(*run, "--strategy", "parameter-server", "--workers", 3)
    assert [e["steps"] for e in free.events if e["event"] == "epoch"] == one


def test_workers_come_and_go(start, tmp_path):
    """SIGUSR2 takes one away, SIGUSR1 brings it back; beyond the range nothing happens but a sentence."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", "1:2", "--epochs", 1000000, "--json")
    workers = [read_event(running, "worker") for _ in range(2)]
    read_event(running, "epoch")
    running.signal(signal.SIGUSR2)
    left = read_event(running, "left")
    assert (left["rank"], left["pid"], left["cause"]) == (1, workers[1]["pid"], "on request")
    assert is_gone(left["pid"])
    running.signal(signal.SIGUSR2)
    assert "0 workers, expected 1 to 2" in running.process.stderr.readline()
    running.signal(signal.SIGUSR1)
    back = read_event(running, "worker")
    assert back["rank"] == 1 and not is_gone(back["pid"])
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert is_gone(back["pid"]) and is_gone(workers[0]["pid"])


def test_ctrl_c_reaches_the_workers_through_their_controller(start, tmp_path):
    """A terminal sends the signal to all processes of the group."""
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--epochs", 1000000, "--json",
                    "--save", "w.npz")
    workers = [read_event(running, "worker") for _ in range(2)]
    read_event(running, "epoch")
    os.killpg(running.process.pid, signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert done.event("result")["status"] == "interrupted"
    assert "recovered" not in {e["event"] for e in done.events}
    assert all(is_gone(w["pid"]) for w in workers)


def test_nobody_survives_the_controller(start, tmp_path):
    running = start("train", "mlp", "--data", digits(tmp_path), "--workers", 3, "--epochs", 1000000, "--json")
    workers = [read_event(running, "worker") for _ in range(3)]
    running.signal(signal.SIGKILL)
    wait_until(lambda: all(is_gone(w["pid"]) for w in workers))


def test_evaluate_with_workers_is_exact(manta, tmp_path):
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--json", "--save", "w.npz")
    one = manta("evaluate", "mlp", "--weights", "w.npz", "--data", data, "--json", "--batch", 48).event("result")
    two = manta("evaluate", "mlp", "--weights", "w.npz", "--data", data, "--json", "--workers", 2, "--batch",
                24).event("result")
    assert two["metrics"]["accuracy"] == one["metrics"]["accuracy"]
    assert two["metrics"]["loss"] == pytest.approx(one["metrics"]["loss"], rel=1e-6)


def test_profile_of_workers(manta, tmp_path):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--batch", 8, "--profile", 3)
    rows = [line.split() for line in done.stdout.splitlines() if line]
    assert [row[:2] for row in rows if row[0] == "rank"] == [["rank", "0"], ["rank", "1"]]
    assert {"mean", "most"} <= {row[0] for row in rows}
    assert not (tmp_path / "manta-trace.json").exists()


@pytest.mark.parametrize("steps", [2, 7])
def test_profile_of_workers_as_event(manta, tmp_path, steps):
    e = manta("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--batch", 8, "--profile", steps,
              "--json").event("profile")
    assert e["steps"] == steps and [w["rank"] for w in e["workers"]] == [0, 1]
    for worker in e["workers"]:
        parts = [worker[part + "_ms"] for part in ("data", "compute", "update", "others", "rest")]
        assert all(part >= 0 for part in parts) and worker["compute_ms"] > 0 and worker["update_ms"] > 0
        assert sum(parts) >= e["ms_per_step"] * 0.999  # what is not measured is the rest


@pytest.mark.parametrize("extra,say", [
    (["--workers", "0"], "1 to 256"), (["--workers", "two"], "whole number"), (["--workers", "257"], "1 to 256"),
    (["--workers", "4", "--shards", "3"], "each worker needs one"),
    (["--workers", "2", "--profile", "3", "--profile-trace", "t.json"], "leave --workers out"),
    (["--strategy", "parameter-server", "--workers", "2", "--profile", "3"], "--profile"),
])
def test_what_is_refused(manta, tmp_path, extra, say):
    done = manta("train", "mlp", "--data", digits(tmp_path), *extra, status=2)
    assert say in done.stderr
