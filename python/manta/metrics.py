"""Metrics as objects, where a name does not say enough: Keras's names and options.

    model.compile("adam", "sparse_categorical_crossentropy",
                  metrics=["accuracy", manta.metrics.SparseTopKCategoricalAccuracy(k=3)])
"""
from manta.models._words import Config


class SparseTopKCategoricalAccuracy(Config):
    """How often the class is among the k likeliest: SparseTopKCategoricalAccuracy(k=3)."""
    class_name, keys = "SparseTopKCategoricalAccuracy", ("k",)


class TopKCategoricalAccuracy(Config):
    """As SparseTopKCategoricalAccuracy, of one number per class: TopKCategoricalAccuracy(k=3)."""
    class_name, keys = "TopKCategoricalAccuracy", ("k",)


class BinaryAccuracy(Config):
    """How often yes and no are right: BinaryAccuracy(threshold=0.5)."""
    class_name, keys = "BinaryAccuracy", ("threshold",)


class SparseCategoricalAccuracy(Config):
    """How often the class number is right: SparseCategoricalAccuracy()."""
    class_name = "SparseCategoricalAccuracy"


class CategoricalAccuracy(Config):
    """How often the class is right: CategoricalAccuracy()."""
    class_name = "CategoricalAccuracy"


class MeanSquaredError(Config):
    """MeanSquaredError()."""
    class_name = "MeanSquaredError"


class MeanAbsoluteError(Config):
    """MeanAbsoluteError()."""
    class_name = "MeanAbsoluteError"


NAMES = ["accuracy", "acc", "sparse_categorical_accuracy", "categorical_accuracy", "binary_accuracy",
         "top_k_categorical_accuracy", "sparse_top_k_categorical_accuracy", "mean_squared_error", "mean_absolute_error",
         "mse", "mae", "huber", "sparse_categorical_crossentropy", "categorical_crossentropy", "binary_crossentropy"]
