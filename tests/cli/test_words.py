"""Words that help: what a mistyped name was meant to be, and sentences that read as sentences."""
import io
import json
import subprocess
import tarfile

import numpy as np
import pytest

import records
from conftest import PROGRAM
from samples import digits, line

TRAIN = ("train", "mlp", "--data", "x.npy,y.npy")


def sentence(done):
    return done.stderr.splitlines()[0]


@pytest.fixture
def data(tmp_path):
    digits(tmp_path, n=8)
    np.savez(tmp_path / "f.npz", images=np.zeros((4, 28, 28), np.float32), labels=np.zeros(4, np.int64))
    (tmp_path / "f.csv").write_text("age,income,label\n1,2,0\n3,4,1\n")
    records.write(tmp_path / "f.tfrecord", [records.example(image=bytes(784), label=[3])])
    with tarfile.open(tmp_path / "f.tar", "w") as archive:
        for name in ("0.image.npy", "0.cls", "0.json"):
            content = io.BytesIO()
            np.save(content, np.zeros((28, 28), np.float32))
            content = {"npy": content.getvalue(), "cls": b"3", "json": b'{"label": 3, "table": "x"}'}[name.split(".")[-1]]
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return tmp_path


@pytest.mark.parametrize("args, meant", [
    ([*TRAIN, "--optimizer", "adma"], "adam"), ([*TRAIN, "--optimizer", "torch.adm"], "torch.adam"),
    ([*TRAIN, "--lr-schedule", "cosin:steps=3"], "cosine"), ([*TRAIN, "--metrics", "acuracy"], "accuracy"),
    ([*TRAIN, "--loss", "huberr"], "huber"), ([*TRAIN, "--loss", "mze"], "mse"), ([*TRAIN, "--metrics", "maee"], "mae"),
    ([*TRAIN, "--device", "gpuu"], "gpu"), ([*TRAIN, "--early-stop", "loss:mode=mni"], "min"),
    ([*TRAIN, "--early-stop", "los"], "loss"),
    ([*TRAIN, "--early-stop", "loss:patienc=3"], "patience"), ([*TRAIN, "--freeze", "dens"], "dense"),
    ([*TRAIN, "--kernels", "avx51"], "avx512"), ([*TRAIN, "--strategy", "parameter-servr"], "parameter-server"),
    ([*TRAIN, "--log-level", "debg"], "debug"), ([*TRAIN, "--name", "a", "--log-to", "outptu"], "output"),
    ([*TRAIN, "--batch-norm", "frist"], "first"), ([*TRAIN, "--epoch", "1"], "--epochs"),
    (["train", "mlpp", "--data", "mnist"], "mlp"), (["train", "mlp", "--data", "mnsit"], "mnist"),
    (["train", "mlp", "--data", "mnist:tset"], ":test"), (["train", "mlp", "--data", "f.csv:label=lable"], "label"),
    (["train", "mlp", "--data", "f.npz:imags,labels"], "images"), (["data", "fetch", "fashion-mnsit"], "fashion-mnist"),
    (["data", "path", "mnsit"], "mnist"), (["inspect", "mnsit"], "mnist"), (["inspect", "restnet18"], "resnet18"),
    (["train", "mlp", "--data", "f.csv:y=label,missing=meen"], "missing=mean"),
    (["train", "mlp", "--data", "f.csv:y=label,mising=mean"], "missing=mean"),
    (["train", "mlp", "--data", "f.csv:labl=label"], "label"),
    ([*TRAIN, "--lr-schedule", "cosine:stesp=3"], "steps"), ([*TRAIN, "--lr-schedule", "polynomial:steps=3,ned=1"], "end"),
    ([*TRAIN, "--lr-schedule", "exponential:steps=3,staircse"], "staircase"),
    (["train", "mlp", "--data", "f.tfrecord:x=imgae,y=label"], "image"),
    (["train", "mlp", "--data", "f.tar:imgae.npy,cls"], "image.npy"),
    (["train", "mlp", "--data", "f.tar:image.npz,cls"], "npy"),
    (["train", "mlp", "--data", "f.tar:image.npy,json.lable"], "label"),
    (["runs", "plot", "a", "--x", "tiem"], "time"), (["runs", "plot", "a", "--metric", "loss"], "--metrics"),
    (["trian"], "train"), (["bench", "trian"], "bench train")])
def test_did_you_mean(start, data, args, meant):
    done = start(*args).wait()
    assert done.status in (1, 2) and f"did you mean {meant}?" in sentence(done), done.stderr


def test_runs_are_suggested_too(manta, data, storage):
    manta(*TRAIN, "--name", "first", "--json")
    for command in (["runs", "show"], ["logs"], ["runs", "plot"], ["train", "--resume"]):
        assert "did you mean first?" in sentence(manta(*command, "frist", status=1))
    assert "did you mean loss?" in sentence(manta("runs", "plot", "first", "--metrics", "los", status=2))
    assert "did you mean first?" in sentence(manta(*TRAIN, "--weights", "frist", status=1))
    assert sentence(manta("runs", "show", "fd/rn", status=1)) == "manta: there is no run in the folder fd/rn"


def test_inspect_of_nothing_speaks_of_files(manta):
    said = sentence(manta("inspect", "nofile", status=1))
    assert "there is no file 'nofile'" in said and "manta data list" in said


def test_help_names_the_kinds_of_data(manta):
    said = " ".join(manta("train", "--help").stdout.split())
    assert all(word in said for word in ("TFRecord", "tar archives", "Parquet", ".npz", ".csv"))


@pytest.mark.parametrize("out", ["m.keras", "m.onnx"])
def test_convert_suggests_like(manta, out):
    manta("model", "mlp", "-o", "w.npz")
    assert "--like MODEL" in sentence(manta("convert", "w.npz", out, status=1))
    manta("convert", "w.npz", out, "--like", "mlp")


def test_another_loss_keeps_the_metrics_of_the_file(manta, tmp_path):
    data = line(tmp_path)
    manta("train", "linear", "--data", data, "--metrics", "mean_absolute_error,huber", "--save", "m.keras")
    for more in ([], ["--loss", "mean_absolute_error"]):
        event = manta("evaluate", "m.keras", "--data", data, "--json", *more).event("result")
        assert set(event["metrics"]) == {"loss", "mean_absolute_error", "huber"}
    event = manta("evaluate", "m.keras", "--data", data, "--json", "--loss", "mse", "--metrics", "none").event("result")
    assert set(event["metrics"]) == {"loss"}


def test_one_sample_and_a_folder(manta, tmp_path):
    lines = manta("train", "mlp", "--data", digits(tmp_path, n=1), "--run-dir", "fd/run").stdout.splitlines()
    assert ": 1 sample; " in lines[0] and lines[1] == "Run in fd/run"


def test_a_checkpoint_without_metrics(manta, tmp_path, storage):
    """Nothing follows where there is nothing to say."""
    manta("train", "mlp", "--data", digits(tmp_path), "--name", "a", "--epochs", 2)
    for manifest in (storage / "a" / "checkpoints").glob("*/manifest.json"):
        said = {**json.loads(manifest.read_text()), "metrics": {}}
        del said["crc32c"]
        sum_ = records.crc32c(json.dumps(said, separators=(",", ":"), sort_keys=True).encode())
        manifest.write_text(json.dumps({"crc32c": f"{sum_:08x}", **said}, separators=(",", ":")))
    assert manta("runs", "show", "a").stdout.splitlines()[-1] == "checkpoint-000002: after epoch 2"


def test_a_full_disk_is_told_of_once(tmp_path, environment):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "manta-test", str(small)],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if mounted.returncode:
        pytest.skip("may not mount a small file system here")
    try:
        done = subprocess.run([str(PROGRAM), "train", "mlp", "--data", digits(tmp_path, n=8), "--run-dir", "small/a"],
                              cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert done.returncode == 1
    said = [l.partition("manta: ")[2] for l in done.stderr.splitlines() if l.startswith("manta: ")]
    assert len(said) == 1 and "No space left on device" in said[0]
    assert done.stderr.count(said[0]) == 1, done.stderr
