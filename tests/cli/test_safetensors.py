"""safetensors files: the official library opens ours, we open theirs, and both
accept and refuse the same files."""
import json
import struct

import numpy
import pytest

safetensors = pytest.importorskip("safetensors")
import safetensors.numpy  # noqa: E402


def write(path, header, data=b"", length=None):
    """A file of a header, given as text, bytes or an object, and data."""
    if not isinstance(header, (str, bytes)):
        header = json.dumps(header)
    if isinstance(header, str):
        header = header.encode()
    path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + data)
    return path


def tensor(dtype="F32", shape=(2,), offsets=(0, 8), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def without(key):
    t = tensor()
    del t[key]
    return t


def nested(depth):
    """An entry with a value of that depth beside what it needs."""
    return '{"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":' + "[" * depth + "]" * depth + "}}"


U = 2**64 - 1
CASES = {
    "empty object": ("{}", 0),
    "white space around": (" \n{}\t ", 0),
    "no header": ("", 0),
    "nul padding": (b"{}\0\0", 0),
    "a list": ("[]", 0),
    "null": ("null", 0),
    "a number": ("3", 0),
    "cut": ("{", 0),
    "two objects": ("{}{}", 0),
    "byte order mark": (b"\xef\xbb\xbf{}", 0),
    "not utf-8": (b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0),
    "surrogate": (b'{"\xed\xa0\x80":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0),
    "escaped lone surrogate": ('{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0),
    "escaped name": ('{"\\u00e9\\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    "control character": ('{"\n":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    "one tensor": ({"w": tensor()}, 8),
    "empty name": ({"": tensor()}, 8),
    "scalar": ({"w": tensor(shape=(), offsets=(0, 4))}, 4),
    "no elements": ({"w": tensor(shape=(0, 5), offsets=(0, 0))}, 0),
    "extra key": ({"w": tensor(extra={"a": [1, 2.5, None]})}, 8),
    "trailing byte": ({"w": tensor()}, 9),
    "missing byte": ({"w": tensor()}, 7),
    "data without tensors": ("{}", 1),
    "end before begin": ({"w": tensor(offsets=(8, 0))}, 8),
    "begins late": ({"w": tensor(offsets=(4, 12))}, 12),
    "too few bytes for the shape": ({"w": tensor(offsets=(0, 4))}, 4),
    "too many bytes for the shape": ({"w": tensor(offsets=(0, 12))}, 12),
    "one offset": ({"w": tensor(offsets=(0,))}, 8),
    "three offsets": ({"w": tensor(offsets=(0, 8, 8))}, 8),
    "negative offset": ({"w": tensor(offsets=(-8, 0))}, 8),
    "real offset": ({"w": tensor(offsets=(0, 8.0))}, 8),
    "negative size": ({"w": tensor(shape=(-2,))}, 8),
    "real size": ({"w": tensor(shape=(2.0,))}, 8),
    "text for a size": ({"w": tensor(shape=("2",))}, 8),
    "null for a shape": ({"w": {"dtype": "F32", "shape": None, "data_offsets": [0, 4]}}, 4),
    "number for a shape": ({"w": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}}, 8),
    "no dtype": ({"w": without("dtype")}, 8),
    "no shape": ({"w": without("shape")}, 8),
    "no offsets": ({"w": without("data_offsets")}, 8),
    "lower case dtype": ({"w": tensor("f32")}, 8),
    "unknown dtype": ({"w": tensor("C128", (1,), (0, 16))}, 16),
    "null dtype": ({"w": tensor(None)}, 8),
    "number for a dtype": ({"w": tensor(32)}, 8),
    "dtype as an object": ({"w": tensor({"F32": None})}, 8),
    "dtype as another object": ({"w": tensor({"F32": 1})}, 8),
    "entry as a list": ({"w": ["F32", [2], [0, 8]]}, 8),
    "entry as a short list": ({"w": ["F32", [2]]}, 8),
    "entry as a long list": ({"w": ["F32", [2], [0, 8], 1]}, 8),
    "entry null": ({"w": None}, 0),
    "entry a number": ({"w": 1}, 0),
    "product overflows": ({"w": tensor("U8", (2**32, 2**32), (0, 0))}, 0),
    "product overflows before a zero": ({"w": tensor("U8", (2**32, 2**32, 0), (0, 0))}, 0),
    "zero before a product that overflows": ({"w": tensor("U8", (0, 2**32, 2**32), (0, 0))}, 0),
    "bits overflow": ({"w": tensor("F64", (2**61,), (0, 0))}, 0),
    "offset of 2^63 - 1": ({"w": tensor("U8", (2**63 - 1,), (0, 2**63 - 1))}, 1),
    "offset of 2^64 - 1": ({"w": tensor("U8", (1,), (U, 0))}, 1),
    "offset of 2^64": ({"w": tensor("U8", (1,), (0, 2**64))}, 1),
    "half a byte": ({"w": tensor("F4", (3,), (0, 2))}, 2),
    "two halves": ({"w": tensor("F4", (2,), (0, 1))}, 1),
    "six bits": ({"w": tensor("F6_E2M3", (4,), (0, 3))}, 3),
    "any order": ({"b": tensor("U8", (2,), (1, 3)), "a": tensor("U8", (1,), (0, 1))}, 3),
    "a gap": ({"b": tensor("U8", (2,), (2, 4)), "a": tensor("U8", (1,), (0, 1))}, 4),
    "an overlap": ({"b": tensor("U8", (2,), (0, 2)), "a": tensor("U8", (2,), (1, 3))}, 3),
    "an alias": ({"b": tensor("U8", (2,), (0, 2)), "a": tensor("U8", (2,), (0, 2))}, 2),
    "empty ones between": ({"b": tensor("U8", (2,), (0, 2)), "a": tensor("F32", (0,), (0, 0)),
                            "c": tensor("F32", (0,), (2, 2))}, 2),
    "an empty one inside": ({"b": tensor("U8", (2,), (0, 2)), "a": tensor("F32", (0,), (1, 1))}, 2),
    "metadata": ({"__metadata__": {"a": "1"}, "w": tensor()}, 8),
    "empty metadata": ({"__metadata__": {}}, 0),
    "metadata null": ({"__metadata__": None}, 0),
    "metadata with a number": ({"__metadata__": {"a": 1}}, 0),
    "metadata with null": ({"__metadata__": {"a": None}}, 0),
    "metadata with an object": ({"__metadata__": {"a": {}}}, 0),
    "metadata a list": ({"__metadata__": []}, 0),
    "metadata a text": ({"__metadata__": "x"}, 0),
    "metadata twice": ('{"__metadata__":{},"__metadata__":{}}', 0),
    "a field twice": ('{"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1),
    "nested 100": (nested(100), 0),
    "nested 125": (nested(125), 0),
    "nested 126": (nested(126), 0),
    "nested 1000": (nested(1000), 0),
    "leading zero": ('{"w":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', 1),
    "size of -0": ('{"w":{"dtype":"U8","shape":[-0],"data_offsets":[0,0]}}', 0),
    "real -0 where nobody looks": ('{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":-0.0}}', 1),
    "exponent": ('{"w":{"dtype":"U8","shape":[1e0],"data_offsets":[0,1]}}', 1),
    "trailing comma": ('{"w":{"dtype":"U8","shape":[1,],"data_offsets":[0,1]}}', 1),
    "NaN": ('{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":NaN}}', 1),
}
for name in ["BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"]:
    CASES["dtype " + name] = ({"w": tensor(name, (3,), (0, 3))}, 3)
for name in ["I16", "U16", "F16", "BF16"]:
    CASES["dtype " + name] = ({"w": tensor(name, (3,), (0, 6))}, 6)
for name in ["I32", "U32", "F32"]:
    CASES["dtype " + name] = ({"w": tensor(name, (3,), (0, 12))}, 12)
for name in ["I64", "U64", "F64", "C64"]:
    CASES["dtype " + name] = ({"w": tensor(name, (3,), (0, 24))}, 24)


OURS = {"BOOL", "U8", "I32", "I64", "F16", "BF16", "F32", "F64"}


def foreign_type(header):
    """The type of a good file that Manta has nothing for: refused by name, where the library goes on."""
    if not isinstance(header, dict):
        return None
    types = [t["dtype"] for t in header.values() if isinstance(t, dict) and "dtype" in t]
    return next((t for t in types if isinstance(t, str) and t not in OURS), None)


def library_accepts(path):
    try:
        with safetensors.safe_open(path, framework="np") as f:
            f.keys()
        return True
    except safetensors.SafetensorError:
        return False


@pytest.mark.parametrize("name", CASES)
def test_same_verdict(manta, tmp_path, name):
    header, size = CASES[name]
    path = write(tmp_path / "x.safetensors", header, bytes(size))
    accepted = library_accepts(path)
    foreign = foreign_type(header) if accepted else None
    done = manta("inspect", path, status=0 if accepted and not foreign else 1)
    if not accepted or foreign:
        assert "x.safetensors" in done.stderr
    if foreign:
        assert foreign in done.stderr and "Manta has not" in done.stderr


@pytest.mark.parametrize("length", [0, 1, 3, 100_000_000, 100_000_001, 2**63, U])
def test_header_length(manta, tmp_path, length):
    path = write(tmp_path / "x.safetensors", "{}", length=length)
    assert not library_accepts(path)
    manta("inspect", path, status=1)


def test_cut_at_every_byte(manta, tmp_path):
    """Every tenth: each is a process."""
    path = tmp_path / "x.safetensors"
    safetensors.numpy.save_file({"a": numpy.arange(3.0), "b": numpy.zeros((2, 2), numpy.int32)}, path)
    whole = path.read_bytes()
    for n in range(0, len(whole), 10):
        path.write_bytes(whole[:n])
        assert not library_accepts(path)
        manta("inspect", path, status=1)


def test_a_key_twice_is_refused(manta, tmp_path):
    """Where the library takes the last one, silently."""
    entry = json.dumps(tensor("U8", (1,), (0, 1)))
    path = write(tmp_path / "x.safetensors", '{"w":%s,"w":%s}' % (entry, entry), b"\0")
    assert "w" in manta("inspect", path, status=1).stderr


def test_theirs_to_ours_and_back(manta, tmp_path):
    """A file of the library's through our reader and writer is the same to the library."""
    rng = numpy.random.default_rng(3)
    arrays = {
        "f32": rng.standard_normal((3, 4), numpy.float32),
        "f64": rng.standard_normal((5,)),
        "f16": rng.standard_normal((2, 3)).astype(numpy.float16),
        "i32": numpy.arange(6, dtype=numpy.int32).reshape(1, 2, 3),
        "i64": numpy.array(-(2**62)),
        "u8": numpy.arange(7, dtype=numpy.uint8),
        "flags": numpy.array([True, False, True]),
        "none": numpy.zeros((0, 3), numpy.float32),
        "d/e.f g\u00e9": numpy.ones((1,), numpy.float32),
    }
    safetensors.numpy.save_file(arrays, tmp_path / "theirs.safetensors", metadata={"step": "3", "\u00e9": "\n"})
    manta("convert", "theirs.safetensors", "ours.safetensors")
    with safetensors.safe_open(tmp_path / "ours.safetensors", framework="np") as f:
        assert set(f.keys()) == set(arrays)
        for name, a in arrays.items():
            got = f.get_tensor(name)
            assert got.dtype == a.dtype and got.shape == a.shape
            assert numpy.array_equal(got, a)
        assert numpy.array_equal(f.get_slice("f32")[1:, 2:], arrays["f32"][1:, 2:])
        for key, text in {"step": "3", "\u00e9": "\n"}.items():
            assert f.metadata()[key] == text


def test_trained_state(manta, tmp_path):
    """What training saves, the library opens: every variable and the optimizer's state."""
    manta("train", "mlp", "--data", "mnist", "--steps-per-epoch", "2", "--epochs", "1", "--optimizer", "adam",
          "--save", "m.safetensors")
    arrays = safetensors.numpy.load_file(tmp_path / "m.safetensors")
    assert arrays["dense/kernel"].shape == (784, 128)
    assert arrays["optimizer/iterations"] == 2
