"""TensorflowTrainer with real Keras: its callback that reports, over tf_keras with a strategy and over Keras 3."""
import ast
import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import TIMEOUT_S

PROGRAM = """
import os, sys
from manta.train import RunConfig, ScalingConfig
from manta.train.tensorflow import TensorflowConfig, TensorflowTrainer, prepare_dataset_shard
from manta.train.tensorflow.keras import ReportCheckpointCallback
KERAS_3 = sys.argv[1] == "3"


def loop():
    import numpy as np
    import tensorflow as tf
    strategy = tf.distribute.get_strategy() if KERAS_3 else tf.distribute.MultiWorkerMirroredStrategy()
    assert tf.keras.__name__.startswith("tf_keras.") == (not KERAS_3), tf.keras.__name__
    x = np.random.normal(size=(64, 4)).astype("float32")
    data = prepare_dataset_shard(tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(8))
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    model.fit(data, epochs=2, verbose=0, callbacks=[ReportCheckpointCallback(metrics={"l": "loss"})])


if __name__ == "__main__":
    result = TensorflowTrainer(loop, tensorflow_config=TensorflowConfig(keras=3 if KERAS_3 else None),
                               scaling_config=ScalingConfig(num_workers=2), run_config=RunConfig(storage_path="runs")).fit()
    print("RESULT", [sorted(m) for m in result.history], len(result.best_checkpoints), os.listdir(result.checkpoint.path),
          sep=";")
"""


@pytest.mark.parametrize("keras", ["2", "3"])
def test_the_callback_reports_metrics_and_the_model(tmp_path, keras):
    missing = [m for m in ("tensorflow", "tf_keras", "keras") if importlib.util.find_spec(m) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run([sys.executable, tmp_path / "program.py", keras], cwd=tmp_path, capture_output=True, text=True,
                          timeout=TIMEOUT_S, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    line = next(x for x in done.stdout.splitlines() if x.startswith("RESULT;"))
    assert [ast.literal_eval(x) for x in line.split(";")[1:]] == [[["l"], ["l"]], 2, ["model.keras"]]
