"""Threads: the interpreter's lock and the runtime's never wait for each other."""
import sys
import threading

import pytest

from conftest import DEADLINE_S, until

pytestmark = pytest.mark.sanitized

WORK = """
import faulthandler, gc, threading, random
faulthandler.dump_traceback_later(220, exit=True)
import numpy as np
import manta
manta.init(num_cpus=2)
@manta.remote
def add(a, b=1): return a + b
@manta.remote(max_concurrency=4)
class A:
    def add(self, x): return x + 1
a = A.remote()
class Cycle: pass
errors = []
def work(seed):
    r = random.Random(seed)
    try:
        for i in range(ROUNDS):
            what = r.randrange(8)
            if what == 0: assert manta.get(add.remote(i)) == i + 1
            if what == 1: assert manta.get([add.remote(k) for k in range(10)]) == list(range(1, 11))
            if what == 2: assert manta.get(a.add.remote(i)) == i + 1
            if what == 3: assert manta.get(manta.put(np.full(20000, i)))[-1] == i
            if what == 4: manta.wait([add.remote(1), a.add.remote(1)], num_returns=1)
            if what == 5:
                c = Cycle(); c.c = c; c.refs = [manta.put(i) for _ in range(20)]
            if what == 6:
                try: manta.get(add.remote("x"))
                except TypeError: pass
            if what == 7: assert manta.get(manta.put([manta.put(i)]))[0] is not None
        gc.collect()
    except BaseException as e:
        import traceback
        errors.append(traceback.format_exc())
threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
assert not errors, errors[0]
manta.shutdown()
print("fine")
"""


@pytest.mark.parametrize("flags", [[], ["-X", "dev"]], ids=["plain", "dev"])
def test_many_threads_call_at_once(python, flags):
    out = python(*flags, "-c", WORK.replace("ROUNDS", "150"), env={"PYTHONMALLOC": "malloc"} if flags else None)
    assert out.stdout == "fine\n" and out.returncode == 0, out.stderr
    assert "Warning" not in out.stderr, out.stderr


def test_a_wait_lets_other_threads_run(node, tmp_path):
    """What one thread waits for ends when another has looked a hundred times; were that one held up, it would end too late."""
    @node.remote
    def hold(path, seconds):
        import os
        import time
        end = time.monotonic() + seconds
        while not os.path.exists(path) and time.monotonic() < end:
            time.sleep(0.002)
        return os.path.exists(path)

    go, ran = tmp_path / "go", []
    ref = hold.remote(str(go), DEADLINE_S)
    t = threading.Thread(target=lambda: ran.append(node.get(hold.remote(str(go), DEADLINE_S / 2))))
    t.start()
    until(lambda: sys._current_frames()[t.ident].f_code.co_name == "get", "the wait")
    for _ in range(100):
        assert node.wait([ref], timeout=0) == ([], [ref])
    go.touch()
    t.join()
    assert node.get(ref) and ran == [True]


def test_daemon_threads_that_wait_do_not_hold_the_end_up(python):
    out = python("-c", """
import threading, time, manta
manta.init(num_cpus=2)
@manta.remote
def sleep(): time.sleep(1000)
for _ in range(4): threading.Thread(target=lambda: manta.get(sleep.remote()), daemon=True).start()
for _ in range(4): threading.Thread(target=lambda: [manta.put(1) for _ in iter(int, 1)], daemon=True).start()
print("end")
""")
    assert out.stdout == "end\n" and out.returncode == 0, (out.returncode, out.stderr)


def test_a_shutdown_ends_the_waits_of_other_threads(python):
    out = python("-X", "faulthandler", "-c", """
import threading, time, manta
@manta.remote
def sleep(): time.sleep(1000)
@manta.remote
def add(x): return x + 1
stop = False
def calls():
    while not stop:
        try:
            manta.get([add.remote(i) for i in range(3)])
            manta.put([1, 2, object])
        except (manta.exceptions.MantaError, ValueError, RuntimeError): pass
told, made = [], threading.Semaphore(0)
def waits():
    ref = sleep.remote()
    made.release()
    try: manta.get(ref)
    except (manta.exceptions.MantaError, ValueError) as e: told.append(type(e).__name__)
manta.init(num_cpus=2)
callers = [threading.Thread(target=calls) for _ in range(3)]
for t in callers: t.start()
for _ in range(5):
    waiters = [threading.Thread(target=waits) for _ in range(3)]
    for t in waiters: t.start()
    for t in waiters: made.acquire()  # a call that came after the shutdown would begin a node of its own, and wait there
    while True:
        info = manta.node_info()
        if len(info["worker_pids"]) >= min(2, info["cpus"]): break  # a caller may have begun this one, with what cores there are
    manta.shutdown()
    for t in waiters: t.join()
stop = True
for t in callers: t.join()
print(len(told))
""")
    assert out.stdout == "15\n", out.stdout + out.stderr
