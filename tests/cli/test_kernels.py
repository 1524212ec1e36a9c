"""Kernel families that are a library's: it is opened when they are asked for, and missed by nobody else. And those of
devices, on the fake one: trainings from the command line end with the bytes of the processor, or are refused."""
import json
import subprocess

import pytest

from conftest import PROGRAM
from samples import digits

STEPS = ("bench", "train", "--model", "mlp", "--steps", "2", "--batch", "8")


@pytest.fixture
def without(tmp_path):
    """An environment in which what is found as oneDNN is no library."""
    for version in (2, 3):
        (tmp_path / f"libdnnl.so.{version}").write_bytes(b"no library, but long enough to be looked at" * 10)
    return {"LD_LIBRARY_PATH": str(tmp_path)}


def test_onednn_is_not_linked():
    needed = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert "libmanta" in needed and "dnnl" not in needed and "gomp" not in needed


def test_without_onednn_all_else_runs(manta, without):
    assert "ms/step" in manta(*STEPS, env=without).stdout
    done = manta(*STEPS, "--kernels", "onednn", env=without, status=1)
    assert "kernels 'onednn': oneDNN cannot be opened (" in done.stderr and "libdnnl" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_with_onednn(manta):
    assert "onednn kernels" in manta(*STEPS, "--kernels", "onednn").stdout


OPTIONS = {
    "average": ("--optimizer", "adam", "--ema", "0.9", "--gradient-accumulation", "2"),
    "schedule": ("--optimizer", "sgd", "--momentum", "0.9", "--lr-schedule", "cosine:steps=10,warmup=3", "--shards", "3"),
    "weights": ("--class-weight", "1,2,3,1,1,1,1,1,1,0.5", "--global-clipnorm", "0.3", "--early-stop", "loss"),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_device_trains_as_the_processor(manta, tmp_path, options):
    data = digits(tmp_path)
    for device in ("cpu", "fake"):
        manta("train", "mlp", "--data", data, "--validation", "x.npy,y.npy", "--epochs", 2, "--steps-per-epoch", 5, *options,
              "--device", device, "--precision", "exact", "--save", f"{device}.npz", "--csv-log", f"{device}.csv")
    assert (tmp_path / "cpu.npz").read_bytes() == (tmp_path / "fake.npz").read_bytes()
    assert (tmp_path / "cpu.csv").read_text() == (tmp_path / "fake.csv").read_text()


def test_a_run_goes_on_on_another_device(manta, storage, tmp_path):
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--epochs", 2, "--save", "whole.npz")
    # What a processor began stays exact; what a device is to begin so is told.
    for first, second, told in (("cpu", "fake", ()), ("fake", "cpu", ("--precision", "exact"))):
        manta("train", "mlp", "--data", data, "--epochs", 1, "--name", first, "--device", first, *told)
        manta("train", "--resume", first, "--device", second, "--epochs", 2, "--save", f"{first}.npz")
        assert (tmp_path / f"{first}.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_a_device_says_its_precision_and_keeps_it(manta, storage, tmp_path):
    data = digits(tmp_path)
    line = ("train", "mlp", "--data", data, "--device", "fake")
    assert "float32 (products in tf32)" in manta(*line, "--epochs", 1, "--name", "quick").stdout
    for epochs, told in ((2, ()), (3, ("--precision", "float32")), (4, ())):
        assert "float32 (products in tf32)" in manta("train", "--resume", "quick", "--epochs", epochs, *told).stdout
    done = manta("train", "--resume", "quick", "--epochs", 5, "--precision", "exact", status=1)
    assert "--precision exact (it was begun with float32)" in done.stderr, done.stderr
    said = manta("train", "--resume", "quick", "--epochs", 5, "--device", "cpu").stderr
    assert "goes on on another device, in float32" in said, said
    assert "mixed_bfloat16" in manta(*line, "--epochs", 1, "--precision", "mixed_bfloat16").stdout
    manta("train", "mlp", "--data", data, "--epochs", 1, "--name", "old")
    assert ", exact" in manta("train", "--resume", "old", "--device", "fake", "--epochs", 2).stdout
    done = manta("train", "--resume", "old", "--epochs", 3, "--precision", "float32", status=1)
    assert "--precision float32 (it was begun with exact)" in done.stderr, done.stderr


def test_what_the_machine_chose_is_kept(manta, storage, tmp_path):
    """auto takes what is there: elsewhere the run goes on in the precision that it was begun in."""
    begun = manta("train", "mlp", "--data", digits(tmp_path), "--epochs", 1, "--device", "auto", "--name", "run").stdout
    chosen = json.loads((storage / "run" / "config.json").read_text())["precision"]
    assert chosen == ("exact" if "kernels" in begun else "float32"), begun
    assert f", {chosen}" in manta("train", "--resume", "run", "--epochs", 2, "--device", "fake").stdout


@pytest.mark.parametrize("options, words", (
    (("--workers", "2"), "one process"),
    (("--debug",), "debug"),
    (("--kernels", "onednn"), "onednn out"),
))
def test_what_a_device_cannot_is_refused(manta, tmp_path, options, words):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--device", "fake", *options, status=1)
    assert "device 'fake'" in done.stderr and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_a_profile_is_of_the_processor(manta, tmp_path):
    line = ("train", "mlp", "--data", digits(tmp_path), "--profile", 3)
    done = manta(*line, "--device", "fake", status=2)
    assert "leave --device out" in done.stderr
    assert not (tmp_path / "manta-trace.json").exists()
    manta(*line, "--device", "auto")
    assert (tmp_path / "manta-trace.json").exists()
