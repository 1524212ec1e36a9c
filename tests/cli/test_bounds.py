"""What small files unpack to is bounded, and it is said when a bound is reached."""
import gzip
import io
import json
import resource
import struct
import zipfile

import numpy as np
import pytest

MIB = 1 << 20


def promise(path, member, size):
    """Makes the archive's directory say that the member has so many bytes."""
    data = bytearray(path.read_bytes())
    for signature, offset, name in ((b"PK\1\2", 24, 46), (b"PK\3\4", 22, 30)):
        at = data.find(signature)
        while data[at + name:at + name + len(member)] != member.encode():
            at = data.find(signature, at + 1)
        data[at + offset:at + offset + 4] = struct.pack("<I", size)
    path.write_bytes(data)


def archive(path, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in members.items():
            z.writestr(name.replace("__", "."), data)
    return path


def said(done):
    line, = done.stderr.splitlines()
    return line


def test_a_configuration_of_spaces(manta, tmp_path):
    """1.5 GB of them, promised by 1.5 MB that are never unpacked."""
    f = archive(tmp_path / "m.keras", metadata__json="{}", config__json=np.random.default_rng(0).bytes(1500000))
    promise(f, "config.json", 1500000000)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    for command in (["inspect", "m.keras"], ["train", "m.keras", "--data", "mnist"], ["evaluate", "m.keras", "--data", "mnist"]):
        text = said(manta(*command, status=1))
        assert "m.keras" in text and "become at least 15000000" in text and "expected at most" in text
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < max(before, 1024 * 1024)


def test_a_text_within_the_ratio_is_bounded_too(manta, tmp_path):
    """Stored members cost their bytes in the file, and are too long for a configuration all the same."""
    f = archive(tmp_path / "m.keras", metadata__json="{}", config__json=np.random.default_rng(0).bytes(1500000))
    promise(f, "config.json", 70 * MIB)
    assert f"m.keras: config.json has {70 * MIB} bytes, expected at most {64 * MIB}" in said(manta("inspect", "m.keras", status=1))


def test_npz(manta, tmp_path):
    np.savez_compressed(tmp_path / "f.npz", x=np.zeros(MIB, np.float32))
    assert "4.19 MB" in manta("inspect", "f.npz").stdout
    text = said(manta("inspect", "f.npz", status=1, env={"MANTA_UNPACK_MAX": "1M"}))
    assert "f.npz" in text and "MANTA_UNPACK_MAX, which is 1048576" in text
    assert "4.19 MB" in manta("inspect", "f.npz", env={"MANTA_UNPACK_MAX": "8M"}).stdout


def test_many_members_are_one_file(manta, tmp_path):
    """Each of a hundred arrays is small enough, all of them are not."""
    np.savez_compressed(tmp_path / "f.npz", **{f"x{i}": np.zeros(MIB // 4, np.float32) for i in range(100)})
    assert "expected at most MANTA_UNPACK_MAX" in said(manta("inspect", "f.npz", status=1, env={"MANTA_UNPACK_MAX": "50M"}))
    manta("inspect", "f.npz", env={"MANTA_UNPACK_MAX": "110M"})


@pytest.mark.parametrize("name", ["f.tar.gz", "f.tfrecord", "x-idx3-ubyte.gz"])
def test_gzip(manta, tmp_path, name):
    head = b"\0\0\x08\x03" + struct.pack(">3I", 2, 1024, 1024) if "idx" in name else b""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb") as f:
        f.write(head + bytes(2 * MIB))
    (tmp_path / name).write_bytes(packed.getvalue())
    done = manta("inspect", name, status=1, env={"MANTA_UNPACK_MAX": "1M"})
    assert name in said(done) and "MANTA_UNPACK_MAX" in said(done)
