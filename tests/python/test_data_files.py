"""manta.data: what reads and writes files."""
import gzip
import io
import json
import struct
import tarfile

import numpy
import pyarrow
import pyarrow.parquet
import pytest

import manta
import manta.data as data
from manta.data import DataContext, _tfrecord

pytestmark = pytest.mark.usefixtures("module_node")


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 2 KiB, so that a small file has many."""
    monkeypatch.setattr(DataContext.get_current(), "target_max_block_size", 2 << 10)


# ---- CSV ----

def test_csv_columns_have_types(tmp_path):
    (tmp_path / "a.csv").write_text('n,x,s,gap\n1,1.5,"a, b",2\n2,2,"two\nlines",\n')
    ds = data.read_csv(tmp_path / "a.csv")
    assert ds.schema().types == ["int64", "float64", "string", "float64"]
    rows = ds.take_all()
    assert rows[0] == {"n": 1, "x": 1.5, "s": "a, b", "gap": 2.0}
    assert rows[1]["s"] == "two\nlines" and numpy.isnan(rows[1]["gap"])
    texts = data.read_csv(tmp_path / "a.csv", dtypes={"n": "str", "x": "float32"})
    assert texts.take(1)[0]["n"] == "1" and texts.schema().types[1] == "float32"


def test_csv_values_that_look_like_others(tmp_path):
    (tmp_path / "a.csv").write_text("flag,large,under\ntrue,99999999999999999999,1_000\nFalse,1,2\n")
    ds = data.read_csv(tmp_path / "a.csv")
    assert ds.schema().types == ["bool", "float64", "string"]
    assert ds.take_all() == [{"flag": True, "large": 1e20, "under": "1_000"}, {"flag": False, "large": 1.0, "under": "2"}]


def test_csv_files_folders_and_patterns(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.csv").write_text(f"x;y\n{i};{i}\n")
    for paths in (tmp_path, str(tmp_path / "*.csv"), [tmp_path / f"{i}.csv" for i in range(3)]):
        assert [row["x"] for row in data.read_csv(paths, delimiter=";").take_all()] == [0, 1, 2]
    assert data.read_csv(tmp_path / "1.csv", delimiter=";", include_paths=True).take(1)[0]["path"].endswith("1.csv")
    with gzip.open(tmp_path / "z.csv.gz", "wt") as f:
        f.write("5;6\n7;8\n")
    assert data.read_csv(tmp_path / "z.csv.gz", delimiter=";", column_names=["a", "b"]).take(1) == [{"a": 5, "b": 6}]


def test_csv_in_many_blocks(tmp_path, small_blocks):
    (tmp_path / "a.csv").write_text("a,b\n" + "".join(f"{i},t{i}\n" for i in range(3000)))
    ds = data.read_csv(tmp_path / "a.csv").materialize()
    assert ds.num_blocks() > 10 and [row["a"] for row in ds.take_all()] == list(range(3000))


def test_a_csv_field_may_be_large(tmp_path):
    (tmp_path / "a.csv").write_text('s,n\n"' + "x\n" * 200000 + '",1\n')
    assert data.read_csv(tmp_path / "a.csv").take_all() == [{"s": "x\n" * 200000, "n": 1}]


@pytest.mark.parametrize("paths", [None, 3, [None], [["a.csv"]]])
def test_what_is_no_path_is_refused(paths):
    with pytest.raises(TypeError, match="read_csv: a path is (NoneType|int|list), expected"):
        data.read_csv(paths)


def test_csv_that_is_wrong_names_the_line(tmp_path, small_blocks):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"a.csv line 3: 1 fields, expected 2"):
        data.read_csv(tmp_path / "a.csv").take_all()
    (tmp_path / "b.csv").write_text("a\n" + "1\n" * 2000 + "x\n" + "1\n" * 10)
    with pytest.raises(ValueError, match=r"b.csv line 2002, column 'a': 'x' is no int64, as the column is; read_csv\(dtypes="):
        data.read_csv(tmp_path / "b.csv").take_all()
    with pytest.raises(ValueError, match="there is no column 'c'"):
        data.read_csv(tmp_path / "a.csv", dtypes={"c": "str"}).take_all()


def test_paths_that_name_nothing(tmp_path):
    (tmp_path / "train.csv").write_text("a\n1\n")
    with pytest.raises(FileNotFoundError, match=r"read_csv: there is no file .*trian.csv; did you mean 'train.csv'"):
        data.read_csv(tmp_path / "trian.csv")
    with pytest.raises(FileNotFoundError, match="has no files that end in .parquet"):
        data.read_parquet(tmp_path)
    with pytest.raises(NotImplementedError, match="s3://bucket/x.csv is not on this host"):
        data.read_csv("s3://bucket/x.csv")
    with pytest.raises(NotImplementedError, match=r"read_csv\(partitioning=...\) of Ray Data is not part of manta.data"):
        data.read_csv(tmp_path / "train.csv", partitioning="hive")


# ---- lines ----

def test_text_is_read_in_ranges(tmp_path, small_blocks):
    lines = [f"line {i} " + "ä" * (i % 50) for i in range(2000)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\n")
    ds = data.read_text(tmp_path / "a.txt")
    assert len(ds._node.pieces) > 5
    assert [row["text"] for row in ds.take_all()] == lines
    assert data.read_text(tmp_path / "a.txt", drop_empty_lines=False).count() == 2001


def test_json_lines(tmp_path, small_blocks):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"i": i, "v": [i, i + 1], "s": "ä"}) + "\n" for i in range(1000)))
    ds = data.read_json(tmp_path / "a.jsonl")
    assert [row["i"] for row in ds.take_all()] == list(range(1000))
    assert ds.take_batch(2)["v"].tolist() == [[0, 1], [1, 2]]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n{"a": \n')
    with pytest.raises(ValueError, match=r"b.jsonl: the line at byte 9 is no JSON"):
        data.read_json(tmp_path / "b.jsonl").take_all()


# ---- Parquet and arrays ----

def test_parquet_by_row_groups(tmp_path):
    table = pyarrow.table({"x": list(range(1000)), "s": [f"t{i}" for i in range(1000)]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    ds = data.read_parquet(tmp_path / "a.parquet")
    assert ds.count() == 1000 and ds.num_blocks() == 10
    assert [row["x"] for row in ds.take_all()] == list(range(1000))
    assert data.read_parquet(tmp_path, columns=["s"]).take(1) == [{"s": "t0"}]
    with pytest.raises(ValueError, match="there is no column 'y'"):
        data.read_parquet(tmp_path, columns=["y"])


@pytest.mark.parametrize("contents", [b"", b"PAR1", b"no table " * 9])
def test_a_file_that_is_no_parquet_is_named(tmp_path, contents):
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_bytes(contents)
    with pytest.raises(ValueError, match="read_parquet: .*b.parquet: "):
        data.read_parquet(tmp_path)


def test_parquet_of_one_large_row_group_is_read_in_parts(tmp_path, small_blocks):
    pyarrow.parquet.write_table(pyarrow.table({"x": list(range(10_000))}), tmp_path / "a.parquet")
    ds = data.read_parquet(tmp_path).materialize()
    assert ds.num_blocks() > 10 and [row["x"] for row in ds.take_all()] == list(range(10_000))


def test_numpy_files(tmp_path, small_blocks):
    x = numpy.arange(6000, dtype="int32").reshape(1000, 6)
    numpy.save(tmp_path / "x.npy", x)
    ds = data.read_numpy(tmp_path / "x.npy")
    assert (numpy.concatenate([b["data"] for b in ds.iter_batches(batch_size=7)]) == x).all()


def test_bytes_and_images(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    image.fromarray(numpy.full((4, 6, 3), 7, dtype="uint8")).save(tmp_path / "a.png")
    ds = data.read_images(tmp_path)
    assert ds.take(1)[0]["image"].shape == (4, 6, 3)
    assert data.read_images(tmp_path, size=(2, 3), mode="L").take_batch(1)["image"].tolist() == [[[7] * 3] * 2]
    (tmp_path / "b.png").write_bytes(b"none")
    with pytest.raises(ValueError, match="b.png is no image that Pillow can read"):
        data.read_images(tmp_path / "b.png").take_all()


def test_binary_files(tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.bin").write_bytes(bytes([i] * i))
    rows = data.read_binary_files(tmp_path, include_paths=True).take_all()
    assert [row["bytes"] for row in rows] == [b"", b"\1", b"\2\2"] and rows[2]["path"].endswith("2.bin")


def varint(n):
    out = b""
    while True:
        out += bytes([n & 0x7F | (0x80 if n > 0x7F else 0)])
        n >>= 7
        if not n:
            return out


def field(number, body):
    return varint(number << 3 | 2) + varint(len(body)) + body


def example(**features):
    out = b""
    for name, values in features.items():
        if isinstance(values[0], bytes):
            kind = field(1, b"".join(field(1, v) for v in values))
        elif isinstance(values[0], float):
            kind = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            kind = field(3, field(1, b"".join(varint(v % (1 << 64)) for v in values)))
        out += field(1, field(1, name.encode()) + field(2, kind))
    return field(1, out)


def record(body):
    head = struct.pack("<Q", len(body))
    return head + struct.pack("<I", _tfrecord.masked_crc(head)) + body + struct.pack("<I", _tfrecord.masked_crc(body))


def test_tfrecords(tmp_path):
    assert _tfrecord.masked_crc(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(record(example(x=[1.5, float(i)], label=[-i], name=[b"n%d" % i])) for i in range(3)))
    rows = data.read_tfrecords(path).take_all()
    assert [(row["x"].tolist(), row["label"], row["name"]) for row in rows] == \
        [([1.5, 0.0], 0, b"n0"), ([1.5, 1.0], -1, b"n1"), ([1.5, 2.0], -2, b"n2")]
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(ValueError, match="the file ends inside a record"):
        data.read_tfrecords(path).take_all()
    path.write_bytes(b"no" + whole)
    with pytest.raises(ValueError, match="byte 0: no record of a TFRecord file begins there"):
        data.read_tfrecords(path).take_all()
    path.write_bytes(record(b"\xff\xff"))
    with pytest.raises(ValueError, match="record 0: it is no Example"):
        data.read_tfrecords(path).take_all()


def make_archive(path, members):
    with tarfile.open(path, "w") as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))


def test_webdataset(tmp_path, small_blocks):
    array = io.BytesIO()
    numpy.save(array, numpy.arange(3))
    make_archive(tmp_path / "a.tar", {f"s/{i:03}.{ending}": body for i in range(200) for ending, body in {
        "cls": b"%d" % (i % 10), "txt": "ä".encode(), "npy": array.getvalue(), "bin": b"\0", "meta.json": b'{"i": 1}'}.items()})
    rows = data.read_webdataset(tmp_path).take_all()
    assert len(rows) == 200 and [row["cls"] for row in rows[:12]] == [*range(10), 0, 1]
    assert (rows[7]["__key__"], rows[7]["txt"], rows[7]["npy"].tolist(), rows[7]["bin"], rows[7]["meta.json"]) == \
        ("s/007", "ä", [0, 1, 2], b"\0", {"i": 1})
    assert data.read_webdataset(tmp_path, decoder=False, suffixes=["cls"]).take(1) == [{"__key__": "s/000", "cls": b"0"}]
    make_archive(tmp_path / "b.tar", {"1.cls": b"x"})
    with pytest.raises(ValueError, match="b.tar: the member 1.cls is not what its name says"):
        data.read_webdataset(tmp_path / "b.tar").take_all()
    (tmp_path / "c.tar").write_bytes(b"no archive" * 100)
    with pytest.raises(ValueError, match="c.tar is no tar archive, or was cut"):
        data.read_webdataset(tmp_path / "c.tar").take_all()


# ---- writing ----

def test_what_is_written_is_read_again(tmp_path):
    ds = data.from_items([{"i": i, "x": i / 2, "s": f"ä,{i}"} for i in range(100)])
    ds.write_csv(tmp_path / "csv")
    ds.write_json(tmp_path / "json")
    ds.write_parquet(tmp_path / "parquet")
    assert data.read_csv(tmp_path / "csv").take_all() == ds.take_all()
    assert data.read_json(tmp_path / "json").take_all() == ds.take_all()
    assert data.read_parquet(tmp_path / "parquet").take_all() == ds.take_all()
    assert sorted(p.name for p in (tmp_path / "csv").iterdir()) == [f"{i:06d}_000000.csv" for i in range(8)]
    tensors = data.range_tensor(50, shape=(3,))
    tensors.write_numpy(tmp_path / "npy", column="data")
    tensors.write_parquet(tmp_path / "t")
    for again in (data.read_numpy(tmp_path / "npy"), data.read_parquet(tmp_path / "t")):
        assert numpy.array_equal(again.take_batch(50)["data"], tensors.take_batch(50)["data"])


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="write_csv: column 'data' holds arrays, which a CSV file cannot"):
        data.range_tensor(3).write_csv(tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == []
    with pytest.raises(NotImplementedError, match=r"Dataset.write_csv\(filesystem=...\) of Ray Data"):
        data.range(3).write_csv(tmp_path / "a", filesystem=1)
