"""Tar archives of samples: members whose names are equal up to the first dot are one row."""
from __future__ import annotations

import io
import json
import tarfile
from typing import Any, Iterator, Optional, Sequence

from manta.data import _block
from manta.data._block import Block
from manta.data._need import need

_IMAGES = ("png", "jpg", "jpeg", "webp")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")


def _decoded(data: bytes, ending: str) -> Any:
    last = ending.rpartition(".")[2].lower()
    if last in ("txt", "text", "transcript"):
        return data.decode()
    if last in _NUMBERS:
        return int(data)
    if last in ("json", "jsn"):
        return json.loads(data)
    if last == "npy":
        return need("numpy", "read_webdataset").load(io.BytesIO(data), allow_pickle=False)
    if last in _IMAGES:
        with need("PIL.Image", f"read_webdataset of .{last}").open(io.BytesIO(data)) as image:
            return need("numpy", "read_webdataset").array(image)
    return data


def _samples(path: str, decode: bool, suffixes: Optional[Sequence[str]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Rows, with the bytes of their members. The archive is read once, from its beginning to its end."""
    row: dict[str, Any] = {}
    size = 0
    with tarfile.open(path, "r|*") as archive:
        for member in archive:
            folder, slash, name = member.name.rpartition("/")
            key, dot, ending = name.partition(".")
            if not member.isfile() or not key or not dot:
                continue
            key = folder + slash + key
            if row and row["__key__"] != key:
                yield row, size
                row, size = {}, 0
            if suffixes is not None and ending not in suffixes:
                continue
            opened = archive.extractfile(member)
            assert opened is not None
            data = opened.read()
            try:
                value = _decoded(data, ending) if decode else data
            except (ValueError, OSError) as e:
                raise ValueError(f"{path}: the member {member.name} is not what its name says: {e}") from None
            row = row or {"__key__": key}
            row[ending] = value
            size += len(data)
    if row:
        yield row, size


def blocks(path: str, decode: bool, suffixes: Optional[Sequence[str]], include: Optional[str], most: int) -> Iterator[Block]:
    """The rows of an archive. Members that a sample does not have are None."""
    kept: list[dict[str, Any]] = []
    total = 0
    try:
        for row, size in _samples(path, decode, suffixes):
            kept.append({**row, **({"path": include} if include is not None else {})})
            total += size
            if total >= most:
                yield _together(kept)
                kept, total = [], 0
    except (tarfile.TarError, EOFError) as e:
        raise ValueError(f"{path} is no tar archive, or was cut: {e}") from None
    if kept:
        yield _together(kept)


def _together(rows: list[dict[str, Any]]) -> Block:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _block.from_rows([{name: row.get(name) for name in names} for row in rows])
