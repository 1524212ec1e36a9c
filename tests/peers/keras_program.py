"""A program of Keras 3 under manta.keras_strategy(), as each rank runs it: prints what came of it, as JSON behind "RESULT "."""
import hashlib
import json
import os
import sys
import tempfile

import keras
import numpy as np

import manta

FORBIDDEN = {"jit_compile=True": {"jit_compile": True}, "reduction=sum": {"loss": keras.losses.MeanSquaredError(reduction="sum")},
             "reduction=None": {"loss": keras.losses.MeanSquaredError(reduction=None)}}


def data(n):
    x = np.random.default_rng(7).normal(size=(n, 5)).astype("float32")
    return x, (x @ np.arange(1, 6)).reshape(-1, 1).astype("float32") / 5


def digest(values):
    return hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in values)).hexdigest()


def told(model, history=None):
    """The weights, by their bytes and their numbers, and the history."""
    weights = model.get_weights()
    return {"bytes": digest(weights + [np.asarray(keras.ops.convert_to_numpy(v)) for v in model.optimizer.variables]),
            "weights": [w.astype(float).ravel().tolist() for w in weights],
            "history": {} if history is None else {k: [float(x) for x in v] for k, v in history.history.items()}}


def dense(strategy, optimizer="sgd", with_input=True, **compiled):
    """Ranks begin with different weights, of which only rank 0's count."""
    keras.utils.set_random_seed(11 + strategy.rank)
    with strategy.scope():
        first = [keras.Input((5,))] if with_input else []
        model = keras.Sequential([*first, keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(1)])
        model.compile(optimizer, **{"loss": "mse", "metrics": ["mae"], **compiled})
    return model


class OwnBatches(keras.utils.PyDataset):
    """As many batches as this rank has."""

    def __init__(self, n):
        super().__init__()
        self._n = n

    def __len__(self):
        return self._n

    def __getitem__(self, k):
        x, y = data(8 * (k + 1))
        return x[-8:], y[-8:]


class Trains(keras.Model):
    """Has no call() and is never built: it trains another model in its step, as one of two networks that play against each other."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.built = keras.backend.backend() == "torch"         # which would call it otherwise, with any number of processes

    def train_step(self, batch):
        x, y = batch
        if keras.backend.backend() == "torch":
            import torch
            self.zero_grad()
            loss = keras.ops.mean(keras.ops.square(self.inner(x, training=True) - y))
            loss.backward()
            loss = loss.detach()
            with torch.no_grad():
                self.optimizer.apply([v.value.grad for v in self.inner.trainable_weights], self.inner.trainable_weights)
        else:
            import tensorflow as tf
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(keras.ops.square(self.inner(x, training=True) - y))
            self.optimizer.apply(tape.gradient(loss, self.inner.trainable_weights), self.inner.trainable_weights)
        return {"own": loss}


class StopsAt(keras.callbacks.Callback):
    def __init__(self, epoch, batch=None):
        super().__init__()
        self._epoch, self._batch = epoch, batch

    def on_epoch_begin(self, epoch, logs=None):
        self._now = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self._now, batch) == (self._epoch, self._batch):
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        if self._batch is None and epoch == self._epoch:
            self.model.stop_training = True


class Own(keras.Model):
    """A train_step of the user's own, which returns what Keras has no metric for."""

    def __init__(self):
        super().__init__()
        self.layer = keras.layers.Dense(1)

    def call(self, x):
        return self.layer(x)

    def train_step(self, batch):
        super().train_step(batch)
        return {"rows": float(len(batch[0])) if keras.backend.backend() == "torch" else keras.ops.shape(batch[0])[0] + 0}


def trainings(strategy):
    """What several processes do as one does."""
    out = {}
    x, y = data(49)                                     # three batches of 16, and of the last row only rank 0 has any
    for name, optimizer in (("sgd", keras.optimizers.SGD(0.1, momentum=0.9)), ("adam", "adam")):
        model = dense(strategy, optimizer)
        history = model.fit(x, y, batch_size=16, epochs=3, shuffle=False, validation_data=data(21), verbose=0)
        out[name] = {**told(model, history), "evaluated": [float(v) for v in model.evaluate(x, y, verbose=0)]}
    model = dense(strategy, with_input=False)
    history = model.fit(x, y, batch_size=16, epochs=2, shuffle=False, validation_split=0.2, sample_weight=np.linspace(0.5, 1.5, 49),
                        verbose=0)
    out["built late"] = told(model, history)
    model = dense(strategy)
    for k in range(3):                                  # the whole batch, whoever computes it
        rows = slice(16 * k + strategy.rank, 16 * k + 16, strategy.num_replicas_in_sync)
        model.train_on_batch(x[rows], y[rows])
    out["on batch"] = told(model)
    with strategy.scope():                              # of a batch the ranks have different numbers of rows
        twin = keras.Sequential([keras.Input((5,)), *model.layers])
        twin.compile(model.optimizer, "mse")
    rows = slice(0, 16) if strategy.num_replicas_in_sync == 1 else slice(0, 12) if strategy.rank == 0 else slice(12, 16)
    for one in (model, twin, model, model):
        one.train_on_batch(x[rows], y[rows])
    out["two models with one optimizer"] = told(model)
    inner = dense(strategy)
    model = strategy.prepare(Trains(inner))
    model.compile("sgd")
    model.fit(x[:48], y[:48], batch_size=16, shuffle=False, verbose=0)
    out["without a call"] = told(model)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf
        model = dense(strategy)
        history = model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16, drop_remainder=True), epochs=2, verbose=0)
        out["dataset"] = told(model, history)
        model = dense(strategy, run_eagerly=True)
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
        out["eager"] = told(model)
    return out


def agreements(strategy):
    """What is so in several processes alone."""
    out, rank = {}, strategy.rank
    model = dense(strategy)
    history = model.fit(OwnBatches(5 if rank == 0 else 2), epochs=2, verbose=0)
    out["unequal"] = told(model, history)
    model = dense(strategy, with_input=False)
    model.fit(OwnBatches(2 if rank == 0 else 5), epochs=2, verbose=0, shuffle=False)
    out["unequal the other way"] = told(model)
    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.BatchNormalization(momentum=0.0), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(OwnBatches(5 if rank == 0 else 2), verbose=0, shuffle=False)
    each = [data(8 * n)[0][-8:].mean(0) for n in (5, 2)]            # of the last batch of each rank
    counted = keras.ops.convert_to_numpy(model.layers[0].moving_mean.value)
    out["unequal statistics"] = {"mean": bool(np.allclose(counted, np.mean(each, 0), atol=1e-5)), **told(model)}
    model = dense(strategy)
    history = model.fit((OwnBatches(3)[k] for k in range(3 if rank == 0 else 2)), epochs=2, steps_per_epoch=2, verbose=0)
    out["no batch in an epoch"] = told(model, history)
    for name, stop in (("stops after an epoch", StopsAt(1)), ("stops within an epoch", StopsAt(1, 0))):
        model = dense(strategy)
        history = model.fit(OwnBatches(4), epochs=5, verbose=0, callbacks=[stop] if rank == 1 else [])
        out[name] = {"epochs": len(history.epoch), **told(model)}
    keras.utils.set_random_seed(5)                      # the same in all ranks
    with strategy.scope():
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(6), keras.layers.BatchNormalization(),
                                  keras.layers.Dropout(0.5), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x, y = data(64)
    model.fit(x, y, batch_size=16, epochs=2, verbose=0)
    known = {id(v) for v in model.weights}
    seeds = [np.asarray(keras.ops.convert_to_numpy(v.value)).tolist() for v in model.variables if id(v) not in known]
    out["statistics"] = {**told(model), "seeds": seeds}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        again = keras.models.load_model(path)           # as any other model, outside of the strategy
        same = np.array_equal(again.predict(x, verbose=0), model.predict(x, verbose=0))
        with strategy.scope():
            loaded = keras.models.load_model(path)
        loaded.fit(x, y, batch_size=16, verbose=0)
        out["saved"] = {"same": bool(same), "class": type(again).__name__, **told(loaded)}
    model = strategy.prepare(Own())
    model.compile("sgd", "mse")
    history = model.fit(x[:60], y[:60], batch_size=15, verbose=0, shuffle=False)
    out["own step"] = told(model, history)
    out["refused"] = {}
    for name, wrong in FORBIDDEN.items():
        try:
            dense(strategy, **wrong)
        except ValueError as e:
            out["refused"][name] = str(e)
    return out


if __name__ == "__main__":
    strategy = manta.keras_strategy()
    result = {"trainings": trainings(strategy), "rank": strategy.rank, "size": strategy.num_replicas_in_sync}
    if strategy.num_replicas_in_sync > 1:
        result["agreements"] = agreements(strategy)
    print("RESULT", json.dumps(result))
    sys.stdout.flush()
