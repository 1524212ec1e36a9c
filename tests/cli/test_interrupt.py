"""Ctrl-C: an end after the current step, cleanly, with status 130."""
import json
import signal

import numpy as np
import pytest

from samples import digits


def first_event(running, name):
    """Reads events until one is called `name`; the pipe blocks until there is one."""
    for text in running.process.stdout:
        if json.loads(text)["event"] == name:
            return
    pytest.fail(f"no event {name!r} came:\n{running.process.stderr.read()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_saves(start, tmp_path, number):
    running = start("train", "mlp", "--data", digits(tmp_path), "--epochs", 1000000, "--json", "--save", "w.npz")
    first_event(running, "epoch")
    running.signal(number)
    done = running.wait()
    assert done.status == 130
    result = done.event("result")
    assert result["status"] == "interrupted" and result["path"] == "w.npz"
    assert np.isfinite(result["metrics"]["loss"])
    with np.load(tmp_path / "w.npz") as f:
        assert int(f["optimizer/iterations"]) >= 8
        assert np.isfinite(f["dense/kernel"]).all()
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["w.npz", "x.npy", "y.npy"]


def test_people_are_told(start, tmp_path):
    running = start("train", "mlp", "--data", digits(tmp_path), "--epochs", 1000000)
    for text in running.process.stdout:
        if text.startswith("Epoch 1/"):
            break
    running.signal(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert done.stderr.splitlines() == ["manta: interrupted; nothing was saved (--save FILE would have)"]


def test_two_signals_end_it_too(start, tmp_path):
    """Whichever comes first, the end of the step or the second signal, the status says interrupted."""
    running = start("train", "mnist-cnn", "--data", digits(tmp_path), "--epochs", 1000000, "--json")
    first_event(running, "epoch")
    running.signal(signal.SIGINT)
    running.signal(signal.SIGTERM)
    assert running.wait().status == 130


def test_interrupted_run_goes_on_from_its_weights(start, manta, tmp_path):
    data = digits(tmp_path)
    running = start("train", "mlp", "--data", data, "--epochs", 1000000, "--json", "--save", "w.npz")
    first_event(running, "epoch")
    running.signal(signal.SIGINT)
    assert running.wait().status == 130
    with np.load(tmp_path / "w.npz") as f:
        before = int(f["optimizer/iterations"])
    manta("train", "mlp", "--data", data, "--weights", "w.npz", "--save", "w.npz")
    with np.load(tmp_path / "w.npz") as f:
        assert int(f["optimizer/iterations"]) == before + 8
