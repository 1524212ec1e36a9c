"""Names that others chose cannot speak to the terminal, wherever they are shown."""
import io
import json
import struct
import subprocess
import tarfile

import numpy as np
import pytest

import records
from conftest import PROGRAM
from samples import digits

RED = "\x1b[31mred\u009b2j\u202egpj\nnext\x7f"
SHOWN = "?[31mred?2j?gpj?next?"
SPOKEN = ("\x1b", "\u009b", "\u202e", "\x7f", "\r")


def quiet(done, shown=SHOWN):
    """Nothing that was printed does anything; the name is there all the same."""
    for text in (done.stdout, done.stderr):
        assert not any(c in text for c in SPOKEN), text
    assert shown in done.stdout + done.stderr, done.stdout + done.stderr


def strings(value):
    """All strings in a JSON value."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    return [value] if isinstance(value, str) else [s for v in value for s in strings(v)] if isinstance(value, list) else []


def write_tar(folder):
    with tarfile.open(folder / "f.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for key in ("a", "b"):
            for kind in (RED, "cls"):
                info = tarfile.TarInfo(f"{key}.{kind}")
                info.size = 1
                tar.addfile(info, io.BytesIO(b"1"))
    return "f.tar"


def write_npz(folder):
    np.savez(folder / "f.npz", **{RED: np.zeros(3, np.float32)})
    return "f.npz"


def write_safetensors(folder):
    head = json.dumps({RED: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (folder / "f.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))
    return "f.safetensors"


def write_tfrecord(folder):
    records.write(folder / "f.tfrecord", [records.example(**{RED: [1.0], "label": [1]})] * 3)
    return "f.tfrecord"


def write_events(folder):
    records.write(folder / "events.out.tfevents.1.x", [records.event(), records.event(1, **{RED: 0.5})])
    return "events.out.tfevents.1.x"


def model_config(folder):
    layers = [{"class_name": "InputLayer", "config": {"batch_shape": [None, 28, 28], "name": RED}},
              {"class_name": "Flatten", "config": {"name": RED + "1"}},
              {"class_name": "Dense", "config": {"name": RED + "2", "units": 10}}]
    (folder / "f.json").write_text(json.dumps({"class_name": "Sequential", "config": {"name": RED, "layers": layers}}))
    return "f.json"


@pytest.mark.parametrize("write", [write_tar, write_npz, write_safetensors, write_tfrecord, write_events,
                                   model_config])
def test_inspect(manta, tmp_path, write):
    path = write(tmp_path)
    quiet(manta("inspect", path), "?[31mred?2j")
    for line in manta("inspect", path, "--json").stdout.splitlines():   # there it is exact
        assert any("\x1b[31mred\u009b2j" in text for text in strings(json.loads(line)))
        assert line.isascii() and line.isprintable()


@pytest.mark.parametrize("args", [["inspect", RED], ["inspect", f"{RED}.npz"], [RED], ["train", RED, "--data", "mnist"],
                                  ["train", "mlp", "--data", RED], ["data", "fetch", RED], ["data", "path", RED],
                                  ["runs", "show", RED], ["runs", "compare", RED, RED], ["logs", RED],
                                  ["convert", RED, "x.npz"], ["evaluate", RED, "--data", "mnist"],
                                  ["train", "mlp", "--data", "mnist", "--optimizer", RED],
                                  ["train", "mlp", "--data", "mnist", "--epochs", RED],
                                  ["train", "mlp", "--data", "mnist", "--" + RED],
                                  ["train", "mlp", "--data", "mnist", "--config", RED]])
def test_names_that_are_refused(start, args):
    done = start(*args).wait()
    assert done.status in (1, 2)
    quiet(done)


def test_the_lines_of_a_training(manta, tmp_path, storage):
    """The name of the model, of the data and of the file that is saved."""
    folder = tmp_path / RED
    folder.mkdir()
    digits(folder)
    run = ("train", model_config(tmp_path), "--data", f"{RED}/x.npy,{RED}/y.npy", "--loss",
           "sparse_categorical_crossentropy", "--save", f"{RED}/w.npz", "--run-dir", f"{RED}/run")
    done = manta(*run)
    quiet(done)
    assert done.stdout.count(SHOWN) >= 4
    quiet(manta("runs", "show", f"{RED}/run"))
    quiet(manta("runs", "plot", f"{RED}/run"), "loss")
    quiet(manta("inspect", sorted((folder / "run" / "checkpoints").iterdir())[-1]))


def test_a_log_that_others_wrote(manta, tmp_path, storage):
    manta("train", "mlp", "--data", digits(tmp_path), "--workers", 2, "--name", "a", "--json")
    with open(storage / "a" / "log" / "rank-0.txt", "a") as log:
        log.write("one\ttwo \x1b]0;title\x07 three\n")
    done = manta("logs", "a", "--rank", 0)
    quiet(done, "one\ttwo ?]0;title? three\n")


def test_on_a_terminal_that_reads_bytes(tmp_path, environment):
    """Bytes that are no UTF-8 are commands to some terminals."""
    done = subprocess.run([str(PROGRAM).encode(), b"inspect", b"a\x9b31mb.npz"], cwd=tmp_path, env=environment,
                          capture_output=True, timeout=240)
    assert done.returncode == 1 and b"a?31mb.npz" in done.stderr and b"\x9b" not in done.stderr
