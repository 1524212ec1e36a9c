"""Keras opens what Manta writes, and Manta what Keras writes: the newest Keras
and the oldest, with equal predictions and the same next training step."""
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest

HERE = pathlib.Path(__file__).parent
OLD = os.environ.get("MANTA_OLD_KERAS", "")
OPTIMIZERS = ["sgd", "momentum", "adam", "adamw", "rmsprop", "schedule"]
NAMES = ["convolutional", "branches", "everything", "tokens", "frozen", "small", "lazy", "ready_made",
         *(f"random{n}" for n in range(6))]
PYTHONS = [pytest.param(sys.executable, id="new"),
           pytest.param(OLD, id="old", marks=[pytest.mark.clients,
                                              pytest.mark.skipif(not OLD, reason="MANTA_OLD_KERAS is not set")])]


def client(python, jobs, folder):
    """Runs jobs of keras_models.py; fails with the first that failed."""
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs, default=str))
    done = subprocess.run([python, HERE / "keras_models.py", path], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    for job, why in zip(jobs, said["done"]):
        assert why is None, f"{said['version']}: {job}\n{why}"
    return said["version"]


def arrays(path):
    with np.load(path) as f:
        return [f[k] for k in f.files if k.startswith("arr_")]


def assert_close(a, b, tolerance=1e-5):
    assert len(a) == len(b)
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance)


@pytest.fixture(scope="module", params=PYTHONS)
def kept(request, tmp_path_factory):
    """A folder with every model, written by one Keras with its predictions."""
    folder = tmp_path_factory.mktemp("keras")
    jobs = [{"do": "make", "model": n, "path": folder / f"{n}.keras"} for n in NAMES]
    jobs += [{"do": "make", "model": "small", "optimizer": o, "path": folder / f"small_{o}.keras"} for o in OPTIMIZERS]
    jobs += [{"do": "make", "model": "frozen", "optimizer": "adam", "path": folder / "frozen_adam.keras"}]
    folder.joinpath("version").write_text(client(request.param, jobs, folder))
    return request.param, folder


def test_versions(kept):
    python, folder = kept
    if python == OLD:
        assert folder.joinpath("version").read_text() == "3.0.5"


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("everything",) and not n.startswith("random")])
def test_predictions_are_keras_s(manta, kept, tmp_path, name):
    """One input: the program itself predicts."""
    _, folder = kept
    x = tmp_path / "x.npy"
    rng = np.random.default_rng(7)
    shape = {"convolutional": (5, 12, 12, 3), "ready_made": (5, 12, 12, 3), "tokens": (5, 6), "branches": (5, 6)}.get(name, (5, 5))
    np.save(x, rng.integers(0, 11, shape).astype("int32") if name == "tokens"
            else rng.normal(size=shape).astype("float32"))
    manta("predict", folder / f"{name}.keras", "--input", x, "--output", "y.npy", "--raw")
    assert_close([np.load(tmp_path / "y.npy")], arrays(folder / f"{name}.keras.npz"))


def test_keras_opens_what_was_read_and_written(manta, kept, tmp_path):
    """Read by Manta, written by Manta: the same predictions in the same Keras, and the same bytes twice."""
    python, folder = kept
    for name in NAMES:
        manta("convert", folder / f"{name}.keras", f"{name}.keras")
        manta("convert", f"{name}.keras", "twice.keras")
        assert (tmp_path / "twice.keras").read_bytes() == (tmp_path / f"{name}.keras").read_bytes(), name
    # 3.0.5 cannot open its own file of models that call each other's results in turn.
    names = [n for n in NAMES if python != OLD or n != "everything"]
    client(python, [{"do": "predict", "path": tmp_path / f"{n}.keras", "out": tmp_path / f"{n}.npz"} for n in names],
           tmp_path)
    for name in names:
        assert_close(arrays(tmp_path / f"{name}.npz"), arrays(folder / f"{name}.keras.npz"))


def test_the_next_step_is_the_same(manta, kept, tmp_path):
    """Three steps here, then one more here and one in Keras. An average ends every fit by becoming the
    weights, which one step of Keras does not: with it the average itself is compared."""
    python, folder = kept
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(32, 5)).astype("float32"), rng.normal(size=(32, 2)).astype("float32")
    np.save(tmp_path / "x.npy", x[:24]), np.save(tmp_path / "y.npy", y[:24])
    np.save(tmp_path / "x2.npy", x[24:]), np.save(tmp_path / "y2.npy", y[24:])
    np.savez(tmp_path / "batch.npz", x=x[24:], y=y[24:])
    # 3.0.5 forgets what was frozen when it opens a file, also its own.
    names = [f"small_{o}" for o in OPTIMIZERS] + (["frozen_adam"] if python != OLD else [])
    jobs = []
    for name in names:
        manta("train", folder / f"{name}.keras", "--data", "x.npy,y.npy", "--batch", 8, "--no-shuffle",
              "--save", f"{name}.keras")
        manta("train", f"{name}.keras", "--data", "x2.npy,y2.npy", "--batch", 8, "--no-shuffle", "--save",
              f"{name}.npz")
        jobs.append({"do": "step", "path": tmp_path / f"{name}.keras", "batch": tmp_path / "batch.npz",
                     "out": tmp_path / f"{name}.step.npz"})
    client(python, jobs, tmp_path)
    for name in names:
        with np.load(tmp_path / f"{name}.step.npz") as f:
            assert int(f["iterations"]) == 3, name
            keras_s = {k.removeprefix("w:"): f[k] for k in f.files if k.startswith("w:")}
        with np.load(tmp_path / f"{name}.npz") as f:
            kind = "optimizer/average/" if name == "small_adamw" else ""
            compared = [k for k in keras_s if kind + k in f.files]
            assert len(compared) >= 6, (name, sorted(keras_s), f.files)
            for k in compared:
                np.testing.assert_allclose(f[kind + k], keras_s[k], atol=1e-5, rtol=1e-5, err_msg=f"{name} {k}")


def test_keras_saves_what_manta_wrote(manta, kept, tmp_path):
    python, folder = kept
    manta("train", folder / "small_adam.keras", "--data", made(tmp_path), "--batch", 8, "--save", "m.keras")
    client(python, [{"do": "predict", "path": tmp_path / "m.keras", "out": tmp_path / "m.npz"},
                    {"do": "again", "path": tmp_path / "m.keras", "out": tmp_path / "again.keras"}], tmp_path)
    np.save(tmp_path / "p.npy", np.random.default_rng(7).normal(size=(5, 5)).astype("float32"))
    manta("predict", "again.keras", "--input", "p.npy", "--output", "q.npy")
    assert_close([np.load(tmp_path / "q.npy")], arrays(tmp_path / "m.npz"))


def made(folder):
    rng = np.random.default_rng(5)
    np.save(folder / "x.npy", rng.normal(size=(24, 5)).astype("float32"))
    np.save(folder / "y.npy", rng.normal(size=(24, 2)).astype("float32"))
    return "x.npy,y.npy"


@pytest.mark.parametrize("name", ["mnist-cnn", "mlp", "linear", pytest.param("resnet18", marks=pytest.mark.clients),
                                  pytest.param("autoencoder", marks=pytest.mark.clients)])
def test_the_zoo_opens_in_keras(manta, tmp_path, name):
    """Also what Keras says otherwise: padding by numbers."""
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras
    shape = (3, 1) if name == "linear" else (3, 28, 28)
    x = np.random.default_rng(1).normal(size=shape).astype("float32")
    np.save(tmp_path / "x.npy", x)
    manta("model", name, "-o", "m.keras", "--seed", 3)
    manta("predict", "m.keras", "--input", "x.npy", "--output", "y.npy")
    model = keras.models.load_model(tmp_path / "m.keras")
    assert_close([np.load(tmp_path / "y.npy")], [model.predict(x, verbose=0)], 1e-4 if name == "resnet18" else 1e-5)
    assert model.loss is not None and int(model.optimizer.iterations.value) == 0


def test_weights_alone(manta, tmp_path):
    import keras
    manta("model", "mlp", "-o", "m.keras", "--seed", 5)
    manta("convert", "m.keras", "w.weights.h5")
    model = keras.models.load_model(tmp_path / "m.keras")
    kept = [w.numpy() for w in model.weights]
    for w in model.weights:
        w.assign(np.zeros(w.shape))
    model.load_weights(tmp_path / "w.weights.h5")
    assert_close([w.numpy() for w in model.weights], kept, 0)
    model.save_weights(tmp_path / "k.weights.h5")
    manta("convert", "k.weights.h5", "k.npz", "--like", "mlp")
    with np.load(tmp_path / "k.npz") as f:
        assert_close([f["dense/kernel"]], [kept[0]], 0)


def test_weights_in_several_files(manta, tmp_path):
    import keras
    manta("model", "mlp", "-o", "m.keras", "--seed", 5)
    model = keras.models.load_model(tmp_path / "m.keras")
    model.save_weights(tmp_path / "s.weights.json", max_shard_size=max(w.numpy().nbytes for w in model.weights) / 2 ** 30)
    assert len(list(tmp_path.glob("s_*.weights.h5"))) > 1
    manta("convert", "s.weights.json", "s.npz", "--like", "mlp")
    manta("convert", "m.keras", "m.npz")
    with np.load(tmp_path / "s.npz") as s, np.load(tmp_path / "m.npz") as m:
        assert s.files and all(np.array_equal(s[n], m[n]) for n in s.files)
        assert {n for n in m.files if not n.startswith("optimizer/")} == set(s.files)


def test_a_learned_normalization(manta, tmp_path):
    import keras
    layer = keras.layers.Normalization()
    x = np.random.default_rng(2).normal(3, 2, size=(40, 4)).astype("float32")
    layer.adapt(x)
    model = keras.Sequential([keras.Input((4,)), layer, keras.layers.Dense(2)])
    model.save(tmp_path / "m.keras")
    np.save(tmp_path / "x.npy", x)
    manta("convert", "m.keras", "again.keras")
    for path in ("m.keras", "again.keras"):
        manta("predict", path, "--input", "x.npy", "--output", "y.npy")
        assert_close([np.load(tmp_path / "y.npy")], [model.predict(x, verbose=0)])
    assert_close([keras.models.load_model(tmp_path / "again.keras").predict(x, verbose=0)],
                 [model.predict(x, verbose=0)])


def test_what_manta_has_not_is_named(manta, tmp_path):
    import keras
    from keras import layers as L
    cases = {
        "lstm": (L.LSTM(3, name="memory"), (4, 2), ["memory", "LSTM"]),
        "first": (L.Conv2D(2, 1, data_format="channels_first", name="c"), (4, 4, 2), ["'c'", "data_format"]),
        "constraint": (L.Dense(2, kernel_constraint="max_norm", name="d"), (3,), ["'d'", "kernel_constraint"]),
        "half": (L.Dense(2, dtype="mixed_bfloat16", name="h"), (3,), ["'h'", "mixed_bfloat16"]),
        "activation": (L.Dense(2, activation="mish", name="m"), (3,), ["'m'", "mish"]),
        "mask": (L.Embedding(3, 2, mask_zero=True, name="e"), (3,), ["'e'", "mask_zero"]),
        "lambda": (L.Lambda(lambda x: x + 1, name="code"), (3,), ["'code'", "code"]),
    }
    for name, (layer, shape, words) in cases.items():
        keras.Sequential([keras.Input(shape), layer]).save(tmp_path / f"{name}.keras")
        said = manta("inspect", f"{name}.keras", status=1).stderr
        assert all(w in said for w in [f"{name}.keras", *words]) and len(said.splitlines()) == 1, said


def test_an_unknown_setting_stops_only_who_needs_it(manta, tmp_path):
    import keras
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])
    model.compile("nadam", loss="hinge", metrics=["cosine_similarity"])
    model.save(tmp_path / "m.keras")
    data = made(tmp_path)
    manta("predict", "m.keras", "--input", "x.npy", "--output", "y2.npy")
    assert "hinge" in manta("evaluate", "m.keras", "--data", data, status=1).stderr.lower()
    assert "nadam" in manta("train", "m.keras", "--data", data, "--loss", "mse", status=1).stderr.lower()
    manta("train", "m.keras", "--data", data, "--loss", "mse", "--metrics", "none", "--optimizer", "sgd")
    model.compile("sgd", loss="mse", metrics=["cosine_similarity"])
    model.save(tmp_path / "m.keras")
    assert "cosine" in manta("evaluate", "m.keras", "--data", data, status=1).stderr.lower()
    manta("evaluate", "m.keras", "--data", data, "--metrics", "none")


def test_a_file_is_whole_or_not_there(manta, tmp_path):
    (tmp_path / "m.keras").write_bytes(b"what was there before")
    manta("model", "resnet18", "-o", "no/such/m.keras", status=1)
    assert (tmp_path / "m.keras").read_bytes() == b"what was there before"
    manta("model", "mlp", "-o", "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as z:
        assert z.testzip() is None
        assert z.namelist() == ["metadata.json", "config.json", "model.weights.h5"]
        assert all(i.compress_type == zipfile.ZIP_STORED for i in z.infolist())
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["m.keras"]
