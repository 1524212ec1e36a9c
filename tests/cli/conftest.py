"""Fixtures of the black-box tests: the built program, run with a deadline.

    def test_version(manta):
        assert manta("--version").stdout.startswith("manta ")

    def test_events(manta):
        done = manta("train", "linear", "--data", "mnist", "--epochs", "1", "--json")
        assert done.events[-1]["event"] == "result"

Every test runs in its own folder (tmp_path), with a cache folder of its own,
and sees the bundled data only, so that no test depends on what the user has
or on the network.
"""
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("MANTA_BIN", ROOT / "build" / "release" / "manta")).resolve()

# Before any test imports it: the light backend, on the processor.
os.environ.setdefault("KERAS_BACKEND", "jax")
os.environ.setdefault("JAX_PLATFORMS", "cpu")


def parse_events(text):
    """The objects of a --json run, in order; an error names the line that is none."""
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            event = json.loads(line, parse_constant=refuse_constant)
        except ValueError as why:
            raise AssertionError(f"line {number} of --json is no JSON ({why}): {line!r}") from None
        assert isinstance(event, dict) and isinstance(event.get("event"), str), \
            f"line {number} of --json is no event: {line!r}"
        events.append(event)
    return events


def refuse_constant(name):
    """NaN and Infinity are Python's, not JSON's."""
    raise ValueError(f"{name} is not JSON")


@dataclasses.dataclass
class Done:
    """A finished run of the program."""
    args: list
    status: int         # exit status; negative: the signal that ended it
    stdout: str
    stderr: str

    @property
    def events(self):
        return parse_events(self.stdout)

    def event(self, name):
        """The last event of that name; fails when there is none."""
        found = [e for e in self.events if e["event"] == name]
        assert found, f"no event {name!r} in:\n{self.stdout}"
        return found[-1]


def heed_signals():
    """A shell that starts a command in the background has it ignore Ctrl-C, and so all it starts."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Running:
    """The program while it runs, in a process group of its own."""

    def __init__(self, args, cwd, env, held=False):
        self.args = [str(a) for a in args]
        self.process = subprocess.Popen([str(PROGRAM), *self.args], cwd=cwd, env=env, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        start_new_session=True, preexec_fn=heed_signals, pipesize=4096 if held else -1)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, timeout_s=240):
        """Waits for the end; past the deadline everything is killed and the test fails with the output."""
        # Not communicate(): it reads past what a test that looked at some lines has left in the buffer.
        parts = {"stdout": "", "stderr": ""}

        def read(name):
            stream = getattr(self.process, name)
            if not stream.closed:
                parts[name] = stream.read()

        readers = [threading.Thread(target=read, args=(name,), daemon=True) for name in parts]
        end = time.monotonic() + timeout_s
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(max(0, end - time.monotonic()))
        if any(reader.is_alive() for reader in readers):
            self.kill()
            for reader in readers:
                reader.join()
            pytest.fail(f"manta {' '.join(self.args)}: not done after {timeout_s} s\n{parts['stdout']}\n{parts['stderr']}")
        self.process.wait()
        out, err = parts["stdout"], parts["stderr"]
        return Done(self.args, self.process.returncode, out, err)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


@pytest.fixture
def environment(tmp_path):
    """The environment of a run: nothing of the user's but the path and the sanitizers' options."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LD_LIBRARY_PATH") or k.endswith("SAN_OPTIONS")}
    return {**kept, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "LC_ALL": "C.UTF-8",
            "TERM": "dumb"}


def end(running):
    """Ends the programs that still run."""
    for r in running:
        if r.process.poll() is None:
            r.kill()
            r.process.wait()


@pytest.fixture
def running():
    """The programs that the test has started; those that still run at its end are killed."""
    started = []
    yield started
    end(started)
    for r in started:
        for stream in (r.process.stdout, r.process.stderr):
            stream.close()


@pytest.fixture
def start(tmp_path, environment, running):
    """start(*args, env={}, cwd=None, held=False): the program, running.

    `held`: what it says goes through a page, so that one that says much cannot be through before it is listened to."""
    if not PROGRAM.is_file():
        pytest.fail(f"{PROGRAM} is not built")

    def starter(*args, env=None, cwd=None, held=False):
        r = Running(args, cwd or tmp_path, {**environment, **(env or {})}, held)
        running.append(r)
        return r

    return starter


@pytest.fixture
def manta(start):
    """manta(*args, status=0, timeout_s=240, env={}, cwd=None): a run to its end, with the status it must have (None: any)."""
    def runner(*args, status=0, timeout_s=240, env=None, cwd=None):
        done = start(*args, env=env, cwd=cwd).wait(timeout_s)
        assert status is None or done.status == status, \
            f"manta {' '.join(done.args)}: status {done.status}, expected {status}\n{done.stdout}\n{done.stderr}"
        return done

    return runner


@pytest.fixture
def storage(environment, tmp_path, running):
    """Where runs lie: in memory where there is such a place, since every checkpoint is brought to disk."""
    place = pathlib.Path("/dev/shm")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="manta-runs-", dir=place if os.access(place, os.W_OK) else tmp_path))
    environment["MANTA_STORAGE"] = str(folder)
    yield folder
    end(running)        # which may write there
    shutil.rmtree(folder)
