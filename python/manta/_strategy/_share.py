"""Which part of its data a rank trains with.

Arrays, and datasets of TensorFlow, are the same in all ranks: a rank takes its rows of every batch, so that the ranks together
have the batches of one process. What else there is (a generator, a PyDataset, a DataLoader) is a rank's own already.

    rows of a batch of 5 for 2 ranks     0 1 2 | 3 4          the lower ranks have one more
"""
from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np

BATCH = 32              # Keras's own, if none is named


def part_of(n: int, rank: int, size: int) -> tuple[int, int]:
    """(first, number) of a rank's rows among n."""
    each, more = divmod(n, size)
    return each * rank + min(rank, more), each + (rank < more)


def rows_of(n: int, batch: int, rank: int, size: int) -> Optional[Any]:
    """The rows of a rank among n in batches; None: all, because there are fewer rows in a batch, or at all, than ranks."""
    if min(n, batch) < size:
        return None
    rows = []
    for at in range(0, n, batch):
        first, count = part_of(min(batch, n - at), rank, size)
        rows.append(np.arange(at + first, at + first + count))
    return np.concatenate(rows)


def _taken(array: Any, rows: Any) -> Any:
    if hasattr(array, "iloc"):
        return array.iloc[rows]
    kind = type(array).__module__.split(".")[0]
    if kind == "tensorflow":
        import tensorflow as tf
        return tf.gather(array, rows)
    if kind == "torch":
        import torch
        return array[torch.from_numpy(rows)]
    return array[rows]


def _leaves(tree: Any, data: Any) -> list[Any]:
    return [leaf for leaf in tree.flatten(data) if leaf is not None]


def is_dataset(x: Any) -> bool:
    """Whether it is one of TensorFlow's, which is not imported to know."""
    tf = sys.modules.get("tensorflow")
    return tf is not None and isinstance(x, tf.data.Dataset)


def are_arrays(tree: Any, x: Any) -> bool:
    """Whether x is arrays with rows that can be chosen."""
    if x is None or is_dataset(x):
        return False
    leaves = _leaves(tree, x)
    return bool(leaves) and all(getattr(leaf, "shape", None) and hasattr(leaf, "__getitem__") for leaf in leaves)


def divide_arrays(tree: Any, data: tuple[Any, ...], batch: Optional[int], rank: int, size: int) -> tuple[tuple[Any, ...], int]:
    """The rank's rows of (x, y, sample_weight), and its number of rows in a whole batch."""
    batch = batch or BATCH
    shapes = [getattr(leaf, "shape", None) or (-1,) for leaf in _leaves(tree, data)]
    counts = sorted({int(shape[0]) for shape in shapes})
    rows = rows_of(counts[0], batch, rank, size) if len(counts) == 1 else None
    if rows is None:                        # Keras says what is wrong with arrays of different lengths, and with what is none
        return data, batch
    def take(leaf: Any) -> Any:
        return None if leaf is None else _taken(leaf, rows)
    return tuple(tree.map_structure(take, part) if part is not None else None for part in data), part_of(batch, rank, size)[1]


def cut_off(tree: Any, data: tuple[Any, ...], fraction: float) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """What validation_split leaves, and its last rows, as Keras divides them."""
    n = int(_leaves(tree, data)[0].shape[0])
    at = int(np.floor(n * (1.0 - fraction)))
    if at in (0, n):
        raise ValueError(f"validation_split={fraction} of {n} rows leaves nothing to train with, or to validate")

    def part(rows: Any) -> tuple[Any, ...]:
        return tuple(tree.map_structure(lambda leaf: _taken(leaf, rows), one) if one is not None else None for one in data)
    return part(np.arange(at)), part(np.arange(at, n))


def divide_dataset(dataset: Any, rank: int, size: int) -> Any:
    """The rank's rows of each batch; a dataset whose auto_shard_policy is OFF is a rank's own."""
    import tensorflow as tf

    if dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF:
        return dataset
    for spec in tf.nest.flatten(dataset.element_spec):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank == 0:
            raise ValueError(f"keras_strategy(): {spec} in the dataset cannot be divided between ranks; batch it, or divide it "
                             "yourself and use manta.train.tensorflow.prepare_dataset_shard()")

    def rows(*batch: Any) -> Any:
        n = tf.shape(tf.nest.flatten(batch)[0])[0]
        each, more = n // size, n % size
        few = n < size                      # then all take all of it: the mean is the same
        first = tf.where(few, 0, each * rank + tf.minimum(rank, more))
        count = tf.where(few, n, each + tf.cast(rank < more, tf.int32))
        taken = tf.nest.map_structure(lambda t: t[first:first + count], batch)
        return taken if len(taken) > 1 else taken[0]
    return dataset.map(rows, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
