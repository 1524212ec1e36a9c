"""Blocks: what rows are while they are in memory.

A block is a dictionary of numpy arrays by column, equally long in their first dimension. Numbers and arrays of one
shape are arrays of their type; texts, bytes, dictionaries and arrays of several shapes are arrays of objects. Blocks
are never written to once they are made: they lie in the store, and several read them.
"""
from __future__ import annotations

import sys
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence

from manta.data._need import did_you_mean, need

__all__ = ["Block", "FORMATS", "check_columns", "check_format", "column_of", "concat", "copied", "cut", "from_batch",
           "from_rows", "kinds_of", "pick", "row_at", "rows_in", "rows_of", "size_of", "slices", "to_batch"]

Block = dict[str, Any]
FORMATS = ("default", "numpy", "pandas", "pyarrow")
Kinds = tuple[tuple[str, str, tuple[int, ...]], ...]       # of each column: name, element type, shape of one row

_SAMPLED = 64           # objects whose size stands for that of all


def rows_of(block: Block) -> int:
    """How many rows a block has."""
    return len(next(iter(block.values()))) if block else 0


def size_of(block: Block) -> int:
    """How many bytes a block takes; that of objects is taken from some of them."""
    total = 0
    for column in block.values():
        total += column.nbytes
        if column.dtype == object and len(column):
            seen = column.reshape(-1)[:: max(1, column.size // _SAMPLED)]
            total += sum(x.nbytes if hasattr(x, "nbytes") else sys.getsizeof(x) for x in seen) * column.size // len(seen)
    return int(total)


def kinds_of(block: Block) -> Kinds:
    """What the columns hold; of objects, what the first of them is."""
    def kind(column: Any) -> str:
        if column.dtype != object:
            return str(column.dtype)
        first = next((x for x in column[:_SAMPLED] if x is not None), None)
        return {"str": "string", "bytes": "binary", "NoneType": "null"}.get(type(first).__name__, type(first).__name__)
    return tuple((name, kind(column), tuple(column.shape[1:])) for name, column in block.items())


def column_of(values: Sequence[Any]) -> Any:
    """A column of these values: an array of numbers where they are numbers, else of objects."""
    numpy = need("numpy", "manta.data")
    first = values[0] if values else None
    if isinstance(first, (bool, int, float, complex, numpy.generic, numpy.ndarray, list, tuple)):
        try:
            out = numpy.array(values) if not isinstance(first, numpy.ndarray) else numpy.stack(values)
            if out.dtype.kind not in "OUS":
                return out
        except (ValueError, TypeError, OverflowError):
            pass            # several shapes, or not all are numbers
    out = numpy.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        out[i] = value
    return out


def from_rows(rows: Sequence[Mapping[str, Any]]) -> Block:
    """A block of rows, each a dictionary with the same columns."""
    if not rows:
        return {}
    names = list(rows[0])
    for i, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise ValueError(f"row {i} has the columns {sorted(map(str, row))}, expected those of the first row: "
                             f"{sorted(map(str, names))}")
    return {name: column_of([row[name] for row in rows]) for name in names}


def row_at(block: Block, i: int) -> dict[str, Any]:
    """A row as a dictionary; numbers are Python's own."""
    out = {}
    for name, column in block.items():
        value = column[i]
        out[name] = value.item() if column.ndim == 1 and column.dtype.kind not in "OMm" else value
    return out


def rows_in(block: Block) -> Iterator[dict[str, Any]]:
    for i in range(rows_of(block)):
        yield row_at(block, i)


def cut(block: Block, begin: int, end: int) -> Block:
    """Rows begin to end, as views."""
    return {name: column[begin:end] for name, column in block.items()}


def pick(block: Block, indices: Any) -> Block:
    """These rows, in this order, or those where a mask is true."""
    return {name: column[indices] for name, column in block.items()}


def copied(block: Block) -> Block:
    """The block with columns that may be written to: those that are read-only are copied."""
    return {name: column if column.flags.writeable else column.copy() for name, column in block.items()}


def concat(blocks: Sequence[Block]) -> Block:
    """One block of several, which must have the same columns."""
    full = [b for b in blocks if rows_of(b)] or list(blocks[:1])
    if len(full) <= 1:
        return full[0] if full else {}
    numpy = need("numpy", "manta.data")
    names = list(full[0])
    for block in full[1:]:
        if block.keys() != full[0].keys():
            raise ValueError(f"blocks with different columns cannot be put together: {sorted(full[0])} and {sorted(block)}")
    out = {}
    for name in names:
        columns = [b[name] for b in full]
        if len({c.shape[1:] for c in columns}) > 1 or any(c.dtype == object for c in columns):
            out[name] = column_of([x for c in columns for x in c])
        else:
            out[name] = numpy.concatenate(columns)
    return out


def slices(block: Block, most: int) -> Iterator[Block]:
    """The block in parts of at most so many bytes, one row at least."""
    rows, size = rows_of(block), size_of(block)
    parts = min(rows, -(-size // max(most, 1)))
    for i in range(parts):
        yield cut(block, rows * i // parts, rows * (i + 1) // parts)


# ---- formats of batches ----

def check_format(batch_format: Optional[str]) -> str:
    """"numpy", "pandas" or "pyarrow"; the packages that it takes are there."""
    if batch_format is None or batch_format == "default":
        return "numpy"
    if batch_format not in FORMATS:
        raise ValueError(f"batch_format is {batch_format!r}, expected \"numpy\", \"pandas\" or \"pyarrow\""
                         + did_you_mean(str(batch_format), FORMATS))
    if batch_format != "numpy":
        need(batch_format, f"batch_format={batch_format!r}")
    return batch_format


def to_batch(block: Block, batch_format: str) -> Any:
    """A block as a batch of that format."""
    if batch_format == "pandas":
        pandas = need("pandas", "batch_format=\"pandas\"")
        return pandas.DataFrame({name: list(c) if c.ndim > 1 else c for name, c in block.items()})
    if batch_format == "pyarrow":
        pyarrow = need("pyarrow", "batch_format=\"pyarrow\"")
        return pyarrow.table({name: _to_arrow(pyarrow, c) for name, c in block.items()})
    return block


def _to_arrow(pyarrow: Any, column: Any) -> Any:
    if column.ndim == 1:
        return pyarrow.array(column)
    values = pyarrow.array(column.reshape(-1))
    for n in reversed(column.shape[1:]):
        values = pyarrow.FixedSizeListArray.from_arrays(values, n)
    return values


def _from_arrow(column: Any) -> Any:
    """A column of pyarrow as an array; lists of one length are a second dimension."""
    numpy = need("numpy", "manta.data")
    column = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    kind = str(column.type)
    if kind.startswith("fixed_size_list") and column.null_count == 0:
        shape, inner = [len(column)], column
        while str(inner.type).startswith("fixed_size_list"):
            shape.append(inner.type.list_size)
            inner = inner.flatten()
        return inner.to_numpy(zero_copy_only=False).reshape(shape)
    if kind.startswith(("list", "large_list")):
        return column_of([None if x is None else numpy.asarray(x) for x in column.to_pylist()])
    if kind.startswith(("struct", "map", "dictionary")):
        return column_of(column.to_pylist())
    return column.to_numpy(zero_copy_only=False)


def from_table(table: Any) -> Block:
    """A block of a table of pyarrow."""
    return {str(name): _from_arrow(table.column(name)) for name in table.column_names}


def from_frame(frame: Any) -> Block:
    """A block of a frame of pandas, without its index."""
    out = {}
    for name in frame.columns:
        column = frame[name].to_numpy()
        plain = getattr(column, "dtype", None)
        out[str(name)] = column_of(list(frame[name])) if plain is None or plain.kind in "OUST" else column
    return out


def from_batch(batch: Any, who: str) -> Block:
    """A block of what a function returned: a dictionary of columns, a frame of pandas, a table of pyarrow."""
    kind = f"{type(batch).__module__.partition('.')[0]}.{type(batch).__name__}"
    if kind == "pandas.DataFrame":
        return from_frame(batch)
    if kind in ("pyarrow.Table", "pyarrow.RecordBatch"):
        return from_table(batch)
    if not isinstance(batch, Mapping):
        raise TypeError(f"{who} returned {type(batch).__name__}, expected a dictionary of arrays by column, a frame of pandas "
                        "or a table of pyarrow")
    return as_block(batch, who)


def as_block(columns: Mapping[str, Any], who: str) -> Block:
    """A block of columns that are arrays, lists, or tensors."""
    numpy = need("numpy", "manta.data")
    out: Block = {}
    for name, values in columns.items():
        if not isinstance(name, str):
            raise TypeError(f"{who}: a column is called {name!r}, expected a text")
        if not isinstance(values, numpy.ndarray):
            values = column_of(values) if isinstance(values, (list, tuple)) else numpy.asarray(values)
        if values.ndim == 0:
            raise TypeError(f"{who}: column {name!r} is one {values.dtype}, expected an array with one value for each row")
        if values.dtype.kind in "US":
            values = values.astype(object)
        out[name] = values
    lengths = {name: len(values) for name, values in out.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"{who}: the columns have {lengths} rows, expected equally many")
    return out


def check_columns(names: Iterable[str], there: Iterable[str], who: str) -> None:
    """Raises of columns that are not there, with the one that was meant."""
    known = list(there)
    for name in names:
        if name not in known:
            raise ValueError(f"{who}: there is no column {name!r}{did_you_mean(str(name), known)}; "
                             f"the columns are {', '.join(known) or 'none'}")
