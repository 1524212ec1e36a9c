"""TFRecord files of Examples, without TensorFlow.

A record is a length (8 bytes), its checksum, the bytes and their checksum. The length's checksum is verified, which finds
files that are something else or were cut; that of the bytes would cost more in Python than everything else here. An Example
is a protocol buffer: a map from names to lists of bytes, floats or integers.
"""
from __future__ import annotations

import struct
from typing import Any, Iterator, Optional

from manta.data import _block
from manta.data._block import Block
from manta.data._need import need


def _make_table() -> list[int]:
    table = []
    for i in range(256):
        for _ in range(8):
            i = i >> 1 ^ (0x82F63B78 if i & 1 else 0)
        table.append(i)
    return table


_TABLE = _make_table()


def masked_crc(data: bytes) -> int:
    """The checksum that TFRecord keeps: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _records(path: str) -> Iterator[bytes]:
    if path.endswith(".gz"):
        import gzip
        file: Any = gzip.open(path, "rb")
    else:
        file = open(path, "rb")
    with file:
        at = 0
        while head := file.read(12):
            if len(head) < 12 or struct.unpack("<I", head[8:])[0] != masked_crc(head[:8]):
                raise ValueError(f"{path}, byte {at}: no record of a TFRecord file begins there")
            n = struct.unpack("<Q", head[:8])[0]
            data = file.read(n + 4)
            if len(data) < n + 4:
                raise ValueError(f"{path}, byte {at}: the file ends inside a record of {n} bytes")
            at += 16 + n
            yield data[:n]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a message: bytes, or a number."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        n, at = _varint(data, at) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], at)
        if at + n > len(data):
            raise ValueError("a field is longer than its message")
        yield tag >> 3, data[at:at + n]
        at += n


def _feature(data: bytes) -> Any:
    """A feature's list: of bytes, of floats (1, 2) or of integers (3)."""
    numpy = need("numpy", "read_tfrecords")
    for kind, body in _fields(data):
        parts = [value for _, value in _fields(body)]
        if kind == 1:
            return parts
        if kind == 2:
            return numpy.frombuffer(b"".join(parts), dtype="<f4")
        if kind == 3:
            out: list[int] = []
            for part in parts:
                at = 0
                if isinstance(part, int):
                    out.append(part)
                    continue
                while at < len(part):
                    value, at = _varint(part, at)
                    out.append(value)
            return numpy.array([v - (1 << 64) if v >> 63 else v for v in out], dtype="int64")
    return None


def parse(record: bytes) -> dict[str, Any]:
    """An Example as a row; a list of one is its value."""
    row: dict[str, Any] = {}
    for _, features in _fields(record):
        for _, entry in _fields(features):
            parts = dict(_fields(entry))
            value = _feature(parts.get(2, b""))
            row[parts.get(1, b"").decode()] = value[0] if value is not None and len(value) == 1 else value
    return dict(sorted(row.items()))


def blocks(path: str, include: Optional[str], most: int) -> Iterator[Block]:
    """The rows of a file. Features that an Example does not have are None."""
    kept: list[dict[str, Any]] = []
    size = 0
    for i, record in enumerate(_records(path)):
        try:
            row = parse(record)
        except (ValueError, IndexError, KeyError, AttributeError, TypeError) as e:
            raise ValueError(f"{path}, record {i}: it is no Example: {e}") from None
        kept.append({**row, **({"path": include} if include is not None else {})})
        size += len(record)
        if size >= most:
            yield _together(kept)
            kept, size = [], 0
    if kept:
        yield _together(kept)


def _together(rows: list[dict[str, Any]]) -> Block:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _block.from_rows([{name: row.get(name) for name in names} for row in rows])
