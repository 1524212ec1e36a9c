"""fit, evaluate, predict and single batches: what a Model does with data."""
from __future__ import annotations

from typing import Any

from manta import _manta
from manta.callbacks import History
from manta.models import _arrays, _workers
from manta.models._dataset import Dataset
from manta.models._listen import listener, prepare, printers


def _whole(name: str, value: Any, least: int) -> int:
    """A whole number of an option; None is 0: the default."""
    if value is None:
        return 0
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least} on")
    return int(value)


def _class_weights(weights: Any) -> list[Any] | None:
    """{class: weight} as an array, of which those that are missing are 1."""
    if not weights:
        return None
    import numpy

    if not isinstance(weights, dict) or not all(hasattr(k, "__index__") and k >= 0 for k in weights):
        raise ValueError(f"class_weight is {weights!r}, expected a dict of class numbers and their weights")
    out = numpy.ones(max(weights) + 1, numpy.float32)
    for k, w in weights.items():
        out[k] = w
    return [_arrays.lend(out)]


class Training:
    """The half of a Model that meets data."""

    stop_training: bool
    seed: int
    _session: _manta.Session | None
    _compiled: dict[str, Any] | None
    _settings: dict[str, Any]
    _remote: _workers.Remote | None

    # What the other half has.
    def _build(self) -> _manta.Model: raise NotImplementedError
    def _opened(self) -> _manta.Session: raise NotImplementedError
    def _open(self, blank: bool = False) -> _manta.Session: raise NotImplementedError
    def _need_compiled(self) -> None: raise NotImplementedError
    def _weights(self) -> dict[str, Any]: raise NotImplementedError
    def to_json(self) -> str: raise NotImplementedError
    def _meet(self, x: Any) -> None: ...

    # ---- data ----

    def _dataset(self, x: Any, y: Any, sample_weight: Any = None) -> Dataset:
        """What was given as a dataset: words, a Dataset, or arrays."""
        if isinstance(x, (str, Dataset)):
            if y is not None or sample_weight is not None:
                raise ValueError("a dataset has targets and weights of its own: expected y and sample_weight to be left out")
            return Dataset(x) if isinstance(x, str) else x
        if hasattr(x, "__next__"):
            raise TypeError("x is a generator, expected arrays, words such as \"mnist\", or a manta.Dataset")
        self._meet(x)
        return Dataset(_arrays.columns_of(self._build(), x, y, sample_weight))

    def _split(self, data: Dataset, share: float) -> tuple[Dataset, Dataset]:
        """The data, and its last part."""
        if not hasattr(share, "__float__") or not 0 < share < 1:
            raise ValueError(f"validation_split is {share!r}, expected a share between 0 and 1")
        if data.count is None or data._dataset.is_batched:
            raise ValueError("validation_split: expected data of known length that has no batches")
        first = int(data.count * (1.0 - share))
        if first in (0, data.count):
            raise ValueError(f"validation_split is {share!r}, which leaves nothing of {data.count} samples for one part")
        return data.take(first), data.skip(first)

    def _validation(self, given: Any) -> Dataset:
        if isinstance(given, (tuple, list)):
            if len(given) not in (2, 3):
                raise ValueError(f"validation_data has {len(given)} parts, expected (x, y) or (x, y, sample_weight)")
            return self._dataset(given[0], given[1], given[2] if len(given) == 3 else None)
        return self._dataset(given, None)

    # ---- whole datasets ----

    def fit(self, x: Any, y: Any = None, batch_size: int | None = None, epochs: int = 1, verbose: str | int = "auto",
            callbacks: Any = None, validation_split: float = 0.0, validation_data: Any = None, shuffle: bool = True,
            class_weight: dict[int, float] | None = None, sample_weight: Any = None, initial_epoch: int = 0,
            steps_per_epoch: int | None = None, validation_steps: int | None = None, validation_batch_size: int | None = None,
            workers: int = 1) -> History:
        """Trains: `history = model.fit(x, y, epochs=5, validation_split=0.1)`.

        x and y are arrays (lists or dicts of them for several inputs or outputs), or x alone is a manta.Dataset or the words
        of one ("mnist"). Ctrl-C ends it after a step, with KeyboardInterrupt; the model then has the weights of that step.

        workers=2 computes each step in two processes, of which one may be killed without changing the result: that of one
        process with compile(shards=2). A batch has batch_size samples over all of them."""
        self._need_compiled()
        if self._remote is not None:
            raise RuntimeError("a callback cannot train the model that it is called for")
        data, validation = self._dataset(x, y, sample_weight), None
        if validation_data is not None:
            validation = self._validation(validation_data)
        elif validation_split:
            data, validation = self._split(data, validation_split)
        epochs, first = _whole("epochs", epochs, 0), _whole("initial_epoch", initial_epoch, 0)
        batch = _whole("batch_size", batch_size, 1)
        history = History()
        params = {"verbose": verbose, "epochs": epochs, "steps": steps_per_epoch}
        printer = printers(verbose)
        many = prepare([*prepare(callbacks, self, params), history, *printer], self, params)
        self.stop_training = False
        if epochs <= first:
            return history
        count = _whole("workers", workers, 1) or 1
        options: list[Any] = [epochs, first, batch if count == 1 else 0, 0 if count == 1 else batch or 32,
                   _whole("steps_per_epoch", steps_per_epoch, 1), bool(shuffle),
                   _whole("validation_batch_size", validation_batch_size, 1), _whole("validation_steps", validation_steps, 1)]
        listeners, weights = [listener(c, self, params) for c in many], _class_weights(class_weight)
        if count == 1:
            self._fit_here(data, validation, listeners, *options, weights, 0)
        else:
            _workers.fit(self, self._opened(), count, self.to_json(), self._settings, data, validation, listeners, options,
                         weights)
        return history

    def _fit_here(self, data: Dataset, validation: Dataset | None, *options: Any) -> None:
        given: tuple[Any, ...] = (data._dataset, None if validation is None else validation._dataset, *options)
        self._opened().fit(*given)

    def _computing(self) -> _manta.Session:
        """A session to compute with: a copy, where a callback of a fit asks."""
        session = self._opened()
        if not session.in_hook:
            return session
        weights, copy = self._weights(), self._open(blank=True)
        for name, value in weights.items():
            copy.write_weight(name, _arrays.lend(value))
        return copy

    def evaluate(self, x: Any, y: Any = None, batch_size: int | None = None, verbose: str | int = "auto",
                 sample_weight: Any = None, steps: int | None = None, callbacks: Any = None, return_dict: bool = False) -> Any:
        """Loss and metrics: `loss, accuracy = model.evaluate(x, y)`; the loss alone where there are no metrics."""
        self._need_compiled()
        data = self._dataset(x, y, sample_weight)
        params = {"verbose": verbose, "steps": steps}
        many = prepare(callbacks, self, params)
        self.stop_training = False
        found = self._computing().evaluate(data._dataset, [listener(c, self, params) for c in many], _whole("batch_size", batch_size, 1),
                                           _whole("steps", steps, 1))
        if verbose not in (0, False):
            print(" - ".join(f"{name}: {value:.4f}" for name, value in found))
        if return_dict:
            return dict(found)
        values = [value for _, value in found]
        return values[0] if len(values) == 1 else values

    def predict(self, x: Any, batch_size: int | None = None, verbose: str | int = "auto", callbacks: Any = None) -> Any:
        """Its outputs, as an array or a list of them: `y = model.predict(x)`."""
        data = self._dataset(x, None)
        params = {"verbose": verbose}
        many = prepare(callbacks, self, params)
        if data.count is None or data._dataset.is_batched:
            raise ValueError("predict: expected data of known length that has no batches")
        outputs = [_arrays.empty((data.count, *shape)) for _, _, shape in self._build().outputs]
        self.stop_training = False
        self._computing().predict(data._dataset, [_arrays.lend(a) for a in outputs], [listener(c, self, params) for c in many],
                                  _whole("batch_size", batch_size, 1))
        return outputs[0] if len(outputs) == 1 else outputs

    # ---- one batch ----

    def _step(self, x: Any, y: Any, sample_weight: Any, train: bool, return_dict: bool) -> Any:
        self._need_compiled()
        self._meet(x)
        built = self._build()
        inputs, targets = _arrays.inputs_of(built, x), _arrays.by_port("y", y, built.outputs)
        weights = [] if sample_weight is None else [_arrays.array("sample_weight", sample_weight).astype("float32")]
        for what, a in [("y", t) for t in targets] + [("sample_weight", w) for w in weights]:
            if a.ndim < 1 or len(a) != len(inputs[0]):
                raise ValueError(f"{what} has {len(a) if a.ndim else 'no'} samples and x has {len(inputs[0])}, expected as many")
        found = self._opened().step([_arrays.lend(a) for a in inputs], [_arrays.lend(a) for a in targets],
                                    [_arrays.lend(a) for a in weights], train)
        values = [value for _, value in found]
        return dict(found) if return_dict else values[0] if len(values) == 1 else values

    def train_on_batch(self, x: Any, y: Any, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """One step, on these samples: `loss = model.train_on_batch(x, y)`."""
        return self._step(x, y, sample_weight, True, return_dict)

    def test_on_batch(self, x: Any, y: Any, sample_weight: Any = None, return_dict: bool = False) -> Any:
        """Loss and metrics of one batch: `model.test_on_batch(x, y)`."""
        return self._step(x, y, sample_weight, False, return_dict)

    def predict_on_batch(self, x: Any) -> Any:
        """The outputs for one batch: `model.predict_on_batch(x)`."""
        return self.predict(x, batch_size=max(1, len(_arrays.inputs_of(self._build(), x)[0])), verbose=0)
