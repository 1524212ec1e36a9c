"""Processes: nothing is forked of the driver, nothing hangs, nothing is left."""
import os
import signal
import subprocess
import sys

import pytest

from conftest import DEADLINE_S, until

HEAD = """
import os, sys, time, threading, signal
import manta
manta.init(num_cpus=2)
@manta.remote
def pid(): return os.getpid()
@manta.remote
def sleep(): time.sleep(1000)
def everybody():
    i = manta.node_info()
    return [i["daemon_pid"], i["keeper_pid"], i["zygote_pid"], *i["worker_pids"]]
manta.get([pid.options(strategy="spread").remote() for _ in range(4)])
print(*everybody(), flush=True)
"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def start(script, **more):
    p = subprocess.Popen([sys.executable, "-X", "faulthandler", "-c", HEAD + script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         bufsize=0, **more)  # communicate() does not see what a buffer has read ahead
    line = p.stdout.readline().decode()
    pids = [int(x) for x in line.split() if int(x)]
    assert len(pids) >= 4, line + p.stderr.read().decode()
    return p, pids


def finish(p, pids, returncode=0):
    try:
        out, err = (x.decode() for x in p.communicate(timeout=DEADLINE_S))
    finally:
        if p.poll() is None:
            p.kill()
    assert returncode is None or p.returncode == returncode, (p.returncode, out, err)
    until(lambda: not any(map(is_alive, pids)), f"the end of {pids}")
    return out, err


def test_an_end_without_shutdown_leaves_nothing():
    finish(*start(""))


@pytest.mark.parametrize("script", ["sleep.remote()", "[sleep.remote() for _ in range(10)]; raise SystemExit",
                                    "threading.Thread(target=lambda: manta.get(sleep.remote()), daemon=True).start()"])
def test_an_end_with_work_under_way_leaves_nothing(script):
    finish(*start(script))


def test_exit_at_once_leaves_nothing():
    finish(*start("sleep.remote(); os._exit(7)"), returncode=7)


def test_an_exception_leaves_nothing():
    out, err = finish(*start("x = [sleep.remote()]; 1 / 0"), returncode=1)
    assert "ZeroDivisionError" in err


def test_a_driver_that_is_killed_leaves_nothing():
    p, pids = start("manta.get(sleep.remote())")
    p.kill()
    finish(p, pids, returncode=-9)


@pytest.mark.parametrize("who", ["daemon_pid", "keeper_pid"])
def test_a_node_that_is_killed_ends_the_waits(who):
    script = f"""
r = sleep.remote()
os.kill(manta.node_info()["{who}"], signal.SIGKILL)
try:
    print("got", manta.get(r))
except manta.exceptions.MantaError as e:
    print("told", type(e).__name__)
manta.shutdown()
manta.init(num_cpus=1)
print(manta.get(pid.remote()) != 0)
"""
    out, err = finish(*start(script))
    assert "told" in out and out.endswith("True\n"), out + err


def test_a_nursery_that_is_killed_is_started_again():
    script = """
before = manta.node_info()["zygote_pid"]
os.kill(before, signal.SIGKILL)
@manta.remote
class A:
    def pid(self): return os.getpid()
print(len({manta.get(a.pid.remote()) for a in [A.remote() for _ in range(4)]}))
while manta.node_info()["zygote_pid"] in (before, 0): time.sleep(0.01)
"""
    out, err = finish(*start(script))
    assert out == "4\n", err


def test_nothing_of_the_driver_is_in_its_workers():
    script = """
secret = bytearray(50 << 20)
lock = threading.Lock(); lock.acquire()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
@manta.remote
def look():
    return threading.active_count(), open("/proc/self/cmdline").read().split("\\0"), hasattr(sys.modules["__main__"], "secret"), os.getppid()
n, cmdline, has, parent = manta.get(look.remote())
assert n <= 2 and "_nursery.py" in cmdline[2] and not has and parent != os.getpid(), (n, cmdline, has)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no children")
"""
    out, err = finish(*start(script))
    assert out == "no children\n", err


def test_a_driver_with_threads_that_hold_locks():
    script = """
import logging, io
class Slow(io.StringIO):
    def write(self, s): time.sleep(0.001)
stop = False
def work():
    log = logging.getLogger("x"); log.addHandler(logging.StreamHandler(Slow())); log.propagate = False
    while not stop: log.warning("x" * 100)
manta.shutdown()
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for _ in range(3):
    manta.init(num_cpus=2)
    print(len(manta.get([pid.remote() for _ in range(20)])))
    manta.shutdown()
stop = True
"""
    out, err = finish(*start(script))
    assert out == "20\n" * 3, err


def test_output_of_workers_is_shown_once_in_order():
    script = """
@manta.remote
def say(n):
    for i in range(n): print("line", i)
    print("no end", end="")
    sys.stderr.write("to stderr\\n")
    return 1
manta.get(say.remote(5))
manta.get(say.options(name="x").remote(0))
manta.shutdown()
"""
    out, err = finish(*start(script))
    lines = out.splitlines()
    assert [x.split(") ", 1)[1] for x in lines if "line" in x] == [f"line {i}" for i in range(5)], out
    assert all(x.startswith("(say pid=") for x in lines), out
    assert err.count("to stderr") == 2 and out.count("no end") == 2


def test_ctrl_c_ends_a_wait_at_once_and_the_next_call_works():
    script = """
r = sleep.remote()
for wait in (lambda: manta.get(r), lambda: manta.get([r, r]), lambda: manta.wait([r]), lambda: manta.get(r, timeout=100)):
    for delay in (0, 0.2):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            wait()
            print("not interrupted")
        except KeyboardInterrupt:
            pass
        timer.join()
        print(manta.get(pid.remote()) > 0)
"""
    out, err = finish(*start(script))
    assert out == "True\n" * 8, out + err


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell, (out, begun) = InteractiveShell.instance(), os.pipe()
shell.user_ns.update(globals(), ref=sleep.remote())
def interrupt():
    os.read(out, 1)
    os.kill(os.getpid(), signal.SIGINT)
for cell in ("manta.get(ref)", "manta.wait([ref])", "await ref"):
    thread = threading.Thread(target=interrupt)
    thread.start()
    error = shell.run_cell("os.write(begun, b'x'); " + cell).error_in_exec
    thread.join()
    print(type(error).__name__, shell.run_cell("manta.get(pid.remote()) > 0").result, flush=True)
"""


def test_ctrl_c_ends_a_cell_and_the_next_one_works(tmp_path):
    """As in a terminal of IPython; the cell may just begin to wait, or be about to, or wait already."""
    pytest.importorskip("IPython")
    out, err = finish(*start(CELLS, env={**os.environ, "IPYTHONDIR": str(tmp_path)}))
    lines = [line for line in out.splitlines() if line.startswith(("KeyboardInterrupt ", "NoneType "))]
    assert lines == ["KeyboardInterrupt True"] * 3, out + err


def test_ctrl_c_of_a_terminal_ends_a_script():
    p, pids = start("manta.get(sleep.remote())", start_new_session=True)
    os.killpg(p.pid, signal.SIGINT)
    out, err = finish(p, pids, returncode=-signal.SIGINT)
    assert "KeyboardInterrupt" in err


def test_a_handler_of_the_program_runs_during_a_wait():
    script = """
import tempfile
seen, folder = [], tempfile.TemporaryDirectory()
go = folder.name + "/go"
def handle(*unused):
    seen.append(1)
    if len(seen) == 3: open(go, "w").close()        # not at the first, which may come before the wait
signal.signal(signal.SIGUSR1, handle)
@manta.remote
def slow(driver, go):
    while not os.path.exists(go):
        os.kill(driver, signal.SIGUSR1)
        time.sleep(0.05)
    return "done"
print(manta.get(slow.remote(os.getpid(), go)), len(seen) >= 3)
"""
    out, err = finish(*start(script))
    assert out == "done True\n", err


def test_at_exit_functions_of_a_worker_run():
    script = """
import tempfile
folder = tempfile.mkdtemp()
@manta.remote
class A:
    def __init__(self):
        import atexit
        atexit.register(lambda: open(folder + "/ended", "w").close())
    def f(self): return 1
a = A.remote(); manta.get(a.f.remote()); del a
while not os.path.exists(folder + "/ended"): time.sleep(0.01)
print("ended")
"""
    out, err = finish(*start(script))
    assert out == "ended\n", err


def test_two_lives():
    script = """
old = manta.put(1)
held = [sleep.remote() for _ in range(3)]
manta.shutdown()
manta.shutdown()
assert not manta.is_initialized()
manta.init(num_cpus=1)
new = manta.put(2)
for f in (lambda: manta.get(old), lambda: manta.wait([old]), lambda: pid.remote(old), lambda: manta.put([old])):
    try:
        f()
        print("used")
    except ValueError as e:
        assert "has ended" in str(e)
del old, held
print(manta.get(new), manta.get(pid.remote()) > 0)
try:
    manta.init()
except RuntimeError as e:
    print("once")
"""
    out, err = finish(*start(script))
    assert out == "2 True\nonce\n", out + err


def test_importing_changes_nothing(python):
    out = python("-c", """
import sys, os, signal, logging, threading, multiprocessing, warnings
def state():
    return (dict(os.environ), [signal.getsignal(s) for s in range(1, 32)], list(logging.root.handlers), logging.root.level,
            threading.active_count(), multiprocessing.get_start_method(allow_none=True), sorted(os.listdir("/proc/self/fd")),
            list(sys.path), list(sys.meta_path), sys.excepthook, list(warnings.filters), logging.raiseExceptions)
before = state()
import manta
assert state() == before
heavy = {"numpy", "cloudpickle", "asyncio", "pandas", "multiprocessing.pool", "subprocess", "concurrent.futures", "manta.ray"}
assert not (heavy & set(sys.modules)), heavy & set(sys.modules)
manta.init(num_cpus=1)
@manta.remote
def f(): return dict(os.environ)
env = manta.get(f.remote())
manta.shutdown()
after = state()
assert after[:6] == before[:6] and after[6:] == before[6:]
assert env == {"OMP_NUM_THREADS": "1", **os.environ}, set(env.items()) ^ set(os.environ.items())
print("fine")
""")
    assert out.stdout == "fine\n", out.stderr


def test_a_warm_nursery_has_what_the_driver_has_imported(python):
    out = python("-c", """
import os, sys, time
import numpy
import manta
manta.init(num_cpus=2)
@manta.remote
class Look:
    def modules(self): return "numpy" in sys.modules, dict(os.environ)
    def work(self):
        import numpy as np
        a = np.random.rand(300, 300)
        return float((a @ np.linalg.inv(a)).trace()), float(np.random.rand())
def warm(): return manta.get(Look.remote().modules.remote())[0]
while not warm(): time.sleep(0.02)
actors = [Look.remote() for _ in range(4)]
done = manta.get([a.work.remote() for a in actors])
assert all(abs(t - 300) < 1e-3 for t, _ in done), done
assert len({x for _, x in done}) == 4, done
assert manta.get(actors[0].modules.remote())[1] == {"OMP_NUM_THREADS": "1", **os.environ}
env = manta.get(Look.options(env_vars={"OMP_NUM_THREADS": "3"}).remote().modules.remote())
assert env[0] is False and env[1]["OMP_NUM_THREADS"] == "3"
print("fine")
""")
    assert out.stdout == "fine\n", out.stderr


def test_a_warm_nursery_has_pyarrow(python):
    """It keeps a thread, which forks do without: theirs read and compute with pools of their own."""
    out = python("-c", """
import os, sys, tempfile
import pyarrow as pa
import manta
manta.init(num_cpus=2)
@manta.remote
class Look:
    def has(self): return "pyarrow" in sys.modules
    def work(self):
        import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
        table = pa.table({"a": pa.chunked_array([list(range(1000))] * 8), "b": [str(i % 7) for i in range(8000)]})
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(table, folder + "/t.parquet", row_group_size=1000)
            back = pq.read_table(folder + "/t.parquet", use_threads=True)
        groups = back.group_by("b", use_threads=True).aggregate([("a", "sum")])
        return pc.sum(groups["a_sum"]).as_py(), len(pa.concat_tables([back, table]).take(list(range(16000))))
while not manta.get(Look.remote().has.remote()): pass
actors = [Look.remote() for _ in range(3)]
assert all(manta.get([a.has.remote() for a in actors]))
print(set(manta.get([a.work.remote() for a in actors])))
""")
    assert out.stdout == "{(3996000, 16000)}\n", out.stdout + out.stderr


SHOWN = """
import os, subprocess, sys, time
import manta
manta.init(num_cpus=2)
@manta.remote
class Keeper:
    def pid(self): return os.getpid()
    def wait_here(self, path):
        open(path, "w").close()
        while True: time.sleep(1000)
@manta.remote
def keep_the_interpreter(path):
    import collections, itertools
    with open(path + ".new", "w") as f: f.write(str(os.getpid()))
    os.rename(path + ".new", path)
    collections.deque(itertools.repeat(0), maxlen=0)
def wait_for(path):
    while not os.path.exists(path): time.sleep(0.01)
    return open(path).read()
folder, node = sys.argv[1], str(manta.node_info()["daemon_pid"])
def ask(*command):
    done = subprocess.run([sys.executable, "-m", "manta", *command, "--node", node], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
keeper = Keeper.remote()
pid = manta.get(keeper.pid.remote())
refs = [keeper.wait_here.remote(folder + "/waits"), keep_the_interpreter.remote(folder + "/keeps")]
wait_for(folder + "/waits")
busy = wait_for(folder + "/keeps")
assert "in wait_here" in ask("stack", "--own", str(pid))
assert "in keep_the_interpreter" in ask("stack", "--own", busy)
assert "in keep_the_interpreter" in ask("stack", "--own", busy)
shown = ask("ps")
assert "Keeper" in shown and "wait_here" in shown and "keep_the_interpreter" in shown and "py." not in shown, shown
ask("timeline")
assert "Keeper" in open(folder + "/manta-timeline.json").read()
assert "Workers" in ask("status")
manta.cancel(refs[1], force=True)
manta.kill(keeper)
print("fine")
"""


def test_the_program_shows_python_by_name_and_frame(python, tmp_path):
    out = python("-c", SHOWN, tmp_path)
    assert out.stdout == "fine\n", out.stdout + out.stderr


LATE = """
import ctypes, threading, time
import manta
@manta.remote
def hold():
    keep = ctypes.PyDLL(None).usleep        # with the interpreter
    def turn():
        while True:
            keep(100000)
            time.sleep(0.0005)
    threading.Thread(target=turn, daemon=True).start()
@manta.remote
def f(): time.sleep(3600)
manta.init(num_cpus=1)
manta.get(hold.remote())
for _ in range(10):
    ref = f.remote()
    time.sleep(0.03)    # it is there, and has not begun for want of the interpreter; nobody can see that
    manta.cancel(ref)
    try: manta.get(ref, timeout=60)
    except manta.exceptions.CancelledError: continue
print("fine")
"""


def test_a_cancel_that_is_heard_before_the_call_begins(python):
    """Who hears it and who begins the call wait for the interpreter; whoever has it first, the call is interrupted."""
    out = python("-c", LATE)
    assert out.stdout == "fine\n", out.stderr


ASLEEP = """
import os, sys, time
import manta
path = sys.argv[1] + "/begun"
os.mkfifo(path)
@manta.remote
def f(i):
    with open(path, "wb") as begun: begun.write(b"x")
    until = time.perf_counter() + i % 40 * 15e-6
    while time.perf_counter() < until: pass
    time.sleep(3600)
manta.init(num_cpus=1)
for i in range(200):
    ref = f.remote(i)
    with open(path, "rb") as begun: begun.read(1)
    manta.cancel(ref)
    try: manta.get(ref, timeout=60)
    except manta.exceptions.CancelledError: continue
    raise SystemExit("it was not cancelled")
print("fine")
"""


def test_a_cancel_that_comes_as_the_call_goes_to_sleep(python, tmp_path):
    """Behind the interpreter's last look for signals and before the system call, where a signal ends nothing."""
    out = python("-c", ASLEEP, tmp_path)
    assert out.stdout == "fine\n", out.stdout + out.stderr


LEFT_ALONE = """
import ctypes, os, signal, sys, time
import manta
path = sys.argv[1] + "/said"
os.mkfifo(path)
def pause(): return ctypes.CDLL(None).usleep(100000)
@manta.remote
def f():
    for n in range(signal.SIGRTMIN, signal.SIGRTMAX + 1): signal.signal(n, signal.SIG_DFL)
    said = open(path, "w")
    try:
        print("begun", file=said, flush=True)
        time.sleep(3600)
    except KeyboardInterrupt: pass
    print(os.getpid(), [pause() for i in range(5)], file=said)
    said.close()
manta.init(num_cpus=1)
pids = set()
for i in range(3):
    ref = f.remote()
    with open(path) as said:
        assert said.readline() == "begun\\n"
        manta.cancel(ref)
        pid, pauses = said.read().split(maxsplit=1)
    assert pauses == "[0, 0, 0, 0, 0]\\n", pauses
    pids.add(pid)
    try: manta.get(ref, timeout=240)
    except manta.exceptions.CancelledError: continue
    raise SystemExit("it was not cancelled")
print(len(pids))
"""


def test_what_a_call_does_about_its_interrupt_is_left_alone(python, tmp_path):
    """No further signal ends its system calls, nor the process, whose program has taken all signals back."""
    out = python("-c", LEFT_ALONE, tmp_path)
    assert out.stdout == "1\n", out.stdout + out.stderr


THREADS = """
import os, sys, time
import {module}
import manta
def threads():
    import ctypes, re
    import numpy as np
    np.ones((300, 300)) @ np.ones((300, 300))
    path = next(re.findall(r"\\S+openblas\\S+", line)[0] for line in open("/proc/self/maps") if "openblas" in line)
    library = ctypes.CDLL(path)
    names = ("scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads", "openblas_get_num_threads64_",
             "openblas_get_num_threads")
    count = next(getattr(library, name) for name in names if hasattr(library, name))()
    return os.environ["OMP_NUM_THREADS"], count
f = manta.remote(threads)
@manta.remote
class Look:
    def warm(self): return "numpy" in sys.modules
    def threads(self): return threads()
@manta.remote
def nested():
    return threads(), manta.get(f.options(num_cpus=2).remote()), threads()
manta.init(num_cpus=4)
while "numpy" in sys.modules and not manta.get(Look.remote().warm.remote()): time.sleep(0.02)
print(manta.get([f.remote(), f.options(num_cpus=3).remote(), f.options(num_cpus=0.5).remote()]))
print(manta.get([f.options(num_cpus=n).remote() for n in (2, 1)]))
print(manta.get(nested.remote()))
print(manta.get([Look.options(num_cpus=n).remote().threads.remote() for n in (0, 2)]))
print(manta.get(f.options(num_cpus=2, env_vars={{"OMP_NUM_THREADS": "1"}}).remote()))
"""


@pytest.mark.parametrize("module", ["numpy", "math"])
def test_libraries_compute_with_as_many_threads_as_processors_were_granted(python, module, monkeypatch):
    pytest.importorskip("numpy")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    out = python("-c", THREADS.format(module=module))
    if "StopIteration" in out.stderr:
        pytest.skip("this numpy has no OpenBLAS")
    given = [eval(line) for line in out.stdout.splitlines()]
    said = [[n for n, _ in line] for line in given[:4]]
    assert said == [["1", "3", "1"], ["2", "1"], ["1", "2", "1"], ["1", "2"]] and given[4] == ("1", 1), out.stdout + out.stderr
    for n, count in (pair for line in given[:4] for pair in line):
        assert count in (int(n), min(int(n), len(os.sched_getaffinity(0)))), given  # OpenBLAS has a limit at its start alone


def test_a_file_that_is_named_like_a_library_is_left_alone(python, tmp_path):
    pytest.importorskip("numpy")
    (tmp_path / "openblas.txt").write_text("no library")
    out = python("-c", """
import mmap, sys
import numpy
from manta import _threads
with open(sys.argv[1], "rb") as f: held = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
assert sys.argv[1] in open("/proc/self/maps").read()
_threads.find_openblas()
""", tmp_path / "openblas.txt")
    assert out.returncode == 0, out.stderr


def test_the_users_number_of_threads_stands(python):
    pytest.importorskip("numpy")
    out = python("-c", """
import os
import numpy
import manta
manta.init(num_cpus=4)
@manta.remote
def f(): return os.environ["OMP_NUM_THREADS"]
print(manta.get([f.remote(), f.options(num_cpus=3).remote()]))
""", env={"OMP_NUM_THREADS": "2"})
    assert out.stdout == "['2', '2']\n", out.stdout + out.stderr


def test_workers_have_the_drivers_cloudpickle(python, tmp_path):
    import cloudpickle
    import pathlib
    import shutil
    shutil.copytree(pathlib.Path(cloudpickle.__file__).parent, tmp_path / "own" / "cloudpickle")
    (tmp_path / "main.py").write_text(f"""
import sys
sys.path.insert(0, "{tmp_path}/own")
import manta
@manta.remote
def where():
    import cloudpickle
    return cloudpickle.__file__
print(manta.get(where.remote()))
""")
    out = python(tmp_path / "main.py")
    assert out.stdout == f"{tmp_path}/own/cloudpickle/__init__.py\n", out.stdout + out.stderr
