"""Writes the first inputs of corpus/parquet and corpus/webdataset; needs pyarrow and numpy, unlike seeds.py."""
import io
import os
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.join(here, "corpus")
golden = os.path.join(here, "..", "golden", "files")


def put(target, name, data):
    os.makedirs(f"{root}/{target}", exist_ok=True)
    with open(f"{root}/{target}/{name}", "wb") as f:
        f.write(data)


def get(path):
    with open(path, "rb") as f:
        return f.read()


def parquet(name, first, table, **options):
    out = io.BytesIO()
    pq.write_table(table, out, store_schema=False, write_statistics=False, **options)
    put("parquet", name, bytes([first]) + out.getvalue())


def tar(name, first, members, form, mode="w"):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=form) as t:
        for path, data in members:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    data = out.getvalue()
    while mode == "w" and len(data) > 1536 and data[-1536:] == bytes(1536):
        data = data[:-512]
    put("webdataset", name, bytes([first]) + data)


for f in ("t", "plain"):
    put("parquet", f"pyarrow-{f}", bytes([1 + 8]) + get(f"{golden}/{f}.parquet"))
lists = pa.table({"v": pa.array([[1.5, 2], [3, None]], pa.list_(pa.float32())), "y": [1, 2]})
parquet("list-null", 6 + 8, lists)
parquet("list-v2", 6 + 8, lists, data_page_version="2.0", compression="zstd")
numbers = pa.table({"a": np.arange(5.), "b": [True, False, True, True, False], "c": np.arange(5, dtype=np.uint16),
                    "y": [0, 1, 2, 1, 0]})
parquet("numbers-gzip", 7, numbers, compression="gzip")
parquet("numbers-groups", 7, numbers, row_group_size=2, compression="none", write_page_checksum=True)
parquet("numbers-v2-plain", 7, numbers, data_page_version="2.0", use_dictionary=False, compression="none")
parquet("delta", 7, numbers, use_dictionary=False, column_encoding={"c": "DELTA_BINARY_PACKED"})
parquet("empty", 7, numbers.slice(0, 0))
parquet("binary", 4 + 16, pa.table({"v": pa.array([b"ab", b"cd", b"ab"])}))
parquet("fixed", 4, pa.table({"v": pa.array([b"ab", b"cd"], pa.binary(2))}))
png = get(f"{root}/picture/png-grey")[1:]
image = pa.array([{"bytes": png}] * 2, pa.struct([("bytes", pa.binary())]))
parquet("image", 5, pa.table({"image": image, "label": [0, 1]}))

npy = get(f"{root}/npy/f4")
ustar, gnu, pax = tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT
tar("txt-cls", 1 + 8, [("a.txt", b"1.5"), ("a.cls", b"3"), ("b.txt", b"2"), ("b.cls", b"4")], ustar)
tar("npy", 2, [("d/a.npy", npy), ("d/b.npy", npy)], ustar)
tar("png", 4, [("a.png", png), ("b.png", png)], ustar)
tar("json", 5 + 16, [("a.json", b'{"a":1,"label":2}')], ustar)
tar("long-gnu", 7, [("n" * 120 + "/a.cls", b"1")], gnu)
tar("long-pax", 7, [("n" * 120 + "/\u00e4.cls", b"1")], pax)
tar("gzip", 7, [("a.cls", b"1")], ustar, "w:gz")
put("webdataset", "fixture", bytes([6 + 8]) + get(f"{golden}/shard-000000.tar")[:6144] + bytes(1024))
