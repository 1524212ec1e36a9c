"""Files of blocks: each is written by the process that has it, and appears whole or not at all."""
from __future__ import annotations

import json
import os
from typing import Any, Mapping, Optional

from manta.data import _aggregate, _block
from manta.data._block import Block
from manta.data._need import need


def write(dataset: Any, kind: str, path: Any, options: Mapping[str, Any], column: Optional[str]) -> None:
    """Writes all blocks of a dataset into a folder: 000000_000000.csv and so on, in the order of rows."""
    for name in options:
        raise NotImplementedError(f"Dataset.write_{'numpy' if kind == 'npy' else kind}({name}=...) of Ray Data is not part of "
                                  "manta.data")
    folder = os.fspath(path)
    if "://" in folder:
        raise NotImplementedError(f"Dataset.write_{kind}: {folder} is not on this host, and manta.data writes files of this host")
    folder = os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)
    _aggregate.each_block(dataset, _write_block, kind, folder, column)


def _write_block(block: Block, index: int, kind: str, folder: str, column: Optional[str]) -> int:
    target = os.path.join(folder, f"{index:06d}_000000.{kind}")
    made = f"{target}.{os.getpid()}.tmp"
    try:
        with open(made, "wb") as file:
            {"csv": _csv, "json": _json, "parquet": _parquet, "npy": _npy}[kind](block, file, column)
        os.replace(made, target)
    except BaseException:
        if os.path.exists(made):
            os.unlink(made)
        raise
    return _block.rows_of(block)


def _csv(block: Block, file: Any, column: Optional[str]) -> None:
    import csv
    import io
    for name, values in block.items():
        if values.ndim > 1:
            raise TypeError(f"write_csv: column {name!r} holds arrays, which a CSV file cannot; write_parquet can")
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(block)
    writer.writerows(zip(*(values.tolist() for values in block.values())))
    text.flush()
    text.detach()


def _json(block: Block, file: Any, column: Optional[str]) -> None:
    columns = {name: values.tolist() for name, values in block.items()}
    for row in zip(*columns.values()):
        try:
            line = json.dumps(dict(zip(columns, row)), ensure_ascii=False, default=_listed)
        except TypeError as e:
            raise TypeError(f"write_json: a row holds what JSON cannot: {e}") from None
        file.write(line.encode() + b"\n")


def _listed(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no value of JSON")


def _parquet(block: Block, file: Any, column: Optional[str]) -> None:
    need("pyarrow.parquet", "write_parquet").write_table(_block.to_batch(block, "pyarrow"), file)


def _npy(block: Block, file: Any, column: Optional[str]) -> None:
    numpy = need("numpy", "write_numpy")
    assert column is not None
    _block.check_columns([column], block, "write_numpy")
    if block[column].dtype == object:
        raise TypeError(f"write_numpy: column {column!r} holds objects, expected numbers")
    numpy.save(file, block[column], allow_pickle=False)
