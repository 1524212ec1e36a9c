"""Preprocessors: what is done to the columns of a dataset before a model sees them, kept together with the model.

    class Scale(Preprocessor):
        def _fit(self, dataset):
            self.most = dataset.max("x")

        def _transform_numpy(self, batch):
            return {**batch, "x": batch["x"] / self.most}

    scale = Scale()
    train = scale.fit_transform(train)
    test = scale.transform(test)
"""
from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

__all__ = ["Concatenator", "Preprocessor"]


class Preprocessor:
    """A class of one's own has `_transform_numpy(batch)` or `_transform_pandas(frame)`, and `_fit(dataset)` if it learns
    something of the data first.

        Concatenator(columns=["a", "b"]).transform(ds)
    """
    _is_fitted = False

    def _fit(self, dataset: Any) -> Any:
        raise NotImplementedError

    def _fits(self) -> bool:
        return type(self)._fit is not Preprocessor._fit

    def fit(self, ds: Any) -> Any:
        """Learns what is needed of a dataset, and returns the preprocessor.

            scale.fit(ds)
        """
        if self._fits():
            self._fit(ds)
        self._is_fitted = True
        return self

    def transform(self, ds: Any) -> Any:
        """The dataset with the columns that this makes; rows are made when they are asked for.

            scale.transform(ds).take(1)
        """
        self._check()
        if type(self)._transform_pandas is not Preprocessor._transform_pandas:
            return ds.map_batches(self._transform_pandas, batch_format="pandas")
        return ds.map_batches(self._transform_numpy, batch_format="numpy")

    def fit_transform(self, ds: Any) -> Any:
        """fit() and transform() of the same dataset.

            train = scale.fit_transform(train)
        """
        return self.fit(ds).transform(ds)

    def transform_batch(self, data: Any) -> Any:
        """One batch: a dictionary of arrays or a frame of pandas, as it was given.

            scale.transform_batch({"x": x})
        """
        self._check()
        wants_pandas = type(self)._transform_pandas is not Preprocessor._transform_pandas
        if isinstance(data, Mapping) and wants_pandas:
            import pandas
            frame = self._transform_pandas(pandas.DataFrame(dict(data)))
            return {name: frame[name].to_numpy() for name in frame}
        if wants_pandas:
            return self._transform_pandas(data)
        if isinstance(data, Mapping):
            return self._transform_numpy(dict(data))
        import pandas
        made = self._transform_numpy({name: data[name].to_numpy() for name in data})
        return pandas.DataFrame({name: list(v) if v.ndim > 1 else v for name, v in made.items()})

    def _check(self) -> None:
        if self._fits() and not self._is_fitted:
            raise RuntimeError(f"{type(self).__name__} was not fitted: fit() or fit_transform() comes first")

    def _transform_numpy(self, batch: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} has neither _transform_numpy() nor _transform_pandas()")

    def _transform_pandas(self, frame: Any) -> Any:
        raise NotImplementedError


class Concatenator(Preprocessor):
    """Makes one column of several numbers or arrays, which a model takes at once.

        Concatenator(columns=["a", "b"], output_column_name="x").transform(ds)

    dtype: of the column; the one that holds all their types otherwise. The columns themselves are left out.
    """

    def __init__(self, columns: Sequence[str], output_column_name: str = "concat_out", dtype: Optional[Any] = None,
                 raise_if_missing: bool = False, flatten: bool = False) -> None:
        if not columns or isinstance(columns, str):
            raise ValueError(f"Concatenator: columns is {columns!r}, expected a list of names")
        self.columns, self.output_column_name = list(columns), output_column_name
        self.dtype, self.raise_if_missing, self.flatten = dtype, raise_if_missing, flatten

    def _transform_numpy(self, batch: dict[str, Any]) -> dict[str, Any]:
        import numpy
        missing = [name for name in self.columns if name not in batch]
        if missing:
            raise ValueError(f"Concatenator: the dataset has no column {', '.join(missing)}; it has {', '.join(batch)}")
        parts = [numpy.asarray(batch[name]) for name in self.columns]
        made = numpy.concatenate([p.reshape(len(p), -1) for p in parts], axis=1)
        out = {name: column for name, column in batch.items() if name not in self.columns}
        out[self.output_column_name] = made if self.dtype is None else made.astype(self.dtype)
        return out
