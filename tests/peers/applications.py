"""applications.py NAME... - models of keras.applications in Keras and in Manta: a prediction and a training step.

Without a name all of them, which takes a quarter of an hour or more and up to 14 GB (ConvNeXtXLarge; the others at most 8).
Each is made by Keras with weights=None, saved as .keras and loaded by Manta. As Keras initialises them, most of these models say next to nothing (logits of 1e-11, branches that
a LayerScale of 1e-6 turns off), and any error would pass; so kernels are drawn wide enough, scales are near 1, and the
statistics of batch normalization are those of a batch. Dropout is 0, since nobody else draws Manta's random numbers.

Prints a line of JSON for each:

    predict    the largest difference of logits, as a part of the largest logit
    loss       the difference of the loss of the step, as a part of it
    step       how far the step leads elsewhere (all weights after it less those before), as a part of its length

Where one is further off than its bound the model is ill-conditioned at this size (features that hardly vary in so small a
batch, and batch normalization divides by that), or we are wrong. Which of the two, Keras itself says in float64: `..._ours` and
`..._keras` are how far the two are from that. A step that is too far then is taken again with pictures that differ in the last
bit, and the nearest counts: which relus are at 0 in float32 is luck, and other pictures have others; a mistake stays.
"""
import gc
import json
import os
import sys
import tempfile

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ.setdefault("OMP_NUM_THREADS", "2")

import keras        # behind what it reads when it is loaded
import numpy

import manta

SIZE, CLASSES, BATCH, RATE = 75, 10, 4, 0.01
PREDICT_BOUND, LOSS_BOUND, STEP_BOUND = 1e-4, 1e-4, 1e-3
EXACT_BOUND = 1e-2      # of a step, from float64: a relu that is at 0 in float32 and not there is worth so much
TRIES = 4               # more, of a step of ours that is beyond it
PREPROCESS = ("EfficientNet", "MobileNetV3", "ConvNeXt")        # they take pictures of 0 to 255, and scale them


def names():
    return sorted(n for n in dir(keras.applications) if n[0].isupper())


def draw(name, shape, random):
    """A weight that lets something through."""
    if name in ("beta", "bias", "moving_mean"):
        return random.normal(0, 0.05, shape)
    if len(shape) < 2:
        return random.uniform(0.8, 1.2, shape)
    receptive = int(numpy.prod(shape[:2])) if len(shape) == 4 else 1
    inputs = 1 if "depthwise" in name else shape[-2]
    return random.normal(0, (1.5 / (receptive * inputs)) ** 0.5, shape)


def make(name):
    model = getattr(keras.applications, name)(weights=None, input_shape=(SIZE, SIZE, 3), classes=CLASSES,
                                              classifier_activation=None)
    random = numpy.random.default_rng(7)
    for layer in model.layers:
        for attribute in ("rate", "drop_path_rate"):
            if hasattr(layer, attribute):
                setattr(layer, attribute, 0.0)
        if isinstance(layer, keras.layers.Normalization) or not layer.weights:
            continue
        layer.set_weights([draw(w.name, w.shape, random).astype("float32") for w in layer.weights])
    return model


def pictures(name):
    """Large patches of colour, dark in one picture and bright in another: of noise all features are alike."""
    random = numpy.random.default_rng(3)
    patches = random.random((BATCH, 5, 5, 3)) * random.uniform(0.3, 1, (BATCH, 1, 1, 3))
    x = numpy.kron(patches, numpy.ones((1, SIZE // 5, SIZE // 5, 1))).astype("float32")
    x = 0.9 * x + 0.1 * random.random(x.shape, dtype=numpy.float32)
    return x * 255 if name.startswith(PREPROCESS) else 2 * x - 1, random.integers(0, CLASSES, BATCH)


def settle_statistics(model, x):
    """Batch normalization has the statistics of this batch, with some more variance, by which it divides."""
    layers = [layer for layer in model.layers if isinstance(layer, keras.layers.BatchNormalization)]
    kept = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    if layers:
        model(x, training=True)
    for layer, momentum in zip(layers, kept):
        layer.momentum = momentum
        mean, variance = numpy.asarray(layer.moving_mean), numpy.asarray(layer.moving_variance)
        layer.moving_variance.assign(variance + 0.1 * (variance + mean * mean))


def weights_of(model, kind):
    """All weights; Manta has those of a Normalization as constants, which no training changes."""
    if kind is manta:
        return model.get_weights()
    return (w.numpy() for layer in model.layers if not isinstance(layer, keras.layers.Normalization) for w in layer.weights)


def keep(arrays, folder, name):
    """The same arrays, in files: of the largest models memory would not hold all that is compared."""
    kept = []
    for i, array in enumerate(arrays):
        path = os.path.join(folder, f"{name}-{i}.npy")
        numpy.save(path, array)
        kept.append(numpy.load(path, mmap_mode="r"))
    return kept


def train(model, x, y, kind, before):
    """Loss of one step of plain SGD, and all that it changes of the weights before it, one by one."""
    model.compile(optimizer=kind.optimizers.SGD(learning_rate=RATE),
                  loss=kind.losses.SparseCategoricalCrossentropy(from_logits=True), **({"run_eagerly": True} if kind is keras else {}))
    history = model.fit(x, y, batch_size=BATCH, epochs=1, shuffle=False, verbose=0)
    return history.history["loss"][0], (after - b for after, b in zip(weights_of(model, kind), before))


def length_squared(part):
    part = part.astype("float64")
    return float((part * part).sum())


def in_float64(path):
    """The saved model, in double precision."""
    model = keras.saving.load_model(path, compile=False)
    keras.config.set_floatx("float64")
    config = json.loads(json.dumps(model.get_config()).replace('"float32"', '"float64"'))
    twin = type(model).from_config(config)
    twin.set_weights([w.astype("float64") for w in model.get_weights()])
    return twin


def distance(a, b):
    """How far a is from b, as a part of the length of b."""
    apart = sum(length_squared(p.astype("float64") - q) for p, q in zip(a, b))
    return (apart / sum(map(length_squared, b))) ** 0.5


def shake(x, seed):
    """The pictures, with half of their numbers the next ones that there are."""
    up = numpy.random.default_rng(seed).random(x.shape) < 0.5
    return numpy.where(up, numpy.nextafter(x, numpy.float32(1000)), x)


def train_ours(path, x, y, begin):
    """Prediction, loss and step of the saved model in Manta."""
    ours = manta.load_model(path)
    mine = numpy.asarray(ours.predict(x))
    loss, changes = train(ours, x, y, manta, begin)
    return mine, loss, keep(changes, os.path.dirname(path), "ours")


def compare_exactly(row, path, begin, x, y, results):
    """Adds to a row how far predictions, loss and step of both are from those of float64."""
    twin, x_exact = in_float64(path), x.astype("float64")
    exact = numpy.asarray(twin(x_exact, training=False))
    exact_loss, changes = train(twin, x_exact, y, keras, begin)
    exact_step = keep(changes, os.path.dirname(path), "exact")
    keras.config.set_floatx("float32")
    for who, (predicted, loss, step) in results.items():
        row["predict_" + who] = float(abs(predicted - exact).max() / abs(exact).max())
        row["loss_" + who] = abs(loss - exact_loss) / exact_loss
        row["step_" + who] = distance(step, exact_step)
    for seed in range(TRIES):
        if row["step_ours"] > EXACT_BOUND:
            step = train_ours(path, shake(x, seed), y, begin)[2]
            row["step_ours"] = min(row["step_ours"], distance(step, exact_step))


def compare(name, folder):
    x, y = pictures(name)
    model = make(name)
    settle_statistics(model, x)
    path = os.path.join(folder, name + ".keras")
    model.save(path)
    begin = keep(weights_of(model, keras), folder, "begin")
    theirs, parameters = numpy.asarray(model(x, training=False)), model.count_params()
    their_loss, changes = train(model, x, y, keras, begin)
    their_step = keep(changes, folder, "theirs")
    del model, changes
    keras.backend.clear_session()
    gc.collect()
    mine, loss, step = train_ours(path, x, y, begin)
    row = {"name": name, "parameters": parameters, "logit": float(abs(theirs).max()),
           "predict": float(abs(theirs - mine).max() / abs(theirs).max()), "loss": abs(loss - their_loss) / their_loss,
           "step": distance(step, their_step)}
    if row["predict"] > PREDICT_BOUND or row["step"] > STEP_BOUND:
        compare_exactly(row, path, begin, x, y, {"ours": (mine, loss, step), "keras": (theirs, their_loss, their_step)})
    return row


def is_right(row):
    """Within the bounds; a step also near float64, or at most twice as far from it as Keras is in float32."""
    near = row["step"] <= STEP_BOUND or row["step_ours"] <= max(EXACT_BOUND, 2 * row["step_keras"])
    return near and row["predict"] <= PREDICT_BOUND and row["loss"] <= LOSS_BOUND


def main(chosen):
    wrong = 0
    for name in chosen or names():
        with tempfile.TemporaryDirectory() as scratch:
            row = compare(name, scratch)
        wrong += not is_right(row)
        print(json.dumps({**row, "right": is_right(row)}), flush=True)
        keras.backend.clear_session()
        gc.collect()
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
