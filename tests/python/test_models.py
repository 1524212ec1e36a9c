"""manta.Sequential and manta.Model: building, training, weights, files, and the bits of the program `manta train`."""
import gc
import json
import threading

import pytest

import manta
from conftest import run_python
from manta import layers

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.sanitized


def samples(n=96, seed=0):
    """Points, and whether the sum of their numbers is large."""
    x = numpy.random.default_rng(seed).random((n, 4), dtype=numpy.float32)
    return x, (x.sum(1) > 2).astype(numpy.int64)


def classifier(seed=0, **options):
    model = manta.Sequential([manta.Input((4,)), layers.Dense(8, "relu"), layers.Dense(2, activation="softmax")], seed=seed)
    model.compile(manta.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"], threads=1, **options)
    return model


def same(a, b):
    return len(a) == len(b) and all((p == q).all() for p, q in zip(a, b))


# ---- fit, evaluate, predict ----

@pytest.mark.parametrize("workers", [1, 2])
def test_words_are_trained_on_without_numpy(tmp_path, workers):
    x, y = samples()
    numpy.savez(tmp_path / "a.npz", x=x, y=y)
    done = run_python("-c", "import sys; sys.modules['numpy'] = None\n"
                      "import manta\nfrom manta import layers\n"
                      "m = manta.Sequential([manta.Input((4,)), layers.Dense(2, activation='softmax')])\n"
                      "m.compile('adam', 'sparse_categorical_crossentropy', metrics=['accuracy'])\n"
                      f"m.fit('a.npz:x,y', epochs=2, batch_size=16, workers={workers}, validation_split=0.25)\n"
                      "m.save('m.keras'); print(m.evaluate('a.npz:x,y', verbose=0)[0] > 0)", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout.endswith("True\n"), done.stderr


def test_a_model_learns():
    x, y = samples(512)
    model = classifier()
    first = model.evaluate(x, y, verbose=0)
    history = model.fit(x, y, batch_size=16, epochs=20, verbose=0, validation_split=0.25)
    assert history.epoch == list(range(20))
    assert set(history.history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    assert all(len(v) == 20 for v in history.history.values())
    last = model.evaluate(x, y, verbose=0, return_dict=True)
    assert last["loss"] < first[0] and last["accuracy"] > 0.9
    assert model.optimizer.iterations == 20 * 384 // 16
    p = model.predict(x)
    assert p.shape == (512, 2) and p.dtype == numpy.float32 and numpy.allclose(p.sum(1), 1, atol=1e-5)
    assert abs((p.argmax(1) == y).mean() - last["accuracy"]) < 1e-9


def test_the_same_seed_gives_the_same_bits():
    x, y = samples()
    weights = []
    for seed in (3, 3, 4):
        model = classifier(seed)
        model.fit(x, y, batch_size=8, epochs=2, verbose=0)
        weights.append(model.get_weights())
    assert same(weights[0], weights[1]) and not same(weights[0], weights[2])


def test_the_bits_are_those_of_the_program(python, tmp_path):
    """The same configuration, data and seed through `manta train` and through fit()."""
    x, y = samples()
    model = classifier(5)
    (tmp_path / "config.json").write_text(model.to_json())
    numpy.save(tmp_path / "x.npy", x)
    numpy.save(tmp_path / "y.npy", y)
    done = python("-m", "manta", "train", tmp_path / "config.json", "--data", f"{tmp_path}/x.npy,{tmp_path}/y.npy", "--epochs", "2",
                  "--batch", "16", "--seed", "5", "--validation-split", "0.25", "--threads-per-worker", "1",
                  "--save", tmp_path / "out.npz", "--run-dir", tmp_path / "run")
    assert done.returncode == 0, done.stdout + done.stderr
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_split=0.25)
    theirs = numpy.load(tmp_path / "out.npz")
    for name, value in model.weights.items():
        assert (theirs[name] == value).all(), name
    again = classifier(5)
    again.fit(f"{tmp_path}/x.npy,{tmp_path}/y.npy", batch_size=16, epochs=2, verbose=0, validation_split=0.25)
    assert same(model.get_weights(), again.get_weights())


def test_arrays_of_other_kinds():
    x, y = samples()
    model = classifier()
    p = model.predict(x)
    assert (model.predict(x.astype(numpy.float64)) == p).all()
    assert (model.predict(numpy.asfortranarray(x)) == p).all()
    assert (model.predict(numpy.repeat(x, 2, axis=0)[::2]) == p).all()
    assert (model.predict(x.tolist()) == model.predict(numpy.array(x.tolist()))).all()
    assert (model.predict(x.astype(">f4")) == p).all()
    loss = model.evaluate(x, y, verbose=0)
    for kind in (numpy.int8, numpy.int32, numpy.uint8, numpy.uint16):
        assert model.evaluate(x, y.astype(kind), verbose=0) == loss


def test_a_dataset_keeps_its_arrays():
    x, y = samples()
    data = manta.Dataset({"x": x.copy(), "y": y.copy()}).take(64)
    gc.collect()
    model = classifier()
    model.fit(data, verbose=0)
    assert len(data) == 64 and data.columns == [("x", "float32", (4,)), ("y", "int64", ())]
    other = classifier()
    other.fit(x[:64], y[:64], verbose=0)
    assert same(model.get_weights(), other.get_weights())
    both = manta.Dataset({"a": x}).zip(manta.Dataset({"b": y}).cast("b", "int32")).rename("a", "x").rename("b", "y")
    assert model.evaluate(both.skip(32).concatenate(both.take(32)), verbose=0) == pytest.approx(model.evaluate(x, y, verbose=0))


def test_weights_of_samples_and_classes():
    x, y = samples()
    plain, weighted, by_class = classifier(), classifier(), classifier()
    plain.fit(x, y, batch_size=96, verbose=0)
    weighted.fit(x, y, batch_size=96, verbose=0, sample_weight=numpy.where(y == 1, 3.0, 1.0))
    by_class.fit(x, y, batch_size=96, verbose=0, class_weight={1: 3.0})
    assert not same(plain.get_weights(), weighted.get_weights())
    assert same(weighted.get_weights(), by_class.get_weights())


def test_single_batches_are_steps():
    x, y = samples()
    one, other = classifier(), classifier()
    for i in range(0, 96, 32):
        loss, accuracy = one.train_on_batch(x[i:i + 32], y[i:i + 32])
        assert loss > 0 and 0 <= accuracy <= 1
    other.fit(x, y, batch_size=32, shuffle=False, verbose=0)
    assert same(one.get_weights(), other.get_weights())
    assert one.test_on_batch(x, y, return_dict=True)["loss"] == pytest.approx(one.evaluate(x, y, batch_size=96, verbose=0)[0])
    assert (one.predict_on_batch(x) == one.predict(x)).all()


def test_a_sequential_without_an_input():
    x, y = samples()
    model = manta.Sequential([layers.Dense(3), layers.Dense(1)])
    with pytest.raises(ValueError, match="does not know its input"):
        model.count_params()
    model.compile("sgd", "mse")
    model.fit(x, y.astype(float), verbose=0)
    assert model.count_params() == 4 * 3 + 3 + 3 + 1
    old = manta.Sequential([layers.Dense(3, input_shape=(4,))])
    assert old.count_params() == 15


# ---- the functional interface ----

def two_inputs():
    a, b = manta.Input((4,), name="a"), manta.Input((3,), name="b")
    shared = layers.Dense(5, "tanh", name="shared")
    x = layers.Concatenate()([shared(a), shared(layers.Rescaling(2.0)(a)), layers.Dense(2)(b)])
    return manta.Model([a, b], [layers.Dense(1, name="one")(x), layers.Dense(2, name="two")(x)], name="pair")


def test_several_inputs_and_outputs():
    x, y = samples()
    model = two_inputs()
    assert [layer.name for layer in model.layers] == ["a", "b", "shared", "rescaling", "dense", "concatenate", "one", "two"]
    assert model.count_params() == (4 * 5 + 5) + (3 * 2 + 2) + (12 + 1) + (24 + 2)
    model.compile(manta.optimizers.SGD(0.05, momentum=0.9), {"one": "mse", "two": "mae"}, metrics={"one": ["mae"]},
                  loss_weights={"one": 2.0, "two": 1.0})
    targets = {"two": x[:, :2], "one": y[:, None].astype(numpy.float32)}
    history = model.fit({"b": x[:, :3], "a": x}, targets, epochs=3, verbose=0)
    assert set(history.history) == {"loss", "one_loss", "two_loss", "one_mae"}
    assert history.history["loss"][-1] < history.history["loss"][0]
    one, two = model.predict([x, x[:, :3]])
    assert one.shape == (96, 1) and two.shape == (96, 2)
    other = two_inputs()
    other.compile(manta.optimizers.SGD(0.05, momentum=0.9), ["mse", "mae"], loss_weights=[2.0, 1.0])
    other.fit([x, x[:, :3]], [targets["one"], targets["two"]], epochs=3, verbose=0)
    assert same(model.get_weights(), other.get_weights())


def test_a_model_inside_another_brings_its_weights():
    x, y = samples()
    inner = manta.Sequential([manta.Input((4,)), layers.Dense(3, "relu", name="inside")], name="inner")
    inner.compile("sgd", "mse")
    inner.fit(x, x[:, :3], verbose=0)
    inner.trainable = False
    given = manta.Input((4,))
    model = manta.Model(given, layers.Dense(2)(inner(given)))
    before = inner.get_weights()
    assert list(model.weights) == ["inner/inside/kernel", "inner/inside/bias", "dense/kernel", "dense/bias"]
    assert same(model.get_weights()[:2], before)
    model.compile("sgd", "mse")
    model.fit(x, x[:, :2], verbose=0)
    assert same(model.get_weights()[:2], before)
    outer = manta.Sequential([inner, layers.Dense(1)])
    assert same(outer.get_weights()[:2], before)


def test_a_layer_in_two_models_has_a_name_in_each():
    inner = manta.Sequential([manta.Input((4,)), layers.Dense(3)])
    inner.get_weights()
    first = manta.Sequential([inner, layers.Dense(1)])
    second = manta.Sequential([manta.Sequential([manta.Input((4,)), layers.Dense(4)]), inner])
    assert same(first.get_weights()[:2], inner.get_weights())
    assert list(second.weights)[2:] == ["sequential_1/dense/kernel", "sequential_1/dense/bias"]
    assert same(second.get_weights()[2:], inner.get_weights())


# ---- weights, files, compile again ----

def test_weights_come_and_go():
    model, other = classifier(1), classifier(2)
    other.set_weights(model.get_weights())
    assert same(model.get_weights(), other.get_weights())
    model.weights["dense/kernel"][:] = 0        # a copy
    assert same(model.get_weights(), other.get_weights())
    with pytest.raises(ValueError, match="3 arrays are given, expected 4"):
        model.set_weights(model.get_weights()[:3])
    with pytest.raises(ValueError, match=r"dense/bias has the shape \(9,\), expected \(8,\)"):
        model.set_weights([*model.get_weights()[:1], numpy.zeros(9), *model.get_weights()[2:]])


def test_large_weights_are_copied_whole():
    model = manta.Sequential([manta.Input((300,)), layers.Dense(400)])
    kernel = numpy.arange(120000, dtype=numpy.float32).reshape(300, 400)
    model.set_weights([kernel, numpy.ones(400)])
    assert (model.get_weights()[0] == kernel).all()


@pytest.mark.parametrize("make", [classifier, two_inputs])
def test_a_file_holds_everything(tmp_path, make):
    x, y = samples()
    model = make()
    if make is two_inputs:
        model.compile("adam", ["mse", "mse"])
        data = manta.Dataset({"a": x, "b": x[:, :3], "one": x[:, :1], "two": x[:, :2]})
    else:
        data = manta.Dataset({"x": x, "y": y})
    model.fit(data, verbose=0)
    path = tmp_path / "m.keras"
    model.save(path)
    with pytest.raises(FileExistsError, match="overwrite is False"):
        model.save(path, overwrite=False)
    again = manta.load_model(path)
    assert type(again) is type(model) and again.name == model.name
    assert again.optimizer.iterations == model.optimizer.iterations
    assert same(again.get_weights(), model.get_weights())
    model.fit(data, verbose=0, shuffle=False)
    again.fit(data, verbose=0, shuffle=False)
    assert same(again.get_weights(), model.get_weights())
    bare = manta.load_model(path, compile=False)
    with pytest.raises(RuntimeError, match="is not compiled"):
        bare.fit(data)
    for layer in bare.layers[:-1]:
        layer.trainable = False
    bare.compile("sgd", "mse" if make is classifier else ["mse", "mse"])
    frozen = bare._build().variables
    assert any(v[4] for v in frozen) and not frozen[-1][4]
    model.save_weights(tmp_path / "w.weights.h5")
    bare.load_weights(tmp_path / "w.weights.h5")
    assert same(bare.get_weights(), model.get_weights())


def test_compile_again_keeps_the_weights():
    x, y = samples()
    model = classifier()
    model.fit(x, y, verbose=0)
    before = model.get_weights()
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert same(model.get_weights(), before) and model.optimizer.iterations == 0
    with pytest.raises(ValueError):
        model.compile(manta.optimizers.SGD(-1.0), "mse")
    assert same(model.get_weights(), before)
    model.fit(x, y, verbose=0)


def test_a_model_of_the_zoo():
    model = manta.zoo("mlp")
    assert model.count_params() > 1000
    with pytest.raises(FileNotFoundError, match="mlp"):
        manta.zoo("mpl")


def test_the_configuration_is_keras_s():
    config = json.loads(classifier().to_json())
    assert config["class_name"] == "Sequential"
    assert [layer["class_name"] for layer in config["config"]["layers"]] == ["InputLayer", "Dense", "Dense"]


SUMMARY = """\
Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ dense (Dense)                   │ (None, 8)              │            40 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 2)              │            18 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 58 (232.00 B)
 Trainable params: 58 (232.00 B)
 Non-trainable params: 0 (0.00 B)
"""


def test_summary(capsys):
    classifier().summary()
    assert capsys.readouterr().out == SUMMARY
    two_inputs().summary()
    assert "│ concatenate         │ (None, 12)        │          0 │ shared[0][0],     │" in capsys.readouterr().out


# ---- what is refused ----

def given(x, y):
    return lambda: classifier().fit(x, y, verbose=0)


X, Y = samples()
REFUSED = [
    (given(X[:, :3], Y), ValueError, r"x has the shape \(96, 3\), expected \(samples, 4\)"),
    (given(X, Y[:50]), ValueError, "y has 50 samples and x has 96"),
    (given(X.astype("U4"), Y), TypeError, "x has the dtype str"),
    (given(X.astype(complex), Y), TypeError, "x has the dtype complex128, expected one of bfloat16, bool"),
    (given({"input_layer": X, "other": X}, Y), ValueError, "an array for 'other'"),
    (given(iter([X]), Y), TypeError, "x is a generator"),
    (lambda: classifier().fit(X, Y, batch_size=0), ValueError, "batch_size is 0"),
    (lambda: classifier().fit(X, Y, epochs=1.5), ValueError, "epochs is 1.5"),
    (lambda: classifier().fit(X, Y, validation_split=1.5), ValueError, "validation_split is 1.5"),
    (lambda: classifier().fit(X, Y, validation_split="0.5"), ValueError, "validation_split is '0.5'"),
    (lambda: classifier().fit("minst"), (FileNotFoundError, ValueError), "minst"),
    (lambda: layers.Densee, AttributeError, "did you mean 'Dense'"),
    (lambda: layers.Dense(8, activatoin="relu"), TypeError, "Dense has no option 'activatoin'; did you mean 'activation'"),
    (lambda: layers.Dense(8, activation="rellu"), ValueError, "activation is 'rellu'.*did you mean 'relu'"),
    (lambda: layers.Dense(float("nan")), ValueError, "Dense: units is nan, expected a finite number"),
    (lambda: layers.Dense(8, kernel_initializer="he_norml"), ValueError, "'he_norml'.*did you mean 'he_normal'"),
    (lambda: layers.Dense(8, 1, 2, 3, 4, 5, 6, 7, 8), TypeError, "Dense takes at most 7 options"),
    (lambda: layers.Dense(8)(X), TypeError, "expected what manta.Input"),
    (lambda: manta.Sequential([manta.Input((4,)), layers.Dense(-1)]), ValueError, "expected units of at least 1, given -1"),
    (lambda: manta.Sequential([manta.Input((4,)), layers.Conv2D(2, 3)]), ValueError, "layer 'conv2d': expected an input of shape"),
    (lambda: manta.Sequential([manta.Input((4,)), layers.Dense]), TypeError, "expected a layer such as"),
    (lambda: manta.Sequential([manta.Input(4)]), TypeError, r"shape is 4, expected a tuple: \(4,\)"),
    (lambda: manta.Model(manta.Input((4,)), layers.Dense(1)(manta.Input((3,)))), ValueError, "not among the inputs"),
    (lambda: manta.Sequential([layers.Dense(1, name="a"), layers.Dense(1, name="a", input_shape=(2,))]).build((None, 2)),
     ValueError, "two layers are called 'a'"),
    (lambda: classifier().compile("adma", "mse"), ValueError, "optimizer: 'adma'.*did you mean 'adam'"),
    (lambda: classifier().compile("adam", "msee"), ValueError, "loss: 'msee'.*did you mean"),
    (lambda: classifier().compile("adam", "mse", metrics=["acuracy"]), ValueError, "metrics: 'acuracy'.*'accuracy'"),
    (lambda: classifier().compile("adam", lambda a, b: 0), TypeError, "expected a name or one of its objects"),
    (lambda: manta.optimizers.SGD(learning_rat=1), TypeError, "did you mean 'learning_rate'"),
    (lambda: manta.load_model("nothing.keras"), FileNotFoundError, "nothing.keras: nothing is there"),
    (lambda: classifier().get_layer("dens"), ValueError, "did you mean 'dense'"),
    (lambda: manta.Sequentail, AttributeError, "no attribute 'Sequentail'"),
    (lambda: two_inputs().predict(X), ValueError, "x is one array, expected 2: for 'a', 'b'"),
]


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_what_is_refused(n):
    call, kind, text = REFUSED[n]
    with pytest.raises(kind, match=text) as e:
        call()
    assert "/proc/" not in str(e.value)


def test_another_thread_is_refused_during_a_fit():
    model, said = classifier(), []

    class Ask(manta.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            def ask():
                try:
                    model.get_weights()
                except RuntimeError as e:
                    said.append(str(e))
            t = threading.Thread(target=ask)
            t.start()
            t.join()

    model.fit(X, Y, verbose=0, callbacks=[Ask()])
    assert said == ["the model is computing in another thread; expected one thread at a time"]


def test_import_brings_no_numpy(python):
    done = python("-c", "import sys, manta; assert 'manta.models' not in sys.modules; import manta.layers, manta.callbacks; "
                        "manta.Sequential([manta.Input((4,)), manta.layers.Dense(1)]).summary(); print('numpy' in sys.modules)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"
