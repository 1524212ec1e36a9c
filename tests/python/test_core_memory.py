"""Calls and objects leave nothing behind: memory of driver, daemon and workers before and after."""
import gc
import sys

import numpy as np
import pytest

import manta
from conftest import until


ROUNDS = 3      # what is left behind grows in each; a heap that was fuller once, as calls stood in line, does not


def rss(pid):
    """Memory of no file in KiB; None of a process that has ended. Whether a page is private would say who else lives: when a
    sibling ends that a page was shared with, it becomes so without anybody having asked for memory."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            return next((int(line.split()[1]) for line in f if line.startswith("Anonymous:")), None)
    except (FileNotFoundError, ProcessLookupError):
        return None


def memory():
    """Of each process that is there: idle workers come and go."""
    info = manta.node_info()
    pids = {"driver": "self", "daemon": info["daemon_pid"], **{f"worker {p}": p for p in info["worker_pids"]}}
    return {who: kib for who, pid in pids.items() if (kib := rss(pid)) is not None}


@manta.remote
def f(x):
    return x


@manta.remote
class A:
    def f(self, x):
        return x


def churn(n, actor):
    for _ in range(n // 10):
        refs = [f.remote(i) for i in range(4)] + [actor.f.remote([i]) for i in range(4)]
        manta.get(refs)
        manta.get(manta.put({"a": (1, "x")}))
        try:
            manta.get(f.remote())
        except TypeError:
            pass


def check(n):
    manta.init(num_cpus=1)
    try:
        actor = A.remote()
        churn(max(n // 5, 10000), actor)
        after = memory()
        for _ in range(ROUNDS):
            before = after
            churn(n, actor)
            gc.collect()
            after = memory()
            print(f"{n} calls, KiB before and after: {before}, {after}")     # -s shows it
            both = before.keys() & after.keys()
            assert len(both) >= 3, (before, after)      # driver, daemon and the actor
            grown = {who: (before[who], after[who]) for who in both if after[who] - before[who] >= 1500 + n // 200}
            if not grown:
                break
        assert not grown
    finally:
        manta.shutdown()


def test_100_000_calls():
    check(100_000)


@pytest.mark.long
def test_a_million_calls():
    check(1_000_000)


def test_objects_are_given_back(node):
    array = np.zeros(1 << 17)
    for i in range(200):
        ref = node.put(array)
        view = node.get(ref)
        del ref, view
    until(lambda: node.node_info()["store_used"] < 64 << 20, "the store's memory")
    kept = [node.put(array) for _ in range(10)]
    used = node.node_info()["store_used"]
    assert used >= 10 << 20
    del kept


def test_references_of_python_are_counted_exactly(node):
    before = sys.getrefcount(None)
    value = ("some", ["value", {"with": 1.5}], b"bytes" * 10)
    count = sys.getrefcount(value)
    for _ in range(2000):
        node.get(node.put(value))
        node.get(f.remote(value))
    gc.collect()
    assert sys.getrefcount(value) == count
    assert abs(sys.getrefcount(None) - before) < 500
