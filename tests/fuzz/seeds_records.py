"""Writes the first inputs of the corpora of tfrecord, events, bundle and onnx; what fuzzing finds is added beside them."""
import gzip
import os
import pathlib
import struct
import zlib

here = pathlib.Path(__file__).resolve().parent
golden = here.parent / "golden" / "files"


def put(target, name, data):
    folder = here / "corpus" / target
    os.makedirs(folder, exist_ok=True)
    (folder / name).write_bytes(data)


def varint(v):
    out = b""
    while v >= 0x80:
        out += bytes([v & 0x7F | 0x80])
        v >>= 7
    return out + bytes([v])


def number(field, v):
    return varint(field << 3) + varint(v)


def text(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def records(data):
    """The contents of framed records; the frames are believed, these are our own files."""
    while data:
        n, = struct.unpack("<Q", data[:8])
        yield data[12:12 + n]
        data = data[16 + n:]


plain = (golden / "t.tfrecord").read_bytes()
put("tfrecord", "plain", b"\0" + plain)
put("tfrecord", "gzip", b"\0" + gzip.compress(plain, mtime=0))
put("tfrecord", "gzip-two-members", b"\0" + gzip.compress(plain[:70], mtime=0) + gzip.compress(plain[70:], mtime=0))
put("tfrecord", "zlib", b"\0" + zlib.compress(plain))
put("tfrecord", "zlib-cut", b"\0" + zlib.compress(plain)[:-5])
put("tfrecord", "cut", b"\0" + plain[:-3])
put("tfrecord", "example", b"\1" + next(records(plain)))
unpacked = text(1, text(1, text(1, "k") + text(2, text(3, number(1, 5) + number(1, 300)))))
put("tfrecord", "example-unpacked", b"\1" + unpacked)

for i, path in enumerate(sorted((golden / "tensorboard").rglob("events*"))):
    data = path.read_bytes()
    put("events", "file-%d" % i, b"\0" + data)
    bare = b"".join(bytes([len(r)]) + r for r in records(data) if len(r) < 256)
    put("events", "bare-%d" % i, b"\1" + bare)
start = number(2, 3) + text(7, number(1, 1))
put("events", "restart", b"\1" + bytes([len(start)]) + start)

for name in ("ckpt-1", "small", "many", "names", "multi"):
    put("bundle", name, b"\0" + (golden / "tf_checkpoint" / (name + ".index")).read_bytes())
variable = text(2, text(1, "VARIABLE_VALUE") + text(2, "a/b") + text(3, "a/b/.ATTRIBUTES/VARIABLE_VALUE"))
put("bundle", "graph", b"\1" + text(1, text(1, number(1, 1) + text(2, "a"))) + text(1, variable))
entry = number(1, 1) + text(2, text(2, number(1, 2))) + number(5, 8) + b"\x35\1\2\3\4"
put("bundle", "entries", b"\2" + b"".join(bytes([1, len(entry)]) + key + entry for key in (b"a", b"b", b"c")))

shape = text(2, text(1, text(2, "batch")) + text(1, number(1, 4)))
value = text(2, text(1, number(1, 1) + shape))
graph = (text(1, text(1, "x") + text(2, "y") + text(4, "Relu")) + text(2, "g")
         + text(5, number(1, 2) + number(2, 1) + text(8, "w") + text(9, bytes(8)))
         + text(11, text(1, "x") + value) + text(12, text(1, "y") + value))
model = number(1, 8) + text(2, "manta") + text(8, number(2, 17)) + text(7, graph)
put("onnx", "small", model)
put("onnx", "cut", model[:-4])
