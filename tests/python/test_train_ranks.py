"""What manta.train has of the library below it: folders of runs, and groups of ranks."""
import os
import threading

import pytest

from manta import _manta

pytestmark = pytest.mark.sanitized

numpy = pytest.importorskip("numpy")
BARRIER, ALL_REDUCE, BROADCAST, SEND, RECEIVE = 0, 1, 2, 7, 8


def together(n, do, folder):
    """Runs do(rank, group) in n threads that are one group; what each returned, or raised."""
    out = [None] * n

    def one(rank):
        try:
            group = _manta.Ranks(f"unix:{folder}/s", rank, n, 240_000, 240_000)
            out[rank] = do(rank, group)
            group.close()
        except Exception as e:  # noqa: BLE001  the test looks at it
            out[rank] = e
    threads = [threading.Thread(target=one, args=(r,)) for r in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return out


def test_collectives_of_addresses(short_path):
    def do(rank, group):
        a = numpy.full(1000, rank + 1, numpy.float32)
        at = a.ctypes.data
        group.run(ALL_REDUCE, at, at, a.size, 0, 0, 0)
        b = numpy.full(3, rank, numpy.int64)
        group.run(BROADCAST, b.ctypes.data, b.ctypes.data, b.size, 5, 0, 1)
        group.run(BARRIER, 0, 0, 0, 0, 0, 0)
        return a.tolist() == [3.0] * 1000 and b.tolist() == [1] * 3
    assert together(2, do, short_path) == [True, True]


def test_messages_that_cross(short_path):
    """Both receive before they send, and neither waits for ever."""
    def do(rank, group):
        mine, other = numpy.full(1 << 18, rank, numpy.float32), numpy.empty(1 << 18, numpy.float32)
        works = [group.start(RECEIVE, 0, other.ctypes.data, other.size, 0, 0, 1 - rank),
                 group.start(SEND, mine.ctypes.data, 0, mine.size, 0, 0, 1 - rank)]
        while not all(group.test(w) for w in works):
            pass
        for w in works:
            group.wait(w)
        return float(other[0])
    assert together(2, do, short_path) == [1.0, 0.0]


def test_a_rank_that_leaves_is_named(short_path):
    def do(rank, group):
        group.run(BARRIER, 0, 0, 0, 0, 0, 0)        # both are in it
        if rank == 1:
            return "left"
        a = numpy.ones(1, numpy.float32)
        group.run(ALL_REDUCE, a.ctypes.data, a.ctypes.data, 1, 0, 0, 0)
    stayed, left = together(2, do, short_path)
    assert left == "left" and isinstance(stayed, RuntimeError) and "rank 1" in str(stayed)


def test_a_group_refuses_what_it_cannot(short_path):
    def do(rank, group):
        for arguments in ((99, 0, 0, 1, 0, 0, 0), (ALL_REDUCE, 0, 0, -1, 0, 0, 0), (ALL_REDUCE, 0, 0, 1, 99, 0, 0),
                          (ALL_REDUCE, 0, 0, 1, 0, 99, 0), (ALL_REDUCE, 0, 0, 1, 0, 0, 0)):
            with pytest.raises(ValueError):
                group.run(*arguments)
        with pytest.raises(ValueError):
            group.wait(0)
        group.close()
        group.close()
        with pytest.raises(ValueError, match="closed"):
            group.run(BARRIER, 0, 0, 0, 0, 0, 0)
        return True
    assert together(1, do, short_path) == [True]
    with pytest.raises(ValueError):
        _manta.Ranks("nowhere", 0, 1, 1000, 1000)


def test_a_fork_has_no_part_in_a_group(short_path):
    def do(rank, group):
        pid = os.fork()
        if not pid:
            try:
                group.run(BARRIER, 0, 0, 0, 0, 0, 0)
            except ValueError:
                del group
                os._exit(7)
            os._exit(1)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert together(1, do, short_path) == [7]


def test_a_run_is_written_and_closed(tmp_path):
    run = _manta.Run(None, str(tmp_path), "a", None, False, '{"x": 1}', 0, None, None)
    assert run.name == "a" and run.path == str(tmp_path / "a") and run.start is None
    run.report(1, 1, 0, [("loss", 0.5), ("n" * 100, 1.0)])
    run.report(2, 2, 0, [(f"m{i}", float(i)) for i in range(100)])          # more than there are places for
    (tmp_path / "part" / "inner").mkdir(parents=True)
    (tmp_path / "part" / "inner" / "file").write_text("x")
    path = run.checkpoint(str(tmp_path / "part"), 2, [("loss", 0.5)], "2")
    assert os.listdir(os.path.join(path, "inner")) == ["file"] and not (tmp_path / "part").exists()
    with pytest.raises(TypeError):
        run.report(3, 3, 0, {"loss": 1})
    with pytest.raises((ValueError, FileNotFoundError)):
        run.checkpoint(str(tmp_path / "none"), 3, None, "3")
    (tmp_path / "odd").mkdir()
    os.close(os.open(os.fsencode(tmp_path / "odd") + b"/\xff", os.O_CREAT | os.O_WRONLY, 0o600))
    with pytest.raises(ValueError, match="names are UTF-8"):                # in a sentence that has the name
        run.checkpoint(str(tmp_path / "odd"), 3, None, "3")
    with pytest.raises(RuntimeError, match="run"):
        _manta.Run(None, str(tmp_path), "a", None, True, None, 0, None, None)       # it is running now
    run.log(0, "a line")
    run.finish("done", None, None)
    run.close()
    run.close()
    with pytest.raises(ValueError, match="closed"):
        run.report(1, 1, 0, None)
    with pytest.raises(FileExistsError):
        _manta.Run(None, str(tmp_path), "a", None, False, None, 0, None, None)
    assert '"x": 1' in _manta.run_config(str(tmp_path / "a"))
    again = _manta.Run(None, str(tmp_path), "a", None, True, None, 0, None, None)
    assert again.start == path
    again.close()
