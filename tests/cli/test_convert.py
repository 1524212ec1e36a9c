"""manta convert: every format to every other, each result read back by Manta
and by the library whose format it is, the same weights bit for bit.

Three models of Keras's with the state of their optimizers: a Sequential with convolutions
and batch normalization under Adam, a functional one with a residual under SGD
with momentum, and one with a schedule, whose learning rate is no variable.
PyTorch and TensorFlow are not here: .pt files are taken apart with zipfile and
a pickle that knows nothing else, checkpoints by Manta (bench/clients has the
live ones)."""
import hashlib
import io
import itertools
import json
import os
import pickle
import shlex
import subprocess
import types
import zipfile

import h5py
import numpy as np
import onnx
import onnxruntime
import pytest
import safetensors.numpy

import conftest

MODELS = ["sequential", "residual", "schedule"]
READ = [".keras", ".weights.h5", ".h5", ".npz", ".safetensors", ".pt", ".ckpt.index"]
WRITTEN = READ + [".pth", ".onnx"]
ALONE = {".weights.h5", ".npz", ".safetensors", ".pt", ".pth", ".ckpt.index"}   # hold weights, no model
STATELESS = {".weights.h5", ".pt", ".pth"}                                      # nor the optimizer's state


def make(name):
    import keras
    from keras import layers as L
    x = keras.Input((6, 6, 2))
    if name == "sequential":
        optimizer = keras.optimizers.Adam(0.01)
        model = keras.Sequential([
            x, L.Conv2D(4, 3, padding="same", activation="relu"), L.BatchNormalization(), L.MaxPooling2D(2),
            L.Conv2D(3, (1, 2), use_bias=False), L.Flatten(), L.Dense(5, activation="tanh"), L.Dense(3)])
    elif name == "residual":
        optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
        y = L.BatchNormalization()(L.Conv2D(2, 3, padding="same")(x))
        y = L.Activation("relu")(L.Add()([x, y]))
        model = keras.Model(x, L.Dense(3)(L.GlobalAveragePooling2D()(y)))
    else:
        optimizer = keras.optimizers.AdamW(keras.optimizers.schedules.ExponentialDecay(0.01, 10, 0.9))
        model = keras.Sequential([x, L.Flatten(), L.Dense(4, activation="relu"), L.Dense(3)])
    model.compile(optimizer, "mse")
    optimizer.build(model.trainable_variables)
    optimizer.iterations.assign(3)
    rng = np.random.default_rng(len(name))
    for v in [*model.weights, *optimizer.variables]:    # each its own numbers: a mix-up shows
        if v.shape:
            v.assign(rng.uniform(0.1, 0.9, v.shape).astype("f4"))
    return model


def predict(model, x):
    return np.asarray(model(x, training=False))         # nothing to be compiled first


class Made:
    """A model of Keras's, its file, and what is in it by Manta's names."""

    def __init__(self, name, folder):
        self.model = make(name)
        self.path = folder / f"{name}.keras"
        self.model.save(self.path)
        self.weights = {w.path.removeprefix(self.model.name + "/"): np.asarray(w.value) for w in self.model.weights}
        self.state = [np.asarray(v.value) for v in self.model.optimizer.variables]
        self.x = np.random.default_rng(5).normal(size=(3, 6, 6, 2)).astype("f4")
        self.y = predict(self.model, self.x)


@pytest.fixture(scope="module")
def all_made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    return {name: Made(name, folder) for name in MODELS}


@pytest.fixture(params=MODELS)
def made(request, all_made):
    return all_made[request.param]


def same(found, wanted):
    """The same names, dtypes, shapes and bits."""
    assert sorted(found) == sorted(wanted)
    for k, a in wanted.items():
        assert found[k].dtype == a.dtype and found[k].shape == a.shape and found[k].tobytes() == a.tobytes(), k


def arrays(path):
    with np.load(path) as f:
        return {k: f[k] for k in f.files}


def weights_of(found):
    return {k: a for k, a in found.items() if not k.startswith("optimizer/")}


# ---- the libraries whose formats they are ----

def same_state(found, made):
    """Arrays bit for bit; the count of steps by its value, which is int64 under TensorFlow and int32 under JAX."""
    assert len(found) == len(made.state)
    assert all(a.shape == b.shape and (a.tobytes() == b.tobytes() if a.shape else a == b)
               for a, b in zip(found, made.state))


def opened(path, made):
    import keras
    model = keras.models.load_model(path)
    same({w.path.removeprefix(model.name + "/"): np.asarray(w.value) for w in model.weights}, made.weights)
    np.testing.assert_allclose(predict(model, made.x), made.y, atol=1e-5, rtol=1e-5)


    return model


def by_keras(path, made, state):
    model = opened(path, made)
    if state:
        same_state([np.asarray(v.value) for v in model.optimizer.variables], made)
    else:
        assert int(model.optimizer.iterations.value) == 0


def by_keras_legacy(path, made, state):
    """Keras 3 restores no optimizer from its legacy files, not even from its own; they hold one all the same."""
    opened(path, made)
    with h5py.File(path) as f:
        assert ("optimizer_weights" in f) == state
        if state:
            group = f["optimizer_weights"]
            same_state([group[name][()] for name in group.attrs["weight_names"]], made)


def by_keras_weights(path, made, _):
    import keras
    model = keras.models.clone_model(made.model)
    model.load_weights(path)
    assert all(np.asarray(a.value).tobytes() == np.asarray(b.value).tobytes()
               for a, b in zip(model.weights, made.model.weights, strict=True))
    found = []
    with h5py.File(path) as f:
        f.visititems(lambda _, x: found.append(x[()].tobytes()) if isinstance(x, h5py.Dataset) else None)
    assert sorted(found) == sorted(a.tobytes() for a in made.weights.values())


def with_names(found, made, state):
    same(weights_of(found), made.weights)
    kept = [a for k, a in found.items() if k.startswith("optimizer/")]
    # iterations and rate are wider here than in Keras; the rest is the same numbers
    assert len(kept) == (len(made.state) if state else 0)
    moments = sorted(a.tobytes() for a in kept if a.ndim)
    assert moments == (sorted(a.tobytes() for a in made.state if a.ndim) if state else [])


def by_numpy(path, made, state):
    with_names(arrays(path), made, state)


def by_safetensors(path, made, state):
    with_names(safetensors.numpy.load_file(path), made, state)


class Storages(pickle.Unpickler):
    """What torch.load() does with a state dict, by numpy: a name that is not expected is an error."""
    KNOWN = {("torch", "FloatStorage"): "<f4", ("torch", "LongStorage"): "<i8", ("collections", "OrderedDict"): dict}

    def __init__(self, archive):
        super().__init__(io.BytesIO(archive.read("archive/data.pkl")))
        self.archive = archive

    def find_class(self, module, name):
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return self.rebuild
        return self.KNOWN[module, name]

    def persistent_load(self, pid):
        kind, dtype, key, where, n = pid
        assert kind == "storage" and where == "cpu"
        return types.SimpleNamespace(flat=np.frombuffer(self.archive.read(f"archive/data/{key}"), dtype, n))

    @staticmethod
    def rebuild(storage, offset, shape, strides, needs_gradient, hooks):
        assert not needs_gradient and not hooks
        return np.lib.stride_tricks.as_strided(storage.flat[offset:], shape,
                                               [s * storage.flat.itemsize for s in strides])


def by_pickle(path, made, _):
    """PyTorch has kernels as (out, in, height, width) and (out, in), and channels first into a flattened one."""
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        found = Storages(z).load()
    turned, flat = [], None
    for layer in made.model.layers:
        if type(layer).__name__ == "Flatten":
            flat = layer.input.shape[1:]
        for w in layer.weights:
            a = np.asarray(w.value)
            if a.ndim == 4:
                a = a.transpose(3, 2, 0, 1)
            elif a.ndim == 2:
                if flat:
                    a, flat = a.reshape(*flat, -1).transpose(2, 0, 1, 3).reshape(a.shape), None
                a = a.T
            turned.append(a.tobytes())
    counted = [k for k in found if k.endswith("num_batches_tracked")]
    assert len(counted) == sum(type(l).__name__ == "BatchNormalization" for l in made.model.layers)
    assert sorted(a.tobytes() for k, a in found.items() if k not in counted) == sorted(turned)


def by_onnx(path, made, _):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    found = session.run(None, {session.get_inputs()[0].name: made.x})[0]
    np.testing.assert_allclose(found, made.y, atol=1e-5, rtol=1e-5)


LIBRARIES = {".keras": by_keras, ".h5": by_keras_legacy, ".weights.h5": by_keras_weights, ".npz": by_numpy,
             ".safetensors": by_safetensors, ".pt": by_pickle, ".pth": by_pickle, ".onnx": by_onnx}


# ---- the sweep ----

def run_all(folder, commands):
    """Runs `manta convert` with each list of arguments, all under one shell: a process that has loaded JAX takes
    long to fork."""
    script = "".join(f'"$M" convert {shlex.join(map(str, c))}\n' for c in commands)
    done = subprocess.run(["sh", "-ex"], input=script, cwd=folder, text=True, capture_output=True, timeout=300,
                          env={**os.environ, "M": str(conftest.PROGRAM), "HOME": str(folder)})
    assert done.returncode == 0, done.stderr.splitlines()[-2:]


def test_every_pair(made, tmp_path):
    """IN is written from Keras's file, OUT from IN, and OUT is read back by Manta; each OUT that differs from those
    before it also by its library."""
    def like(ending):
        return ["--like", made.path] if ending in ALONE else []

    pairs = list(itertools.product(READ, WRITTEN))
    run_all(tmp_path, [[made.path, "truth.npz"], *([made.path, f"in{e}"] for e in READ)])
    (tmp_path / "back").mkdir()
    for source in READ:
        (tmp_path / source).mkdir()     # of its own: a checkpoint is several files
    run_all(tmp_path, [[f"in{s}", f"{s}/out{t}", *like(s)] for s, t in pairs])
    run_all(tmp_path, [[f"{s}/out{t}", f"back/{s}{t}.npz", *like(t)] for s, t in pairs if t != ".onnx"])
    truth = arrays(tmp_path / "truth.npz")
    with_names(truth, made, True)
    seen = set()
    for source, target in pairs:
        out = tmp_path / source / f"out{target}"
        state = source not in STATELESS and target not in STATELESS
        if target != ".onnx":
            same(arrays(tmp_path / "back" / f"{source}{target}.npz"), truth if state else weights_of(truth))
        digest = (target, hashlib.sha256(out.read_bytes()).digest())
        if digest not in seen and target in LIBRARIES:
            LIBRARIES[target](out, made, state)
        seen.add(digest)
    assert {target for target, _ in seen} == set(WRITTEN)


def test_without_a_model(manta, all_made, tmp_path):
    """Weights alone become weights alone; what needs the model says so, and writes nothing."""
    made = all_made["sequential"]
    names = [".npz", ".safetensors", ".ckpt.index"]
    run_all(tmp_path, [[made.path, f"w{e}"] for e in names])
    run_all(tmp_path, [[f"w{s}", f"o{s[1:4]}{t}"] for s in names for t in names])
    run_all(tmp_path, [[f"o{s[1:4]}{t}", f"{s[1:4]}{t}.npz"] for s in names for t in names])
    for s, t in itertools.product(names, names):
        same(arrays(tmp_path / f"{s[1:4]}{t}.npz"), arrays(tmp_path / "w.npz"))
    for source, target in zip(itertools.cycle(names), [".keras", ".h5", ".weights.h5", ".onnx"]):
        done = manta("convert", f"w{source}", f"no{target}", status=1)
        assert len(done.stderr.splitlines()) == 1 and f"no{target}" in done.stderr, done.stderr
        assert "model" in done.stderr and not (tmp_path / f"no{target}").exists()


REFUSED = [
    (["m.keras", "m.json"], "the name must end in one of"),
    (["m.keras", "m.weights.json"], "the name must end in one of"),
    (["m.keras", "m"], "the name must end in one of"),
    (["m.keras", "m.npz", "--format", "hdf"], "no format is called 'hdf'"),
    (["m.keras", "m.npz", "--format", "safetensor"], "did you mean safetensors?"),
    (["m.keras", "m.npz", "--format", "weights.json"], "is read, not written"),
    (["m.onnx", "m.keras"], "written, not read"),
    (["nowhere.keras", "m.npz"], "No such file"),
    (["text.txt", "m.npz"], "neither its contents nor its name"),
    (["w.npz", "o.keras", "--like", "mlp"], "which model 'mlp' needs"),
    (["w.npz", "o.keras", "--like", "nowhere.keras"], "nowhere.keras"),
    (["w.pt", "o.keras", "--like", "mlp"], "mlp"),
    (["w.npz", "o.keras", "--like", "w.safetensors"], "w.safetensors"),
    (["m.keras", "nofolder/m.npz"], "nofolder"),
]


@pytest.fixture(scope="module")
def refused_folder(all_made, tmp_path_factory):
    folder = tmp_path_factory.mktemp("refused")
    made = all_made["residual"]
    (folder / "m.keras").write_bytes(made.path.read_bytes())
    (folder / "text.txt").write_text("not a model\n")
    run_all(folder, [[made.path, name] for name in ("m.onnx", "w.npz", "w.pt", "w.safetensors")])
    return folder


@pytest.mark.parametrize("args,sentence", REFUSED, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_refused(manta, refused_folder, args, sentence):
    before = {p: p.read_bytes() for p in refused_folder.iterdir()}
    done = manta("convert", *args, status=1, cwd=refused_folder)
    assert sentence in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert {p: p.read_bytes() for p in refused_folder.iterdir()} == before      # nothing new, nothing changed


def test_a_config_is_a_model(manta, all_made, tmp_path):
    """config.json has no weights: a model that starts anew, or the model that weights are likened to."""
    made = all_made["residual"]
    with zipfile.ZipFile(made.path) as z:
        (tmp_path / "config.json").write_bytes(z.read("config.json"))
    assert json.loads((tmp_path / "config.json").read_text())["class_name"] == "Functional"
    manta("convert", made.path, "ours.json", "--format", "config")
    manta("convert", made.path, "w.safetensors")
    manta("convert", "w.safetensors", "m.keras", "--like", "ours.json")
    by_keras(tmp_path / "m.keras", made, True)
    manta("convert", "w.safetensors", "m.keras", "--like", "config.json")
    by_keras(tmp_path / "m.keras", made, True)
