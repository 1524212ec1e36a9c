#!/usr/bin/env python3
"""Writes python/manta/layers.pyi, the types of manta.layers, from the library's tables of layers.

    PYTHONPATH=build/release/python python3 tools/layer_stubs.py > python/manta/layers.pyi

tests/python/test_models_layers.py compares the two.
"""
import textwrap

from manta import _manta, layers

TYPES = {"int": "int", "ints": "_Ints", "pair": "_Pair", "pairs": "_Pairs", "float": "float | None", "bool": "bool",
         "text": "str | None", "init": "_Config", "reg": "_Config", "floats": "Any"}
HEAD = '''"""The types of manta.layers, written by tools/layer_stubs.py; docstrings are in the package."""
from collections.abc import Sequence
from typing import Any

from manta.models._graph import Tensor as Tensor
from manta.models._words import Config

_Ints = int | Sequence[int | None] | None
_Pair = int | Sequence[int] | None
_Pairs = int | Sequence[int | Sequence[int]]
_Config = str | Config | dict[str, Any] | None

class Layer:
    class_name: str
    trainable: bool
    @property
    def name(self) -> str: ...
    def get_config(self) -> dict[str, Any]: ...
    def __call__(self, inputs: Tensor | Sequence[Tensor]) -> Tensor: ...

class InputLayer(Layer):
    def __init__(self, shape: Sequence[int] | None = None, dtype: str = "float32", name: str | None = None,
                 batch_shape: Sequence[int | None] | None = None) -> None: ...

def Input(shape: Sequence[int] | None = None, dtype: str = "float32", name: str | None = None,
          batch_shape: Sequence[int | None] | None = None) -> Tensor: ...
'''


def stub_of(name, fields):
    """The class of one table: options that may come without their names, then the others."""
    cls = getattr(layers, name)
    parts = ["self"] + [f"{key}: {TYPES[kind]} = ..." for key, kind in fields if key in cls.positional]
    parts += ["*"] + [f"{key}: {TYPES[kind]} = ..." for key, kind in fields if key not in cls.positional]
    parts += ["name: str | None = ...", "trainable: bool = ...", "dtype: str | None = ...",
              "input_shape: Sequence[int] | None = ...", "data_format: str | None = ...", "seed: int | None = ..."]
    body = textwrap.fill(", ".join(part.replace(" ", "\0") for part in parts), 120, initial_indent="    def __init__(",
                         subsequent_indent=" " * 17, break_long_words=False)
    return f"class {name}(Layer):\n{body})".replace("\0", " ") + " -> None: ...\n"


def stubs():
    """The whole file."""
    out = [HEAD] + [stub_of(name, fields) for name, fields in _manta.layer_classes()]
    out.append("\n".join(f"{alias} = {name}" for alias, name in layers._ALIASES.items()) + "\n")
    return "\n".join(out)


if __name__ == "__main__":
    print(stubs(), end="")
