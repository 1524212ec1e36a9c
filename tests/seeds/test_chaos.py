"""Ranks of TorchTrainer and TensorflowTrainer killed by SIGKILL, at moments and of ranks that a seed chooses: the run comes to its end.

MANTA_CHAOS_SEED and MANTA_CHAOS_KILLS try another seed and more kills (there are 3 of torch's ranks and 2 of TensorFlow's).
"""
import ast
import os
import subprocess
import sys

import pytest
from conftest import TIMEOUT_S, need

SEED = os.environ.get("MANTA_CHAOS_SEED", "1")

PROGRAM = """
import glob, os, random, signal, sys, threading, time
from manta import train
from manta.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
EPOCHS, STEPS = 5, 4
KIND, SEED, KILLS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def begin():
    \"\"\"The epoch to begin with, and the checkpoint's values. Each rank leaves its number in a file.\"\"\"
    with open(f"pids/{os.getpid()}", "w") as f:
        f.write(str(train.get_context().get_world_rank()))
    checkpoint = train.get_checkpoint()
    values = checkpoint.to_dict() if checkpoint else None
    return (values["epoch"] + 1 if values else 0), values


def wait_for_kills(epoch):
    \"\"\"The last epoch begins when all kills are done: however slow the machine is, none comes too late.\"\"\"
    while epoch == EPOCHS - 1 and not os.path.exists("enough"):
        time.sleep(0.005)


def rows(epoch, step):
    \"\"\"A batch of this rank, the same in every attempt.\"\"\"
    import numpy as np
    rank = train.get_context().get_world_rank()
    x = np.random.default_rng([epoch, step, rank]).normal(size=(8, 4)).astype("float32")
    return x, x.sum(1, keepdims=True)


def torch_loop():
    import torch
    from manta.train.torch import prepare_model
    first, values = begin()
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    if values:
        net.load_state_dict(values["weights"])
    model, optimizer = prepare_model(net), torch.optim.SGD(net.parameters(), 0.1)
    for epoch in range(first, EPOCHS):
        wait_for_kills(epoch)
        for step in range(STEPS):
            x, y = (torch.from_numpy(a) for a in rows(epoch, step))
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
        train.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch, "weights": net.state_dict()}))


def tensorflow_loop():
    import tensorflow as tf
    first, values = begin()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(tf.keras.optimizers.SGD(0.1), "mse")
    if values:
        model.set_weights(values["weights"])
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    for epoch in range(first, EPOCHS):
        wait_for_kills(epoch)
        batches = [rows(epoch, step) for step in range(STEPS)]
        data = tf.data.Dataset.from_tensor_slices(tuple(tf.stack(part) for part in zip(*batches))).with_options(options)
        model.fit(data, verbose=0)
        train.report({"epoch": epoch}, checkpoint=Checkpoint.from_dict({"epoch": epoch, "weights": model.get_weights()}))


def reports():
    try:
        with open("runs/chaos/reports.jsonl") as f:
            return sum(1 for _ in f)
    except OSError:
        return 0


def kill_some(done, killed):
    \"\"\"Kills KILLS ranks, each some reports after the attempt has begun: a rank that is killed is one of a later attempt.\"\"\"
    chance = random.Random(SEED)
    while len(killed) < KILLS and not done.is_set():
        rank, later = str(chance.randrange(2)), min(reports() + chance.randrange(3), 2 * (EPOCHS - 1))
        wait = chance.random() * 0.02
        while not done.wait(0.002):
            new = [int(os.path.basename(p)) for p in glob.glob("pids/*") if open(p).read() == rank]
            new = [pid for pid in new if pid not in killed and os.path.exists(f"/proc/{pid}")]
            if new and reports() >= later:
                done.wait(wait)
                killed.append(new[-1])
                try:
                    os.kill(new[-1], signal.SIGKILL)
                except ProcessLookupError:
                    killed.pop()
                break
    open("enough", "w").close()


if __name__ == "__main__":
    if KIND == "torch":
        import torch                        # the ranks are forks of a process that has it as well
        from manta.train.torch import TorchTrainer as Trainer
    else:
        from manta.train.tensorflow import TensorflowTrainer as Trainer
    os.makedirs("pids")
    done, killed = threading.Event(), []
    killer = threading.Thread(target=kill_some, args=(done, killed))
    killer.start()
    try:
        result = Trainer(torch_loop if KIND == "torch" else tensorflow_loop, scaling_config=ScalingConfig(num_workers=2),
                         run_config=RunConfig(name="chaos", storage_path="runs", failure_config=FailureConfig(max_failures=-1))).fit()
    finally:
        done.set()
        killer.join()
    values = result.checkpoint.to_dict()
    weights = values["weights"].values() if KIND == "torch" else values["weights"]
    print("RESULT", {"epoch": values["epoch"], "last": result.metrics["epoch"], "killed": len(killed),
                     "epochs": sorted({m["epoch"] for m in result.history}),
                     "weights": [float(x) for w in weights for x in w.reshape(-1)]})
"""


def ran(folder, kind, seed, kills):
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, "program.py", kind, str(seed), str(kills)], cwd=folder, capture_output=True, text=True,
                          timeout=TIMEOUT_S, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return ast.literal_eval(next(x[7:] for x in done.stdout.splitlines() if x.startswith("RESULT "))), done.stderr


@pytest.mark.parametrize("kind, modules, kills", [("torch", ("torch",), 3), ("tensorflow", ("tensorflow", "tf_keras"), 2)])
def test_a_run_whose_ranks_are_killed_comes_to_its_end(tmp_path, kind, modules, kills):
    """All epochs are there, the last checkpoint loads, and its weights are those of a run that was left alone."""
    need(*modules)
    kills = int(os.environ.get("MANTA_CHAOS_KILLS", kills))
    alone, _ = ran(tmp_path / "alone", kind, SEED, 0)
    killed, said = ran(tmp_path / "killed", kind, SEED, kills)
    assert alone["killed"] == 0 and alone["epochs"] == [0, 1, 2, 3, 4]
    assert killed["killed"] == kills and said.count("killed by signal 9") >= 1, said
    for name in ("epoch", "last", "epochs"):
        assert killed[name] == alone[name], (name, said)
    assert killed["weights"] == pytest.approx(alone["weights"], rel=1e-5), said
