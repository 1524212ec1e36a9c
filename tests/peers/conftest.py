"""Fixtures of the tests that need TensorFlow, PyTorch or Ray; README.md says how to run them.

TensorFlow and PyTorch in one process are two thread pools and two allocators: a test that needs
TensorFlow runs it in a process of its own.
"""
import os
import pathlib
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEADLINE_S = 300        # importing TensorFlow takes seconds, on a busy machine a minute


def until(condition, what="the condition"):
    """Waits until condition() is true and returns what it said."""
    end = time.monotonic() + DEADLINE_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.005)


def run_python(*arguments, cwd=None, env=None):
    """Runs the interpreter with these arguments and returns what became of it."""
    return subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=2 * DEADLINE_S,
                          cwd=cwd, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(env or {})})


@pytest.fixture(scope="module")
def module_node():
    """One node of two processors for all tests of a file; the file asks for it by `usefixtures`."""
    import manta

    manta.init(num_cpus=2)
    yield
    manta.shutdown()


@pytest.fixture
def python():
    """Runs a program in an interpreter of its own and returns what it printed."""
    def run(program, **more):
        done = run_python("-c", program, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run
