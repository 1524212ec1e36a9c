"""KerasStrategy: under its scope() Keras models are those of all ranks."""
from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Iterator

from manta._strategy._group import Group, current_group
from manta._strategy._model import _MARK, _METHODS, SharedModel

__all__ = ["KerasStrategy", "keras_strategy"]

_NEEDED = (*_METHODS, "_symbolic_build", "_flatten_layers")     # of keras.Model


class KerasStrategy:
    """The ranks that train a model of Keras 3 together; keras_strategy() makes it."""

    def __init__(self, keras: Any, group: Group, shard: bool) -> None:
        self._keras, self._group, self._shard = keras, group, shard

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._group.rank

    @property
    def num_replicas_in_sync(self) -> int:
        """How many processes there are."""
        return self._group.size

    @property
    def is_chief(self) -> bool:
        """Whether this process is rank 0, which writes files and prints.

            callbacks = [keras.callbacks.ModelCheckpoint("best.keras")] if strategy.is_chief else []
        """
        return self._group.rank == 0

    @contextlib.contextmanager
    def scope(self) -> Iterator[KerasStrategy]:
        """Models that are made, loaded or compiled here are trained by all ranks.

            with strategy.scope():
                model = keras.Sequential([...])
                model.compile("adam", "mse")
        """
        made = []
        model_class = self._keras.Model
        trainer = next(c for c in model_class.__mro__ if "compile" in vars(c))
        init, compile = model_class.__init__, trainer.compile

        @functools.wraps(init)
        def making(model: Any, *args: Any, **kwargs: Any) -> None:
            init(model, *args, **kwargs)
            made.append(self.prepare(model))

        @functools.wraps(compile)
        def compiling(model: Any, *args: Any, **kwargs: Any) -> Any:
            if _MARK not in vars(model) and isinstance(model, model_class):
                made.append(self.prepare(model))
                return model.compile(*args, **kwargs)
            return compile(model, *args, **kwargs)

        model_class.__init__, trainer.compile = making, compiling
        try:
            yield self
        finally:
            model_class.__init__, trainer.compile = init, compile
        if not made and "tf_keras" in sys.modules and self._group.size > 1:
            raise RuntimeError("keras_strategy(): no model of Keras 3 was made under scope(). tf.keras is tf_keras here: import keras, "
                               "or start with `manta launch --keras 3`, TensorflowConfig(keras=3)")

    def prepare(self, model: Any) -> Any:
        """A model that was made elsewhere, as one of all ranks: the same object.

            strategy.prepare(model).fit(x, y)
        """
        if not isinstance(model, self._keras.Model):
            raise TypeError(f"prepare(): {type(model).__module__}.{type(model).__name__} is no model of Keras 3")
        if _MARK not in vars(model):
            SharedModel(self._keras, self._group, model, self._shard)
        return model


def keras_strategy(*, shard: bool = True) -> KerasStrategy:
    """The processes of `python -m manta launch -n N`, or of a trainer's loop, as ranks that train Keras models together; alone,
    one rank.

        strategy = manta.keras_strategy()
        with strategy.scope():
            model = keras.Sequential([...])
            model.compile("adam", "mse")
        model.fit(x, y, batch_size=64)      # of each batch a rank computes its part

    shard: False: what fit() and evaluate() are given is this rank's part already.
    """
    import keras

    version = str(getattr(keras, "__version__", "0"))
    if int(version.split(".")[0]) < 3:
        raise RuntimeError(f"keras_strategy() is for Keras 3, this is {version}: MultiWorkerMirroredStrategy serves older ones")
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "torch"):
        raise NotImplementedError(f"keras_strategy(): Keras computes with {backend}, whose compiled steps cannot wait for other "
                                  "processes; set KERAS_BACKEND to tensorflow or torch")
    missing = [name for name in _NEEDED if not hasattr(keras.Model, name)]
    if missing:
        raise RuntimeError(f"keras_strategy(): keras.Model of version {version} has no {', '.join(missing)}; tried with 3.15")
    return KerasStrategy(keras, current_group(), shard)
