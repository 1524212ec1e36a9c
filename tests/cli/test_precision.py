"""--precision mixed_bfloat16: the same bytes for any number of workers and after any end, files in float32."""
import os
import signal

import numpy as np
import pytest

from samples import digits
from waits import checkpoints, read_event, wait_until

MIXED = ("--precision", "mixed_bfloat16")
TRAIN = ("--global-batch", 32, "--shards", 4, "--seed", 7, "--json")


def weights(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_same_bytes_for_any_number_of_workers(manta, tmp_path):
    data = digits(tmp_path)
    run = ("train", "mnist-cnn", "--data", data, "--validation", data, "--epochs", 2, *TRAIN)
    for n in (1, 2, 4):
        manta(*run, *MIXED, "--workers", n, "--save", f"{n}.npz")
        assert (tmp_path / f"{n}.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()
    manta(*run, *MIXED, "--kernels", "avx2", "--save", "avx2.npz")
    assert (tmp_path / "avx2.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()
    # Another arithmetic, but the same training: weights are float32 and near those of float32.
    manta(*run, "--save", "exact.npz")
    manta(*run, "--precision", "float32", "--save", "float32.npz")
    assert (tmp_path / "float32.npz").read_bytes() == (tmp_path / "exact.npz").read_bytes()
    exact, mixed = weights(tmp_path / "exact.npz"), weights(tmp_path / "1.npz")
    assert exact.keys() == mixed.keys()
    for name, w in mixed.items():
        assert w.dtype == exact[name].dtype
    kernels = [name for name in mixed if mixed[name].ndim >= 2]
    assert kernels
    for name in kernels:
        off = np.linalg.norm(mixed[name] - exact[name])
        assert 0 < off < 0.1 * np.linalg.norm(exact[name])
        assert np.any(mixed[name].view(np.uint32) & 0xFFFF), f"{name} was rounded to bfloat16"


def test_parameter_servers(manta, tmp_path):
    run = ("train", "mlp", "--data", digits(tmp_path), "--batch", 16, "--epochs", 2, "--seed", 7, "--json", *MIXED)
    manta(*run, "--save", "one.npz")
    manta(*run, "--strategy", "parameter-server", "--workers", 2, "--staleness", 0, "--save", "served.npz")
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "served.npz").read_bytes()


def test_kill_9_of_a_worker_changes_nothing(manta, start, tmp_path):
    run = ("train", "mnist-cnn", "--data", digits(tmp_path, n=32), "--epochs", 100, *TRAIN, *MIXED)
    manta(*run, "--save", "calm.npz")
    running = start(*run, "--workers", 2, "--save", "killed.npz", held=True)
    workers = [read_event(running, "worker") for _ in range(2)]
    read_event(running, "epoch")
    os.kill(workers[1]["pid"], signal.SIGKILL)
    read_event(running, "recovered")
    done = running.wait()
    assert done.status == 0, done.stderr
    assert (tmp_path / "killed.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()


def test_kill_9_of_all_and_resume(manta, start, storage, tmp_path):
    """The run goes on in its precision, which is not said again; another one is refused."""
    run = ("train", "mlp", "--data", digits(tmp_path), "--epochs", 3, "--batch", 8, "--workers", 2, "--seed", 7,
           "--checkpoint-every", "2steps", "--json", *MIXED)
    manta(*run, "--save", "calm.npz")
    running = start(*run, "--name", "a", "--save", "cut.npz")
    wait_until(lambda: checkpoints(storage / "a")[-1:] >= ["checkpoint-000003"])
    running.process.kill()
    running.process.wait(240)
    for other in ("exact", "float32"):
        done = manta("train", "--resume", "a", "--precision", other, status=1)
        assert f"--precision {other} (it was begun with mixed_bfloat16)" in done.stderr
    done = manta("train", "--resume", "a", "--json")
    assert done.event("resumed")["checkpoint"].startswith(str(storage / "a"))
    assert (tmp_path / "cut.npz").read_bytes() == (tmp_path / "calm.npz").read_bytes()


def test_a_run_in_float32_does_not_go_on_in_bfloat16(manta, storage, tmp_path):
    manta("train", "mlp", "--data", digits(tmp_path), "--epochs", 1, "--name", "a", "--json")
    done = manta("train", "--resume", "a", *MIXED, status=1)
    assert "--precision mixed_bfloat16 (it was begun with exact)" in done.stderr
    manta("train", "--resume", "a", "--precision", "float32", "--epochs", 2, "--json")


@pytest.mark.parametrize("workers", [1, 2])
def test_evaluate_and_predict(manta, tmp_path, workers):
    """Both take a precision; the bytes do not depend on how many compute, and the numbers are near float32's."""
    data = digits(tmp_path)
    manta("train", "mnist-cnn", "--data", data, "--epochs", 2, "--seed", 7, "--json", "--save", "w.npz")
    model = ("mnist-cnn", "--weights", "w.npz", "--data")
    losses = {}
    for precision in ("exact", "mixed_bfloat16"):
        done = manta("evaluate", *model, data, "--workers", workers, "--precision", precision, "--json")
        losses[precision] = done.event("result")["metrics"]["loss"]
    assert losses["exact"] != losses["mixed_bfloat16"]
    assert losses["mixed_bfloat16"] == pytest.approx(losses["exact"], rel=0.05, abs=0.02)


def test_it_is_said_and_refused_in_words(manta, tmp_path):
    data = digits(tmp_path)
    said = manta("train", "mlp", "--data", data, "--epochs", 1, *MIXED).stdout
    assert "mixed_bfloat16" in said.splitlines()[0]
    refused = [(("--precision", "mixed_float16"), "mixed_float16"), (("--precision", "bfloat16"), "mixed_bfloat16"),
               ((*MIXED, "--kernels", "onednn"), "onednn")]
    for more, words in refused:
        done = manta("train", "mlp", "--data", data, "--save", "no.npz", *more, status=1)
        assert words in done.stderr and len(done.stderr.splitlines()) == 1
        assert not (tmp_path / "no.npz").exists()
    assert "ms/step" in manta("bench", "train", "--model", "mlp", "--steps", 3, *MIXED).stdout
