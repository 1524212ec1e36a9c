"""TensorflowCheckpoint: a checkpoint of a Keras model.

    train.report(metrics, checkpoint=TensorflowCheckpoint.from_model(model))
    model = TensorflowCheckpoint(result.checkpoint.path).get_model()
"""
from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any, Union

from manta.train.checkpoint import Checkpoint

__all__ = ["TensorflowCheckpoint"]

MODEL = "model.keras"
_FILE = "model_file"            # metadata: the name of the file in the folder; without it the folder is a SavedModel


class TensorflowCheckpoint(Checkpoint):
    """A folder with a model of Keras in it: a file, or TensorFlow's SavedModel."""
    MODEL_FILENAME_KEY = _FILE

    @classmethod
    def from_model(cls, keras_model: Any, *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A checkpoint of a model, which is written to a file of Keras.

            TensorflowCheckpoint.from_model(model)
        """
        folder = tempfile.mkdtemp(prefix="manta-checkpoint-")
        keras_model.save(os.path.join(folder, MODEL))
        return cls._in(folder, MODEL, preprocessor)

    @classmethod
    def from_h5(cls, file_path: Union[str, os.PathLike[str]], *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A checkpoint of a model that is in a file already (.h5, .keras), of which it holds a copy.

            TensorflowCheckpoint.from_h5("model.h5")
        """
        path = os.fspath(file_path)
        if not os.path.isfile(path):
            raise ValueError(f"from_h5(): there is no file {path}")
        folder = tempfile.mkdtemp(prefix="manta-checkpoint-")
        shutil.copy(path, folder)
        return cls._in(folder, os.path.basename(path), preprocessor)

    @classmethod
    def from_saved_model(cls, dir_path: Union[str, os.PathLike[str]], *, preprocessor: Any = None) -> TensorflowCheckpoint:
        """A checkpoint of a SavedModel, of which it holds a copy.

            TensorflowCheckpoint.from_saved_model("saved/")
        """
        path = os.fspath(dir_path)
        if not os.path.isdir(path):
            raise ValueError(f"from_saved_model(): there is no folder {path}")
        folder = tempfile.mkdtemp(prefix="manta-checkpoint-")
        shutil.copytree(path, folder, dirs_exist_ok=True)
        return cls._in(folder, None, preprocessor)

    @classmethod
    def _in(cls, folder: str, file: Any, preprocessor: Any) -> TensorflowCheckpoint:
        out = cls.from_directory(folder)
        if file is not None:
            out.update_metadata({_FILE: file})
        if preprocessor is not None:
            out.set_preprocessor(preprocessor)
        return out                  # type: ignore[return-value]  # from_directory() is of this class

    def get_model(self) -> Any:
        """The model, as tf.keras reads it.

            checkpoint.get_model().predict(x)
        """
        import tensorflow
        with self.as_directory() as folder:
            return tensorflow.keras.models.load_model(os.path.join(folder, self.get_metadata().get(_FILE, "")))
