"""TFRecord files and their Examples, written by hand in plain Python, so that
no library stands between a test and the bytes.

    write(path, [example(label=[3], image=b"...", x=[0.5, 1.5])])
"""
import gzip
import struct
import zlib


def _table():
    rows = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        rows.append(n)
    return rows


TABLE = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


PACKINGS = {"plain": lambda b: b, "gzip": gzip.compress, "zlib": zlib.compress}


def write(path, datas, packing="plain"):
    path.write_bytes(PACKINGS[packing](b"".join(record(d) for d in datas)))
    return path


# ---- protocol buffers ----

def varint(n):
    n &= 2**64 - 1
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, data):
    """A field of bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def feature(value):
    """bytes, a list of floats or a list of integers."""
    if isinstance(value, bytes):
        return field(1, field(1, value))
    if isinstance(value[0], float):
        return field(2, field(1, struct.pack(f"<{len(value)}f", *value)))
    return field(3, field(1, b"".join(varint(v) for v in value)))


def example(**features):
    entries = (field(1, field(1, name.encode()) + field(2, feature(value))) for name, value in features.items())
    return field(1, b"".join(entries))


def event(step=None, **scalars):
    """A record of an event file: its first, or the scalars of a step."""
    head = b"\x09" + struct.pack("<d", 1.7e9)
    if step is None:
        return head + field(3, b"brain.Event:2")
    values = (field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", v)) for tag, v in scalars.items())
    return head + b"\x10" + varint(step) + field(5, b"".join(values))


# A sum that everybody knows, so that a mistake here is not blamed on the program.
assert crc32c(b"123456789") == 0xE3069283
