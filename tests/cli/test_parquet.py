"""Parquet files that pyarrow writes, in the settings people use, are read with equal values."""
import io
import json
import struct
import zlib

import numpy as np
import pytest

import dataset

pa = pytest.importorskip("pyarrow", reason="pyarrow is in requirements.txt")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 1000


@pytest.fixture
def numbers():
    """A table of every kind of number, and what x must be."""
    r = np.random.default_rng(7)
    columns = {
        "f": r.standard_normal(ROWS).astype(np.float32),
        "d": r.standard_normal(ROWS),
        "h": r.standard_normal(ROWS).astype(np.float16),
        "i8": r.integers(-128, 128, ROWS, np.int8),
        "u8": r.integers(0, 256, ROWS, np.uint8),
        "i16": r.integers(-2**15, 2**15, ROWS, np.int16),
        "u16": r.integers(0, 2**16, ROWS, np.uint16),
        "i32": r.integers(-2**31, 2**31, ROWS, np.int32),
        "u32": r.integers(0, 2**32, ROWS, np.uint32),
        "i64": r.integers(-2**63, 2**63 - 1, ROWS, np.int64),
        "u64": r.integers(0, 2**64, ROWS, np.uint64),
        "b": r.integers(0, 2, ROWS).astype(bool),
        "few": r.integers(0, 5, ROWS),
        "same": np.full(ROWS, 2.5),
    }
    x = np.stack([c.astype(np.float32) for c in columns.values()], axis=1)
    y = r.integers(-5, 10, ROWS)
    return pa.table({**columns, "y": y}), x, y


SETTINGS = {
    "as it comes": {},
    "plain": dict(use_dictionary=False),
    "no compression": dict(compression="none"),
    "gzip": dict(compression="gzip"),
    "zstd": dict(compression="zstd"),
    "row groups": dict(row_group_size=77),
    "pages v2": dict(data_page_version="2.0"),
    "pages v2 zstd": dict(data_page_version="2.0", compression="zstd"),
    "pages v2 plain": dict(data_page_version="2.0", compression="none", use_dictionary=False),
    "small pages": dict(data_page_size=64, write_batch_size=10),
    "dictionary overflows": dict(dictionary_pagesize_limit=64, data_page_size=256, write_batch_size=16),
    "format 1.0": dict(version="1.0"),
    "checksums": dict(write_page_checksum=True),
    "no statistics": dict(write_statistics=False, store_schema=False),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_numbers(tmp_path, numbers, setting):
    table, x, y = numbers
    if setting.get("version") == "1.0":     # which has no unsigned 32-bit numbers, and widens them
        assert table.schema.field("u32").type == pa.uint32()
    pq.write_table(table, tmp_path / "t.parquet", **setting)
    got = dataset.read(f"{tmp_path}/t.parquet:label=y")
    assert got["x"].dtype == np.float32 and got["y"].dtype == np.int64
    np.testing.assert_array_equal(got["x"], x)
    np.testing.assert_array_equal(got["y"], y)


def test_required_columns(tmp_path, numbers):
    table, x, y = numbers
    schema = pa.schema([pa.field(f.name, f.type, nullable=False) for f in table.schema])
    pq.write_table(table.cast(schema), tmp_path / "t.parquet")
    got = dataset.read(f"{tmp_path}/t.parquet:label=y")
    np.testing.assert_array_equal(got["x"], x)


@pytest.mark.parametrize("readers", [-1, 0, 3])
def test_columns_by_name(tmp_path, numbers, readers):
    table, x, _ = numbers
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    got = dataset.read(f"{tmp_path}/t.parquet:x=i64+f,label=d", readers=readers, batch=7)
    np.testing.assert_array_equal(got["x"], x[:, [9, 0]])
    np.testing.assert_array_equal(got["y"], x[:, 1])
    assert got["y"].dtype == np.float32


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
@pytest.mark.parametrize("fixed", [False, True])
def test_lists(tmp_path, setting, fixed):
    r = np.random.default_rng(8)
    values = {"u8": r.integers(0, 256, (ROWS, 6), np.uint8), "i32": r.integers(-9, 9, (ROWS, 3), np.int32),
              "i64": r.integers(-2**40, 2**40, (ROWS, 2)), "f32": r.standard_normal((ROWS, 4)).astype(np.float32),
              "f64": r.standard_normal((ROWS, 1))}
    kinds = {n: pa.list_(pa.from_numpy_dtype(v.dtype), v.shape[1] if fixed else -1) for n, v in values.items()}
    table = pa.table({n: pa.array(list(v), kinds[n]) for n, v in values.items()})
    pq.write_table(table, tmp_path / "t.parquet", **setting)
    for name, v in values.items():
        got = dataset.read(f"{tmp_path}/t.parquet:x={name}", raw=True)["x"]
        np.testing.assert_array_equal(got, v.astype(np.float32) if name == "f64" else v)
        assert got.dtype == (np.float32 if name == "f64" else v.dtype)
    together = dataset.read(f"{tmp_path}/t.parquet:x=i32+f64+u8,label=i64")
    np.testing.assert_array_equal(together["x"], np.hstack([values["i32"], values["f64"], values["u8"]],
                                                           dtype=np.float32, casting="unsafe"))
    np.testing.assert_array_equal(together["y"], values["i64"])


def test_bytes_are_scaled(tmp_path):
    v = np.arange(512, dtype=np.uint8).reshape(2, 256)
    pq.write_table(pa.table({"img": list(v), "y": [0, 1]}), tmp_path / "t.parquet")
    got = dataset.read(f"{tmp_path}/t.parquet:x=img,label=y")["x"]
    np.testing.assert_array_equal(got, v.astype(np.float32) / np.float32(255))


@pytest.mark.parametrize("kind", ["binary", "fixed"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_binary(tmp_path, kind, dictionary):
    v = np.random.default_rng(9).integers(0, 3, (200, 5), np.uint8)
    values = pa.array([bytes(row) for row in v], pa.binary(5) if kind == "fixed" else pa.binary())
    pq.write_table(pa.table({"x": values}), tmp_path / "t.parquet", use_dictionary=dictionary, row_group_size=64)
    np.testing.assert_array_equal(dataset.read(f"{tmp_path}/t.parquet", raw=True)["x"], v)


def png(pixels):
    """A grey PNG."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    height, width = pixels.shape
    rows = b"".join(b"\0" + bytes(row) for row in pixels)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_images(tmp_path):
    """As image sets are published: a structure with the encoded bytes."""
    v = np.random.default_rng(10).integers(0, 256, (20, 3, 4), np.uint8)
    rows = [{"bytes": png(p), "path": None} for p in v]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array(rows, kind), "label": list(range(20))}), tmp_path / "t.parquet",
                   row_group_size=6)
    got = dataset.read(f"{tmp_path}/t.parquet:x=image.bytes,label=label", raw=True)
    np.testing.assert_array_equal(got["x"], v[..., None])
    np.testing.assert_array_equal(got["y"], np.arange(20))


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_nulls(tmp_path, setting):
    r = np.random.default_rng(11)
    mask = r.random(ROWS) < 0.3
    mask[0] = False
    v = r.standard_normal(ROWS)
    table = pa.table({"a": pa.array(v, mask=mask), "i": pa.array(np.arange(ROWS), mask=mask),
                      "void": pa.array([None] * ROWS, pa.float32()), "y": np.arange(ROWS)})
    pq.write_table(table, tmp_path / "t.parquet", **setting)
    got = dataset.read(f"{tmp_path}/t.parquet:x=a+i+void,label=y", allow_nan=True)["x"]
    np.testing.assert_array_equal(got[:, 0], np.where(mask, np.nan, v).astype(np.float32))
    np.testing.assert_array_equal(got[:, 1], np.where(mask, np.nan, np.arange(ROWS)).astype(np.float32))
    assert np.isnan(got[:, 2]).all()
    first = int(np.flatnonzero(mask)[0])
    with pytest.raises(dataset.Refused, match=rf"column 'a'.*row {first}\) is null"):
        dataset.read(f"{tmp_path}/t.parquet:x=a")
    with pytest.raises(dataset.Refused, match=r"column 'i'.* is null"):
        dataset.read(f"{tmp_path}/t.parquet:x=y,label=i", allow_nan=True)


def test_null_elements(tmp_path):
    table = pa.table({"v": pa.array([[1.0, None], [None, 4.0], [5.0, 6.0]], pa.list_(pa.float32()))})
    pq.write_table(table, tmp_path / "t.parquet")
    got = dataset.read(f"{tmp_path}/t.parquet", allow_nan=True)["x"]
    np.testing.assert_array_equal(got, np.float32([[1, np.nan], [np.nan, 4], [5, 6]]))


def test_no_rows(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.float32()), "y": pa.array([], pa.int32())}),
                   tmp_path / "t.parquet")
    assert dataset.read(f"{tmp_path}/t.parquet:label=y") == {}


REFUSED = {
    "text": (dict(s=["a", "b"]), {}, r"column 's' is text \(BYTE_ARRAY\)"),
    "dates": (dict(t=np.array(["2020-01-01", "2021-01-01"], "datetime64[s]")), {}, r"column 't' is a time \(INT64\)"),
    "ragged": (dict(v=[[1, 2], [3]]), {}, r"column 'v': the list in row 1 has 1 values, expected 2"),
    "an empty list": (dict(v=[[1, 2], []]), {}, r"list in row 1 has 0 values, expected 2"),
    "lists in lists": (dict(v=[[[1], [2]], [[3], [4]]]), {}, r"column 'v' holds lists in lists"),
    "delta": (dict(i=[1, 2]), dict(use_dictionary=False, column_encoding={"i": "DELTA_BINARY_PACKED"}),
              r"column 'i'.*DELTA_BINARY_PACKED \(5\)"),
    "split": (dict(f=[1.0, 2.0]), dict(use_dictionary=False, column_encoding={"f": "BYTE_STREAM_SPLIT"}),
              r"column 'f'.*BYTE_STREAM_SPLIT \(9\)"),
    "lz4": (dict(f=[1.0, 2.0]), dict(compression="lz4"), r"column 'f' is packed with LZ4"),
    "brotli": (dict(f=[1.0, 2.0]), dict(compression="brotli"), r"column 'f' is packed with BROTLI"),
    "nan": (dict(f=[1.0, float("nan")]), {}, r"column 'f'.*NaN"),
}


@pytest.mark.parametrize("columns, setting, words", REFUSED.values(), ids=REFUSED.keys())
def test_refused(tmp_path, columns, setting, words):
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", **setting)
    with pytest.raises(dataset.Refused, match=words):
        dataset.read(f"{tmp_path}/t.parquet")


def test_ragged_across_row_groups(tmp_path):
    pq.write_table(pa.table({"v": [[1, 2], [3, 4], [5]]}), tmp_path / "t.parquet", row_group_size=2)
    with pytest.raises(dataset.Refused, match="a list has 1 values, expected 2 as in the first row"):
        dataset.read(f"{tmp_path}/t.parquet")


def test_a_wrong_checksum(tmp_path):
    out = io.BytesIO()
    pq.write_table(pa.table({"f": np.arange(50.0)}), out, write_page_checksum=True, compression="none",
                   use_dictionary=False)
    data = bytearray(out.getvalue())
    data[data.index(struct.pack("<d", 17.0))] ^= 1
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(dataset.Refused, match="column 'f'.*checksum is wrong"):
        dataset.read(f"{tmp_path}/t.parquet")


def test_training(manta, tmp_path):
    """The command line takes it: the line is found."""
    x = np.random.default_rng(12).standard_normal(256).astype(np.float32)
    pq.write_table(pa.table({"x": x, "y": 3 * x - 1}), tmp_path / "t.parquet")
    done = manta("train", "linear", "--data", "t.parquet:label=y", "--epochs", 100, "--learning-rate", 0.1, "--json")
    assert done.event("result")["status"] == "done"
    assert done.event("result")["metrics"]["loss"] < 1e-3


# ---- as a table ----

def people(path, **setting):
    """Texts, dates, times, booleans and nulls among numbers, in several row groups."""
    n = 40
    city = ["Kiel" if i % 3 == 1 else None if i % 8 == 5 else "Bonn" for i in range(n)]
    columns = {
        "age": pa.array([None if i % 10 == 3 else 20 + i for i in range(n)], pa.int16()),
        "rent": pa.array([None if i == 7 else float("nan") if i == 8 else i / 3 for i in range(n)]),
        "city": city,
        "since": pa.array([18262 + i for i in range(n)], pa.int32()).cast(pa.date32()),
        "seen": pa.array([1717156800 * 10 ** 6 if i else None for i in range(n)], pa.int64()).cast(pa.timestamp("us")),
        "member": [i % 2 == 0 for i in range(n)],
        "bought": ["yes" if i % 3 == 1 else "no" for i in range(n)],
    }
    pq.write_table(pa.table(columns), path, **setting)
    return columns


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS.keys())
def test_texts_and_nulls(tmp_path, setting):
    people(tmp_path / "t.parquet", **{**setting, "row_group_size": 16})
    got = dataset.read(f"{tmp_path}/t.parquet:x=age@mean+rent@zero+city@zero+since+seen@nan+member,y=bought")
    x, y = got["x"], got["y"]
    age = [20 + i for i in range(40) if i % 10 != 3]
    assert x.shape == (40, 8) and y.dtype == np.int64
    np.testing.assert_array_equal(x[[0, 3], 0], np.float32([20, np.mean(age)]))
    np.testing.assert_array_equal(x[[6, 7, 8], 1], np.float32([2, 0, 0]))
    np.testing.assert_array_equal(x[:8, 2:5].argmax(1), [0, 1, 0, 0, 1, 2, 0, 1])      # Bonn, Kiel, missing
    np.testing.assert_array_equal(x[:, 5], 18262 + np.arange(40))
    assert np.isnan(x[0, 6]) and x[1, 6] == np.float32(19874.5)
    np.testing.assert_array_equal(x[:, 7], np.arange(40) % 2 == 0)
    np.testing.assert_array_equal(y, np.arange(40) % 3 == 1)
    assert len(dataset.read(f"{tmp_path}/t.parquet:x=age+city,y=bought,missing=drop")["y"]) == 33     # 4 ages, 3 cities


TABLE_REFUSED = {
    "a null": (":x=age,y=bought", r"row 3, column 'age' is missing, expected a value or a rule: missing=drop"),
    "no column": (":x=aage,y=bought", r"no column 'aage'; there are: age, .*did you mean age"),
    "no number": (":x=city@number@drop,y=bought", r"row 0, column 'city' is 'Bonn', expected a number"),
}


@pytest.mark.parametrize("choice, words", TABLE_REFUSED.values(), ids=TABLE_REFUSED.keys())
def test_tables_are_refused_by_row_and_column(tmp_path, choice, words):
    people(tmp_path / "t.parquet", row_group_size=7)
    with pytest.raises(dataset.Refused, match=words):
        dataset.read(f"{tmp_path}/t.parquet{choice}")


def test_lists_are_no_table(tmp_path):
    pq.write_table(pa.table({"v": [[1.0, 2.0], [3.0, 4.0]], "s": ["a", "b"], "y": [0, 1]}), tmp_path / "t.parquet")
    np.testing.assert_array_equal(dataset.read(f"{tmp_path}/t.parquet:x=v,y=y")["x"], [[1, 2], [3, 4]])
    with pytest.raises(dataset.Refused, match=r"column 'v' is a list, expected numbers, dates or categories"):
        dataset.read(f"{tmp_path}/t.parquet:x=v+s,y=y")


def test_inspect_shows_a_table(manta, tmp_path):
    people(tmp_path / "t.parquet", row_group_size=16)
    said = manta("inspect", "t.parquet").stdout
    types = {line.split()[0]: line.split()[1] for line in said.splitlines()[1:8]}
    assert types == {"age": "number", "rent": "number", "city": "category", "since": "date", "seen": "date",
                     "member": "number", "bought": "category"}
    assert "40 rows" in said and "--data t.parquet:x=age+rent+city+since+seen+member,y=bought,missing=mean" in said
    columns = json.loads(manta("inspect", "t.parquet", "--json").stdout)["table"]["columns"]
    assert [c["missing"] for c in columns] == [4, 2, 3, 0, 1, 0, 0]
