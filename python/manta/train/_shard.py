"""Parts of datasets: what get_dataset_shard() gives of a list, an array, or a dictionary of arrays.

    TorchTrainer(loop, datasets={"train": {"x": x, "y": y}})
    for batch in get_dataset_shard("train").iter_torch_batches(batch_size=32): ...

All ranks have equally many rows, so that they take equally many steps: what is left over is left out. An object with
a `streaming_split(n, equal=True)` of its own divides itself.
"""
from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Sequence

from manta.train.config import DataConfig

__all__ = ["DataIterator"]


class DataIterator:
    """Rows of a dataset, as a dictionary of arrays by column; a list is the column "item"."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)
        self._passes = 0

    def count(self) -> int:
        """How many rows there are."""
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __len__(self) -> int:
        return self.count()

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """One row after another.

            for row in shard.iter_rows(): row["x"]
        """
        for i in range(self.count()):
            yield {name: column[i] for name, column in self._columns.items()}

    def iter_batches(self, *, batch_size: Optional[int] = 256, batch_format: Optional[str] = "default",
                     prefetch_batches: int = 1, drop_last: bool = False,
                     local_shuffle_buffer_size: Optional[int] = None,
                     local_shuffle_seed: Optional[int] = None) -> Iterator[Any]:
        """Batches as dictionaries of arrays.

            for batch in shard.iter_batches(batch_size=32): batch["x"]

        batch_format: "numpy" (the default) or "pandas". With a shuffle buffer all rows change their places, otherwise
        in each pass.
        """
        if batch_format not in (None, "default", "numpy", "pandas"):
            raise NotImplementedError(f"iter_batches: batch_format is {batch_format!r}, expected \"numpy\" or \"pandas\"")
        import numpy
        n = self.count()
        size = batch_size or max(n, 1)
        order = None
        if local_shuffle_buffer_size:
            seed = None if local_shuffle_seed is None else local_shuffle_seed + self._passes
            order = numpy.random.default_rng(seed).permutation(n)
            self._passes += 1
        for begin in range(0, n, size):
            if drop_last and begin + size > n:
                return
            rows = slice(begin, begin + size) if order is None else order[begin:begin + size]
            batch = {name: numpy.asarray(column)[rows] for name, column in self._columns.items()}
            if batch_format == "pandas":
                import pandas
                yield pandas.DataFrame({name: list(v) if v.ndim > 1 else v for name, v in batch.items()})
            else:
                yield batch

    def iter_torch_batches(self, *, batch_size: Optional[int] = 256, dtypes: Any = None, device: Any = "auto",
                           collate_fn: Any = None, **how: Any) -> Iterator[Any]:
        """Batches as dictionaries of tensors of PyTorch.

            for batch in shard.iter_torch_batches(batch_size=32): model(batch["x"])
        """
        import torch
        to = None if device in ("auto", None) else torch.device(device)
        for batch in self.iter_batches(batch_size=batch_size, **how):
            if collate_fn is not None:
                yield collate_fn(batch)
                continue
            out = {}
            for name, column in batch.items():
                dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
                out[name] = torch.tensor(column, dtype=dtype, device=to)
            yield out

    def iter_tf_batches(self, *, batch_size: Optional[int] = 256, dtypes: Any = None, **how: Any) -> Iterator[Any]:
        """Batches as dictionaries of tensors of TensorFlow.

            for batch in shard.iter_tf_batches(batch_size=32): model(batch["x"])
        """
        import tensorflow
        for batch in self.iter_batches(batch_size=batch_size, **how):
            yield {name: tensorflow.convert_to_tensor(column, dtype=dtypes.get(name) if isinstance(dtypes, Mapping)
                                                      else dtypes) for name, column in batch.items()}


def _rows(columns: Mapping[str, Any]) -> int:
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the columns of a dataset have {lengths} rows, expected equally many")
    return next(iter(lengths.values()), 0)


def check(name: str, dataset: Any) -> None:
    """Refuses what cannot be divided, where the trainer is made."""
    if callable(dataset) or hasattr(dataset, "streaming_split"):
        return
    if isinstance(dataset, Mapping):
        _rows(dataset)
    elif isinstance(dataset, (str, bytes)) or not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(f"datasets: {name} is {type(dataset).__name__}, expected a list, an array, a dictionary of arrays, "
                        "or an object with streaming_split()")


def divide(datasets: Mapping[str, Any], n: int, config: DataConfig, nodes: Sequence[Any]) -> dict[str, Sequence[Any]]:
    """What each of n ranks is handed of each dataset: (columns, first row, rows), or a part that the dataset made of itself."""
    datasets = {name: d() if callable(d) and not hasattr(d, "streaming_split") else d for name, d in datasets.items()}
    streams = {name: d for name, d in datasets.items() if hasattr(d, "streaming_split")}
    out: dict[str, Sequence[Any]] = {}
    if streams:
        of_ranks = config.configure(streams, world_size=n, worker_handles=None, worker_node_ids=nodes)
        out = {name: [of_rank[name] for of_rank in of_ranks] for name in of_ranks[0]}
    for name, dataset in datasets.items():
        if name not in streams:
            out[name] = _divided(dataset, n, config.is_split(name))
    return out


def _divided(dataset: Any, n: int, is_split: bool) -> Sequence[Any]:
    columns = dataset if isinstance(dataset, Mapping) else {"item": dataset}
    rows = _rows(columns)
    each = rows // n if is_split else rows
    return [{name: column[r * each:(r + 1) * each] if is_split else column for name, column in columns.items()}
            for r in range(n)]


def open_shard(part: Any, attempt: int) -> Any:
    """What the loop of a rank is given; a part that is dealt to several ranks is told which attempt asks."""
    if isinstance(part, Mapping):
        return DataIterator(part)
    if hasattr(part, "_for_attempt"):
        part._for_attempt(attempt)
    return part
