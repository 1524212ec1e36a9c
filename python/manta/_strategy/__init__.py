"""manta.keras_strategy(): Keras 3 in several processes.

    strategy = manta.keras_strategy()
    with strategy.scope():
        model = keras.Sequential([...])
        model.compile("adam", "mse")
    model.fit(x, y, batch_size=64)

Importing it imports neither Keras nor its backend.
"""
from manta._strategy.strategy import KerasStrategy, keras_strategy

__all__ = ["KerasStrategy", "keras_strategy"]
