"""Iterating over rows: batches for a loop, of a dataset or of one rank's shard of it."""
from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from manta.data import _block, _execute
from manta.data._block import Block
from manta.data._need import check_count, need
from manta.data._ops import rebatched
from manta.data._plan import Piece
from manta.data.context import DataContext

__all__ = ["DataIterator"]


class DataIterator:
    """What iterates over blocks: Dataset.iterator(), streaming_split(), get_dataset_shard().

        for batch in train.get_dataset_shard("train").iter_torch_batches(batch_size=32): ...

    Each iteration is a pass over the data from its beginning.
    """

    _context: DataContext

    def _pieces(self) -> Iterator[Piece]:
        """A pass. Closing it ends what is under way."""
        raise NotImplementedError

    def get_context(self) -> DataContext:
        """How the rows are made.

            shard.get_context().execution_options.resource_limits
        """
        return self._context

    def _blocks(self) -> Iterator[Block]:
        pieces = self._pieces()
        try:
            for piece in pieces:
                yield _execute.fetch(piece)
                del piece           # else its block would lie in the store until the next is there
        finally:
            close = getattr(pieces, "close", None)
            if close is not None:
                close()

    def iter_rows(self) -> Iterator[dict[str, Any]]:
        """One row after another, as dictionaries of values by column.

            for row in ds.iter_rows(): row["x"]
        """
        for block in self._blocks():
            yield from _block.rows_in(block)

    def iter_batches(self, *, prefetch_batches: int = 1, batch_size: Optional[int] = 256,
                     batch_format: Optional[str] = "default", drop_last: bool = False,
                     local_shuffle_buffer_size: Optional[int] = None,
                     local_shuffle_seed: Optional[int] = None) -> Iterator[Any]:
        """Batches of rows.

            for batch in ds.iter_batches(batch_size=32): batch["x"]

        batch_format: "numpy" (the default: a dictionary of arrays), "pandas" or "pyarrow". batch_size None: a block each.
        local_shuffle_buffer_size: rows that are drawn from at random. Arrays are the loop's own and may be written to.
        Blocks are made ahead whatever prefetch_batches is, as many as DataContext allows.
        """
        wanted = _block.check_format(batch_format)
        size = None if batch_size is None else check_count("iter_batches", "batch_size", batch_size)
        check_count("iter_batches", "prefetch_batches", prefetch_batches, 0)
        if local_shuffle_buffer_size is not None:
            check_count("iter_batches", "local_shuffle_buffer_size", local_shuffle_buffer_size)
            if size is None:
                raise ValueError("iter_batches: a local shuffle needs a batch_size")
        return self._batches(wanted, size, drop_last, local_shuffle_buffer_size, local_shuffle_seed)

    def _batches(self, wanted: str, size: Optional[int], drop_last: bool, buffer: Optional[int],
                 seed: Optional[int]) -> Iterator[Any]:
        blocks = self._blocks()
        try:
            made = rebatched(blocks, size) if buffer is None else _shuffled(blocks, size or 1, buffer, seed)
            for block in made:
                if drop_last and size is not None and _block.rows_of(block) < size:
                    return
                yield _block.to_batch(_block.copied(block), wanted)
                del block
        finally:
            blocks.close()          # type: ignore[attr-defined]  # it is a generator

    def iter_torch_batches(self, *, prefetch_batches: int = 1, batch_size: Optional[int] = 256, dtypes: Any = None,
                           device: Any = "auto", collate_fn: Optional[Callable[[Any], Any]] = None, drop_last: bool = False,
                           local_shuffle_buffer_size: Optional[int] = None, local_shuffle_seed: Optional[int] = None,
                           pin_memory: bool = False) -> Iterator[Any]:
        """Batches as dictionaries of tensors of PyTorch, or what collate_fn makes of the arrays.

            for batch in shard.iter_torch_batches(batch_size=32): model(batch["x"])
        """
        torch = need("torch", "iter_torch_batches")
        batches = self.iter_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, drop_last=drop_last,
                                    local_shuffle_buffer_size=local_shuffle_buffer_size,
                                    local_shuffle_seed=local_shuffle_seed)
        return self._torch(torch, batches, dtypes, device, collate_fn, pin_memory)

    def _torch(self, torch: Any, batches: Iterator[Any], dtypes: Any, device: Any, collate_fn: Any,
               pin_memory: bool) -> Iterator[Any]:
        to = None if device in ("auto", None) else torch.device(device)
        for batch in batches:
            if collate_fn is not None:
                yield collate_fn(batch)
                continue
            out = {}
            for name, column in batch.items():
                if column.dtype == object:
                    raise TypeError(f"iter_torch_batches: column {name!r} holds {_block.kinds_of({name: column})[0][1]}, of which "
                                    "PyTorch makes no tensor; drop_columns() leaves it out, collate_fn makes something of it")
                tensor = torch.from_numpy(column)
                tensor = tensor.pin_memory() if pin_memory else tensor
                dtype = dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes
                out[name] = tensor.to(device=to, dtype=dtype) if to is not None or dtype is not None else tensor
            yield out

    def iter_tf_batches(self, *, prefetch_batches: int = 1, batch_size: Optional[int] = 256, dtypes: Any = None,
                        drop_last: bool = False, local_shuffle_buffer_size: Optional[int] = None,
                        local_shuffle_seed: Optional[int] = None) -> Iterator[Any]:
        """Batches as dictionaries of tensors of TensorFlow.

            for batch in shard.iter_tf_batches(batch_size=32): model(batch["x"])
        """
        tensorflow = need("tensorflow", "iter_tf_batches")
        batches = self.iter_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, drop_last=drop_last,
                                    local_shuffle_buffer_size=local_shuffle_buffer_size,
                                    local_shuffle_seed=local_shuffle_seed)
        return ({name: tensorflow.convert_to_tensor(column, dtype=dtypes.get(name) if isinstance(dtypes, Mapping) else dtypes)
                 for name, column in batch.items()} for batch in batches)

    def to_tf(self, feature_columns: Union[str, Sequence[str]], label_columns: Union[str, Sequence[str]], *,
              prefetch_batches: int = 1, batch_size: int = 1, drop_last: bool = False,
              local_shuffle_buffer_size: Optional[int] = None, local_shuffle_seed: Optional[int] = None) -> Any:
        """A tf.data.Dataset of (features, labels), for model.fit(). Each epoch of it is a pass.

            model.fit(shard.to_tf("x", "y", batch_size=32))

        One column is a tensor, a list of columns a dictionary of them. Types and shapes are those of the first block.
        """
        tensorflow = need("tensorflow", "to_tf")
        kinds = {name: (kind, shape) for name, kind, shape in self._kinds()}

        def spec(columns: Union[str, Sequence[str]]) -> Any:
            names = [columns] if isinstance(columns, str) else list(columns)
            _block.check_columns(names, kinds, "to_tf")
            specs = {name: tensorflow.TensorSpec((None, *kinds[name][1]), {"binary": "string"}.get(*[kinds[name][0]] * 2))
                     for name in names}
            return specs[columns] if isinstance(columns, str) else specs

        def part(batch: Any, columns: Union[str, Sequence[str]]) -> Any:
            return batch[columns] if isinstance(columns, str) else {name: batch[name] for name in columns}

        def generate() -> Iterator[Any]:
            for batch in self.iter_batches(prefetch_batches=prefetch_batches, batch_size=batch_size, drop_last=drop_last,
                                           local_shuffle_buffer_size=local_shuffle_buffer_size,
                                           local_shuffle_seed=local_shuffle_seed):
                yield part(batch, feature_columns), part(batch, label_columns)
        signature = (spec(feature_columns), spec(label_columns))
        return tensorflow.data.Dataset.from_generator(generate, output_signature=signature)

    def _kinds(self) -> Iterable[tuple[str, str, tuple[int, ...]]]:
        """What the columns hold."""
        raise NotImplementedError

    def iterator(self) -> DataIterator:
        return self


def _shuffled(blocks: Iterable[Block], size: int, buffer: int, seed: Optional[int]) -> Iterator[Block]:
    """Batches drawn from a buffer of at least so many rows, while there are."""
    numpy = need("numpy", "manta.data")
    random = numpy.random.default_rng(seed)
    kept: Block = {}
    for block in blocks:
        kept = _block.concat([kept, block]) if kept else block
        n = _block.rows_of(kept)
        if n >= buffer + size:
            order = random.permutation(n)
            draws = (n - buffer) // size
            for i in range(draws):
                yield _block.pick(kept, order[i * size:(i + 1) * size])
            kept = _block.pick(kept, order[draws * size:])
    if kept:
        order = random.permutation(_block.rows_of(kept))
        for begin in range(0, len(order), size):
            yield _block.pick(kept, order[begin:begin + size])
