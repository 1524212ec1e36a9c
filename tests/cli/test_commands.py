"""evaluate, predict, model, inspect, bench, and the manual pages."""
import json
import re
import subprocess

import numpy as np
import pytest

from conftest import PROGRAM, ROOT
from samples import digits, line


def softmax_loss(logits, y):
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    return np.mean(np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y])


# ---- evaluate and predict agree with NumPy ----

def test_evaluate_is_what_predict_says(manta, tmp_path):
    data = digits(tmp_path, n=300)
    manta("train", "mlp", "--data", data, "--epochs", 2, "--save", "w.npz")
    metrics = manta("evaluate", "mlp", "--weights", "w.npz", "--data", data, "--batch", 128,
                    "--json").event("result")["metrics"]
    done = manta("predict", "mlp", "--weights", "w.npz", "--input", "x.npy", "--output", "z.npy", "--batch", 77)
    assert done.stdout == "300 predictions written to z.npy\n"
    z, x, y = (np.load(tmp_path / n) for n in ("z.npy", "x.npy", "y.npy"))
    with np.load(tmp_path / "w.npz") as w:
        h = np.maximum(x.reshape(300, 784).astype(np.float64) @ w["dense/kernel"] + w["dense/bias"], 0)
        expected = h @ w["dense_1/kernel"] + w["dense_1/bias"]
    assert z.shape == (300, 10) and z.dtype == np.float32
    np.testing.assert_allclose(z, expected, rtol=1e-4, atol=1e-4)
    assert metrics["accuracy"] == pytest.approx(np.mean(z.argmax(axis=1) == y))
    assert metrics["loss"] == pytest.approx(softmax_loss(z, y), rel=1e-4)


def test_evaluate_for_people(manta, tmp_path):
    done = manta("evaluate", "mlp", "--data", digits(tmp_path), "--batch", 100)
    assert done.stdout.startswith("3/3 - ") and "accuracy: " in done.stdout and done.stderr == ""


def test_evaluate_only_some_steps(manta, tmp_path):
    done = manta("evaluate", "mlp", "--data", digits(tmp_path), "--batch", 10, "--steps", 2)
    assert done.stdout.startswith("2/2 - ")


def two_inputs(path):
    """A Keras config of a model that subtracts its input b from its input a."""
    def tensor(name):
        return {"class_name": "__keras_tensor__",
                "config": {"shape": [None, 4], "dtype": "float32", "keras_history": [name, 0, 0]}}

    def entry(name):
        return {"module": "keras.layers", "class_name": "InputLayer", "name": name, "inbound_nodes": [],
                "config": {"batch_shape": [None, 4], "dtype": "float32", "name": name}}

    minus = {"module": "keras.layers", "class_name": "Subtract", "config": {"name": "minus"}, "name": "minus",
             "inbound_nodes": [{"args": [[tensor("a"), tensor("b")]], "kwargs": {}}]}
    config = {"name": "two", "trainable": True, "layers": [entry("a"), entry("b"), minus],
              "input_layers": [["a", 0, 0], ["b", 0, 0]], "output_layers": [["minus", 0, 0]]}
    path.write_text(json.dumps({"module": "keras", "class_name": "Functional", "registered_name": "Functional",
                                "config": config}))


def test_predict_from_several_inputs(manta, tmp_path):
    two_inputs(tmp_path / "two.json")
    a, b = np.random.default_rng(1).random((2, 7, 4), dtype=np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    np.save(tmp_path / "short.npy", b[:3])
    for given in ("a=a.npy,b=b.npy", "b=b.npy,a=a.npy"):        # the order is of no account
        manta("predict", "two.json", "--input", given, "-o", "y.npy", "--batch", 3)
        assert np.array_equal(np.load(tmp_path / "y.npy"), a - b)
    for given, say in {"a=a.npy": "nothing is given for the input 'b'",
                       "a.npy": "has 2 inputs, expected NAME=X,... for 'a', 'b'",
                       "a=a.npy,a=b.npy": "'a' is given twice",
                       "a=a.npy,c=b.npy": "has no input called 'c'; they are called 'a', 'b'",
                       "a=a.npy,b=short.npy": "one input has 7 samples and another 3"}.items():
        done = manta("predict", "two.json", "--input", given, "-o", "no.npy", status=1)
        assert say in done.stderr and not (tmp_path / "no.npy").exists()


def test_predict_npz_and_named_input(manta, tmp_path):
    line(tmp_path)
    manta("predict", "linear", "--input", "x=lx.npy", "-o", "y.npz")
    manta("predict", "linear", "--input", "lx.npy", "-o", "y.npy")
    with np.load(tmp_path / "y.npz") as f:
        assert len(f.files) == 1
        assert np.array_equal(f[f.files[0]], np.load(tmp_path / "y.npy"))
    done = manta("predict", "linear", "--input", "z=lx.npy", "-o", "y.npy", status=1)
    assert "no input called 'z'" in done.stderr


@pytest.mark.parametrize("args,say", [
    (["--output", "y.npy"], "--input"), (["--input", "lx.npy"], "--output"),
])
def test_predict_wrong_usage(manta, args, say):
    assert say in manta("predict", "linear", *args, status=2).stderr


@pytest.mark.parametrize("args,say", [
    (["--input", "none.npy", "--output", "y.npy"], "none.npy"),
    (["--input", "lx.npy", "--output", "y.txt"], ".npy"),
    (["--input", "lx.npy", "--output", "no/where/y.npy"], "no/where"),
    (["--input", "lx.npy", "--output", "y.npy", "--weights", "none.npz"], "none.npz"),
])
def test_predict_failures(manta, tmp_path, args, say):
    line(tmp_path)
    done = manta("predict", "linear", *args, status=1)
    assert say in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "y.npy").exists()


# ---- model and inspect ----

def test_model_lists_and_writes(manta, tmp_path):
    names = [l.split()[0] for l in manta("model").stdout.splitlines()]
    assert names == ["mnist-cnn", "resnet18", "mlp", "linear", "autoencoder"]
    for seed in (1, 1, 2):
        manta("model", "mlp", "-o", f"{seed}{'' if not (tmp_path / f'{seed}.npz').exists() else 'again'}.npz",
              "--seed", seed)
    first, again, other = (np.load(tmp_path / n)["dense/kernel"] for n in ("1.npz", "1again.npz", "2.npz"))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    limit = np.sqrt(6 / (784 + 128))
    assert abs(first).max() <= limit and abs(first).max() > 0.99 * limit    # glorot uniform


@pytest.mark.parametrize("model,params", [("mnist-cnn", 2770634), ("mlp", 101770), ("linear", 2)])
def test_inspect_model(manta, model, params):
    assert f"{params:,} parameters" in manta("inspect", model).stdout
    about = json.loads(manta("inspect", model, "--json").stdout)
    assert about["kind"] == "model" and about["params"] == params
    assert sum(l["params"] for l in about["layers"]) == params
    assert sum(int(np.prod(v["shape"])) for v in about["variables"]) == params


def test_inspect_shows_what_is_not_trained(manta):
    about = json.loads(manta("inspect", "resnet18", "--json").stdout)
    assert about["trainable_params"] < about["params"]      # moving statistics
    assert "of them trained" in manta("inspect", "resnet18").stdout


def test_inspect_files(manta, tmp_path):
    np.savez(tmp_path / "f.npz", a=np.zeros((2, 3), np.float64), b=np.zeros(5, np.uint8))
    np.save(tmp_path / "f.npy", np.zeros((4,), np.int32))
    about = json.loads(manta("inspect", "f.npz", "--json").stdout)
    assert about["arrays"] == [{"name": "a", "shape": [2, 3], "dtype": "float64", "bytes": 48},
                               {"name": "b", "shape": [5], "dtype": "uint8", "bytes": 5}]
    assert "2 arrays" in manta("inspect", "f.npz").stdout
    assert "int32" in manta("inspect", "f.npy").stdout


@pytest.mark.parametrize("bytes_", [b"", b"PK\x03\x04", b"not a zip at all" * 9])
def test_inspect_broken_file(manta, tmp_path, bytes_):
    (tmp_path / "f.npz").write_bytes(bytes_)
    done = manta("inspect", "f.npz", status=1)
    assert "f.npz" in done.stderr and len(done.stderr.splitlines()) == 1


# ---- bench ----

def test_bench_train(manta):
    done = manta("bench", "train", "--model", "mlp", "--workers", 1, "--threads-per-worker", 1, "--batch", 16,
                 "--steps", 3, "--json")
    row = json.loads(done.stdout)
    assert {"row", "images_per_s", "ms_per_step", "gemm_share"} <= row.keys()
    assert "mlp" in row["row"] and row["images_per_s"] == pytest.approx(16 / row["ms_per_step"] * 1e3, rel=1e-6)
    assert row["gemm_share"] > 0   # how much depends on the machine and its load, and is the bench's business


def test_bench_workers(manta):
    done = manta("bench", "train", "--model", "mlp", "--workers", 2, "--threads-per-worker", 1, "--batch", 16,
                 "--steps", 4, "--json")
    row = json.loads(done.stdout)
    assert "2 workers" in row["row"] and row["images_per_s"] > 0 and row["gflops"] > 0


def test_bench_forward_for_people(manta):
    done = manta("bench", "train", "--model", "mlp", "--batch", 16, "--steps", 3, "--forward")
    assert "forward" in done.stdout and "images/s" in done.stdout and "matrix product" in done.stdout


def test_bench_comm(manta):
    rows = [json.loads(line) for line in manta("bench", "comm", "--rounds", 2, "--json").stdout.splitlines()]
    assert {(r["over"], r["floats"]) for r in rows if r["row"] == "all-reduce"} == {
        (over, n) for over in ("shm", "tcp", "tls") for n in (1024, 262144, 2779658, 11181642)}
    assert {r["row"] for r in rows} >= {"all-reduce + sgd, fused", "all-reduce + adam, fused", "bare exchange"}
    assert all(r["ms"] > 0 and r["ranks"] == 2 for r in rows)


def test_bench_comm_for_people(manta):
    done = manta("bench", "comm", "--row", "fused", "--rounds", 1)
    assert len(done.stdout.splitlines()) == 4 and "adam" in done.stdout


def test_bench_refuses(manta):
    assert "one" in manta("bench", "train", "--model", "mlp", "--workers", 2, "--forward", status=1).stderr
    assert "did you mean bench train" in manta("bench", "trian", status=2).stderr
    assert "nope" in manta("bench", "train", "--model", "nope", status=1).stderr


# ---- help and manual pages ----

COMMANDS = ["train", "evaluate", "predict", "model", "convert", "inspect", "bench train", "bench core", "bench comm", "data list", "data fetch", "data path",
            "start", "stop", "status", "ps", "timeline", "stack"]


def test_typos_are_answered_with_the_nearest(manta):
    assert "did you mean train?" in manta("trian", status=2).stderr
    assert "did you mean --epochs?" in manta("train", "mlp", "--epoch", "3", status=2).stderr
    assert "did you mean --learning-rate?" in manta("train", "mlp", "--learning", "3", status=2).stderr
    assert "did you mean" not in manta("train", "mlp", "--zzzzzzzz", status=2).stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_help_by_every_way(manta, command):
    by_option = manta(*command.split(), "--help").stdout
    assert by_option.startswith(f"Usage: manta {command}")
    assert by_option == manta("help", *command.split()).stdout == manta(*command.split(), "-h").stdout


def test_manual_pages_are_what_the_program_says(tmp_path):
    subprocess.run([ROOT / "docs/man/make.sh", PROGRAM, tmp_path], check=True)
    made = {p.name: p.read_text() for p in tmp_path.glob("*.1")}
    kept = {p.name: p.read_text() for p in (ROOT / "docs/man").glob("*.1")}
    assert made == kept, "run docs/man/make.sh"


def test_every_option_of_help_is_in_the_manual(manta):
    for command in COMMANDS:
        options = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", manta(*command.split(), "--help").stdout, re.M))
        page = (ROOT / f"docs/man/manta-{command.split()[0]}.1").read_text().replace("\\-", "-")
        missing = {o for o in options - {"help", "usage"} if f"--{o}\\fR" not in page}
        assert not missing, (command, missing)
