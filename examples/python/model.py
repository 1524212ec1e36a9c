"""A model of Manta's own, in the words of Keras: it learns which of two halves of a picture is brighter, is saved, and
is loaded again. NumPy makes the pictures; the library computes.

    python examples/python/model.py
"""
import os
import tempfile

import numpy

import manta
from manta import layers


class Stop(manta.callbacks.Callback):
    """Ends the training when it is good enough."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs and logs["val_accuracy"] > 0.98:
            self.model.stop_training = True


def main() -> None:
    pictures = numpy.random.default_rng(0).random((2000, 8, 8, 1), dtype=numpy.float32)
    brighter = (pictures[:, :4].sum((1, 2, 3)) > pictures[:, 4:].sum((1, 2, 3))).astype(numpy.int64)

    model = manta.Sequential([
        manta.Input((8, 8, 1)),
        layers.Conv2D(8, 3, activation="relu"),
        layers.Flatten(),
        layers.Dense(2, activation="softmax"),
    ], seed=1)
    model.compile(manta.optimizers.Adam(3e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.summary()
    history = model.fit(pictures, brighter, epochs=50, verbose=0, validation_split=0.2, callbacks=[Stop()])
    print("good enough:", history.history["val_accuracy"][-1] > 0.95)

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "halves.keras")
        model.save(path)
        again = manta.load_model(path)
    print("the same predictions:", bool((again.predict(pictures) == model.predict(pictures)).all()))


if __name__ == "__main__":
    main()
