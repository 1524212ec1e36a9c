"""Losses as objects, where a name does not say enough: Keras's names and options.

    model.compile("adam", loss=manta.losses.SparseCategoricalCrossentropy(from_logits=True))
"""
from manta.models._words import Config


class SparseCategoricalCrossentropy(Config):
    """Of class numbers: SparseCategoricalCrossentropy(from_logits=True)."""
    class_name, keys = "SparseCategoricalCrossentropy", ("from_logits", "reduction")


class CategoricalCrossentropy(Config):
    """Of one number per class: CategoricalCrossentropy(label_smoothing=0.1)."""
    class_name, keys = "CategoricalCrossentropy", ("from_logits", "label_smoothing", "reduction")


class BinaryCrossentropy(Config):
    """Of yes and no: BinaryCrossentropy(from_logits=True)."""
    class_name, keys = "BinaryCrossentropy", ("from_logits", "label_smoothing", "reduction")


class MeanSquaredError(Config):
    """MeanSquaredError(reduction="sum")."""
    class_name, keys = "MeanSquaredError", ("reduction",)


class MeanAbsoluteError(Config):
    """MeanAbsoluteError()."""
    class_name, keys = "MeanAbsoluteError", ("reduction",)


class Huber(Config):
    """Squares near 0, absolute values beyond delta: Huber(delta=2.0)."""
    class_name, keys = "Huber", ("delta", "reduction")


NAMES = ["sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy", "mean_squared_error",
         "mse", "mean_absolute_error", "mae", "huber"]
