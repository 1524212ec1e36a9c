"""Writes the first inputs of each corpus; what fuzzing finds is added beside them."""
import gzip
import os
import struct
import zlib

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def put(target, name, data):
    folder = os.path.join(here, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as f:
        f.write(data)


def idx(kind, shape, payload):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + payload


images = idx(8, (2, 3, 4), bytes(range(24)))
put("idx", "u8", images)
put("idx", "u8-gzip", gzip.compress(images, mtime=0))
put("idx", "u8-gzip-two-members", gzip.compress(images[:20], mtime=0) + gzip.compress(images[20:], mtime=0))
put("idx", "u8-gzip-cut", gzip.compress(images, mtime=0)[:-9])
put("idx", "i8", idx(9, (3,), b"\x80\xff\x7f"))
put("idx", "i16", idx(11, (2,), struct.pack(">2h", -2, 300)))
put("idx", "i32", idx(12, (2,), struct.pack(">2i", -2, 300)))
put("idx", "f32", idx(13, (2, 1), struct.pack(">2f", 1.5, -2)))
put("idx", "f64", idx(14, (2,), struct.pack(">2d", 1.5, float("nan"))))
put("idx", "overflow", idx(14, (0xFFFFFFFF,) * 8, b""))


def npy(descr, shape, payload, fortran=False, version=1):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, fortran, shape)
    head = 10 if version == 1 else 12
    text += " " * (-(head + len(text) + 1) % 64) + "\n"
    return (b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text))
            + text.encode() + payload)


f4 = npy("<f4", (2, 3), struct.pack("<6f", *range(6)))
put("npy", "f4", f4)
put("npy", "f8-big-fortran", npy(">f8", (2, 3), struct.pack(">6d", *range(6)), True, 2))
put("npy", "i1", npy("|i1", (4,), b"\x80\x01\x02\xff"))
put("npy", "u8", npy("<u8", (1,), b"\xff" * 8, False, 3))
put("npy", "bool", npy("|b1", (2,), b"\0\1"))
put("npy", "scalar", npy("<i8", (), b"\1" + b"\0" * 7))


def npz(members, method):
    out, directory = b"", b""
    for name, data in members:
        packed = data
        if method == 8:
            c = zlib.compressobj(9, zlib.DEFLATED, -15)
            packed = c.compress(data) + c.flush()
        common = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 33, zlib.crc32(data), len(packed), len(data),
                             len(name), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + name
        out += b"PK\3\4" + common + name + packed
    end = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(out), 0)
    return out + directory + b"PK\5\6" + end


put("npz", "stored", npz([(b"x.npy", f4), (b"y.npy", f4)], 0))
put("npz", "deflated", npz([(b"x.npy", f4)], 8))
put("npz", "empty", npz([], 0))

put("csv", "header", b"\2a,y\n1,2\n3.5,1e3\n")
put("csv", "quoted", b'\1"1","2 "\r\n" 3","4"\r\n')
put("csv", "ragged", b"\0" + b"1,2\n3\n")
put("csv", "quote-open", b'\0"a\n1,2')
put("csv", "nan", b"\0nan,1\n")
put("csv", "digits", b"\2a,y\n0.12345678901234567,1\n-1.5e-3,2\n16777217,3\n.5,4\n123456789.123,5\r\n\r\n-0,6\n")
put("csv", "wide", b"\0" + b"\n".join(b",".join(b"%d.%d" % (i * 37 % 101, i * j % 97) for j in range(9)) for i in range(20)))
put("csv", "carriage", b"\0" + b"1,2\r3,4\r\n5,6\n")
put("csv", "bom", b"\0\xef\xbb\xbfa,b\n\n1,2\n\n")
put("table", "people", b"\2\0age,city,since,y\n20,Bonn,2024-01-31,no\n31,\"Ki\"\"el\",2023-02-28T12:30:15.5+02:00,yes\n")
put("table", "missing", b"\x0a\0a;b;y\r\n1;NA;0\r\n;x;1\r\n3;?;1\r\n")
put("table", "quoted", b"\3\x0b\xef\xbb\xbf\"a\n,\",\"b\"\n\n1,\"x\r\ny\"\n2,\"\"\n")
put("table", "names-twice", b"\2\0gieact,y,since,y\n20,Bonn,2024-01-31,no\n31,\"Ki\"\"el\",2023-02-28T12:70:15.5+02:00,yes\n")
put("table", "turns", b"\1\x14y\ta\r1\t2\r2\t01.02.2003\rx\t4\r")
put("table", "mapping", b"\x80" + b'{"manta_table": 1, "x": [{"name": "a", "type": "number", "missing": "mean", "mean": 2.5, '
    b'"whole": false}, {"name": "c", "type": "category", "missing": "zero", "encoding": "onehot", "frequent": 1, '
    b'"categories": ["u", "v"]}], "y": null}')


def png(width, height, kind, depth, rows, extra=b""):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


put("picture", "png-grey", b"\0" + png(3, 2, 0, 8, b"\0\1\2\3\0\4\5\6"))
put("picture", "png-colour", b"\1" + png(1, 2, 2, 8, b"\0\1\2\3\0\4\5\6"))
put("picture", "png-alpha", b"\2" + png(1, 1, 6, 8, b"\0\1\2\3\x80"))
put("picture", "png-16-bit", b"\0" + png(2, 1, 0, 16, b"\0\1\2\3\4"))
put("picture", "png-huge", b"\0" + png(0x7FFFFFFF, 0x7FFFFFFF, 0, 8, b"\0"))
# corpus/picture/jpeg* were made with libjpeg: 8 x 8 grey, 16 x 16 colour, the same progressive, and a cut one.

for i, text in enumerate(["mnist", "fashion-mnist:test", "mnist:nothing", "x.npy,y.npy", "f.npz:x,y", "f.npz", "f.npz:",
                          "a.csv:label=price", "a.csv:", "images,labels", "a,b,c", ",", "d.npz.csv:label=0", "./folder",
                          "f.parquet:label=y", "f.parquet:x=a+b,label=c", "f.parquet:x=,", "s-{0..3}.tar:jpg,cls",
                          "s.tar.gz", "a.tgz:x.npy",
                          "a.tsv:x=a+b\\,c@mean,y=d,missing=drop,header=no"]):
    put("spec", "%02d" % i, text.encode())
