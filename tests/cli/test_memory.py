"""What a training keeps in memory: its state, and not the file that it began with."""
import json
import signal

import numpy as np
import pytest

WIDTH = 2048        # of two layers: 16 MB of weights in between


def layer(kind, name, **config):
    return {"module": "keras.layers", "class_name": kind, "config": {"name": name, **config}, "registered_name": None}


def write_model(folder):
    layers = [layer("InputLayer", "x", batch_shape=[None, WIDTH], dtype="float32"), layer("Dense", "first", units=WIDTH),
              layer("Dense", "second", units=WIDTH), layer("Dense", "last", units=4)]
    (folder / "config.json").write_text(json.dumps({"module": "keras", "class_name": "Sequential", "registered_name": None,
                                                    "config": {"name": "wide", "layers": layers}}))
    rng = np.random.default_rng(1)
    np.save(folder / "x.npy", rng.random((16, WIDTH), dtype=np.float32))
    np.save(folder / "y.npy", rng.integers(0, 4, 16))


def resident_kb(start, model):
    """Of a training that is under way."""
    running = start("train", model, "--data", "x.npy,y.npy", "--loss", "sparse_categorical_crossentropy:from-logits=yes", "--optimizer",
                    "sgd", "--batch", 16, "--epochs", 1000000, "--json")
    for text in running.process.stdout:
        if json.loads(text)["event"] == "epoch":
            break
    else:
        pytest.fail(running.process.stderr.read())
    with open(f"/proc/{running.process.pid}/status", encoding="ascii") as f:
        kb = next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))
    running.signal(signal.SIGINT)
    assert running.wait().status == 130
    return kb


def test_the_file_is_given_back(manta, start, tmp_path):
    """A model from a file takes no more than the same one with fresh weights, but for a part of the file."""
    write_model(tmp_path)
    manta("train", "config.json", "--data", "x.npy,y.npy", "--loss", "sparse_categorical_crossentropy:from-logits=yes", "--optimizer",
          "sgd", "--batch", 16, "--save", "wide.keras")
    file_kb = (tmp_path / "wide.keras").stat().st_size // 1024
    assert file_kb > 2 * WIDTH * WIDTH * 4 // 1024
    assert resident_kb(start, "wide.keras") < resident_kb(start, "config.json") + file_kb // 2
