"""`python -m manta launch` with real TensorFlow and PyTorch: seed 002, and a program as torchrun runs it."""
import ast
import gzip
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from conftest import HERE, TIMEOUT_S, need

ROOT = HERE.parents[1]


def launched(folder, *command, **environment):
    """What each rank prints behind "RESULT ", by rank."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **environment}
    done = subprocess.run([sys.executable, "-m", "manta", "launch", *command], cwd=folder, env=env, capture_output=True,
                          text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return {int(rank): text for rank, text in re.findall(r"^\[rank (\d+)\] RESULT (.*)$", done.stdout, re.M)}


def write_mnist(path):
    """MNIST's training part as Keras has it, from the repository's files."""
    import numpy as np
    folder = ROOT / "data" / "mnist"
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as f:
        images = np.frombuffer(f.read(), np.uint8, offset=16).reshape(-1, 28, 28)
    with gzip.open(folder / "train-labels-idx1-ubyte.gz") as f:
        labels = np.frombuffer(f.read(), np.uint8, offset=8)
    np.savez(path, x_train=images, y_train=labels)


def test_002_two_workers_of_a_tf_config_program(tmp_path):
    """Both train 3 epochs of 70 steps on half of each batch; the loss falls, and their weights agree."""
    need("tensorflow", "tf_keras")
    shutil.copy(HERE / "seed_002_main.py", tmp_path / "main.py")
    shutil.copy(HERE / "seed_002_mnist_setup.py", tmp_path / "mnist_setup.py")
    write_mnist(tmp_path / "mnist.npz")
    got = {k: json.loads(v) for k, v in launched(tmp_path, "-n", "2", "main.py", MNIST_NPZ="mnist.npz").items()}
    assert sorted(got) == [0, 1]
    for result in got.values():
        assert (result["workers"], result["replicas"], result["steps"]) == (2, 2, 210)
        assert result["loss"][0] > result["loss"][1] > result["loss"][2]
    assert got[0]["weights"] == got[1]["weights"] and got[0]["loss"] == got[1]["loss"]


@pytest.mark.parametrize("backend", ["gloo", "manta"])
def test_two_ranks_of_a_torchrun_program(tmp_path, backend):
    """DistributedDataParallel over env://, with a process of its own for the data: weights agree, the loss falls."""
    need("torch")
    got = {k: ast.literal_eval(v) for k, v in launched(tmp_path, "-n", "2", str(HERE / "launched_ddp.py"), backend).items()}
    assert sorted(got) == [0, 1] and {(r["rank"], k) for k, r in got.items()} == {(0, 0), (1, 1)}
    assert [(r["size"], r["rows"]) for r in got.values()] == [(2, 384)] * 2
    assert got[0]["weights"] == got[1]["weights"] and got[0]["losses"] == got[1]["losses"]
    assert got[0]["losses"][0] > got[0]["losses"][2]


def test_a_rank_that_dies_ends_a_torch_program(tmp_path):
    """The other one waits in a collective, without an end of its own; the store's port is new at the second attempt."""
    need("torch")
    (tmp_path / "program.py").write_text("""
import os, signal
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(1)
dist.all_reduce(t)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()
print("RESULT", t.item(), dist.is_torchelastic_launched())
dist.destroy_process_group()
""")
    assert launched(tmp_path, "-n", "2", "--max-restarts", "1", "program.py") == {0: "2.0 True", 1: "2.0 True"}
