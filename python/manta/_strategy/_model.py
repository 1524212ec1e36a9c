"""A Keras model that all ranks train: what fit() and evaluate() do there besides what Keras does.

    fit()                   the rank's part of the data; rank 0's weights and first epoch; each rank's own random numbers
      step                  gradients averaged (_gradients.py)
      the epoch's end       a rank whose batches are over takes part in the others' updates; metrics are put together, and what
                            layers have counted (the statistics of BatchNormalization) is averaged; only then validation
      on_epoch_end          if one rank is to stop, all stop
    evaluate()              the rank's part of the data; metrics put together

The methods are set on the object, not on its class: the model is saved, loaded and printed as what it is.
"""
from __future__ import annotations

import inspect
import zlib
from typing import Any, Callable, Mapping, Optional

import numpy as np

from manta._strategy import _share
from manta._strategy._gradients import Averaged, Step, join, step_of
from manta._strategy._group import BEGIN, EPOCH, FIT, METRICS, Group

_MARK = "_manta_shared"
_METHODS = ("fit", "evaluate", "compile", "compile_from_config", "train_step", "train_on_batch", "_get_metrics_result_or_logs")
_SPREAD = 0x9E3779B1        # between the seeds of two ranks


class SharedModel:
    """A model and its ranks."""

    def __init__(self, keras: Any, group: Group, model: Any, shard: bool) -> None:
        self._keras, self._group, self._model, self._shard = keras, group, model, shard
        self._is_torch = keras.backend.backend() == "torch"
        self._step = Step(group, self._stop)
        self._optimizers: dict[int, Averaged] = {}
        self._begun = 0                     # weights that are rank 0's
        self._spread: set[int] = set()      # generators of random numbers that were made this rank's own
        self._is_evaluating = False
        self._sums: dict[int, int] = {}     # of what layers have counted, when it was last equal in all ranks
        own = {name: getattr(model, name) for name in _METHODS}
        self._own: Mapping[str, Callable[..., Any]] = own
        for name in own:
            vars(model)[name] = getattr(self, name.lstrip("_"))
        vars(model)[_MARK] = self
        if getattr(model, "compiled", False):
            if group.size > 1:
                model.jit_compile = False   # Keras has decided it by itself, perhaps: what was asked for is not kept
            model.train_function = None

    # ---- what the model's methods are ----

    def compile(self, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self._own["compile"]).bind(*args, **kwargs)
        jit = bound.arguments.get("jit_compile", bound.arguments.get("kwargs", {}).get("jit_compile", "auto"))
        if jit != "auto":
            self._refuse(jit)
        out = self._own["compile"](*args, **kwargs)
        if jit == "auto" and self._group.size > 1:
            self._model.jit_compile = False
        self._refuse_sum()
        return out

    def compile_from_config(self, config: Any) -> Any:
        if self._group.size > 1:
            config = {**config, "jit_compile": False}       # a file does not say who asked for it
        return self._own["compile_from_config"](config)

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        given = self._bound("fit", args, kwargs)
        data, tree = _DATA, self._keras.tree
        if self._group.rank and given.get("verbose", "auto") == "auto":
            given["verbose"] = 0
        if self._shard and self._group.size > 1:
            if given.get("validation_split") and given.get("validation_data") is None and _share.are_arrays(tree, given.get("x")):
                kept, cut = _share.cut_off(tree, tuple(given.get(k) for k in data), given.pop("validation_split"))
                given.update(zip(data, kept))
                given["validation_data"] = cut
            whole = given.get("batch_size")
            self._divide(given, data, "batch_size", whole)
            self._divide_validation(given, given.get("validation_batch_size") or whole)
        agree = self._agreement()
        callbacks = given.get("callbacks")
        if isinstance(callbacks, self._keras.callbacks.CallbackList):
            callbacks.append(agree)
        else:
            given["callbacks"] = [*(tree.flatten(callbacks) if callbacks else ()), agree]
        self._begun = 0
        self._find_optimizers()
        self._build(given)
        try:
            return self._call("fit", given)
        finally:
            if isinstance(callbacks, self._keras.callbacks.CallbackList):
                callbacks.callbacks.remove(agree)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        given = self._bound("evaluate", args, kwargs)
        if self._group.rank and given.get("verbose", "auto") == "auto":
            given["verbose"] = 0
        if self._shard and self._group.size > 1 and not given.get("_use_cached_eval_dataset"):
            self._divide(given, _DATA, "batch_size", given.get("batch_size"))
        before, self._is_evaluating = self._is_evaluating, True
        try:
            return self._call("evaluate", given)
        finally:
            self._is_evaluating = before

    def train_on_batch(self, *args: Any, **kwargs: Any) -> Any:
        self._build(self._bound("train_on_batch", args, kwargs))
        return self._own["train_on_batch"](*args, **kwargs)

    def train_step(self, *args: Any, **kwargs: Any) -> Any:
        """Keras's step, or the user's. Under TensorFlow this runs when the step is traced."""
        if self._group.size == 1:
            return self._own["train_step"](*args, **kwargs)
        self._find_optimizers()
        self._begin()
        leaf = next((x for x in self._keras.tree.flatten((args, kwargs)) if x is not None and hasattr(x, "shape")), None)
        rows: Any = None
        if leaf is not None and len(leaf.shape):
            rows = leaf.shape[0]
            if not self._is_torch:
                import tensorflow as tf
                rows = tf.shape(leaf)[0]
        with step_of(self._step, rows):
            return self._own["train_step"](*args, **kwargs)

    def get_metrics_result_or_logs(self, logs: Any) -> Any:
        """The end of an epoch, or of evaluate()."""
        if self._group.size == 1:
            return self._own["_get_metrics_result_or_logs"](logs)
        if not self._is_evaluating:
            self._end_epoch()
        self._add_metrics()
        out = self._own["_get_metrics_result_or_logs"](logs)
        if out is logs and not logs:        # no batch was this rank's: it takes part, and has the metrics of all
            out = self._model.get_metrics_result()
        mean = self._mean_of_logs(logs if out is logs else {})
        return mean if out is logs else out

    # ---- the beginning ----

    def _find_optimizers(self) -> None:
        """The optimizers of the model, by their names: their apply() averages."""
        if self._group.size == 1:
            return
        kind = self._keras.optimizers.Optimizer
        found = {name: value for name, value in vars(self._model).items() if isinstance(value, kind)}
        for index, name in enumerate(sorted(found)):
            known = self._optimizers.get(index)     # another model that has the same optimizer may have set its own since
            if known is None or known._optimizer is not found[name] or vars(found[name]).get("apply") != known.apply:
                self._optimizers[index] = Averaged(self._step, found[name], index, self._is_torch, self._begin)

    def _build(self, given: Mapping[str, Any]) -> None:
        """Makes the variables before the first step: TensorFlow would make them within it, too late to be given."""
        if self._group.size == 1 or self._is_built():
            return
        x: Any = given.get("x")
        batch: Any = None
        if _share.is_dataset(x):
            batch = next(iter(x))
        elif isinstance(x, self._keras.utils.PyDataset):
            batch = x[0]
        elif _share.are_arrays(self._keras.tree, x):
            batch = tuple(given.get(k) for k in _DATA)
            batch = batch[:3 if batch[2] is not None else 2 if batch[1] is not None else 1]
        if batch is not None:
            self._model._symbolic_build(data_batch=self._keras.tree.map_structure(lambda v: np.asarray(v[:1]), batch))
        elif not self._is_torch:            # which builds it by itself
            raise RuntimeError(f"keras_strategy(): the model {self._model.name!r} has no weights yet, and its data cannot be looked at: "
                               "begin it with an Input, or call build()")

    def _is_built(self) -> bool:
        """A model without a call() of its own, which trains others in its train_step, is built when they are."""
        has_call = type(self._model).call is not self._keras.Model.call
        return all(layer.built for layer in self._model._flatten_layers(include_self=has_call))

    def _begin(self) -> None:
        """Gives all ranks rank 0's weights, if there are weights that it has not given."""
        if self._begun == len(self._model.weights):
            return
        if self._begun and self._step.rows is not None:
            raise RuntimeError(f"keras_strategy(): the model {self._model.name!r} makes variables within a step, when the ranks cannot "
                               "be given the same; make them in build()")
        if self._is_torch:
            return self._give_weights(0)
        import tensorflow as tf
        with tf.init_scope():               # the step is being traced, and has not run
            self._give_weights(0)

    def _give_weights(self, root: int) -> None:
        model = self._model
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and not optimizer.built and model.trainable_variables:
            optimizer.build(model.trainable_variables)
        weights = list(model.weights)
        self._refuse_sum()
        known = {id(v) for v in weights}
        states = [v for v in model.variables if id(v) not in known and tuple(v.shape) == (2,) and id(v) not in self._spread]
        variables = weights + states
        for one in self._optimizers.values():
            if one._optimizer.built:
                variables += [v for v in one._optimizer.variables if id(v) not in known]
        values = [self._numpy(v) for v in variables]
        n = sum(v.nbytes for v in values)
        table = self._group.exchange(BEGIN, n)
        if (table[:, 1] != n).any():
            said = ", ".join(f"rank {i} has {k:,} bytes" for i, k in enumerate(table[:, 1].tolist()))
            raise RuntimeError(f"keras_strategy(): the model {model.name!r} is not the same in all ranks: {said} of variables")
        row = np.concatenate([_bytes(v) for v in values]) if n else np.empty(0, np.uint8)
        self._group.broadcast(row, root)
        at = 0
        for variable, value in zip(variables, values):
            got = row[at:at + value.nbytes].view(value.dtype).reshape(value.shape)
            at += value.nbytes
            if id(variable) in {id(s) for s in states}:
                got = got.copy()
                got[0] = (int(got[0]) + self._group.rank * _SPREAD) % np.iinfo(got.dtype).max
                self._spread.add(id(variable))
            if self._group.rank != root or id(variable) in self._spread:
                variable.assign(got)
        self._begun = len(weights)
        self._sums = {id(v): _sum(self._numpy(v)) for v in model.non_trainable_weights}

    def _agreement(self) -> Any:
        """The last of fit()'s callbacks: it hears what the others have decided."""
        shared = self

        class Agreement(self._keras.callbacks.Callback):  # type: ignore[misc,name-defined]
            def on_train_begin(self, logs: Any = None) -> None:
                shared._begin_fit(self.params)

            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                if shared._group.size > 1 and shared._group.exchange(EPOCH, int(shared._stop(None)))[:, 1].any():
                    shared._stop(True)
        return Agreement()

    def _begin_fit(self, params: Any) -> None:
        if self._group.size == 1:
            return
        first = getattr(self._model, "_initial_epoch", None)
        epochs = int((params or {}).get("epochs") or 0)
        table = self._group.exchange(FIT, -1 if first is None else first, epochs)
        if (table[:, 2] != epochs).any():
            said = ", ".join(f"rank {i} {k}" for i, k in enumerate(table[:, 2].tolist()))
            raise ValueError(f"keras_strategy(): fit() is to train a different number of epochs in each rank: {said}")
        self._model._initial_epoch = int(table[0, 1]) if table[0, 1] >= 0 else None     # BackupAndRestore sets it
        self._begin()

    # ---- the end of an epoch ----

    def _end_epoch(self) -> None:
        best = join(self._step, [self._optimizers[k] for k in sorted(self._optimizers)], self._model.trainable_variables, self._stop)
        self._mean_of_counted()             # before they are given: what the others have counted counts as well
        if best is not None:                # outside of a compiled step the last bit may come out differently
            self._begun = 0
            self._give_weights(best)

    def _mean_of_counted(self) -> None:
        """What layers have counted in this epoch: of numbers the mean, of anything else rank 0's."""
        counted = list(self._model.non_trainable_weights)
        values = [self._numpy(v) for v in counted]
        changed = np.array([_sum(v) != self._sums.get(id(k)) for k, v in zip(counted, values)], np.uint8)
        if not changed.size:
            return
        changed = self._group.gather(changed).any(0)
        for variable, value, is_changed in zip(counted, values, changed):
            if not is_changed:
                continue
            if value.dtype.name in ("float16", "bfloat16", "float32", "float64"):
                value = np.array(value, order="C")
                self._group.add_up(value.ctypes.data, value.size, value.dtype.name, is_mean=True)
            else:
                value = np.array(value, order="C")
                self._group.broadcast(value)
            variable.assign(value)
            self._sums[id(variable)] = _sum(value)

    def _add_metrics(self) -> None:
        """What every rank's metrics have counted, added up, as Keras says of each variable."""
        variables = [v for m in self._model.metrics for v in m.variables]
        values = [self._numpy(v) for v in variables]
        n = sum(v.size for v in values)
        most = int(self._group.exchange(METRICS, n)[:, 1].max())
        row = np.zeros(most)
        if n == most and n:
            row[:] = np.concatenate([v.reshape(-1).astype(np.float64) for v in values])
        if not most:
            return
        table, at = self._group.gather(row), 0
        for variable, value in zip(variables, values):
            part = table[:, at:at + value.size]
            at += value.size
            how = getattr(variable, "aggregation", "sum")
            out = part.sum(0) if how == "sum" else part.mean(0) if how == "mean" else part[0]
            if n == most:
                variable.assign(out.reshape(value.shape).astype(value.dtype))

    def _mean_of_logs(self, logs: Any) -> Any:
        """The mean of what a train_step of the user's own has returned last."""
        numbers = {}
        for name in sorted(logs) if isinstance(logs, dict) else ():
            try:
                numbers[name] = float(logs[name])
            except (TypeError, ValueError):
                continue
        counts = self._group.exchange(METRICS, len(numbers))[:, 1]
        if counts.max() == 0:
            return logs
        row = np.zeros(int(counts.max()))
        if len(numbers) == len(row):
            row[:] = list(numbers.values())
        table = self._group.gather(row)[counts == counts.max()]
        return {**logs, **dict(zip(numbers, table.mean(0).tolist()))} if len(numbers) == len(row) else logs

    # ---- small things ----

    def _stop(self, value: Optional[bool]) -> bool:
        if value:
            self._model.stop_training = True
        return bool(getattr(self._model, "stop_training", False))

    def _numpy(self, variable: Any) -> Any:
        return np.asarray(self._keras.ops.convert_to_numpy(variable.value))

    def _bound(self, name: str, args: Any, kwargs: Any) -> dict[str, Any]:
        bound = inspect.signature(self._own[name]).bind(*args, **kwargs)
        given = dict(bound.arguments)
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(parameter.name, {}))
        return given

    def _call(self, name: str, given: dict[str, Any]) -> Any:
        self._step.error = None
        try:
            return self._own[name](**given)
        except Exception:
            if self._step.error is not None:
                raise self._step.error from None
            raise

    def _divide(self, given: dict[str, Any], names: tuple[str, ...], batch_name: str, batch: Optional[int]) -> None:
        tree, group = self._keras.tree, self._group
        x = given.get(names[0])
        if _share.is_dataset(x):
            given[names[0]] = _share.divide_dataset(x, group.rank, group.size)
        elif _share.are_arrays(tree, x):
            parts, given[batch_name] = _share.divide_arrays(tree, tuple(given.get(k) for k in names), batch, group.rank, group.size)
            given.update({name: part for name, part in zip(names, parts) if part is not None})

    def _divide_validation(self, given: dict[str, Any], batch: Optional[int]) -> None:
        data = given.get("validation_data")
        if data is None:
            return
        group = self._group
        if _share.is_dataset(data):
            given["validation_data"] = _share.divide_dataset(data, group.rank, group.size)
        elif isinstance(data, (tuple, list)) and _share.are_arrays(self._keras.tree, data[0]):
            whole = (*data, None, None)[:3]
            parts, given["validation_batch_size"] = _share.divide_arrays(self._keras.tree, whole, batch, group.rank, group.size)
            given["validation_data"] = parts[:len(data)]

    def _refuse(self, jit: Any) -> None:
        if jit and self._group.size > 1:
            raise ValueError("keras_strategy(): jit_compile=True compiles a step into code that cannot wait for other processes; leave "
                             "it out, or say False")

    def _refuse_sum(self) -> None:
        losses = self._keras.tree.flatten(getattr(self._model, "loss", None))
        wrong = [x for x in (getattr(one, "reduction", "mean") for one in losses) if x in ("sum", "none", None)]
        if self._group.size > 1 and wrong:
            raise ValueError(f"keras_strategy(): a loss with reduction={wrong[0]!r} grows with the batch, and the ranks' gradients are "
                             "averaged; use \"sum_over_batch_size\"")


_DATA = ("x", "y", "sample_weight")


def _bytes(value: Any) -> Any:
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _sum(value: Any) -> int:
    return zlib.crc32(_bytes(value).data)
