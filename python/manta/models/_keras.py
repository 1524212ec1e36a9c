"""Models between Manta and a Keras that is installed: by a .keras file that nobody sees."""
from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any

from manta.models._model import Model, load_model


def from_keras(model: Any, *, seed: int = 0) -> Model:
    """A model of Keras's as one of Manta's, with weights, optimizer and loss: `manta.from_keras(keras_model)`."""
    if not hasattr(model, "save") or isinstance(model, Model):
        raise TypeError(f"from_keras: {type(model).__name__} is given, expected a model of Keras")
    with tempfile.TemporaryDirectory(prefix="manta-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        return load_model(path, seed=seed)


def to_keras(model: Model) -> Any:
    """A model of Manta's as one of Keras's, which must be installed: `manta.to_keras(model)`."""
    keras: Any = importlib.import_module("keras")

    with tempfile.TemporaryDirectory(prefix="manta-") as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        return keras.saving.load_model(path)
