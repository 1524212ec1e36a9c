"""Where datasets begin: values of the program, and files."""
from __future__ import annotations

import builtins
import dataclasses
import functools
from typing import Any, Callable, Iterator, Mapping, Optional, Sequence, Union

from manta import _core as _plain_core
from manta.data import _block, _files
from manta.data._block import Block
from manta.data._files import Paths
from manta.data._need import check_count, need
from manta.data._plan import Input, Piece, ShuffledInput
from manta.data.context import DataContext
from manta.data.dataset import Dataset, MaterializedDataset

__all__ = ["FileShuffleConfig", "from_arrow", "from_items", "from_numpy", "from_pandas", "range", "range_tensor",
           "read_binary_files", "read_csv", "read_images", "read_json", "read_numpy", "read_parquet", "read_text",
           "read_tfrecords", "read_webdataset"]

_core: Any = _plain_core            # which has no types
_FEW = 8        # blocks of what is in memory, so that several processes have some


def _bounds(rows: int, size: int, wanted: Optional[int], who: str) -> list[int]:
    """Where rows are divided into blocks."""
    n = max(-(-size // max(DataContext.get_current().target_max_block_size, 1)), _FEW)
    if wanted is not None:
        n = check_count(who, "override_num_blocks", wanted)
    n = max(1, min(n, rows))
    return [rows * i // n for i in builtins.range(n + 1)]


def _kept(block: Block, who: str, wanted: Optional[int]) -> MaterializedDataset:
    bounds = _bounds(_block.rows_of(block), _block.size_of(block), wanted, who)
    parts = [_block.cut(block, begin, end) for begin, end in zip(bounds, bounds[1:])]
    return _of_blocks(parts, who)


def _of_blocks(blocks: Sequence[Block], who: str) -> MaterializedDataset:
    _core._ensure()
    return MaterializedDataset(Input(tuple(
        Piece(f"{who}, block {i}", rows=_block.rows_of(b), ref=_core.put(b), size=_block.size_of(b), kinds=_block.kinds_of(b))
        for i, b in enumerate(blocks) if _block.rows_of(b))))


# ---- values ----

def from_items(items: Sequence[Any], *, parallelism: int = -1, override_num_blocks: Optional[int] = None) -> MaterializedDataset:
    """A row for each item of a list: a dictionary is the row itself, anything else its column "item".

        manta.data.from_items([{"x": 1}, {"x": 2}])
    """
    items = list(items)
    if items and all(isinstance(item, Mapping) for item in items):
        return _kept(_block.from_rows(items), "from_items", override_num_blocks)
    return _kept({"item": _block.column_of(items)} if items else {}, "from_items", override_num_blocks)


def _numbers(begin: int, end: int) -> Iterator[Block]:
    numpy = need("numpy", "range")
    yield {"id": numpy.arange(begin, end, dtype="int64")}


def _tensors(shape: Sequence[int], begin: int, end: int) -> Iterator[Block]:
    numpy = need("numpy", "range_tensor")
    values = numpy.arange(begin, end, dtype="int64").reshape(end - begin, *[1] * len(shape))
    yield {"data": numpy.broadcast_to(values, (end - begin, *shape)).copy()}


def _counted(n: int, size: int, wanted: Optional[int], who: str, read: Callable[[int, int], Iterator[Block]]) -> Dataset:
    bounds = _bounds(check_count(who, "n", n, 0), size, wanted, who)
    return Dataset(Input(tuple(Piece(f"{who}({n}), rows {begin} to {end}", rows=end - begin, size=size * (end - begin) // max(n, 1),
                                     read=functools.partial(read, begin, end))
                               for begin, end in zip(bounds, bounds[1:]) if end > begin)))


def range(n: int, *, parallelism: int = -1, concurrency: Optional[int] = None,
          override_num_blocks: Optional[int] = None) -> Dataset:
    """The numbers from 0 to n, in the column "id".

        manta.data.range(1000)
    """
    return _counted(n, 8 * check_count("range", "n", n, 0), override_num_blocks, "range", _numbers)


def range_tensor(n: int, *, shape: Sequence[int] = (1,), parallelism: int = -1, concurrency: Optional[int] = None,
                 override_num_blocks: Optional[int] = None) -> Dataset:
    """n arrays of a shape, filled with 0, 1, 2, ..., in the column "data".

        manta.data.range_tensor(1000, shape=(28, 28))
    """
    size = 8 * check_count("range_tensor", "n", n, 0)
    for d in shape:
        size *= check_count("range_tensor", "shape", d)
    return _counted(n, size, override_num_blocks, "range_tensor", functools.partial(_tensors, tuple(shape)))


def from_numpy(ndarrays: Any, *, column: str = "data", override_num_blocks: Optional[int] = None) -> MaterializedDataset:
    """The rows of an array, or of several one after the other, in the column "data"; of a dictionary of arrays, its columns.

        manta.data.from_numpy(x)
        manta.data.from_numpy({"x": x, "y": y})
    """
    numpy = need("numpy", "from_numpy")
    if isinstance(ndarrays, Mapping):
        return _kept(_block.as_block(ndarrays, "from_numpy"), "from_numpy", override_num_blocks)
    if isinstance(ndarrays, (list, tuple)) and ndarrays and all(isinstance(a, numpy.ndarray) for a in ndarrays):
        return _of_blocks([_block.as_block({column: a}, "from_numpy") for a in ndarrays], "from_numpy")
    return _kept(_block.as_block({column: ndarrays}, "from_numpy"), "from_numpy", override_num_blocks)


def from_pandas(dfs: Any, *, override_num_blocks: Optional[int] = None) -> MaterializedDataset:
    """The rows of a frame of pandas, or of several one after the other; the index is left out.

        manta.data.from_pandas(df)
    """
    pandas = need("pandas", "from_pandas")
    return _of_tables(dfs, pandas.DataFrame, _block.from_frame, "from_pandas", override_num_blocks)


def from_arrow(tables: Any, *, override_num_blocks: Optional[int] = None) -> MaterializedDataset:
    """The rows of a table of pyarrow, or of several one after the other.

        manta.data.from_arrow(table)
    """
    pyarrow = need("pyarrow", "from_arrow")
    return _of_tables(tables, pyarrow.Table, _block.from_table, "from_arrow", override_num_blocks)


def _of_tables(given: Any, kind: Any, convert: Callable[[Any], Block], who: str, wanted: Optional[int]) -> MaterializedDataset:
    some = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in some:
        if not isinstance(one, kind):
            raise TypeError(f"{who} expects a {kind.__name__}, given {type(one).__name__}")
    blocks = [convert(one) for one in some]
    return _kept(blocks[0], who, wanted) if len(blocks) == 1 else _of_blocks(blocks, who)


# ---- files ----

@dataclasses.dataclass(frozen=True)
class FileShuffleConfig:
    """read_parquet(shuffle=FileShuffleConfig(seed=42)): files are read in another order in each execution, the same for the
    same seed; in one order for ever without reseed_after_execution.

        manta.data.read_parquet("data/", shuffle=FileShuffleConfig(seed=42))
    """
    seed: Optional[int] = None
    reseed_after_execution: bool = True

    def __post_init__(self) -> None:
        if self.seed is not None and (isinstance(self.seed, bool) or not isinstance(self.seed, int)):
            raise ValueError(f"FileShuffleConfig: seed is {self.seed!r}, expected a whole number")


def _read_shuffled(of_file: Sequence[Sequence[Piece]], shuffle: Any, who: str) -> Dataset:
    """shuffle: "files", FileShuffleConfig, or nothing."""
    pieces = tuple(piece for file in of_file for piece in file)
    if not shuffle:
        return _read(pieces)
    how = FileShuffleConfig() if shuffle == "files" else shuffle
    if not isinstance(how, FileShuffleConfig):
        raise ValueError(f"{who}: shuffle is {shuffle!r}, expected \"files\" or FileShuffleConfig")
    return Dataset(ShuffledInput(pieces, tuple(map(tuple, of_file)), how.seed, how.reseed_after_execution))


def _read(pieces: Sequence[Piece]) -> Dataset:
    return Dataset(Input(tuple(pieces)))


def _most() -> int:
    return DataContext.get_current().target_max_block_size


def _refuse(who: str, options: Mapping[str, Any]) -> None:
    """Options of Ray's that are not here; those that are None or about the number of reads change nothing."""
    for name, value in options.items():
        if value is not None and name not in ("parallelism", "concurrency", "override_num_blocks", "num_cpus", "shuffle"):
            raise NotImplementedError(f"{who}({name}=...) of Ray Data is not part of manta.data")
        if name == "shuffle" and value:
            raise NotImplementedError(f"{who}(shuffle=...) of Ray Data is not part of manta.data: random_shuffle() is")


def read_csv(paths: Paths, *, delimiter: str = ",", column_names: Optional[Sequence[str]] = None,
             dtypes: Optional[Mapping[str, Any]] = None, include_paths: bool = False,
             file_extensions: Optional[Sequence[str]] = None, **options: Any) -> Dataset:
    """The rows of CSV files, which may be larger than memory.

        manta.data.read_csv("data/*.csv")

    A column is of whole numbers, numbers, true and false or texts, which its first block says; dtypes={"zip": "str"} says it instead. An
    empty field of a number is NaN. column_names: the files have no header line. ".gz" is unpacked.
    """
    _refuse("read_csv", options)
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise ValueError(f"read_csv: delimiter is {delimiter!r}, expected one character")
    return _read(_files.csv_pieces(_files.expand(paths, "read_csv", file_extensions), delimiter, column_names, dtypes or {},
                                   include_paths, _most()))


def read_parquet(paths: Paths, *, columns: Optional[Sequence[str]] = None, include_paths: bool = False,
                 file_extensions: Optional[Sequence[str]] = ("parquet",), shuffle: Union[str, FileShuffleConfig, None] = None,
                 **options: Any) -> Dataset:
    """The rows of Parquet files, row group by row group; of these columns only, if they are named. Needs pyarrow.

        manta.data.read_parquet("data/", columns=["x", "y"])

    shuffle: "files" or FileShuffleConfig, the files in a random order.
    """
    _refuse("read_parquet", options)
    need("pyarrow.parquet", "read_parquet")
    files = _files.expand(paths, "read_parquet", file_extensions)
    return _read_shuffled([_files.parquet_pieces([file], columns, include_paths, _most()) for file in files], shuffle, "read_parquet")


def read_json(paths: Paths, *, lines: bool = True, include_paths: bool = False,
              file_extensions: Optional[Sequence[str]] = None, **options: Any) -> Dataset:
    """The rows of files with a JSON object in each line.

        manta.data.read_json("log.jsonl")
    """
    _refuse("read_json", options)
    if not lines:
        raise NotImplementedError("read_json(lines=False) of Ray Data is not part of manta.data: each line is an object")
    files = _files.expand(paths, "read_json", file_extensions)
    return _read(_files.line_pieces(files, _files._json_blocks, (), include_paths, _most()))


def read_text(paths: Paths, *, encoding: str = "utf-8", drop_empty_lines: bool = True, include_paths: bool = False,
              file_extensions: Optional[Sequence[str]] = None, **options: Any) -> Dataset:
    """The lines of files, in the column "text".

        manta.data.read_text("book.txt")
    """
    _refuse("read_text", options)
    files = _files.expand(paths, "read_text", file_extensions)
    return _read(_files.line_pieces(files, _files._text_blocks, (drop_empty_lines, encoding), include_paths, _most()))


def read_numpy(paths: Paths, *, include_paths: bool = False, file_extensions: Optional[Sequence[str]] = ("npy",),
               **options: Any) -> Dataset:
    """The rows of .npy files, in the column "data".

        manta.data.read_numpy("x.npy")
    """
    _refuse("read_numpy", options)
    return _read(_files.numpy_pieces(_files.expand(paths, "read_numpy", file_extensions), include_paths, _most()))


def read_binary_files(paths: Paths, *, include_paths: bool = False, file_extensions: Optional[Sequence[str]] = None,
                      **options: Any) -> Dataset:
    """A row for each file: its bytes, in the column "bytes".

        manta.data.read_binary_files("audio/", include_paths=True)
    """
    _refuse("read_binary_files", options)
    return _read(_files.binary_pieces(_files.expand(paths, "read_binary_files", file_extensions), include_paths, _most()))


def read_images(paths: Paths, *, size: Optional[tuple[int, int]] = None, mode: Optional[str] = None, include_paths: bool = False,
                file_extensions: Optional[Sequence[str]] = ("png", "jpg", "jpeg", "bmp", "gif", "tif", "tiff", "webp"),
                **options: Any) -> Dataset:
    """A row for each image: an array (height, width, channels) in the column "image". Needs Pillow.

        manta.data.read_images("photos/", size=(32, 32), mode="RGB")
    """
    _refuse("read_images", options)
    if size is not None and len(size) != 2:
        raise ValueError(f"read_images: size is {size!r}, expected (height, width)")
    return _read(_files.image_pieces(_files.expand(paths, "read_images", file_extensions), size, mode, include_paths, _most()))


def read_tfrecords(paths: Paths, *, include_paths: bool = False, file_extensions: Optional[Sequence[str]] = None,
                   **options: Any) -> Dataset:
    """The Examples of TFRecord files, a column for each feature. Needs no TensorFlow.

        manta.data.read_tfrecords("train.tfrecord")
    """
    _refuse("read_tfrecords", options)
    return _read(_files.tfrecord_pieces(_files.expand(paths, "read_tfrecords", file_extensions), include_paths, _most()))


def read_webdataset(paths: Paths, *, decoder: Optional[bool] = True, suffixes: Optional[Sequence[str]] = None,
                    include_paths: bool = False, file_extensions: Optional[Sequence[str]] = None, **options: Any) -> Dataset:
    """The samples of tar archives, whose members have one name and several endings: a row for each name, which is the
    column "__key__", with a column for each ending, or for these.

        manta.data.read_webdataset("shards/", suffixes=["png", "cls"])

    decoder: texts (txt), numbers (cls), JSON, arrays (npy) and images (png, jpg; with Pillow) are made of such members;
    False: all are bytes.
    """
    _refuse("read_webdataset", options)
    if decoder not in (True, False, None):
        raise NotImplementedError("read_webdataset(decoder=...) of Ray Data with functions of one's own is not part of "
                                  "manta.data: decoder=False and map()")
    return _read(_files.archive_pieces(_files.expand(paths, "read_webdataset", file_extensions), bool(decoder), suffixes,
                                       include_paths, _most()))
