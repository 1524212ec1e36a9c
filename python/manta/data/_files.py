"""Files as blocks: which there are, and what reads each in parts.

Every reader is a generator of blocks of about so many bytes, and has no more of the file in memory. Files of lines are
divided into ranges of bytes, so that several processes read one; Parquet by its row groups; CSV, where a quoted field may
hold line ends, is read from the beginning, and its blocks are what goes to several processes.
"""
from __future__ import annotations

import functools
import glob
import io
import json
import os
import sys
from typing import Any, Callable, Iterable, Iterator, Mapping, Optional, Sequence, Union

from manta.data import _block
from manta.data._block import Block
from manta.data._need import did_you_mean, need
from manta.data._plan import Piece

__all__ = ["Paths", "archive_pieces", "binary_pieces", "csv_pieces", "expand", "image_pieces", "line_pieces", "numpy_pieces",
           "parquet_pieces", "tfrecord_pieces"]

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]


def expand(paths: Paths, who: str, endings: Optional[Sequence[str]] = None) -> list[str]:
    """The files that paths name: files, folders (all below, in order of their names), patterns with * and ?."""
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths) if isinstance(paths, Iterable) else [paths]
    for one in given:
        if not isinstance(one, (str, os.PathLike)):
            raise TypeError(f"{who}: a path is {type(one).__name__}, expected a text or an os.PathLike")
    wanted = tuple("." + e.lstrip(".").lower() for e in endings) if endings else ("",)
    out: list[str] = []
    for path in given:
        one = os.fspath(path)
        if "://" in one and not one.startswith("file://"):
            raise NotImplementedError(f"{who}: {one} is not on this host, and manta.data reads files of this host")
        one = one.removeprefix("file://")
        if os.path.isdir(one):
            found = sorted(os.path.join(folder, name) for folder, folders, names in os.walk(one) for name in names
                           if not name.startswith((".", "_")) and name.lower().endswith(wanted))
            if not found:
                raise FileNotFoundError(f"{who}: the folder {one} has no files"
                                        + (f" that end in {', '.join(wanted)}" if endings else ""))
            out += found
        elif os.path.exists(one):
            out.append(one)
        elif found := sorted(glob.glob(one, recursive=True)):
            out += found
        else:
            beside = os.listdir(os.path.dirname(one) or ".") if os.path.isdir(os.path.dirname(one) or ".") else []
            raise FileNotFoundError(f"{who}: there is no file {one}{did_you_mean(os.path.basename(one), beside)}")
    if not out:
        raise ValueError(f"{who}: no path was given")
    return out


def _named(block: Block, path: Optional[str]) -> Block:
    """The block with a column that says which file it is of."""
    if path is None:
        return block
    return {**block, "path": _block.column_of([path] * _block.rows_of(block))}


# ---- CSV ----

_MISSING = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None")


class _Lines:
    """The lines of a file, counted by their characters."""

    def __init__(self, file: Any) -> None:
        self._file, self.size = file, 0

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self.size += len(line)
            yield line


def _open_text(path: str) -> Any:
    if path.endswith(".gz"):
        import gzip
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _csv_blocks(path: str, delimiter: str, names: Optional[Sequence[str]], dtypes: Mapping[str, Any],
                include: Optional[str], most: int) -> Iterator[Block]:
    import csv
    csv.field_size_limit(sys.maxsize)       # a field may be as long as a file
    with _open_text(path) as file:
        lines = _Lines(file)
        reader = csv.reader(lines, delimiter=delimiter)
        header = list(names) if names is not None else [name.strip() for name in next(reader, [])]
        if len(set(header)) < len(header):
            raise ValueError(f"{path} line 1: two columns have one name: {', '.join(header)}")
        _block.check_columns(dtypes, header, path)
        kinds: dict[str, Any] = {name: dtypes.get(name) for name in header}
        rows: list[list[str]] = []
        first, begin = reader.line_num + 1, lines.size
        for row in reader:
            if len(row) != len(header):
                if not row:
                    continue            # an empty line
                raise ValueError(f"{path} line {reader.line_num}: {len(row)} fields, expected {len(header)}")
            rows.append(row)
            if lines.size - begin >= most:
                yield _named(_csv_block(path, header, rows, kinds, first), include)
                rows, first, begin = [], reader.line_num + 1, lines.size
        if rows:
            yield _named(_csv_block(path, header, rows, kinds, first), include)


def _csv_block(path: str, header: list[str], rows: list[list[str]], kinds: dict[str, Any], first: int) -> Block:
    """The first block says what each column holds (`kinds` is filled in); later ones must be the same."""
    out: Block = {}
    for name, texts in zip(header, zip(*rows)):
        if kinds[name] is None:
            kinds[name], out[name] = _found(texts)
        else:
            try:
                out[name] = _typed(texts, kinds[name])
            except ValueError:
                bad = next((i for i, text in enumerate(texts) if not _fits(text, kinds[name])), 0)
                raise ValueError(
                    f"{path} line {first + bad}, column {name!r}: {texts[bad]!r} is no {kinds[name]}, as the column is; "
                    f"read_csv(dtypes={{{name!r}: \"str\"}}) reads it as text") from None
    return out


def _found(texts: Sequence[str]) -> tuple[str, Any]:
    """What a column of texts holds, the first that fits: whole numbers, numbers, true and false, texts; and the column."""
    for kind in ("int64", "float64", "bool"):
        try:
            out = _typed(texts, kind)
            return str(out.dtype), out          # whole numbers with gaps are float64
        except ValueError:
            pass
    return "str", _typed(texts, "str")


def _typed(texts: Sequence[str], kind: Any) -> Any:
    numpy = need("numpy", "manta.data")
    if kind in ("str", str, "object", object):
        return _block.column_of(list(texts))
    wanted = numpy.dtype(kind)
    array = numpy.array(texts)
    try:
        if any("_" in text for text in texts):          # which Python takes for a number
            raise ValueError(kind)
        if wanted.kind == "b":
            return numpy.array([{"true": True, "1": True, "false": False, "0": False}[t.lower()] for t in texts])
        return array.astype(wanted)
    except (ValueError, KeyError, OverflowError):
        if wanted.kind not in "if":
            raise ValueError(kind) from None
    gaps = numpy.isin(array, _MISSING)
    if gaps.all() or (not gaps.any() and wanted.kind == "f"):
        raise ValueError(kind)
    if wanted.kind == "i" and not gaps.any() or wanted.kind == "i" and _is_fraction(array[~gaps]):
        raise ValueError(kind)
    return numpy.where(gaps, "nan", array).astype(wanted if wanted.kind == "f" else "float64")


def _is_fraction(array: Any) -> bool:
    try:
        array.astype("int64")
        return False
    except (ValueError, OverflowError):
        return True


def _fits(text: str, kind: Any) -> bool:
    try:
        _typed([text], kind)
        return True
    except ValueError:
        return text in _MISSING


def csv_pieces(files: Sequence[str], delimiter: str, names: Optional[Sequence[str]], dtypes: Mapping[str, Any],
               include_paths: bool, most: int) -> list[Piece]:
    return [Piece(path, is_block=False, read=functools.partial(_csv_blocks, path, delimiter, names, dtypes,
                                                               path if include_paths else None, most)) for path in files]


# ---- lines ----

def _line_ranges(path: str, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of bytes to be read apart; a compressed file is one."""
    size = os.path.getsize(path)
    if path.endswith(".gz"):
        yield 0, 1 << 62
        return
    n = max(1, size // max(4 * most, 1))
    for i in range(n):
        yield size * i // n, size * (i + 1) // n


def _lines_in(path: str, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range of bytes, with where they begin."""
    if path.endswith(".gz"):
        import gzip
        file: Any = gzip.open(path, "rb")
    else:
        file = open(path, "rb")
    with file:
        at = begin
        if begin:
            file.seek(begin - 1)
            at += len(file.readline()) - 1          # the end of a line that began before
        while at < end and (line := file.readline()):
            yield at, line.rstrip(b"\r\n")
            at += len(line)


def _text_blocks(path: str, begin: int, end: int, drop_empty: bool, encoding: str, include: Optional[str],
                 most: int) -> Iterator[Block]:
    for lines in _gathered(_lines_in(path, begin, end), most):
        texts = [line.decode(encoding) for _, line in lines if line or not drop_empty]
        yield _named({"text": _block.column_of(texts)}, include)


def _json_blocks(path: str, begin: int, end: int, include: Optional[str], most: int) -> Iterator[Block]:
    for lines in _gathered(_lines_in(path, begin, end), most):
        rows: list[dict[str, Any]] = []
        for at, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as e:
                raise ValueError(f"{path}: the line at byte {at} is no JSON: {e}") from None
            if not isinstance(row, dict):
                raise ValueError(f"{path}: the line at byte {at} is no JSON object, and each line of the file must be one")
            rows.append(row)
        names = list(dict.fromkeys(name for row in rows for name in row))
        yield _named(_block.from_rows([{name: row.get(name) for name in names} for row in rows]), include)


def _gathered(lines: Iterator[tuple[int, bytes]], most: int) -> Iterator[list[tuple[int, bytes]]]:
    kept: list[tuple[int, bytes]] = []
    size = 0
    for line in lines:
        kept.append(line)
        size += len(line[1]) + 1
        if size >= most:
            yield kept
            kept, size = [], 0
    if kept:
        yield kept


def line_pieces(files: Sequence[str], blocks: Callable[..., Iterator[Block]], more: Sequence[Any], include_paths: bool,
                most: int) -> list[Piece]:
    """The pieces of files of lines; blocks: what reads a range of one."""
    return [Piece(path, is_block=False, read=functools.partial(blocks, path, begin, end, *more,
                                                               path if include_paths else None, most))
            for path in files for begin, end in _line_ranges(path, most)]


# ---- Parquet ----

def _open_parquet(path: str) -> Any:
    parquet = need("pyarrow.parquet", "read_parquet")
    try:
        return parquet.ParquetFile(path)
    except ValueError as e:     # as pyarrow's own are, which do not name the file
        raise ValueError(f"read_parquet: {path}: {e}") from None


def _parquet_blocks(path: str, groups: Sequence[int], columns: Optional[Sequence[str]], include: Optional[str],
                    rows_at_once: int) -> Iterator[Block]:
    with _open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=rows_at_once, row_groups=list(groups), columns=columns):
            yield _named(_block.from_table(batch), include)


def parquet_pieces(files: Sequence[str], columns: Optional[Sequence[str]], include_paths: bool, most: int) -> list[Piece]:
    """A piece for each row group: the ends of the files are read now, which have their sizes."""
    out = []
    for path in files:
        with _open_parquet(path) as file:
            if columns is not None:
                _block.check_columns(columns, file.schema_arrow.names, f"read_parquet: {path}")
            for i in range(file.metadata.num_row_groups):
                group = file.metadata.row_group(i)
                at_once = max(1, group.num_rows * most // max(group.total_byte_size, 1))
                out.append(Piece(f"{path}, row group {i}", rows=group.num_rows, is_block=at_once >= group.num_rows,
                                 read=functools.partial(_parquet_blocks, path, [i], columns, path if include_paths else None,
                                                        min(at_once, max(group.num_rows, 1)))))
    return out


# ---- arrays, bytes, images ----

def _numpy_blocks(path: str, include: Optional[str], most: int) -> Iterator[Block]:
    """The rows of a .npy file, which is mapped and not read whole."""
    numpy = need("numpy", "read_numpy")
    array = numpy.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, numpy.ndarray):
        raise ValueError(f"{path} holds several arrays (.npz), expected one (.npy)")
    if array.ndim == 0:
        raise ValueError(f"{path} holds one {array.dtype}, expected an array of rows")
    step = max(1, most // max(array.nbytes // max(len(array), 1), 1))
    for begin in range(0, len(array), step):
        yield _named({"data": numpy.array(array[begin:begin + step])}, include)


def numpy_pieces(files: Sequence[str], include_paths: bool, most: int) -> list[Piece]:
    return [Piece(path, is_block=False, read=functools.partial(_numpy_blocks, path, path if include_paths else None, most))
            for path in files]


def _file_blocks(paths: Sequence[str], column: str, load: Callable[[str], Any], include_paths: bool,
                 most: int) -> Iterator[Block]:
    """A row for each file."""
    kept: list[dict[str, Any]] = []
    size = 0
    for path in paths:
        value = load(path)
        kept.append({column: value, **({"path": path} if include_paths else {})})
        size += value.nbytes if hasattr(value, "nbytes") else len(value)
        if size >= most:
            yield _block.from_rows(kept)
            kept, size = [], 0
    if kept:
        yield _block.from_rows(kept)


def _load_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _load_image(size: Optional[tuple[int, int]], mode: Optional[str], path: str) -> Any:
    numpy = need("numpy", "read_images")
    need("PIL", "read_images")
    image = need("PIL.Image", "read_images")
    try:
        with image.open(io.BytesIO(_load_bytes(path))) as opened:
            if size is not None:
                opened = opened.resize((size[1], size[0]))
            return numpy.array(opened.convert(mode) if mode else opened)
    except image.UnidentifiedImageError:
        raise ValueError(f"{path} is no image that Pillow can read") from None


def _of_files(files: Sequence[str], column: str, load: Callable[[str], Any], include_paths: bool, most: int) -> list[Piece]:
    n = min(len(files), max(16, len(files) // 256))
    groups = [files[len(files) * i // n:len(files) * (i + 1) // n] for i in range(n)]
    return [Piece(group[0] if len(group) == 1 else f"{group[0]} and {len(group) - 1} more", rows=len(group), is_block=False,
                  read=functools.partial(_file_blocks, group, column, load, include_paths, most)) for group in groups]


def binary_pieces(files: Sequence[str], include_paths: bool, most: int) -> list[Piece]:
    return _of_files(files, "bytes", _load_bytes, include_paths, most)


def image_pieces(files: Sequence[str], size: Optional[tuple[int, int]], mode: Optional[str], include_paths: bool,
                 most: int) -> list[Piece]:
    need("PIL", "read_images")
    return _of_files(files, "image", functools.partial(_load_image, size, mode), include_paths, most)


# ---- TFRecord and WebDataset ----

def tfrecord_pieces(files: Sequence[str], include_paths: bool, most: int) -> list[Piece]:
    from manta.data import _tfrecord
    return [Piece(path, is_block=False, read=functools.partial(_tfrecord.blocks, path, path if include_paths else None, most))
            for path in files]


def archive_pieces(files: Sequence[str], decode: bool, suffixes: Optional[Sequence[str]], include_paths: bool,
                   most: int) -> list[Piece]:
    from manta.data import _webdataset
    return [Piece(path, is_block=False, read=functools.partial(_webdataset.blocks, path, decode, suffixes,
                                                               path if include_paths else None, most)) for path in files]
