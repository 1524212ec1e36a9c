"""manta train, as a user would use it."""
import json

import numpy as np
import pytest

from samples import digits, line


def weights(path):
    """The variables of a .npz that --save wrote, without optimizer state."""
    with np.load(path) as f:
        return {k: f[k] for k in f.files if not k.startswith(("optimizer/", "run/"))}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


# ---- what is printed ----

def test_a_line_per_epoch_when_nobody_watches(manta, tmp_path):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--epochs", 3, "--batch", 64)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("mlp: 101,770 parameters; x.npy,y.npy: 256 samples; ")
    assert [l.split(" - ")[0] for l in lines[1:]] == ["Epoch 1/3", "Epoch 2/3", "Epoch 3/3"]
    assert all("4/4" in l and "accuracy: " in l and "loss: " in l for l in lines[1:])
    assert "\r" not in done.stdout and "\033" not in done.stdout
    assert done.stderr == ""


def test_events(start, tmp_path):
    running = start("train", "mlp", "--data", digits(tmp_path), "--validation", "x.npy,y.npy", "--epochs", 2,
                    "--batch", 100, "--json", "--save", "w.npz")
    done = running.wait()
    assert done.status == 0
    worker, first, second, result = done.events
    assert worker == {"event": "worker", "rank": 0, "pid": running.process.pid}
    assert [first["epoch"], second["epoch"]] == [1, 2]
    for e in (first, second):
        assert {"loss", "accuracy", "val_loss", "val_accuracy", "images_per_s"} <= e.keys()
        assert e["steps"] == 3 and e["images_per_s"] > 0
    assert second["loss"] < first["loss"]
    assert result["status"] == "done" and result["path"] == "w.npz" and result["checkpoint"] is None
    assert result["metrics"] == {k: second[k] for k in ("loss", "accuracy", "val_loss", "val_accuracy")}


def test_a_failure_is_the_last_event_too(manta):
    done = manta("train", "mlp", "--data", "nothing.npy,here.npy", "--json", status=1)
    assert done.event("result")["status"] == "failed"
    assert "nothing.npy" in done.event("result")["error"]
    assert "nothing.npy" in done.stderr and len(done.stderr.splitlines()) == 1


# ---- what is learned ----

@pytest.mark.parametrize("model", ["mnist-cnn", "mlp"])
def test_learns(manta, tmp_path, model):
    done = manta("train", model, "--data", digits(tmp_path), "--epochs", 8, "--json")
    assert done.event("result")["metrics"]["accuracy"] > 0.95


def test_linear_finds_the_line(manta, tmp_path):
    manta("train", "linear", "--data", line(tmp_path), "--epochs", 200, "--learning-rate", 0.1, "--save", "w.npz")
    w = weights(tmp_path / "w.npz")
    assert abs(w["dense/kernel"].item() - 3) < 0.02 and abs(w["dense/bias"].item() + 1) < 0.02


def test_autoencoder_needs_no_labels(manta, tmp_path):
    digits(tmp_path)
    done = manta("train", "autoencoder", "--data", "x.npy", "--epochs", 3, "--json")
    first, last = done.events[1], done.events[3]
    assert last["loss"] < first["loss"]


def test_same_seed_same_bits_whatever_the_threads(manta, tmp_path):
    data = digits(tmp_path)
    for name, seed, threads in (("a", 1, 1), ("b", 1, 2), ("c", 2, 1)):
        manta("train", "mlp", "--data", data, "--seed", seed, "--threads-per-worker", threads, "--save", f"{name}.npz")
    a, b, c = (weights(tmp_path / f"{n}.npz") for n in "abc")
    assert same(a, b)
    assert not same(a, c)


def test_weights_open_in_numpy_and_training_goes_on_from_them(manta, tmp_path):
    """Two epochs in one run are two runs of one epoch, bit for bit."""
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--epochs", 2, "--save", "whole.npz")
    manta("train", "mlp", "--data", data, "--epochs", 1, "--save", "half.npz")
    manta("train", "mlp", "--data", data, "--epochs", 2, "--initial-epoch", 1, "--weights", "half.npz", "--save",
          "two.npz")
    whole = weights(tmp_path / "whole.npz")
    assert {k: v.shape for k, v in whole.items()} == {"dense/kernel": (784, 128), "dense/bias": (128,),
                                                      "dense_1/kernel": (128, 10), "dense_1/bias": (10,)}
    assert all(v.dtype == np.float32 and np.isfinite(v).all() for v in whole.values())
    assert same(whole, weights(tmp_path / "two.npz"))


def test_reset_optimizer_takes_the_weights_only(manta, tmp_path):
    data = digits(tmp_path)
    manta("train", "mlp", "--data", data, "--save", "a.npz")
    manta("train", "mlp", "--data", data, "--weights", "a.npz", "--save", "on.npz")
    manta("train", "mlp", "--data", data, "--weights", "a.npz", "--reset-optimizer", "--save", "anew.npz")
    steps = {n: int(np.load(tmp_path / f"{n}.npz")["optimizer/iterations"]) for n in ("a", "on", "anew")}
    assert steps == {"a": 8, "on": 16, "anew": 8}


def test_frozen_layers_stay(manta, tmp_path):
    manta("model", "mnist-cnn", "-o", "before.npz")
    done = manta("train", "mnist-cnn", "--data", digits(tmp_path), "--weights", "before.npz", "--freeze",
                 "conv*,dense_1", "--save", "after.npz")
    assert "(2,769,024 trained)" in done.stdout
    before, after = weights(tmp_path / "before.npz"), weights(tmp_path / "after.npz")
    changed = {k for k in before if not np.array_equal(before[k], after[k])}
    assert changed == {"dense/kernel", "dense/bias"}


# ---- options ----

@pytest.mark.parametrize("extra", [
    ["--optimizer", "sgd", "--momentum", "0.9", "--nesterov"],
    ["--optimizer", "adamw", "--weight-decay", "0.01", "--beta-1", "0.8", "--beta-2", "0.99", "--epsilon", "1e-6"],
    ["--optimizer", "rmsprop", "--rho", "0.8", "--centered"],
    ["--optimizer", "torch.adam", "--amsgrad"],
    ["--clipnorm", "1"], ["--clipvalue", "0.1"], ["--global-clipnorm", "1"],
    ["--gradient-accumulation", "2"], ["--ema", "0.9"],
    ["--lr-schedule", "cosine:steps=10,warmup=3"], ["--lr-schedule", "exponential:steps=5,rate=0.5,staircase"],
    ["--lr-schedule", "piecewise:3=0.01,6=0.001"], ["--lr-schedule", "polynomial:steps=8,end=0.0001,power=2"],
    ["--lr-schedule", "inverse-time:steps=5,rate=0.5"],
    ["--shards", "4"], ["--no-shuffle"], ["--kernels", "reference"], ["--debug"],
    ["--normalize", "0.5,0.5"], ["--scale", "2"], ["--class-weight", "1,1,1,1,1,2,2,2,2,2"],
    ["--loss", "sparse_categorical_crossentropy:label-smoothing=0.1"],
    ["--metrics", "accuracy,sparse_top_k_categorical_accuracy:k=3"],
    ["--steps-per-epoch", "5"], ["--validation", "x.npy,y.npy", "--validation-steps", "2"], ["--global-batch", "16"],
])
def test_every_option_trains_and_changes_something(manta, tmp_path, extra):
    data = digits(tmp_path, n=128)
    usual = ["train", "mlp", "--data", data, "--json"] + ([] if extra[0] == "--global-batch" else ["--batch", 8])
    plain = manta(*usual).event("epoch")
    done = manta(*usual, *extra).event("epoch")
    assert np.isfinite(done["loss"])
    # Another way to the same numbers, up to rounding, or an effect that only the end shows.
    same_numbers = {"--kernels", "--debug", "--shards", "--ema"}
    if extra[0] not in same_numbers:
        assert {k: v for k, v in done.items() if k not in ("images_per_s", "seconds")} != \
               {k: v for k, v in plain.items() if k not in ("images_per_s", "seconds")}


def test_config_is_read_and_the_command_line_wins(manta, tmp_path):
    config = {"model": "mlp", "data": digits(tmp_path), "epochs": 3, "learning_rate": 0.01, "no-shuffle": True,
              "metrics": ["accuracy", "sparse_top_k_categorical_accuracy"], "optimizer": "sgd", "debug": False, "json": True}
    (tmp_path / "c.json").write_text(json.dumps(config))
    by_file = manta("train", "--config", "c.json", "--epochs", 2)
    by_hand = manta("train", "mlp", "--data", "x.npy,y.npy", "--epochs", 2, "--learning-rate", "0.01", "--no-shuffle",
                    "--metrics", "accuracy,sparse_top_k_categorical_accuracy", "--optimizer", "sgd", "--json")
    assert by_file.event("epoch")["epoch"] == 2
    assert by_file.event("result") == by_hand.event("result")


@pytest.mark.parametrize("text,status,say", [
    ("{", 1, "line 1"), ("[1]", 1, "object"), ('{"epoch": 2}', 2, "did you mean epochs"),
    ('{"epochs": "many"}', 2, "whole number"), ('{"epochs": {}}', 2, "epochs"), ('{"nesterov": 3}', 2, "true or false"),
])
def test_bad_config(manta, tmp_path, text, status, say):
    (tmp_path / "c.json").write_text(text)
    done = manta("train", "mlp", "--data", "mnist", "--config", "c.json", status=status)
    assert say in done.stderr and done.stdout == ""


def test_config_that_is_not_there(manta):
    assert "none.json" in manta("train", "mlp", "--data", "mnist", "--config", "none.json", status=1).stderr


# ---- profile ----

def test_profile(manta, tmp_path):
    done = manta("train", "mnist-cnn", "--data", digits(tmp_path), "--batch", 32, "--profile", 3)
    rows = [l.split()[0] for l in done.stdout.splitlines() if l]
    assert {"conv2d", "dense", "dense_1"} <= set(rows)
    assert "GF/s" in done.stdout and "one step" in done.stdout and "waiting for data" in done.stdout
    trace = json.loads((tmp_path / "manta-trace.json").read_text())
    spans = trace["traceEvents"] if isinstance(trace, dict) else trace
    assert any(s.get("ph") == "X" and s.get("dur", 0) > 0 for s in spans)


def test_profile_as_event(manta, tmp_path):
    done = manta("train", "mlp", "--data", digits(tmp_path), "--profile", 4, "--profile-trace", "t.json", "--json")
    e = done.event("profile")
    assert e["steps"] == 4 and e["trace"] == "t.json" and (tmp_path / "t.json").is_file()
    data, = [w["data_ms"] for w in e["workers"]]
    assert data >= 0
    assert sum(n["forward_ms"] + n["backward_ms"] for n in e["nodes"]) + data <= e["ms_per_step"] * 1.001


# ---- what is refused ----

@pytest.mark.parametrize("extra,say", [
    (["--workers", "4:2"], "at least as many behind the colon"), (["--workers", "2:"], "--workers"),
    (["--strategy", "ring"], "expected mirrored, one-device or parameter-server"),
    (["--strategy", "one-device", "--workers", "2"], "leave --workers out"),
    (["--servers", "2"], "are for --strategy parameter-server"),
    (["--strategy", "parameter-server", "--shards", "2"], "neither --shards"),
    (["--batch-norm", "median"], "expected mean, first or sync"), (["--resume"], "which run"),
    (["--epochs", "three"], "whole number"), (["--epochs", "0"], "1 or more"), (["--batch", "-4"], "1 or more"),
    (["--epochs", "99999999999999999999"], "too large"), (["--learning-rate", "fast"], "not a number"),
    (["--learning-rate", "-1"], "learning_rate"), (["--optimizer", "adma"], "adam"),
    (["--clipnorm", "1", "--clipvalue", "1"], "clip"), (["--lr-schedule", "cosine"], "steps"),
    (["--lr-schedule", "zigzag:steps=3"], "cosine"), (["--lr-schedule", "cosine:steps=3,wramup=1"], "wramup"),
    (["--lr-schedule", "cosine:steps=3,warmup=1e300"], "whole number"),
    (["--batch", "8", "--global-batch", "16"], "one of them"), (["--normalize", "0.5"], "deviation"),
    (["--normalize", "0.5,0"], "more than 0"), (["--initial-epoch", "3"], "leaves nothing"),
    (["--reset-optimizer"], "--weights"), (["--profile-trace", "t.json"], "--profile"), (["--epochs"], "argument"),
    (["--json=3"], "argument"), (["extra"], "unexpected"), (["--scale", "0"], "divided"),
])
def test_wrong_usage(manta, tmp_path, extra, say):
    done = manta("train", "mlp", "--data", digits(tmp_path, n=8), *extra, status=2)
    assert say in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("args,say", [
    (["mnist-cn", "--data", "mnist"], "did you mean mnist-cnn"), (["m.keras", "--data", "mnist"], "m.keras: No such file"),
    (["mlp", "--data", "mnits"], "mnits"), (["mlp", "--data", "mnist", "--freeze", "nope*"], "nope*"),
    (["mlp", "--data", "mnist", "--weights", "none.npz"], "none.npz"),
    (["mlp", "--data", "mnist", "--save", "no/such/folder/w.npz"], "no/such/folder"),
    (["mlp", "--data", "mnist", "--save", "w.txt"], ".npz"), (["mlp", "--data", "mnist", "--kernels", "abacus"], "abacus"),
    (["mlp", "--data", "mnist", "--loss", "sadness"], "sadness"), (["mlp", "--data", "mnist", "--metrics", "joy"], "joy"),
    (["linear", "--data", "mnist"], "28"),
])
def test_failure_is_one_sentence(manta, args, say):
    done = manta("train", *args, status=1)
    assert say in done.stderr
    assert done.stderr.startswith("manta: ") and len(done.stderr.splitlines()) == 1


def test_weights_of_another_model(manta):
    manta("model", "linear", "-o", "linear.npz")
    done = manta("train", "mlp", "--data", "mnist", "--weights", "linear.npz", status=1)
    assert "linear.npz" in done.stderr and len(done.stderr.splitlines()) == 1


# ---- bad data ----

def test_label_out_of_range_names_sample_and_value(manta, tmp_path):
    digits(tmp_path)
    y = np.load(tmp_path / "y.npy")
    y[77] = 10
    np.save(tmp_path / "y.npy", y)
    done = manta("train", "mlp", "--data", "x.npy,y.npy", status=1)
    assert "77" in done.stderr and "10" in done.stderr


@pytest.mark.parametrize("break_it", ["cut", "magic", "empty", "ragged"])
def test_broken_files_are_one_sentence_with_the_file(manta, tmp_path, break_it):
    digits(tmp_path)
    x = tmp_path / "x.npy"
    whole = x.read_bytes()
    if break_it == "ragged":
        np.save(x, np.zeros((255, 28, 28), np.float32))
    else:
        x.write_bytes({"cut": whole[:-100], "magic": b"PNG" + whole[3:], "empty": b""}[break_it])
    done = manta("train", "mlp", "--data", "x.npy,y.npy", status=1)
    assert ("y.npy: the file has 256 samples" if break_it == "ragged" else "x.npy") in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("manta: ")


def test_nan_in_data_is_an_error(manta, tmp_path):
    digits(tmp_path)
    x = np.load(tmp_path / "x.npy")
    x[3, 4, 5] = np.nan
    np.save(tmp_path / "x.npy", x)
    assert "x.npy" in manta("train", "mlp", "--data", "x.npy,y.npy", status=1).stderr


def test_mnist_is_found_without_a_word(manta):
    """The bundled set, in a folder that is not the source tree."""
    done = manta("train", "mlp", "--data", "mnist", "--steps-per-epoch", 20, "--batch", 64, "--json")
    assert done.event("epoch")["steps"] == 20
    assert done.event("epoch")["loss"] < 2
