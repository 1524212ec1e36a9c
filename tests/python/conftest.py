"""Fixtures of the Python package's tests.

`PYTHONPATH=BUILD/python` says which build is tested (tools/check.py sets it; by hand:
`cmake --build --preset release --target python`, then
`PYTHONPATH=build/release/python python -m pytest tests/python`). Tests wait for conditions and
never sleep; each ends the node it began, and nothing may be left of it.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 240        # for what comes soon, on a machine that is busy with other things too; only a test that fails waits so long


def pytest_configure(config):
    config.addinivalue_line("markers", "long: minutes; run by ./check --long, or -m long")
    config.addinivalue_line("markers", "sanitized: also run with the extension under address sanitizer")
    if os.environ.get("PYTHONPATH"):                           # programs of tests run in folders of their own
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:      # a shell in the background: programs would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config, items):
    """Who names no marker gets no test of minutes, which has both cores to itself all the while."""
    if not config.option.markexpr and not any("::" in name for name in config.args):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="minutes; -m long runs it"))


def until(condition, what="the condition"):
    """Waits until condition() is true and returns what it said."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.005)


def run_python(*arguments, cwd=None, env=None, input=None, timeout=DEADLINE_S):
    """Runs the interpreter with these arguments and returns what became of it."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, input=input,
                          timeout=timeout, cwd=cwd, env={**os.environ, **(env or {})})


@pytest.fixture(autouse=True)
def dialect(request, monkeypatch):
    """Importing manta.ray makes a program one of Ray's; the tests of manta itself are none, whatever was imported."""
    from manta import _dialect

    if not request.module.__name__.startswith(("test_ray", "test_alias")):
        monkeypatch.setattr(_dialect, "current", _dialect.Dialect())


@pytest.fixture(scope="module")
def module_node():
    """One node of two processors for all tests of a file; the file asks for it by `usefixtures`."""
    import manta

    manta.init(num_cpus=2)
    yield
    manta.shutdown()


@pytest.fixture
def short_path():
    """A folder like tmp_path with a short name, whatever TMPDIR and the test are called: that of a socket in it has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="manta-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def python():
    return run_python


@pytest.fixture
def node():
    """manta with a node of two processors, ended afterwards."""
    import manta

    manta.init(num_cpus=2)
    yield manta
    manta.shutdown()


@pytest.fixture
def ray():
    """manta.ray with a node of two processors, ended afterwards."""
    import manta.ray

    manta.ray.init(num_cpus=2)
    yield manta.ray
    manta.ray.shutdown()
