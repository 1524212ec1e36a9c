"""The graph that calls of layers make, before a model is made of it.

A Tensor remembers the layer that gives it and the Tensors that the layer was called on. Nothing is computed and no shape
is known: Model() writes the graph down as a Keras configuration, and the library builds it.
"""
from __future__ import annotations

import re
from typing import Any


def snake(name: str) -> str:
    """"MaxPooling2D" as Keras calls the layer: "max_pooling2d"."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


class Tensor:
    """A value of a model that is being made: what `manta.Input()` and calls of layers give."""

    def __init__(self, layer: Any, inputs: tuple[Tensor, ...], index: int, call: list[Tensor] | None = None):
        self.layer, self.inputs, self.index = layer, inputs, index
        self.call = [self] if call is None else call        # all results of the same call
        if call is not None:
            call.append(self)

    def __repr__(self) -> str:
        return f"<Tensor of layer {self.layer.name!r}>"

    def __bool__(self) -> bool:
        raise TypeError("a value of a model is known when the model runs, not while it is made")


def tensors_of(what: str, value: Any) -> list[Tensor]:
    """One Tensor, or a list or dict of them, as a list."""
    many = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, (list, tuple)) else [value]
    for one in many:
        if not isinstance(one, Tensor):
            raise TypeError(f"{what}: {type(one).__name__} is given, expected what manta.Input() or a layer gives")
    if not many:
        raise ValueError(f"{what}: expected at least one value")
    return many


def call_layer(layer: Any, inputs: Any, outputs: int) -> Any:
    """What a layer gives when it is called: one Tensor, or a list of them."""
    given = tuple(tensors_of(f"layer {layer.name!r}", inputs))
    call: list[Tensor] = []
    out = [Tensor(layer, given, i, call) for i in range(outputs)]
    return out[0] if outputs == 1 else out


class Graph:
    """The calls behind some outputs, each after those it needs."""

    def __init__(self, inputs: list[Tensor], outputs: list[Tensor]):
        self.inputs, self.outputs = inputs, outputs
        self.calls: list[list[Tensor]] = []
        seen: set[int] = set()
        waiting = [(t, False) for t in reversed([*inputs, *outputs])]
        while waiting:
            tensor, ready = waiting.pop()
            if ready:
                self.calls.append(tensor.call)
            elif id(tensor.call) not in seen:
                seen.add(id(tensor.call))
                waiting.append((tensor, True))
                waiting.extend((t, False) for t in reversed(tensor.inputs))
        self.layers: list[Any] = []
        self.number: dict[int, int] = {}         # of a call, among those of its layer
        calls_of: dict[int, int] = {}
        for call in self.calls:
            layer = call[0].layer
            if id(layer) not in calls_of:
                self.layers.append(layer)
            self.number[id(call)] = calls_of.get(id(layer), 0)
            calls_of[id(layer)] = self.number[id(call)] + 1

    def calls_of(self, layer: Any) -> list[list[Tensor]]:
        return [c for c in self.calls if c[0].layer is layer]


def names_for(layers: list[Any]) -> dict[int, str]:
    """A name for each layer: its own, or its class's with a number, as Keras counts them."""
    taken = set()
    for layer in layers:
        if layer.given_name:
            if layer.given_name in taken:
                raise ValueError(f"two layers are called {layer.given_name!r}; expected names that differ")
            taken.add(layer.given_name)
    out = {}
    for layer in layers:
        name, n = layer.given_name, 0
        stem = snake(layer.class_name)
        while not name:
            candidate = f"{stem}_{n}" if n else stem
            n += 1
            if candidate not in taken:
                name = candidate
                taken.add(candidate)
        out[id(layer)] = layer.assigned_name = name
    return out


def functional_object(graph: Graph, names: dict[int, str], name: str) -> dict[str, Any]:
    """A Functional of Keras's."""
    def history(t: Tensor) -> list[Any]:
        return [names[id(t.layer)], graph.number[id(t.call)], t.index]

    def port(t: Tensor) -> list[Any]:
        at = history(t)
        return [at[0], at[1] + 1, at[2]] if t.layer.class_name == "Functional" else at     # as Keras counts them there

    def argument(t: Tensor) -> dict[str, Any]:
        return {"class_name": "__keras_tensor__", "config": {"keras_history": history(t)}}

    layers = []
    for layer in graph.layers:
        nodes = []
        for call in graph.calls_of(layer):
            given = [argument(t) for t in call[0].inputs]
            if given:
                nodes.append({"args": [given[0] if len(given) == 1 else given], "kwargs": {}})
        layers.append({**layer.get_object(names[id(layer)]), "name": names[id(layer)], "inbound_nodes": nodes})
    return {"class_name": "Functional", "config": {
        "name": name, "trainable": True, "layers": layers, "input_layers": [port(t) for t in graph.inputs],
        "output_layers": [port(t) for t in graph.outputs]}}
