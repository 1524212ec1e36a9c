"""Dataset: where samples come from, and what is done to them."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manta import _manta
from manta.models._arrays import array, lend


class Dataset:
    """Samples by the words that `manta train --data` takes, or in arrays by the names of their columns.

        data = manta.Dataset("mnist")
        data = manta.Dataset("cars.csv:x=weight+power,y=price").shuffle(seed=1)
        data = manta.Dataset({"x": x, "y": y}).take(1000)

    Columns called as the inputs and outputs of a model are fed to them; with one of each, `x` and `y` will do.
    A stage gives a new dataset. Stages mean what tf.data means by them.
    """

    def __init__(self, source: str | Mapping[str, Any]):
        if isinstance(source, str):
            self._dataset = _manta.Dataset(source)
            self._made: tuple[Any, ...] = ("words", source)
        elif isinstance(source, Mapping):
            columns = [(str(k), *lend(array(str(k), v))) for k, v in source.items()]
            self._dataset = _manta.Dataset(columns)
            self._made = ("arrays", columns)
        else:
            raise TypeError(f"Dataset: {type(source).__name__} is given, expected words such as \"mnist\", or a dict of arrays")

    def _stage(self, name: str, *options: Any) -> Dataset:
        """What a stage makes of it. How it was made is kept, so that another process can make it too."""
        out = object.__new__(Dataset)
        out._dataset = getattr(self._dataset, name)(*[o._dataset if isinstance(o, Dataset) else o for o in options])
        out._made = ("stage", self, name, options)
        return out

    def take(self, n: int) -> Dataset:
        """The first n samples: `data.take(1000)`."""
        return self._stage("take", n)

    def skip(self, n: int) -> Dataset:
        """All but the first n samples: `data.skip(1000)`."""
        return self._stage("skip", n)

    def repeat(self, times: int = -1) -> Dataset:
        """So many passes; -1: without end: `data.repeat(2)`."""
        return self._stage("repeat", times)

    def shuffle(self, buffer: int = 0, seed: int = 0) -> Dataset:
        """Another order each epoch, drawn from a buffer of so many (0: all): `data.shuffle(seed=3)`. fit() shuffles anyway."""
        return self._stage("shuffle", buffer, seed)

    def batch(self, size: int, drop_remainder: bool = False) -> Dataset:
        """Batches: `data.batch(32)`. fit() makes them itself unless a dataset has them."""
        return self._stage("batch", size, drop_remainder)

    def cache(self) -> Dataset:
        """Kept in memory from the first pass on: `data.cache()`."""
        return self._stage("cache")

    def scale(self, column: str, divisor: float) -> Dataset:
        """A column divided: `data.scale("x", 255)`."""
        return self._stage("scale", column, divisor)

    def cast(self, column: str, dtype: str) -> Dataset:
        """A column as another dtype: `data.cast("y", "int64")`."""
        return self._stage("cast", column, dtype)

    def rename(self, before: str, after: str) -> Dataset:
        """A column by another name: `data.rename("label", "y")`."""
        return self._stage("rename", before, after)

    def zip(self, other: Dataset) -> Dataset:
        """The columns of both, side by side: `images.zip(labels)`."""
        return self._stage("zip", other)

    def concatenate(self, other: Dataset) -> Dataset:
        """These samples, then the other's: `a.concatenate(b)`."""
        return self._stage("concatenate", other)

    @property
    def count(self) -> int | None:
        """Samples of a pass, or batches after batch(); None: without end, or not known."""
        return self._dataset.count

    @property
    def columns(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """(name, dtype, shape of a sample) of each column."""
        return self._dataset.columns

    def __len__(self) -> int:
        if self.count is None:
            raise TypeError("the dataset has no end, or none that is known")
        return self.count

    def __repr__(self) -> str:
        columns = ", ".join(f"{n}: {t}{list(s)}" for n, t, s in self.columns)
        return f"<Dataset of {self.count} {'batches' if self._dataset.is_batched else 'samples'}; {columns}>"

    def _repr_html_(self) -> str:
        from manta import _display

        n = "samples without end, or not counted" if self.count is None else \
            f"{self.count:,} {'batches' if self._dataset.is_batched else 'samples'}"
        return _display.table([[name, kind, list(shape)] for name, kind, shape in self.columns], ["Column", "Type", "Shape"],
                              f"Dataset of {n}")
