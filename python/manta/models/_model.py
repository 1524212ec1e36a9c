"""Model and Sequential: building, compiling, weights and files. What trains them is in _training."""
from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from typing import Any

from manta import _manta
from manta.models import _arrays
from manta.models._graph import Graph, Tensor, call_layer, functional_object, names_for, tensors_of
from manta.models._summary import shape_text, size_text, table
from manta.models._training import Training
from manta.models._words import Config, nearest, plain
from manta.models._workers import Remote


class BoundOptimizer:
    """The optimizer of a compiled model: its rate, which may be set, and its steps."""

    def __init__(self, model: Model):
        self._model = model

    @property
    def learning_rate(self) -> float:
        """The rate of the next step."""
        return self._model._opened().learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        self._model._opened().learning_rate = float(rate)

    @property
    def iterations(self) -> int:
        """Steps so far."""
        return self._model._opened().iterations


class LoadedLayer:
    """A layer of a model that came from a file."""

    def __init__(self, entry: dict[str, Any]):
        self._config: dict[str, Any] = entry["config"]
        self.class_name: str = entry["class_name"]
        self.name: str = entry.get("name") or self._config.get("name", "")

    @property
    def trainable(self) -> bool:
        """Whether compile() lets it train."""
        return self._config.get("trainable", True) is not False

    @trainable.setter
    def trainable(self, yes: bool) -> None:
        self._config["trainable"] = bool(yes)

    def get_config(self) -> dict[str, Any]:
        return dict(self._config)


def _named(what: str, value: Any, names: Sequence[str]) -> Any:
    """A loss, metric or optimizer as a configuration has it; a name that is none of `names` is refused."""
    if isinstance(value, str):
        if value.lower().replace("_", "") not in [n.replace("_", "") for n in names]:
            raise ValueError(f"{what}: {value!r} is none that Manta has{nearest(value, names) or '; it has ' + ', '.join(names)}")
        return value
    if isinstance(value, Config) or (isinstance(value, dict) and "class_name" in value):
        return plain(what, value)
    if isinstance(value, dict):
        return {str(k): _named(f"{what} of {k!r}", v, names) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_named(what, v, names) for v in value]
    if value is None:
        return None
    raise TypeError(f"{what}: {value!r} is given, expected a name or one of its objects")


class Model(Training):
    """A model of any graph, from its inputs and outputs, as Keras's functional interface makes them.

        a, b = manta.Input((4,), name="a"), manta.Input((4,), name="b")
        x = layers.Concatenate()([layers.Dense(8, "relu")(a), layers.Dense(8, "relu")(b)])
        model = manta.Model([a, b], layers.Dense(1)(x))

    A model may be called on values of another: its layers, with the weights it has then, become part of that one.
    `seed` decides the first weights, the order of samples and dropout: the same seed gives the same bits.
    """

    class_name = "Functional"
    _graph: Graph | None

    def __init__(self, inputs: Any = None, outputs: Any = None, name: str | None = None, *, seed: int = 0):
        self._start(name, seed)
        if inputs is None or outputs is None:
            raise TypeError("Model: expected inputs and outputs, of manta.Input() and layers; models with a call() of their "
                            "own are not supported")
        graph = Graph(tensors_of("Model: inputs", inputs), tensors_of("Model: outputs", outputs))
        self._check_inputs(graph)
        self._graph = graph
        self._build()

    def _start(self, name: str | None, seed: int) -> None:
        self.given_name, self.assigned_name = name, None
        self.seed = seed
        self.trainable = True
        self.stop_training = False
        self._graph = None
        self._loaded: dict[str, Any] | None = None
        self._built: _manta.Model | None = None
        self._session: _manta.Session | None = None
        self._remote: Remote | None = None
        self._compiled: dict[str, Any] | None = None
        self._settings: dict[str, Any] = {}
        self._inputs_shape: list[Any] | None = None

    @staticmethod
    def _check_inputs(graph: Graph) -> None:
        given = {id(t.layer) for t in graph.inputs}
        for t in graph.inputs:
            if t.layer.class_name != "InputLayer":
                raise ValueError(f"Model: an input is what layer {t.layer.name!r} gives, expected what manta.Input() gives")
        for layer in graph.layers:
            if layer.class_name == "InputLayer" and id(layer) not in given:
                raise ValueError(f"Model: the outputs need the input {layer.name!r}, which is not among the inputs")

    # ---- building ----

    @property
    def name(self) -> str:
        """Its own name, or the one that a model around it has given it."""
        return self.given_name or self.assigned_name or self.class_name.lower()

    @property
    def layers(self) -> list[Any]:
        """Its layers, in the order in which they are called."""
        if self._loaded is not None:
            return [LoadedLayer(e) for e in self._loaded["config"]["layers"]]
        return list(self._graph.layers) if self._graph else []

    def get_layer(self, name: str | None = None, index: int | None = None) -> Any:
        """A layer by its name or number: `model.get_layer("dense")`."""
        layers = self.layers
        if index is not None:
            return layers[index]
        for layer in layers:
            if layer.name == name:
                return layer
        names = [layer.name for layer in layers]
        raise ValueError(f"no layer is called {name!r}{nearest(str(name), names) or '; there are ' + ', '.join(names)}")

    def get_object(self, name: str) -> dict[str, Any]:
        """What a configuration has of it."""
        if self._loaded is not None:
            out = json.loads(json.dumps(self._loaded))
        else:
            assert self._graph is not None
            out = functional_object(self._graph, names_for(self._graph.layers), name)
        out["config"]["name"] = name
        if not self.trainable:
            out["config"]["trainable"] = False
        return dict(out)

    def to_json(self) -> str:
        """Its configuration, as Keras writes it: `open("config.json", "w").write(model.to_json())`."""
        return json.dumps({**self.get_object(self.name), **({"compile_config": self._compiled} if self._compiled else {})})

    def _build(self) -> _manta.Model:
        if self._built is None:
            self._built = _manta.Model(self.to_json(), None)
        return self._built

    def _nested(self) -> list[tuple[str, Model]]:
        """Models among its layers, and what they are called here."""
        members = self._members()
        names = names_for(members)
        return [(names[id(layer)], layer) for layer in members if isinstance(layer, Model)]

    def _members(self) -> list[Any]:
        """All its layers, inputs too; of a model from a file none that is an object of its own."""
        return self._graph.layers if self._graph else []

    def _open(self, blank: bool = False) -> _manta.Session:
        """A session of the model as it is now."""
        o = self._settings
        return _manta.Session(self._build(), self._compiled is not None, self.seed, o.get("threads", 0), 0, o.get("shards", 0),
                              o.get("kernels"), o.get("precision"), o.get("device"), o.get("debug", False), blank)

    def _opened(self) -> _manta.Session:
        """The session, made when it is first needed; models inside bring their weights."""
        if self._remote is not None:
            self._remote.look()
        if self._session is None:
            self._session = self._open()
            for name, inner in self._nested():
                if inner._session is not None:
                    self._take_weights(inner, f"{name}/")
        return self._session

    def _take_weights(self, other: Model, prefix: str) -> None:
        mine = {v[0] for v in self._build().variables}
        for name, value in other._weights().items():
            if prefix + name in mine:
                self._opened().write_weight(prefix + name, _arrays.lend(value))

    def __call__(self, inputs: Any) -> Any:
        self._build()
        return call_layer(self, inputs, len(self._build().outputs))

    # ---- compiling ----

    def compile(self, optimizer: Any = "rmsprop", loss: Any = None, metrics: Any = None, loss_weights: Any = None, *,
                threads: int = 0, shards: int = 0, kernels: str | None = None, precision: str | None = None,
                device: str | None = None, debug: bool = False) -> None:
        """Says what to minimise and how: `model.compile("adam", "mse", metrics=["mae"])`.

        Losses and metrics of several outputs come as a list, or as a dict by the outputs' names. What follows them is
        Manta's: threads to compute with, shards of a batch, kernels, precision ("exact", "mixed_bfloat16"), device ("cpu",
        "gpu", "auto"), and debug, which names the first NaN. The optimizer begins anew; weights stay."""
        from manta import losses as all_losses, metrics as all_metrics, optimizers as all_optimizers

        if loss is None:
            raise ValueError("compile: expected a loss, such as \"mse\" or \"sparse_categorical_crossentropy\"")
        config = {"optimizer": _named("optimizer", optimizer, all_optimizers.NAMES),
                  "loss": _named("loss", loss, all_losses.NAMES),
                  "loss_weights": plain("loss_weights", loss_weights),
                  "metrics": _named("metrics", metrics, all_metrics.NAMES)}
        before = (self._compiled, self._settings, self._built, self._session)
        weights = self._weights() if self._session is not None else None
        self._compiled = config
        self._settings = {"threads": threads, "shards": shards, "kernels": kernels, "precision": precision, "device": device,
                          "debug": debug}
        self._built = self._session = None
        try:
            if self._can_build():
                self._opened()
                if weights is not None:
                    self._put_weights(weights)
        except BaseException:
            self._compiled, self._settings, self._built, self._session = before
            raise

    def _can_build(self) -> bool:
        return True

    @property
    def optimizer(self) -> BoundOptimizer:
        """Its rate and steps: `model.optimizer.learning_rate = 0.01`."""
        self._need_compiled()
        return BoundOptimizer(self)

    def _need_compiled(self) -> None:
        if self._compiled is None:
            raise RuntimeError(f"model {self.name!r} is not compiled: call compile(optimizer, loss) first")

    # ---- weights ----

    def _weights(self) -> dict[str, Any]:
        session, out = self._opened(), {}
        for name, _, shape, _, _ in self._build().variables:
            out[name] = _arrays.empty(shape)
            session.read_weight(name, _arrays.lend(out[name]))
        return out

    def _put_weights(self, weights: dict[str, Any]) -> None:
        for name, value in weights.items():
            self._opened().write_weight(name, _arrays.lend(value))

    def get_weights(self) -> list[Any]:
        """Copies of all its variables, as NumPy arrays: `w, b = model.get_weights()`."""
        return list(self._weights().values())

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Sets all its variables, in the order of get_weights()."""
        variables = self._build().variables
        if len(weights) != len(variables):
            raise ValueError(f"set_weights: {len(weights)} arrays are given, expected {len(variables)}")
        given = {}
        for (name, _, shape, _, _), value in zip(variables, weights):
            a = _arrays.array(name, value)
            if a.shape != tuple(shape):
                raise ValueError(f"set_weights: the array for {name} has the shape {a.shape}, expected {tuple(shape)}")
            given[name] = a
        self._put_weights(given)

    @property
    def weights(self) -> dict[str, Any]:
        """Copies of all its variables by their names: `model.weights["dense/kernel"]`."""
        return self._weights()

    def count_params(self) -> int:
        """How many numbers its variables have."""
        return sum(self._counts())

    def _counts(self) -> tuple[int, int]:
        """Numbers that are trained, and that are not."""
        counts = [0, 0]
        for _, _, shape, trainable, frozen in self._build().variables:
            n = 1
            for d in shape:
                n *= d
            counts[0 if trainable and not frozen else 1] += n
        return counts[0], counts[1]

    # ---- files ----

    def save(self, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Saves model, weights and optimizer: `model.save("m.keras")`; also .weights.h5, .npz, .safetensors, .onnx."""
        path = os.fspath(filepath)
        if not overwrite and os.path.exists(path):
            raise FileExistsError(f"{path} is there already, and overwrite is False")
        self._opened().save(path)

    def save_weights(self, filepath: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Saves the weights alone: `model.save_weights("m.weights.h5")`."""
        self.save(filepath, overwrite)

    def load_weights(self, filepath: str | os.PathLike[str]) -> None:
        """Takes the weights of a file that fits: `model.load_weights("m.weights.h5")`."""
        self._opened().load(os.fspath(filepath), True)

    # ---- looking at it ----

    def _connections(self) -> dict[str, str] | None:
        """What each layer is called on, by its name; None for a chain."""
        g = self._graph
        if g is None or not any(len(c[0].inputs) > 1 for c in g.calls) and len(g.inputs) == len(g.outputs) == 1:
            return None
        names, out = names_for(g.layers), dict[str, str]()
        for call in g.calls:
            text = ", ".join(f"{names[id(t.layer)]}[{g.number[id(t.call)]}][{t.index}]" for t in call[0].inputs) or "-"
            name = names[id(call[0].layer)]
            out[name] = f"{out[name]}, {text}" if name in out else text
        return out

    def _rows(self) -> list[tuple[str, str, str, int]]:
        """(name, class, shape, parameters) of each layer, inputs of a Functional before the others."""
        built = self._build()
        rows = [] if self.class_name == "Sequential" else [(n or "input", "InputLayer", shape_text(s), 0)
                                                           for n, _, s in built.inputs]
        return rows + [(n, c, shape_text(s), p) for n, c, p, s, _ in built.layers]

    def summary(self, print_fn: Any = None) -> None:
        """Prints the table of its layers, as Keras draws it: `model.summary()`."""
        links = self._connections()
        head = ["Layer (type)", "Output Shape", "Param #"] + (["Connected to"] if links is not None else [])
        rows = [[f"{n} ({c})", s, f"{p:,}"] + ([links.get(n, "-")] if links is not None else []) for n, c, s, p in self._rows()]
        widths = [33, 24, 15] if links is None else [21, 19, 12, 19]
        trained, not_trained = self._counts()
        lines = [table(self.name, head, rows, widths)]
        for what, n in (("Total", trained + not_trained), ("Trainable", trained), ("Non-trainable", not_trained)):
            lines.append(f" {what} params: {n:,} ({size_text(4 * n)})")
        (print_fn or print)("\n".join(lines))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _repr_html_(self) -> str:
        from manta import _display

        title = f"{type(self).__name__} {self.name}"
        if not self._can_build():
            return _display.table([[layer.name, layer.class_name] for layer in self.layers], ["Layer", "Type"],
                                  f"{title}, whose input is not known yet")
        trained, not_trained = self._counts()
        return _display.table([[n, c, s, f"{p:,}"] for n, c, s, p in self._rows()], ["Layer", "Type", "Output Shape", "Param #"],
                              f"{title}: {trained + not_trained:,} parameters, {trained:,} of them trained")


class Sequential(Model):
    """Layers one after the other.

        model = manta.Sequential([manta.Input((4,)), layers.Dense(8, "relu"), layers.Dense(1)])

    Without an input the first call of fit() says what samples look like.
    """

    class_name = "Sequential"

    def __init__(self, layers: Sequence[Any] | None = None, name: str | None = None, *, seed: int = 0):
        self._start(name, seed)
        self._layers: list[Any] = []
        for layer in layers or []:
            self.add(layer)
        if self._can_build():
            self._build()

    def add(self, layer: Any) -> None:
        """Adds a layer behind the others: `model.add(layers.Dense(10))`."""
        if self._loaded is not None:
            raise ValueError("a model from a file has its layers; put it into a new Sequential to add some")
        if isinstance(layer, Tensor):
            layer = layer.layer         # manta.Input()
        if not hasattr(layer, "get_object") or isinstance(layer, type):
            raise TypeError(f"Sequential: {layer!r} is given, expected a layer such as manta.layers.Dense(10)")
        if layer.class_name == "InputLayer" and self._layers:
            raise ValueError("Sequential: an input comes first, before all layers")
        if any(layer is other for other in self._layers):
            raise ValueError(f"Sequential: layer {layer.name!r} is there already; a layer that is used twice needs manta.Model")
        self._layers.append(layer)
        self._built = self._session = None

    def pop(self) -> None:
        """Removes the last layer."""
        self._layers.pop()
        self._built = self._session = None

    @property
    def layers(self) -> list[Any]:
        """Its layers, without the input."""
        if self._loaded is not None:
            return [layer for layer in super().layers if layer.class_name != "InputLayer"]
        return [layer for layer in self._layers if layer.class_name != "InputLayer"]

    def get_object(self, name: str) -> dict[str, Any]:
        if self._loaded is not None:
            return super().get_object(name)
        names = names_for(self._layers)
        config: dict[str, Any] = {"name": name, "trainable": self.trainable,
                                  "layers": [layer.get_object(names[id(layer)]) for layer in self._layers]}
        first = self._layers[0] if self._layers else None
        if self._inputs_shape:
            config["build_input_shape"] = self._inputs_shape
        elif isinstance(first, Model) and first._can_build():
            config["build_input_shape"] = [None, *first._build().inputs[0][2]]
        return {"class_name": "Sequential", "config": config}

    def _members(self) -> list[Any]:
        return self._layers

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Says what samples look like, the batch first: `model.build((None, 784))`."""
        self._inputs_shape = [None, *input_shape[1:]]
        self._built = self._session = None
        self._build()

    def __call__(self, inputs: Any) -> Any:
        if self._can_build():
            return super().__call__(inputs)
        return call_layer(self, inputs, 1)      # its input is what it is called on

    def _can_build(self) -> bool:
        if self._loaded is not None or self._inputs_shape:
            return True
        first: Any = self._layers[0] if self._layers else None
        return first is not None and (first._can_build() if isinstance(first, Model) else bool(first.batch_shape))

    def _build(self) -> _manta.Model:
        if not self._can_build():
            raise ValueError(f"model {self.name!r} does not know its input: begin with manta.Input(shape), or call fit()")
        return super()._build()

    def _meet(self, x: Any) -> None:
        if self._can_build() or x is None:
            return
        a = _arrays.array("x", x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x)
        if a.ndim < 1:
            raise ValueError("x is one number, expected an array whose first dimension is the samples'")
        self.build(a.shape)


# ---- models that are there ----

def _model_of(built: _manta.Model, compiled: bool, seed: int) -> Model:
    """A model that the library has read; its configuration is what the library writes of it."""
    with tempfile.TemporaryDirectory(prefix="manta-") as folder:
        path = os.path.join(folder, "config.json")
        built.write(path)
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
    out: Model = object.__new__(Sequential if config.get("class_name") == "Sequential" else Model)
    out._start(config["config"].get("name"), seed)
    compile_config = config.pop("compile_config", None)
    out._loaded = config
    out._built = built
    out._compiled = compile_config if compiled else None
    if isinstance(out, Sequential):
        out._layers = []
    return out


def load_model(filepath: str | os.PathLike[str], compile: bool = True, *, seed: int = 0) -> Model:
    """A model of a file, with weights and, unless compile is False, optimizer: `manta.load_model("m.keras")`.

    Keras's .keras and .h5, and config.json without weights."""
    path = os.fspath(filepath)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: nothing is there; manta.zoo(name) has the models that come with Manta")
    built = _manta.Model(None, path)
    out = _model_of(built, compile and built.is_compiled, seed)
    out._opened().restore(out._compiled is None)
    return out


def zoo(name: str, *, seed: int = 0) -> Model:
    """A model that comes with Manta, not compiled: `manta.zoo("mnist-cnn")`."""
    if os.path.exists(name):
        raise ValueError(f"{name!r} is a file; manta.load_model() opens it")
    return _model_of(_manta.Model(None, name), False, seed)
