"""Dataset: rows that are described, and made when they are asked for."""
from __future__ import annotations

import dataclasses
import html
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from manta.data import _aggregate, _barriers, _block, _execute, _ops, _split
from manta.data._block import Block, Kinds
from manta.data._files import Paths
from manta.data._need import check_count, did_you_mean, need
from manta.data._plan import Barrier, Input, Joined, Limited, Mapped, Node, Piece, Pool, Zipped, dealt
from manta.data.context import DataContext, ExecutionOptions
from manta.data.grouped_data import GroupedData
from manta.data.iterator import DataIterator

__all__ = ["ActorPoolStrategy", "Dataset", "MaterializedDataset", "Schema", "TaskPoolStrategy"]

Concurrency = Union[int, tuple[int, int], None]


@dataclasses.dataclass(frozen=True)
class ActorPoolStrategy:
    """compute=ActorPoolStrategy(size=2): so many actors run a class."""
    size: Optional[int] = None
    min_size: Optional[int] = None
    max_size: Optional[int] = None

    def concurrency(self) -> Concurrency:
        return self.size if self.size is not None else (self.min_size or 1, self.max_size or self.min_size or 1)


@dataclasses.dataclass(frozen=True)
class TaskPoolStrategy:
    """compute=TaskPoolStrategy(): calls run a function, which is the default."""
    size: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Schema:
    """The columns of a dataset: names, types ("int64", "string"), and the shape of a row where it is an array."""
    names: list[str]
    types: list[str]
    shapes: list[tuple[int, ...]]

    def __str__(self) -> str:
        width = max([6, *map(len, self.names)])
        lines = [f"{'Column':<{width}}  Type", f"{'------':<{width}}  ----"]
        return "\n".join(lines + [f"{name:<{width}}  {kind}{list(shape) if shape else ''}"
                                  for name, kind, shape in zip(self.names, self.types, self.shapes)])


# What Ray's Dataset has and this one does not: each raises NotImplementedError.
_NOT_HERE = (
    "aggregate", "clear_execution_cache", "deserialize_lineage", "explain", "get_internal_block_refs",
    "has_serializable_lineage", "input_files", "iter_internal_ref_bundles", "join", "lazy", "names", "randomize_block_order",
    "random_sample", "serialize_lineage", "split_at_indices", "split_proportionately", "streaming_train_test_split", "to_arrow_refs",
    "to_daft", "to_dask", "to_mars", "to_modin", "to_numpy_refs", "to_pandas_refs", "to_random_access_dataset", "to_spark",
    "to_torch", "types", "with_column", "with_columns", "write_bigquery", "write_clickhouse", "write_datasink", "write_delta",
    "write_iceberg", "write_images", "write_kafka", "write_lance", "write_mongo", "write_snowflake", "write_sql", "write_tfrecords",
    "write_turbopuffer", "write_webdataset", "set_name", "name",
)


class Dataset(DataIterator):
    """Rows with named columns. Operations describe a new dataset and run nothing; what asks for rows (take, count,
    iter_batches, write_csv) executes the description, block by block, in workers.

        ds = manta.data.read_csv("measurements/").filter(lambda row: row["ok"]).map_batches(scale)
        for batch in ds.iter_batches(batch_size=64): ...

    Rows keep their order, whatever is done at once.
    """

    def __init__(self, node: Node, context: Optional[DataContext] = None) -> None:
        self._node = node
        self._context = context or DataContext.get_current().copy()
        self._execution: Optional[_execute.Execution] = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_execution": None}

    def __getattr__(self, name: str) -> Any:
        if name in _NOT_HERE:
            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise NotImplementedError(f"Dataset.{name}() of Ray Data is not part of manta.data")
            return refuse
        raise AttributeError(f"Dataset has no attribute {name!r}"
                             + did_you_mean(name, [n for n in dir(type(self)) if not n.startswith("_")]))

    def _with(self, node: Node) -> Dataset:
        return Dataset(node, self._context)

    @property
    def context(self) -> DataContext:
        """How this dataset is executed: a copy of what was current when it was made.

            ds.context.execution_options
        """
        return self._context

    def _executed_so(self, options: ExecutionOptions) -> Dataset:
        """The same rows, executed with other options."""
        context = self._context.copy()
        context.execution_options = options.copy()
        return type(self)(self._node, context)

    def _pieces(self) -> Iterator[Piece]:
        self._execution = _execute.Execution(self._context)
        return self._execution.stream(self._node)

    # ---- rows and batches ----

    def map(self, fn: Any, *, compute: Any = None, fn_args: Optional[Sequence[Any]] = None,
            fn_kwargs: Optional[Mapping[str, Any]] = None, fn_constructor_args: Optional[Sequence[Any]] = None,
            fn_constructor_kwargs: Optional[Mapping[str, Any]] = None, concurrency: Concurrency = None,
            **options: Any) -> Dataset:
        """A row for each row.

            ds.map(lambda row: {"x": row["x"] * 2})
        """
        return self._mapped(_ops.RowMap("map", fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
                            compute, concurrency, options)

    def flat_map(self, fn: Any, *, compute: Any = None, fn_args: Optional[Sequence[Any]] = None,
                 fn_kwargs: Optional[Mapping[str, Any]] = None, fn_constructor_args: Optional[Sequence[Any]] = None,
                 fn_constructor_kwargs: Optional[Mapping[str, Any]] = None, concurrency: Concurrency = None,
                 **options: Any) -> Dataset:
        """Any number of rows for each row, as a list.

            ds.flat_map(lambda row: [{"word": w} for w in row["text"].split()])
        """
        return self._mapped(_ops.FlatMap("flat_map", fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
                            compute, concurrency, options)

    def filter(self, fn: Any = None, expr: Optional[str] = None, *, compute: Any = None, fn_args: Optional[Sequence[Any]] = None,
               fn_kwargs: Optional[Mapping[str, Any]] = None, fn_constructor_args: Optional[Sequence[Any]] = None,
               fn_constructor_kwargs: Optional[Mapping[str, Any]] = None, concurrency: Concurrency = None,
               **options: Any) -> Dataset:
        """The rows of which the function says True.

            ds.filter(lambda row: row["x"] > 0)
        """
        if expr is not None or isinstance(fn, str):
            raise NotImplementedError("Dataset.filter(expr=...) of Ray Data is not part of manta.data: pass a function of a row")
        return self._mapped(_ops.Filter("filter", fn, fn_args, fn_kwargs, fn_constructor_args, fn_constructor_kwargs),
                            compute, concurrency, options)

    def map_batches(self, fn: Any, *, batch_size: Union[int, None, str] = None, compute: Any = None,
                    batch_format: Optional[str] = "default", zero_copy_batch: bool = False,
                    fn_args: Optional[Sequence[Any]] = None, fn_kwargs: Optional[Mapping[str, Any]] = None,
                    fn_constructor_args: Optional[Sequence[Any]] = None,
                    fn_constructor_kwargs: Optional[Mapping[str, Any]] = None, concurrency: Concurrency = None,
                    **options: Any) -> Dataset:
        """A batch, or a generator of batches, for each batch.

            ds.map_batches(lambda batch: {"y": batch["x"] ** 2}, batch_size=64)
            ds.map_batches(Predictor, concurrency=2, fn_constructor_args=("model.pt",))

        fn: a function, or a class: it is constructed once in each of `concurrency` actors ((1, 4): one to four), and its
        instance called. batch_size: rows of a batch, None: a block; the last batch of a block may be smaller. batch_format:
        "numpy", "pandas", "pyarrow". zero_copy_batch: the arrays are views of the store that cannot be written to.
        """
        size = None if batch_size == "default" else batch_size
        op = _ops.BatchMap(fn, batch_size=size, batch_format=_block.check_format(batch_format),     # type: ignore[arg-type]
                           zero_copy=zero_copy_batch, args=fn_args, kwargs=fn_kwargs, constructor_args=fn_constructor_args,
                           constructor_kwargs=fn_constructor_kwargs)
        return self._mapped(op, compute, concurrency, options)

    def _mapped(self, op: _ops.Op, compute: Any, concurrency: Concurrency, options: Mapping[str, Any]) -> Dataset:
        verb = op.label.partition("(")[0]
        known = ("num_cpus", "num_gpus", "resources", "memory")
        for name in options:
            if name not in known:
                raise TypeError(f"{verb}: there is no option {name!r}{did_you_mean(name, known)}")
        if isinstance(compute, ActorPoolStrategy):
            if not op.is_actor:
                raise ValueError(f"{verb}: an ActorPoolStrategy runs a class, and {op.label} has a function")
            concurrency = compute.concurrency() if concurrency is None else concurrency
        elif compute is not None and compute != "tasks" and not isinstance(compute, TaskPoolStrategy):
            raise TypeError(f"{verb}: compute is {compute!r}, expected an ActorPoolStrategy or a TaskPoolStrategy")
        given = tuple(sorted((k, v) for k, v in options.items() if v is not None))
        return self._with(Mapped(self._node, op, _pool(verb, concurrency) if op.is_actor else None, given))

    # ---- columns ----

    def add_column(self, col: str, fn: Any, *, batch_format: Optional[str] = "pandas", compute: Any = None,
                   concurrency: Concurrency = None, **options: Any) -> Dataset:
        """One more column, which a function computes from batches.

            ds.add_column("twice", lambda batch: batch["x"] * 2, batch_format="numpy")
        """
        if not isinstance(col, str):
            raise TypeError(f"add_column: the column is called {col!r}, expected a text")
        return self._mapped(_ops.AddColumn(col, fn, _block.check_format(batch_format)), compute, concurrency, options)

    def drop_columns(self, cols: Union[str, Sequence[str]]) -> Dataset:
        """All columns but these.

            ds.drop_columns(["id"])
        """
        return self._with(Mapped(self._node, _ops.DropColumns("drop_columns", _names(cols, "drop_columns"))))

    def select_columns(self, cols: Union[str, Sequence[str]]) -> Dataset:
        """These columns, in this order.

            ds.select_columns(["x", "y"])
        """
        return self._with(Mapped(self._node, _ops.SelectColumns("select_columns", _names(cols, "select_columns"))))

    def rename_columns(self, names: Union[Mapping[str, str], Sequence[str]]) -> Dataset:
        """Columns with other names: {"old": "new"}, or new names for all.

            ds.rename_columns({"f0": "age"})
        """
        if not isinstance(names, Mapping):
            there = self.columns() or []
            if len(names) != len(there):
                raise ValueError(f"rename_columns: {len(names)} names for {len(there)} columns ({', '.join(there)})")
            names = dict(zip(there, names))
        return self._with(Mapped(self._node, _ops.RenameColumns("rename_columns", names)))

    # ---- order and number ----

    def limit(self, limit: int) -> Dataset:
        """The first rows; no more is read than these need.

            ds.limit(100)
        """
        return self._with(Limited(self._node, check_count("limit", "limit", limit, 0)))

    def random_shuffle(self, *, seed: Optional[int] = None) -> Dataset:
        """All rows in a random order: with a seed always the same, else another in each execution.

            ds.random_shuffle(seed=0)
        """
        return self._with(Barrier(self._node, "random_shuffle", _barriers.Shuffle(seed)))

    def repartition(self, num_blocks: int, *, shuffle: bool = False) -> Dataset:
        """The same rows in so many blocks, of equally many.

            ds.repartition(8)
        """
        n = check_count("repartition", "num_blocks", num_blocks)
        before = self.random_shuffle() if shuffle else self
        return self._with(Barrier(before._node, f"repartition({n})", _barriers.Repartition(n)))

    def sort(self, key: Union[str, Sequence[str]], descending: Union[bool, Sequence[bool]] = False) -> Dataset:
        """All rows in the order of a column, or of several; equal ones stay as they are.

            ds.sort(["city", "age"], descending=[False, True])
        """
        keys = _names(key, "sort")
        down = [descending] * len(keys) if isinstance(descending, bool) else list(descending)
        if len(down) != len(keys):
            raise ValueError(f"sort: descending has {len(down)} values for {len(keys)} columns")
        return self._with(Barrier(self._node, f"sort({', '.join(keys)})", _barriers.Sort(keys, down)))

    def groupby(self, key: Union[str, Sequence[str]]) -> GroupedData:
        """The rows by what they have in a column, or in several; what the groups give is in their order.

            ds.groupby("city").mean("age")
        """
        return GroupedData(self, _names(key, "groupby"))

    def union(self, *other: Dataset) -> Dataset:
        """The rows of this one, then those of others.

            a.union(b)
        """
        return self._with(Joined((self._node, *[_dataset(o, "union")._node for o in other])))

    def zip(self, *other: Dataset) -> Dataset:
        """The columns of all beside each other; they have equally many rows.

            features.zip(labels)
        """
        node = self._node
        for one in other:
            node = Zipped(node, _dataset(one, "zip")._node)
        return self._with(node)

    # ---- parts ----

    def split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[MaterializedDataset]:
        """n datasets, each with a part of the rows, which are made now. equal: all have equally many.

            a, b = ds.split(2)
        """
        check_count("split", "n", n)
        return self._cut(lambda rows: [rows // n * i for i in range(n + 1)] if equal else [rows * i // n for i in range(n + 1)])

    def train_test_split(self, test_size: Union[int, float], *, shuffle: bool = False, seed: Optional[int] = None,
                         stratify: Optional[str] = None) -> tuple[MaterializedDataset, MaterializedDataset]:
        """Two datasets: what is to be learned, and what to test with. test_size: rows, or a share of them.

            train, test = ds.train_test_split(0.2, shuffle=True, seed=0)
        """
        if stratify is not None:
            raise NotImplementedError("Dataset.train_test_split(stratify=...) of Ray Data is not part of manta.data")
        if isinstance(test_size, float) and not 0 < test_size < 1 or isinstance(test_size, int) and test_size < 1:
            raise ValueError(f"train_test_split: test_size is {test_size!r}, expected a share between 0 and 1, or a number of rows")

        def bounds(rows: int) -> list[int]:
            test = int(rows * test_size) if isinstance(test_size, float) else int(test_size)
            if test >= rows:
                raise ValueError(f"train_test_split: test_size is {test_size!r}, and there are {rows} rows")
            return [0, rows - test, rows]
        train, test = (self.random_shuffle(seed=seed) if shuffle else self)._cut(bounds)
        return train, test

    def _cut(self, bounds: Callable[[int], list[int]]) -> list[MaterializedDataset]:
        pieces = list(self._pieces())
        rows = sum(p.rows or 0 for p in pieces)
        return [MaterializedDataset(Input(tuple(part)), self._context) for part in dealt(pieces, bounds(rows))]

    def streaming_split(self, n: int, *, equal: bool = False, locality_hints: Any = None) -> list[DataIterator]:
        """n iterators, for n processes that read at the same time: each row comes to one of them. equal: all get equally
        many. Each iteration is a pass, which begins when all have ended the one before.

            shards = ds.streaming_split(2, equal=True)
        """
        check_count("streaming_split", "n", n)
        return _split.stream_shards(self._node, self._context, n, equal)

    def iterator(self) -> DataIterator:
        """What iterates over this dataset, to be handed to other processes.

            f.remote(ds.iterator())
        """
        return self

    # ---- looking ----

    def take(self, limit: int = 20) -> list[dict[str, Any]]:
        """The first rows.

            ds.take(5)
        """
        return list(self.limit(limit).iter_rows())

    def take_all(self, limit: Optional[int] = None) -> list[dict[str, Any]]:
        """All rows. ValueError when there are more than the limit."""
        rows = list((self if limit is None else self.limit(limit + 1)).iter_rows())
        if limit is not None and len(rows) > limit:
            raise ValueError(f"take_all: there are more than {limit} rows")
        return rows

    def take_batch(self, batch_size: int = 20, *, batch_format: Optional[str] = "default") -> Any:
        """The first rows as a batch. ValueError when there are none.

            ds.take_batch(10)["x"]
        """
        for batch in self.limit(batch_size).iter_batches(batch_size=batch_size, batch_format=batch_format):
            return batch
        raise ValueError("take_batch: the dataset has no rows")

    def show(self, limit: int = 20) -> None:
        """Prints the first rows."""
        for row in self.take(limit):
            print(row)

    def count(self) -> int:
        """How many rows there are; they are read if it is not known."""
        rows = self._node.known_rows()
        return sum(p.rows or 0 for p in self._pieces()) if rows is None else rows

    def schema(self, fetch_if_missing: bool = True) -> Optional[Schema]:
        """The columns, by the first block; None: there are no rows."""
        kinds = self._kinds()
        return Schema([k[0] for k in kinds], [k[1] for k in kinds], [k[2] for k in kinds]) if kinds else None

    def _kinds(self) -> Kinds:
        return _split.first_kinds(self._node, self._context)

    def columns(self, fetch_if_missing: bool = True) -> Optional[list[str]]:
        """The names of the columns; None: there are no rows."""
        schema = self.schema()
        return schema.names if schema else None

    def num_blocks(self) -> int:
        """In how many blocks the rows are, or are read."""
        if not isinstance(self._node, Input):
            raise NotImplementedError("num_blocks() of a dataset that was not executed is not known: materialize().num_blocks()")
        return len(self._node.pieces)

    def size_bytes(self) -> int:
        """How much memory all blocks take; they are read."""
        return sum(p.size for p in self._pieces())

    def materialize(self) -> MaterializedDataset:
        """Executes it now; the rows stay in the store as long as the dataset that is returned.

            ds = ds.materialize()
        """
        return MaterializedDataset(Input(tuple(self._pieces())), self._context)

    def stats(self) -> str:
        """What the last execution that was asked of this dataset did, stage by stage."""
        if self._execution is None:
            return "not executed yet"
        e = self._execution
        lines = [f"{label}: {n} calls, {blocks} blocks, {rows} rows, {size} bytes"
                 for label, (n, blocks, rows, size) in e.stats.items()]
        end = f"{(e.ended - e.began):.3f} s" if e.ended is not None else "under way"
        return "\n".join([*lines, end])

    # ---- numbers ----

    def sum(self, on: Union[str, Sequence[str], None] = None, ignore_nulls: bool = True) -> Any:
        """The sum of a column, or of each of several."""
        return _aggregate.reduce_columns(self, "sum", on, ignore_nulls)

    def min(self, on: Union[str, Sequence[str], None] = None, ignore_nulls: bool = True) -> Any:
        """The least value of a column, or of each of several."""
        return _aggregate.reduce_columns(self, "min", on, ignore_nulls)

    def max(self, on: Union[str, Sequence[str], None] = None, ignore_nulls: bool = True) -> Any:
        """The largest value of a column, or of each of several."""
        return _aggregate.reduce_columns(self, "max", on, ignore_nulls)

    def mean(self, on: Union[str, Sequence[str], None] = None, ignore_nulls: bool = True) -> Any:
        """The mean of a column, or of each of several."""
        return _aggregate.reduce_columns(self, "mean", on, ignore_nulls)

    def std(self, on: Union[str, Sequence[str], None] = None, ddof: int = 1, ignore_nulls: bool = True) -> Any:
        """The standard deviation of a column, or of each of several."""
        return _aggregate.reduce_columns(self, "std", on, ignore_nulls, ddof)

    def unique(self, column: str) -> list[Any]:
        """The different values of a column, in the order in which they come."""
        return _aggregate.unique_values(self, column)

    # ---- elsewhere ----

    def to_pandas(self, limit: Optional[int] = None) -> Any:
        """All rows as one frame of pandas. ValueError when there are more than the limit."""
        need("pandas", "to_pandas")
        return _block.to_batch(self._whole("to_pandas", limit), "pandas")

    def _whole(self, who: str, limit: Optional[int]) -> Block:
        blocks = list((self if limit is None else self.limit(limit + 1))._blocks())
        if limit is not None and sum(map(_block.rows_of, blocks)) > limit:
            raise ValueError(f"{who}: there are more than {limit} rows")
        return _block.concat(blocks)

    def write_csv(self, path: Paths, **options: Any) -> None:
        """A CSV file for each block, in a folder.

            ds.write_csv("out/")
        """
        self._write("csv", path, options)

    def write_json(self, path: Paths, **options: Any) -> None:
        """A file of JSON lines for each block, in a folder."""
        self._write("json", path, options)

    def write_parquet(self, path: Paths, **options: Any) -> None:
        """A Parquet file for each block, in a folder."""
        need("pyarrow.parquet", "write_parquet")
        self._write("parquet", path, options)

    def write_numpy(self, path: Paths, *, column: str = "data", **options: Any) -> None:
        """A .npy file of a column for each block, in a folder."""
        self._write("npy", path, options, column)

    def _write(self, kind: str, path: Paths, options: Mapping[str, Any], column: Optional[str] = None) -> None:
        from manta.data import _write
        _write.write(self, kind, path, options, column)

    # ---- how it is shown ----

    def __repr__(self) -> str:
        rows = self._node.known_rows()
        return f"{type(self).__name__}({' -> '.join(_labels(self._node))}, rows={'?' if rows is None else rows})"

    def _repr_html_(self) -> str:
        rows = self._node.known_rows()
        steps = "".join(f"<li>{html.escape(label)}</li>" for label in _labels(self._node))
        return (f"<div><b>{type(self).__name__}</b>, {'rows not counted' if rows is None else f'{rows:,} rows'}<ol>{steps}</ol>"
                "</div>")


class MaterializedDataset(Dataset):
    """A dataset whose blocks lie in the store."""

    def _kinds(self) -> Kinds:
        assert isinstance(self._node, Input)
        return next((p.kinds for p in self._node.pieces if p.rows), ())

    def size_bytes(self) -> int:
        assert isinstance(self._node, Input)
        return sum(p.size for p in self._node.pieces)


def _pool(verb: str, concurrency: Concurrency) -> Pool:
    if concurrency is None:
        return Pool(1, 1)
    if isinstance(concurrency, (tuple, list)):
        if len(concurrency) != 2:
            raise ValueError(f"{verb}: concurrency is {concurrency!r}, expected a number of actors, or (least, most)")
        least, most = (check_count(verb, "concurrency", c) for c in concurrency)
        if most < least:
            raise ValueError(f"{verb}: concurrency is {concurrency!r}, and the most is below the least")
        return Pool(least, most)
    n = check_count(verb, "concurrency", concurrency)
    return Pool(n, n)


def _names(columns: Union[str, Iterable[str]], who: str) -> list[str]:
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{who}: a column is called {name!r}, expected a text")
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"{who}: the columns are {names}, expected one or more, each once")
    return names


def _dataset(value: Any, who: str) -> Dataset:
    if not isinstance(value, Dataset):
        raise TypeError(f"{who} expects a Dataset, given {type(value).__name__}")
    return value


def _labels(node: Node) -> list[str]:
    """The steps of a plan in a few words each."""
    if isinstance(node, Input):
        n = len(node.pieces)
        return [f"{n} block{'' if n == 1 else 's'}" if all(p.read is None for p in node.pieces) else
                f"read {node.pieces[0].name}" + (f" and {n - 1} more" if n > 1 else "")]
    if isinstance(node, Mapped):
        return [*_labels(node.before), node.op.label]
    if isinstance(node, Limited):
        return [*_labels(node.before), f"limit({node.n})"]
    if isinstance(node, Barrier):
        return [*_labels(node.before), node.label]
    if isinstance(node, Joined):
        return [f"union({'; '.join(' -> '.join(_labels(part)) for part in node.parts)})"]
    if isinstance(node, Zipped):
        return [f"zip({' -> '.join(_labels(node.first))}; {' -> '.join(_labels(node.second))})"]
    return [type(node).__name__]
