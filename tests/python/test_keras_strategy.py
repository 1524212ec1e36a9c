"""manta.keras_strategy() without Keras: which rows are whose, what ranks say to each other, what is refused. With Keras it is
tests/peers that tries it."""
import subprocess
import sys
import types

import pytest

np = pytest.importorskip("numpy")


@pytest.mark.parametrize("n", [2, 3, 5, 16, 17, 31, 32, 33, 97])
@pytest.mark.parametrize("batch", [2, 3, 16, 40])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_have_the_batches_of_one_process(n, batch, size):
    """Cut into batches of its own size, the rows of each rank are its part of each batch of all."""
    from manta._strategy._share import part_of, rows_of
    parts = [rows_of(n, batch, rank, size) for rank in range(size)]
    if min(n, batch) < size:
        assert parts == [None] * size
        return
    assert sorted(np.concatenate(parts).tolist()) == list(range(n))
    for k in range(0, n, batch):
        got = []
        for rank, rows in enumerate(parts):
            own = part_of(batch, rank, size)[1]
            got += rows[k // batch * own:(k // batch + 1) * own].tolist()
        assert got == list(range(k, min(k + batch, n)))


def test_what_is_no_array_is_left_to_keras():
    """Labels in a list of Python's, or numbers of different lengths: Keras says what is wrong with them."""
    from manta._strategy._share import divide_arrays
    tree = types.SimpleNamespace(flatten=lambda data: [leaf for part in data for leaf in (part if isinstance(part, list) else [part])])
    x = np.zeros((8, 2))
    for y in ([0, 1] * 4, np.zeros(7), np.float32(1)):
        assert divide_arrays(tree, (x, y, None), 4, 0, 2) == ((x, y, None), 4)


def of_keras(monkeypatch, backend, version="3.15.1"):
    """A keras that has a version and a backend, and nothing else."""
    keras = types.ModuleType("keras")
    keras.__version__ = version
    keras.backend = types.SimpleNamespace(backend=lambda: backend)
    keras.Model = type("Model", (), {})
    monkeypatch.setitem(sys.modules, "keras", keras)


@pytest.mark.parametrize("backend, version, error, words", [
    ("jax", "3.15.1", NotImplementedError, "KERAS_BACKEND to tensorflow or torch"),
    ("tensorflow", "2.15.0", RuntimeError, "Keras 3"),
    ("torch", "3.99.0", RuntimeError, "_get_metrics_result_or_logs")])
def test_what_it_cannot_serve_is_refused(monkeypatch, backend, version, error, words):
    import manta
    of_keras(monkeypatch, backend, version)
    with pytest.raises(error, match=words):
        manta.keras_strategy()


RANK = """
import sys
import numpy as np
from manta._strategy import _group
rank, address = int(sys.argv[1]), sys.argv[2]
group = _group.Group(rank, 2, address)
table = group.exchange(_group.STEP if rank else _group.JOIN, rank + 5)
assert table.tolist() == [[_group.JOIN, 5, 0, 0, 0], [_group.STEP, 6, 0, 0, 0]], table
row = np.array([1.5, 2.0], np.float32) * (rank + 1)
group.add_up(row.ctypes.data, 2, "float32")
assert row.tolist() == [4.5, 6.0]
data = np.frombuffer(b"one" if rank == 0 else b"two", np.uint8).copy()
group.broadcast(data, 1)
assert bytes(data) == b"two"
for doing in ((_group.STEP, _group.METRICS), (_group.EPOCH, _group.JOIN)):
    try:
        group.exchange(doing[rank])
    except RuntimeError as e:
        print(e)
if rank == 1:
    group.close()
else:
    try:
        group.exchange(_group.STEP)
    except RuntimeError as e:
        print(e)
"""


@pytest.mark.sanitized
def test_ranks_hear_what_the_others_do(short_path):
    """A step goes with the end of an epoch and with nothing else; a rank that has left is named."""
    address = f"unix:{short_path}/s"
    ranks = [subprocess.Popen([sys.executable, "-c", RANK, str(k), address], stdout=subprocess.PIPE, text=True) for k in (0, 1)]
    said = [rank.communicate(timeout=240)[0].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    assert "rank 0 is in a step; rank 1 puts its metrics together" in said[0][0] and said[0][:2] == said[1]
    assert "rank 1 has left the group" in said[0][2]


def test_a_process_of_no_launcher_is_refused(monkeypatch):
    from manta._strategy import _group
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.delenv("MANTA_RANKS", raising=False)
    with pytest.raises(RuntimeError, match="python -m manta launch"):
        _group.current_group()
    monkeypatch.setenv("RANK", "one")
    with pytest.raises(RuntimeError, match="expected numbers"):
        _group.current_group()
