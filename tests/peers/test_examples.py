"""The programs of examples/python/with_tensorflow, as a user runs them."""
import re

import pytest

from conftest import ROOT, run_python

EXAMPLES = ROOT / "examples" / "python" / "with_tensorflow"
NAMES = ["average_gradients.py", "average_weights.py"]


def test_every_example_is_here():
    assert NAMES == sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_weights_converge(name):
    done = run_python("-m", "manta", "run", EXAMPLES / name)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("Iteration ")]
    assert [int(line.split()[1][:-1]) for line in lines] == list(range(0, 201, 20)), done.stdout
    w, b = (float(x) for x in re.findall(r"array\(\[([-0-9.e]+)\]", lines[-1]))
    assert abs(w - 0.1) < 1e-4 and abs(b - 0.3) < 1e-4, lines[-1]


def test_variables_of_a_graph(python):
    """By name and flat, for several outputs; of other networks in the graph nothing."""
    assert python("""
import numpy as np
import tensorflow.compat.v1 as tf
import manta.ray as ray
from manta.ray.experimental.tf_utils import TensorFlowVariables
try:
    TensorFlowVariables(tf.constant(1.0))
except TypeError as e:
    print("tensor of a graph" in str(e))
for resources in (True, False):
    with tf.Graph().as_default():
        a = tf.get_variable("a", (2, 3), use_resource=resources)
        b = tf.get_variable("b", (4,), use_resource=resources)
        tf.get_variable("other", (5,))
        sess = tf.Session()
        sess.run(tf.global_variables_initializer())
        v = ray.experimental.TensorFlowVariables([tf.reduce_sum(a), tf.reduce_sum(b) * 2])
        v.set_session(sess)
        size = len(tf.get_default_graph().get_operations())
        v.set_flat(np.arange(10, dtype=np.float32))
        weights = v.get_weights()
        v.set_weights({"b": weights["b"] + 1, "unknown": 1})
        print(sorted(weights), v.get_flat_size(), v.get_flat().tolist(), len(tf.get_default_graph().get_operations()) == size)
        try:
            v.set_weights({"c": 1})
        except ValueError as e:
            print("which has a, b" in str(e))
""") == "True\n" + ("['a', 'b'] 10 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0, 10.0] True\nTrue\n") * 2
