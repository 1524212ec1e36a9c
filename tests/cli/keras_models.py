"""Models that Keras makes, and what Keras makes of a model: for test_keras.py,
in its own process and, run as a program, under an older Keras.

    keras_models.py JOBS.json      [{"do": "make", "model": NAME, "path": FILE}, ...]

Prints one JSON object: the version, and for every job null or what went wrong.
"""
import json
import os
import sys
import traceback

os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import keras                                    # noqa: E402
import numpy as np                              # noqa: E402
from keras import layers as L                   # noqa: E402


def scramble(model, seed=1):
    """Weights and statistics that no start gives, each variable its own: a mix-up shows."""
    rng = np.random.default_rng(seed)
    for w in model.weights:
        if "seed" in w.name:
            continue
        low = 0.5 if "variance" in w.name else -0.4
        w.assign(rng.uniform(low, low + 0.8, w.shape).astype("float32"))
    return model


def convolutional():
    """A Sequential with most of the image layers."""
    return keras.Sequential([
        keras.Input((12, 12, 3)), L.Rescaling(0.5, offset=0.1), L.ZeroPadding2D(((1, 0), (2, 1))),
        L.Conv2D(6, 3, strides=2, padding="same", activation="relu", kernel_regularizer="l2"),
        L.BatchNormalization(momentum=0.9, epsilon=1e-4), L.ReLU(max_value=6.0, negative_slope=0.1),
        L.DepthwiseConv2D((3, 2), depth_multiplier=2, use_bias=False), L.LeakyReLU(negative_slope=0.2),
        L.Conv2DTranspose(4, 3, strides=2, padding="same"), L.ELU(), L.UpSampling2D(2),
        L.AveragePooling2D(3, strides=1, padding="same"), L.MaxPooling2D(2), L.Dropout(0.3),
        L.Conv2D(8, 1, groups=2, kernel_initializer="he_normal"), L.GlobalAveragePooling2D(keepdims=True), L.Flatten(),
        L.Dense(7, activation="tanh"), L.LayerNormalization(), L.Dense(5, activation="softmax")])


def branches():
    """Two layers of one shape whose order of creation is not that of depth."""
    x = keras.Input((6,), name="x")
    late, early = L.Dense(4, name="made_first"), L.Dense(4, name="made_second")
    y = L.Dense(6, activation="relu")(x)
    a = early(y)
    b = L.Dense(4, name="below")(L.Dense(6)(x))
    both = L.Add()([late(L.Concatenate()([a, b])[:, :6] if False else L.Dense(6)(a)), b])
    return keras.Model(x, L.Dense(3)(L.Multiply()([both, L.Subtract()([a, b])])), name="branches")


def everything():
    """Shared layers, nested models, operators, several inputs and outputs."""
    a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
    i = keras.Input((4,))
    hidden = L.Dense(5, activation="relu")(i)
    inner = keras.Model(i, [L.Dense(4)(hidden), L.Dense(2)(hidden)], name="two")
    stack = keras.Sequential([keras.Input((4,)), L.Dense(4, activation="silu"), L.BatchNormalization()], name="stack")
    shared = L.Dense(4, name="shared")
    x = shared(a) + shared(b)
    x = 1.0 - x * 2.0
    y, z = inner(x)
    y = stack(y / 4.0) - x
    y2, z2 = inner(stack(-y))
    y2 = L.Normalization(mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0])(y2)
    return keras.Model([a, b], [L.Activation("linear")(y2), z, z2], name="everything")


def ready_made():
    """What the models of keras.applications have beyond the rest."""
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer
    x = keras.Input((12, 12, 3), name="x")
    y = L.Normalization(axis=3, mean=[0.1, 0.2, 0.3], variance=[1.0, 2.0, 3.0])(x)
    y = L.SeparableConv2D(8, 3, depth_multiplier=2, padding="same", activation="hard_sigmoid",
                          pointwise_initializer=keras.initializers.VarianceScaling(2.0, "fan_out", "truncated_normal"))(y)
    y = L.Cropping2D(((1, 0), (2, 1)))(y)
    z = StochasticDepth(0.2)(LayerScale(0.5, 8)(L.Conv2D(8, 7, padding="same", groups=8)(y)))
    y = CustomScaleLayer(0.17)([y, L.Dropout(0.2, noise_shape=(None, 1, 1, 1))(z)])
    y = L.SeparableConv2D(4, (3, 2), strides=2, use_bias=False)(y)
    return keras.Model(x, L.Dense(3)(L.GlobalAveragePooling2D()(L.ReLU(6.0)(y + 3.0) * (1.0 / 6.0))), name="ready_made")


def tokens():
    """Integers in, and shapes turned about."""
    x = keras.Input((6,), dtype="int32", name="tokens")
    y = L.Embedding(11, 8)(x)
    y = L.Permute((2, 1))(y)
    y = L.Reshape((4, 2, 6))(y)
    y = L.GlobalMaxPooling2D()(y)
    return keras.Model(x, L.Softmax()(L.Dense(3)(y)))


def frozen():
    """Frozen layers: the optimizer keeps nothing for them."""
    m = keras.Sequential([keras.Input((5,)), L.Dense(6, activation="relu"), L.BatchNormalization(), L.Dense(6, name="k"),
                          L.Dense(2)])
    m.get_layer("k").trainable = False
    return m


def small():
    return keras.Sequential([keras.Input((5,)), L.Dense(6, activation="relu"), L.BatchNormalization(), L.Dense(2)])


def lazy():
    """Built by its first batch: the file says a concrete batch size."""
    m = keras.Sequential([L.Dense(4, activation="relu"), L.Dense(3)])
    m(np.zeros((32, 5), "float32"))
    return m


def random_graph(seed):
    """A graph of dense layers of one shape, so that only the right order gives the right numbers."""
    rng = np.random.default_rng(seed)
    tensors = [keras.Input((3,)), keras.Input((3,))]
    inputs = list(tensors)
    dense = [L.Dense(3, activation="tanh") for _ in range(6)]
    for _ in range(12):
        kind = rng.integers(3)
        pick = [tensors[k] for k in rng.integers(len(tensors), size=2)]
        if kind == 0:
            tensors.append(L.Add()(pick))
        elif kind == 1 and dense:
            tensors.append(dense.pop(rng.integers(len(dense)))(pick[0]))
        else:
            tensors.append(L.Dense(3)(pick[0]))
    return keras.Model(inputs, [tensors[-1], tensors[-2], tensors[-4]])


MODELS = {f.__name__: f for f in (convolutional, branches, everything, tokens, frozen, small, lazy, ready_made)}
MODELS.update({f"random{n}": (lambda n=n: random_graph(n)) for n in range(6)})


def inputs_of(model, n=5):
    """Made-up inputs, the same for the same model."""
    rng = np.random.default_rng(7)
    return [rng.integers(0, 11, (n, *t.shape[1:])).astype("int32") if "int" in str(t.dtype)
            else rng.normal(size=(n, *t.shape[1:])).astype("float32") for t in model.inputs]


def outputs_of(model, n=5):
    x = inputs_of(model, n)
    y = model.predict(x if len(x) > 1 else x[0], verbose=0)
    return [np.asarray(v) for v in (y if isinstance(y, (list, tuple)) else [y])]


def optimizer_named(name):
    o, s = keras.optimizers, keras.optimizers.schedules
    return {
        "sgd": lambda: o.SGD(0.05),
        "momentum": lambda: o.SGD(0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        "adam": lambda: o.Adam(0.01, amsgrad=True, global_clipnorm=1.0),
        "adamw": lambda: o.AdamW(0.01, use_ema=True, ema_momentum=0.9),
        "rmsprop": lambda: o.RMSprop(0.01, momentum=0.5, centered=True),
        "schedule": lambda: o.Adam(s.CosineDecay(0.05, 10, warmup_target=0.1, warmup_steps=2)),
    }[name]()


def make(job):
    model = scramble(MODELS[job["model"]]())
    if job.get("optimizer"):
        model.compile(optimizer_named(job["optimizer"]), loss="mse", metrics=["mae"])
    model.save(job["path"])
    np.savez(job["path"] + ".npz", *outputs_of(model))


def predict(job):
    np.savez(job["out"], *outputs_of(keras.models.load_model(job["path"])))


def step(job):
    """One more training step, and the weights after it."""
    model = keras.models.load_model(job["path"])
    before = int(np.asarray(model.optimizer.iterations.value))
    with np.load(job["batch"]) as f:
        model.train_on_batch(f["x"], f["y"])
    o = model.optimizer
    after = {f"w:{layer.name}/{w.name}": np.asarray(w.value) for layer in model.layers for w in layer.weights}
    if o.use_ema:
        averages = dict(zip([w.path for w in model.trainable_variables], o._model_variables_moving_average))
        after = {f"w:{layer.name}/{w.name}": np.asarray(averages[w.path].value)
                 for layer in model.layers for w in layer.trainable_weights}
    np.savez(job["out"], iterations=before, **after)


def again(job):
    keras.models.load_model(job["path"]).save(job["out"])


if __name__ == "__main__":
    done = []
    for job in json.load(open(sys.argv[1], encoding="utf-8")):
        try:
            {"make": make, "predict": predict, "step": step, "again": again}[job["do"]](job)
            done.append(None)
        except Exception:       # the test shows it
            done.append(traceback.format_exc(limit=-3))
    print(json.dumps({"version": keras.__version__, "done": done}))
