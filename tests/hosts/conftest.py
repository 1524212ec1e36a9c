"""Fixtures of tests/hosts: a world of hosts, what is launched on it, and what is left behind."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

from samples import digits      # noqa: E402
from world import MARK, WAIT_S, World, die_with_parent, wait_for    # noqa: E402

PROGRAM = pathlib.Path(os.environ.get("MANTA_BIN", "build/release/manta")).resolve()
TRAIN = ("train", "mlp", "--data", "x.npy,y.npy", "--epochs", "3", "--global-batch", "32", "--seed", "7", "--threads-per-worker", "1")


def pytest_configure(config):
    if os.environ.get(MARK) != "1":
        pytest.exit("tests/hosts runs in a world of its own: python tests/hosts/world.py python -m pytest tests/hosts", 2)


def processes():
    """pid -> command line of all that runs in this world, but for what is dead and not waited for."""
    found = {}
    for path in pathlib.Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                words = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if words:
                found[int(path.name)] = words
    return found


class Launched:
    """`manta launch`, running; what it prints is read as it comes."""

    def __init__(self, words, folder, env):
        self.process = subprocess.Popen([str(w) for w in words], cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, start_new_session=True, preexec_fn=die_with_parent)
        self.lines = {"stdout": [], "stderr": []}
        self.readers = [threading.Thread(target=self._read, args=(n,), daemon=True) for n in self.lines]
        for reader in self.readers:
            reader.start()

    def _read(self, name):
        for line in getattr(self.process, name):
            self.lines[name].append(line)

    def text(self, name):
        return "".join(self.lines[name])

    def wait(self, status=0):
        try:
            self.process.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            pytest.fail(f"not done after {WAIT_S} s\n{self.text('stdout')}\n{self.text('stderr')}")
        for reader in self.readers:
            reader.join(WAIT_S)
        assert status is None or self.process.returncode == status, \
            f"status {self.process.returncode}\n{self.text('stdout')}\n{self.text('stderr')}"
        return self


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data, which all hosts see, and the weights that one process ends with."""
    folder = tmp_path_factory.mktemp("place")
    digits(folder, n=256)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    subprocess.run([PROGRAM, *TRAIN, "--shards", "4", "--save", "one.npz"], cwd=folder, env=env, check=True, capture_output=True,
                   timeout=WAIT_S)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    made = World(tmp_path_factory.mktemp("world"), 2)
    yield made
    made.close()


@pytest.fixture
def launch(place):
    """launch(*options, program): starts `manta launch`. At the end nothing that a test has started may be left."""
    before = processes()
    running = []

    def start(*options, program=(*TRAIN, "--shards", "4"), env=None):
        variables = {"PATH": os.environ["PATH"], "HOME": str(place), "LC_ALL": "C.UTF-8", **(env or {})}
        running.append(Launched([PROGRAM, "launch", "--export", "HOME", *options, "--", *program], place, variables))
        return running[-1]

    yield start
    for r in running:
        if r.process.poll() is None:
            r.process.kill()
            r.process.wait()
        print(r.text("stderr"))     # pytest shows it of a test that failed

    def left():
        return {pid: words for pid, words in processes().items()
                if pid not in before and "sshd" not in words and "slurmstepd" not in words and "sackd" not in words}

    try:
        wait_for(lambda: not left(), "processes to end")
    except AssertionError:
        found = left()
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        pytest.fail(f"left behind: {found}")


@pytest.fixture
def saved(place):
    """saved(name): whether the weights in `name` are those of one process."""
    return lambda name: (place / name).read_bytes() == (place / "one.npz").read_bytes()


def needs(*programs):
    missing = [p for p in programs if shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin") is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def pids_of(text):
    return [pid for pid, words in processes().items() if re.search(text, words)]


def ranks():
    """pid of each rank that runs, by its number."""
    found = {}
    for pid in pids_of(r"^\S*manta train mlp"):
        try:
            variables = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
        except OSError:
            continue
        config = [v for v in variables if v.startswith(b"TF_CONFIG=")]
        if config:
            found[json.loads(config[0].partition(b"=")[2])["task"]["index"]] = pid
    return found


def longer(epochs, *more):
    """The same training with more epochs."""
    at = TRAIN.index("--epochs")
    return (*TRAIN[:at], "--epochs", str(epochs), *TRAIN[at + 2:], "--shards", "4", *more)


def rank_that_trains(run, number):
    """Its process, once it has said that it begins."""
    wait_for(lambda: f"[rank {number}] " in run.text("stdout"), f"rank {number}")
    return wait_for(lambda: ranks().get(number), f"the process of rank {number}")


def failure_of(run):
    """The lines of the block that a launch ends with, by label."""
    run.wait(1)
    block = re.search(r"^manta: the launch failed on (.*)\n  step +(.*)\n  what +(.*)\n  remedy +(.*)$", run.text("stderr"), re.M)
    assert block, run.text("stderr")
    return block.groups()
