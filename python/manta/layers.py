"""Layers, by Keras's names and with Keras's options and defaults: `Dense(10, activation="relu")`.

    from manta import layers
    model = manta.Sequential([manta.Input((28, 28, 1)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(10)])

The classes are made of the tables of the library, which also says what is wrong with an option; layers.pyi names them
for type checkers. docs/layers.md has each with its options.
"""
from __future__ import annotations

from typing import Any

from manta import _manta
from manta.models._graph import Tensor, call_layer, snake
from manta.models._words import by_name, nearest, plain

# Keras's options come in this order, without the ones that only Manta has, as far as they may be given without names.
_LAST_IN_ORDER = {"pad", "unbiased", "gamma_initializer", "interpolation", "keepdims"}
_COMMON = ("name", "trainable", "dtype", "input_shape", "batch_shape", "data_format", "seed")
_ACTIVATIONS = ("linear", "relu", "relu6", "leaky_relu", "elu", "gelu", "gelu_tanh", "silu", "swish", "sigmoid", "tanh",
                "hard_sigmoid", "hard_silu", "hard_swish", "softmax")
_ALIASES = {"MaxPool2D": "MaxPooling2D", "AvgPool2D": "AveragePooling2D", "GlobalAvgPool2D": "GlobalAveragePooling2D",
            "GlobalMaxPool2D": "GlobalMaxPooling2D", "Convolution2D": "Conv2D"}


def _check_initializer(what: str, value: Any) -> None:
    from manta import initializers

    name = value.get("class_name") if isinstance(value, dict) else value
    if value is not None and name not in initializers.NAMES:
        raise ValueError(f"{what} is {name!r}, which is no initializer{nearest(str(name), initializers.NAMES)}")


class Layer:
    """A layer that a model can be made of. Its classes are those of the library."""

    class_name = ""
    fields: dict[str, str] = {}
    positional: tuple[str, ...] = ()

    def __init__(self, *args: Any, **options: Any):
        what = self.class_name
        if not what:
            raise TypeError("Layer has no class of its own here; those that there are: " + ", ".join(sorted(__all__)))
        options = by_name(what, self.positional, args, options, [*self.fields, *_COMMON])
        self.given_name: str | None = options.pop("name", None)
        self.assigned_name: str | None = None
        self.trainable = bool(options.pop("trainable", True))
        shape = options.pop("input_shape", None)
        batch_shape = options.pop("batch_shape", None if shape is None else (None, *shape))
        self.batch_shape = None if batch_shape is None else list(batch_shape)
        self.options = {k: plain(f"{what}: {k}", v) for k, v in options.items()}
        for key, value in self.options.items():
            if self.fields.get(key) == "init":
                _check_initializer(f"{what}: {key}", value)
            if key == "activation" and isinstance(value, str) and value not in _ACTIVATIONS:
                raise ValueError(f"{what}: activation is {value!r}, which is no activation{nearest(value, _ACTIVATIONS)}")

    @property
    def name(self) -> str:
        """Its own name, or the one that the last model has given it: "dense_1"."""
        return self.given_name or self.assigned_name or snake(self.class_name)

    def get_config(self) -> dict[str, Any]:
        """Its options, as Keras has them; what was not given is left out."""
        out = {"name": self.name, "trainable": self.trainable, **self.options}
        if self.batch_shape:
            out["batch_input_shape"] = self.batch_shape
        return out

    def get_object(self, name: str) -> dict[str, Any]:
        """What a configuration of a model has of it."""
        return {"class_name": self.class_name, "config": {**self.get_config(), "name": name}}

    def __call__(self, inputs: Any) -> Any:
        return call_layer(self, inputs, 1)

    def __repr__(self) -> str:
        return f"{self.class_name}({', '.join(f'{k}={v!r}' for k, v in self.options.items())})"


class InputLayer(Layer):
    """What a model is given: `manta.Input((28, 28))` makes one and calls it."""

    class_name = "InputLayer"

    def __init__(self, shape: tuple[int, ...] | None = None, dtype: str = "float32", name: str | None = None,
                 batch_shape: tuple[int | None, ...] | None = None):
        super().__init__(name=name)
        if (shape is None) == (batch_shape is None):
            raise TypeError("Input: expected shape (without the batch), or batch_shape")
        if isinstance(shape, int):
            raise TypeError(f"Input: shape is {shape}, expected a tuple: ({shape},)")
        dims = (None, *shape) if shape is not None else batch_shape
        self.batch_shape = plain("Input: shape", list(dims or ()))
        self.dtype = str(plain("Input: dtype", getattr(dtype, "name", dtype)))

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "batch_shape": self.batch_shape, "dtype": self.dtype}


def Input(shape: tuple[int, ...] | None = None, dtype: str = "float32", name: str | None = None,
          batch_shape: tuple[int | None, ...] | None = None) -> Tensor:
    """What a model is given, without the batch: `x = manta.Input((28, 28), name="image")`."""
    layer = InputLayer(shape, dtype, name, batch_shape)
    return Tensor(layer, (), 0)


def _make_classes() -> dict[str, type[Layer]]:
    """A class for each of the library's tables."""
    out: dict[str, type[Layer]] = {}
    for name, fields in _manta.layer_classes():
        keys = [key for key, _ in fields]
        end = next((i for i, key in enumerate(keys) if key in _LAST_IN_ORDER), len(keys))
        options = ", ".join(keys) or "none"
        out[name] = type(name, (Layer,), {
            "class_name": name, "fields": dict(fields), "__module__": __name__,
            "positional": () if name == "Normalization" else tuple(keys[:end]),
            "__doc__": f"Keras's {name}; its options: {options}.\n\n    x = manta.layers.{name}({_EXAMPLES.get(name, '')})(x)\n"})
    for alias, name in _ALIASES.items():
        out[alias] = out[name]
    return out


# What an example of a class has between its brackets.
_EXAMPLES = {"Dense": '10, activation="relu"', "Conv2D": '32, 3, padding="same"', "DepthwiseConv2D": "3",
             "SeparableConv2D": "32, 3", "Conv2DTranspose": "16, 3, strides=2", "MaxPooling2D": "2", "AveragePooling2D": "2",
             "Dropout": "0.5", "Reshape": "(7, 7, 16)", "Permute": "(2, 1)", "Activation": '"relu"', "Embedding": "1000, 64",
             "Rescaling": "1 / 255", "ZeroPadding2D": "1", "Cropping2D": "1", "UpSampling2D": "2",
             "Normalization": "mean=0.5, variance=0.25", "LayerScale": "1e-6, 64", "StochasticDepth": "0.1",
             "CustomScaleLayer": "0.2", "Concatenate": ""}

_classes = _make_classes()
globals().update(_classes)
__all__ = ["Input", "InputLayer", "Layer", *_classes]


def __getattr__(name: str) -> Any:
    raise AttributeError(f"Manta has no layer {name!r}{nearest(name, _classes)}")
