"""Archives that the webdataset package writes are read with equal values."""
import numpy as np
import pytest

import dataset

wds = pytest.importorskip("webdataset", reason="webdataset is in requirements.txt")

SAMPLES = 23


def samples():
    r = np.random.default_rng(3)
    for i in range(SAMPLES):
        yield {"__key__": f"part/{i:06d}", "x.npy": r.standard_normal((2, 3)).astype(np.float32),
               "cls": int(r.integers(0, 10)), "note.txt": f"sample {i}", "json": {"number": i}}


def expected():
    all_ = list(samples())
    return np.stack([s["x.npy"] for s in all_]), np.array([s["cls"] for s in all_])


@pytest.mark.parametrize("name", ["plain.tar", "packed.tar.gz"])
def test_one_archive(name, tmp_path):
    with wds.TarWriter(str(tmp_path / name)) as out:
        for s in samples():
            out.write(s)
    got, (x, y) = dataset.read(f"{tmp_path / name}:x.npy,cls"), expected()
    assert np.array_equal(got["x"], x) and np.array_equal(got["y"], y)


def test_shards(tmp_path):
    with wds.ShardWriter(str(tmp_path / "shard-%06d.tar"), maxcount=10, verbose=0) as out:
        for s in samples():
            out.write(s)
    x, y = expected()
    for names in ("shard-{000000..000002}.tar", "shard-*.tar"):
        got = dataset.read(f"{tmp_path / names}:x.npy,cls")
        assert np.array_equal(got["x"], x) and np.array_equal(got["y"], y)


def test_what_it_says_of_itself(manta, tmp_path):
    with wds.TarWriter(str(tmp_path / "f.tar")) as out:
        for s in samples():
            out.write(s)
    said = manta("inspect", "f.tar").stdout
    assert f"{SAMPLES} samples" in said and "note.txt" in said and "x.npy" in said
