"""Forks by the program, in the driver and in workers: the child has no part in the node."""
import os

import pytest

import manta
from conftest import until

pytestmark = pytest.mark.usefixtures("module_node")

FORK = """
import os, sys, manta
def child(f):
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(f() or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
def inert(refs, actor):
    for f in (lambda: manta.get(refs[0]), lambda: manta.put(1), lambda: manta.wait(refs), lambda: actor.f.remote(),
              lambda: manta.init(num_cpus=1)):
        try:
            f()
            return 1
        except Exception as e:
            pass
    refs.clear()
    del actor
    import gc
    gc.collect()
    manta.shutdown()
    return 0
"""


@manta.remote
class A:
    def f(self):
        return 1


def load():
    space = {}
    exec(FORK, space)
    return space["child"], space["inert"]


def test_a_child_of_the_driver_is_inert():
    child, inert = load()
    refs, a = [manta.put([1]) for _ in range(100)], A.remote()
    assert manta.get(a.f.remote()) == 1
    for _ in range(5):
        assert child(lambda: inert(list(refs), a)) == 0
        assert manta.get(refs) == [[1]] * 100 and manta.get(a.f.remote()) == 1


def test_a_child_of_a_worker_is_inert():
    @manta.remote
    def work(refs, actor):
        child, inert = load()
        mine = [manta.put(i) for i in range(50)]
        codes = [child(lambda: inert(list(refs) + mine, actor)) for _ in range(5)]
        return codes, manta.get(refs), manta.get(mine), manta.get(actor.f.remote())

    a = A.remote()
    refs = [manta.put(i) for i in range(50)]
    for _ in range(3):
        assert manta.get(work.remote(refs, a)) == ([0] * 5, list(range(50)), list(range(50)), 1)


def square(x):
    return x * x


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_multiprocessing(method):
    import multiprocessing

    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(square, range(20)) == [x * x for x in range(20)]
    assert manta.get(manta.put(1)) == 1

    @manta.remote
    def pooled():
        import multiprocessing
        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map(abs, range(-20, 0))

    if method == "fork":
        assert manta.get(pooled.remote()) == list(range(20, 0, -1))


def test_subprocesses():
    @manta.remote
    def run():
        import subprocess
        return subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout, os.popen("echo there").read()

    assert manta.get(run.remote()) == ("hello\n", "there\n")
    assert os.popen("echo here").read() == "here\n"


def test_what_a_worker_started_does_not_outlive_it():
    @manta.remote
    class Starter:
        def start(self):
            import subprocess
            self.p = subprocess.Popen(["sleep", "1000"])
            pid = os.fork()
            if pid == 0:
                import time
                time.sleep(1000)
                os._exit(0)
            return self.p.pid, pid

    s = Starter.remote()
    pids = manta.get(s.start.remote())
    manta.kill(s)
    until(lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), "the end of what the worker started")


def test_a_fork_inside_the_destructors(python):
    out = python("-c", FORK + """
import gc
manta.init(num_cpus=1)
class Holder: pass
def leave():
    h = Holder(); h.me = h; h.ref = kept[0]
    del h
    gc.collect()
    return 0
kept = [manta.put(b"x" * 100000)]
for _ in range(20):
    assert child(leave) == 0
print(len(manta.get(kept[0])))
""")
    assert out.stdout == "100000\n", out.stderr
