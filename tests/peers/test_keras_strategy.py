"""manta.keras_strategy() with real Keras 3 over TensorFlow and over torch: two ranks are as one process, and equal to the byte."""
import importlib.util
import json
import pathlib
import re

import pytest
from conftest import run_python

HERE = pathlib.Path(__file__).resolve().parent
BACKENDS = ["tensorflow", "torch"]
results = {}


def need(*modules):
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def ran(backend, *launch):
    """What each process prints behind "RESULT ", by rank; each program runs once."""
    need("keras", backend)
    if (backend, launch) not in results:
        done = run_python(*launch, HERE / "keras_program.py", env={"KERAS_BACKEND": backend})
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        found = [json.loads(text) for text in re.findall(r"^(?:\[rank \d+\] )?RESULT (.*)$", done.stdout, re.M)]
        results[backend, launch] = {one["rank"]: one for one in found}
    return results[backend, launch]


def two(backend):
    return ran(backend, "-m", "manta", "launch", "-n", "2")


def near(a, b):
    return [x for row in a for x in row] == pytest.approx([x for row in b for x in row], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_ranks_are_as_one_process(backend):
    """Weights, losses, metrics and validation agree to rounding, also where the last batch has a row for one rank alone."""
    one, both = ran(backend)[0], two(backend)
    assert one["size"] == 1 and sorted(both) == [0, 1]
    for name, alone in one["trainings"].items():
        first, second = (both[k]["trainings"][name] for k in (0, 1))
        assert first["bytes"] == second["bytes"], name
        assert near(first["weights"], alone["weights"]), name
        assert first["history"] == second["history"] and list(first["history"]) == list(alone["history"]), name
        for key, values in alone["history"].items():
            assert first["history"][key] == pytest.approx(values, rel=1e-3, abs=1e-5), (name, key)
        assert first.get("evaluated") == second.get("evaluated")
        assert first.get("evaluated", []) == pytest.approx(alone.get("evaluated", []), rel=1e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_agree(backend):
    """On weights after different numbers of batches, on when to stop, on statistics, and on no random number."""
    first, second = (two(backend)[k]["agreements"] for k in (0, 1))
    for name in first:
        if name != "refused":
            assert first[name]["bytes"] == second[name]["bytes"], name
    assert first["unequal"]["history"] == second["unequal"]["history"]
    for name in ("stops after an epoch", "stops within an epoch"):
        assert first[name]["epochs"] == second[name]["epochs"] == 2
    assert len(first["statistics"]["seeds"]) == len(second["statistics"]["seeds"]) == 1
    assert first["statistics"]["seeds"] != second["statistics"]["seeds"]
    assert first["saved"]["same"] and first["saved"]["class"] == "Sequential"
    assert first["own step"]["history"] == second["own step"]["history"] == {"rows": [7.5]}
    assert sorted(first["refused"]) == ["jit_compile=True", "reduction=None", "reduction=sum"]
    assert first["unequal statistics"]["mean"]
    assert first["no batch in an epoch"]["history"] == second["no batch in an epoch"]["history"]
    assert len(first["no batch in an epoch"]["history"]["loss"]) == 2


LOOP = """
import json, sys
from manta.train import RunConfig, ScalingConfig
from manta.train.tensorflow import TensorflowConfig, TensorflowTrainer
from manta.train.tensorflow.keras import ReportCheckpointCallback
from manta.train.torch import TorchTrainer


def loop():
    import hashlib
    import keras
    import numpy as np
    import manta
    strategy = manta.keras_strategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.random.default_rng(3).normal(size=(40, 4)).astype("float32")
    model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=2, verbose=0, callbacks=[ReportCheckpointCallback()])
    from manta import train
    weights = hashlib.sha256(b"".join(w.tobytes() for w in model.get_weights())).hexdigest()
    train.report({"weights": weights, "ranks": strategy.num_replicas_in_sync, "backend": keras.backend.backend()})
    if strategy.rank == 0:
        model.evaluate(x, x.sum(1, keepdims=True), verbose=0)       # alone: it is told that the other one has left


if __name__ == "__main__":
    backend = sys.argv[1]
    kind, how = (TensorflowTrainer, {"tensorflow_config": TensorflowConfig(keras=3)}) if backend == "tensorflow" else (TorchTrainer, {})
    try:
        kind(loop, scaling_config=ScalingConfig(num_workers=2), **how,
             run_config=RunConfig(name="k", storage_path="runs", worker_runtime_env={"env_vars": {"KERAS_BACKEND": backend}})).fit()
    except Exception as e:
        print("TOLD", str(e).replace("\\n", " "))
"""


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_the_loop_of_a_trainer(tmp_path, backend):
    """The ranks of a trainer meet, too; a rank that evaluates alone is told who has left, and does not wait."""
    need("keras", backend)
    (tmp_path / "program.py").write_text(LOOP)
    done = run_python(tmp_path / "program.py", backend, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    told = next(line for line in done.stdout.splitlines() if line.startswith("TOLD "))
    assert "worker 0 failed" in told and "rank 1 has left the group" in told
    reports = [json.loads(x)["metrics"] for x in (tmp_path / "runs" / "k" / "reports.jsonl").read_text().splitlines()]
    last = [r for r in reports if "weights" in r]
    assert [(r["ranks"], r["backend"]) for r in last] == [(2, backend)] * 2 and len({r["weights"] for r in last}) == 1
    losses = [r["loss"] for r in reports if "loss" in r]
    assert len(losses) == 4 and len(set(losses)) == 2


def test_a_rank_without_batches_updates_where_its_variables_are():
    """The sum comes in the memory of the processor, and the optimizer has it on the device of each variable."""
    need("torch")
    import types
    import torch
    from manta._strategy._gradients import Averaged

    class Optimizer:
        def apply(self, grads, variables):
            self.given = [str(g.device) for g in grads]

    step = types.SimpleNamespace(add_up=lambda address, n, dtype: None)
    variables = [types.SimpleNamespace(shape=(2, 3), dtype="float32", value=torch.zeros(2, 3, device=d)) for d in ("meta", "cpu")]
    optimizer = Optimizer()
    Averaged(step, optimizer, 0, True, lambda: None).mirror(12, variables)
    assert optimizer.given == ["meta", "cpu"]


def test_alone_nothing_is_changed():
    """One rank compiles as Keras does, and a model that Keras has compiled is taken as it is, also where that is by XLA."""
    need("keras", "torch")
    done = run_python("-c", """
import keras, manta
from manta._strategy import KerasStrategy
from manta._strategy._group import Group
keras.Model._resolve_auto_jit_compile = lambda model: True
def model(): return keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
def compiled(model):
    model.compile("sgd", "mse")
    return model
alone = manta.keras_strategy()
two = Group(0, 1, None)
two.size = 2
two = KerasStrategy(keras, two, True)
print([compiled(s.prepare(model())).jit_compile for s in (alone, two)], [s.prepare(compiled(model())).jit_compile for s in (alone, two)])
""", env={"KERAS_BACKEND": "torch"})
    assert done.stdout.splitlines()[-1:] == ["[True, False] [True, False]"], done.stdout + done.stderr


def test_processes_that_cannot_meet_are_refused():
    """A rank of somebody else's launcher is not trained alone without a word."""
    need("keras", "torch")
    done = run_python("-c", "import manta; manta.keras_strategy()",
                      env={"KERAS_BACKEND": "torch", "RANK": "1", "WORLD_SIZE": "2", "MANTA_RANKS": ""})
    assert done.returncode == 1 and "python -m manta launch" in done.stderr, done.stderr
