"""The mean of all ranks' gradients, inside Keras's own step.

optimizer.apply() is what every train_step ends in, Keras's and a user's. In its place stands one that first averages what it
was given: each rank's gradients count as many times as its batch has rows, so that the mean is that of the whole batch. Under
TensorFlow this is an operation of the graph that calls Python; under torch it is Python.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator, Optional, Sequence

import numpy as np

from manta._strategy._group import JOIN, STEP, Group

Shapes = list[Optional[tuple[tuple[int, ...], str]]]        # of each gradient (shape, type); None: there is none


class Step:
    """What is known of the step that is being computed. rows: of this rank's batch, None outside of one."""

    def __init__(self, group: Group, stop: Callable[[Optional[bool]], bool]) -> None:
        self.group = group
        self.rows: Any = None
        self.error: Optional[BaseException] = None      # what was raised below TensorFlow, which tells its text alone
        self._stop = stop                               # whether training is to stop; with True: it is

    def share(self, index: int, rows: int, n: int) -> float:
        """Agrees on a step, and says how much of the mean is this rank's. index: of the optimizer; n: elements."""
        try:
            table = self.group.exchange(STEP, index, rows, int(self._stop(None)), n)
            active = table[table[:, 0] == STEP]
            if (active[:, [1, 4]] != active[0, [1, 4]]).any():
                said = "; ".join(f"rank {i}: optimizer {r[1]}, {r[4]} gradients" for i, r in enumerate(table.tolist()) if r[0] == STEP)
                raise RuntimeError(f"the ranks of a Keras model compute different gradients: {said}")
            if table[:, 3].any():
                self._stop(True)
            return float(rows) / float(active[:, 2].sum())
        except BaseException as e:
            self.error = e
            raise

    def add_up(self, address: int, n: int, dtype: str) -> None:
        try:
            self.group.add_up(address, n, dtype)
        except BaseException as e:
            self.error = e
            raise


def _kinds(shapes: Shapes) -> list[str]:
    """The types of gradients, in the order in which they first appear: each is one row of memory."""
    return list(dict.fromkeys(one[1] for one in shapes if one is not None))


def _count(shapes: Shapes, kind: Optional[str] = None) -> int:
    return sum(int(np.prod(one[0], dtype=np.int64)) for one in shapes if one is not None and kind in (None, one[1]))


class Averaged:
    """An optimizer whose apply() averages first. index: its number in the model."""

    def __init__(self, step: Step, optimizer: Any, index: int, is_torch: bool, begin: Callable[[], None]) -> None:
        self._step, self._optimizer, self._index, self._is_torch = step, optimizer, index, is_torch
        self._begin = begin                             # gives all ranks rank 0's weights, if that was not done
        self._apply = type(optimizer).apply             # Keras's own
        self._shapes: Optional[Shapes] = None           # of the last gradients
        self._variables: Any = None                     # that they were for
        vars(optimizer)["apply"] = self.apply

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> Any:
        grads = list(grads)
        if trainable_variables is not None:
            trainable_variables = list(trainable_variables)
        if self._step.group.size > 1 and grads:
            self._begin()
            self._variables = trainable_variables
            grads = self._torch_mean(grads) if self._is_torch else self._tensorflow_mean(grads)
        return self._apply(self._optimizer, grads, trainable_variables)

    # ---- the mean ----

    def _torch_mean(self, grads: list[Any]) -> list[Any]:
        import torch
        self._shapes = [None if g is None else (tuple(g.shape), str(g.dtype).removeprefix("torch.")) for g in grads]
        share = self._step.share(self._index, self._step.rows or 1, _count(self._shapes))
        rows = {}
        for kind in _kinds(self._shapes):
            row = torch.cat([g.detach().reshape(-1) for g, s in zip(grads, self._shapes) if s is not None and s[1] == kind])
            row = row.mul_(share).to("cpu")
            self._step.add_up(row.data_ptr(), row.numel(), kind)
            rows[kind] = row
        return [None if part is None else part.to(g.device) for part, g in zip(self._parts(rows), grads)]

    def _tensorflow_mean(self, grads: list[Any]) -> list[Any]:
        import tensorflow as tf
        dense = [None if g is None else tf.convert_to_tensor(g) for g in grads]
        shapes: Shapes = [None if g is None else (tuple(g.shape), g.dtype.name) for g in dense]
        self._shapes = shapes
        kinds = _kinds(shapes)
        rows = [tf.concat([tf.reshape(g, [-1]) for g, s in zip(dense, shapes) if s is not None and s[1] == kind], 0)
                for kind in kinds]

        def mean(count: Any, *flat: Any) -> list[Any]:
            share = self._step.share(self._index, int(count), sum(one.size for one in flat))
            out = []
            for one in flat:
                whole = np.ascontiguousarray(np.multiply(one, one.dtype.type(share)))
                self._step.add_up(whole.ctypes.data, whole.size, whole.dtype.name)
                out.append(whole)
            return out

        count = tf.constant(1) if self._step.rows is None else self._step.rows
        means = tf.numpy_function(mean, [count, *rows], [row.dtype for row in rows])
        means = list(means) if isinstance(means, (list, tuple)) else [means]       # one alone comes bare when it runs eagerly
        for row, before in zip(means, rows):
            row.set_shape(before.shape)
        return self._parts(dict(zip(kinds, means)))

    def _parts(self, rows: dict[str, Any]) -> list[Any]:
        """The gradients that lie in rows of memory one after the other."""
        at = dict.fromkeys(rows, 0)
        out: list[Any] = []
        for one in self._shapes or ():
            if one is None:
                out.append(None)
                continue
            shape, kind = one
            n = int(np.prod(shape, dtype=np.int64))
            part = rows[kind][at[kind]:at[kind] + n]
            at[kind] += n
            if self._is_torch:
                out.append(part.view(shape))
            else:
                import tensorflow as tf
                out.append(tf.reshape(part, shape))
        return out

    # ---- a rank without batches ----

    def mirror(self, n: int, variables: Sequence[Any]) -> None:
        """An update of the others, to which this rank adds nothing. n: its elements; variables: if no step was taken yet."""
        if self._shapes is None:
            self._shapes = [(tuple(v.shape), str(v.dtype)) for v in variables]
            self._variables = list(variables)
        if _count(self._shapes) != n:
            raise RuntimeError(f"a step of the other ranks has {n} gradients, this rank knows of {_count(self._shapes)}: it has had "
                               "no batch yet to learn which variables are trained")
        if self._is_torch:
            import torch
            rows: dict[str, Any] = {k: torch.zeros(_count(self._shapes, k), dtype=getattr(torch, k)) for k in _kinds(self._shapes)}
            for kind, row in rows.items():
                self._step.add_up(row.data_ptr(), row.numel(), kind)
            owners = self._optimizer._trainable_variables if self._variables is None else self._variables
            parts = [None if part is None else part.to(v.value.device) for part, v in zip(self._parts(rows), owners)]
            with torch.no_grad():
                self._apply(self._optimizer, parts, self._variables)
            return
        import tensorflow as tf
        sums = {}
        for kind in _kinds(self._shapes):
            row = np.zeros(_count(self._shapes, kind), tf.as_dtype(kind).as_numpy_dtype)
            self._step.add_up(row.ctypes.data, row.size, kind)
            sums[kind] = tf.constant(row)
        self._apply(self._optimizer, self._parts(sums), self._variables)


def join(step: Step, averaged: Sequence[Averaged], variables: Sequence[Any], stop: Callable[[Optional[bool]], bool]) -> Optional[int]:
    """Takes part in the updates of ranks that still have batches, until none has; the rank that has made all of its updates itself,
    if another has not."""
    mirrored = 0
    while True:
        table = step.group.exchange(JOIN, mirrored, 0, int(stop(None)))
        if table[:, 3].any():
            stop(True)
        active = table[table[:, 0] == STEP]
        if not len(active):
            return int(np.argmin(table[:, 1])) if table[:, 1].any() else None
        averaged[int(active[0, 1])].mirror(int(active[0, 4]), variables)
        mirrored += 1


@contextlib.contextmanager
def step_of(step: Step, rows: Any) -> Iterator[None]:
    """A step with so many rows."""
    before, step.rows = step.rows, rows
    try:
        yield
    finally:
        step.rows = before
