"""Fixtures of the programs that run with real TensorFlow and PyTorch (./check peers).

`PYTHONPATH=BUILD/python` says which build is tested. A framework that is not installed skips its tests, in words.
"""
import importlib.util
import os
import pathlib
import random
import struct
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 900


def need(*modules):
    """Skips a test whose modules are not installed; they are imported by the program alone, two frameworks never together."""
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def write_fashion_mnist(folder):
    """FashionMNIST's files as torchvision looks for them, with 256 pictures of chance: nothing is downloaded."""
    raw = pathlib.Path(folder) / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 256), ("t10k", 64)):
        pixels = random.Random(1).randbytes(n * 28 * 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, n, 28, 28) + pixels)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, n) + bytes(i % 10 for i in range(n)))


@pytest.fixture
def run_seed(tmp_path):
    """Runs a program as `python -m manta run` does, in a folder of its own; what it prints behind "RESULT "."""
    def run(name, **environment):
        env = {**os.environ, "MANTA_STORAGE": str(tmp_path / "runs"), "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
        done = subprocess.run([sys.executable, "-m", "manta", "run", str(HERE / name)], cwd=tmp_path, env=env,
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        return next(line[7:] for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return run
