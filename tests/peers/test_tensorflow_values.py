"""Eager tensors of TensorFlow as values. One process has all of them: importing TensorFlow takes seconds."""
PROGRAM = """
import numpy as np, tensorflow as tf, manta
from manta import _values
manta.init(num_cpus=1)
@manta.remote
def same(x): return x
@manta.remote
def add(x): return x + 1
def blocks(value):
    data, buffers = _values.dump(value)
    return [b.raw().nbytes for b in buffers], len(data)
def alike(a, b):
    return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool(np.all(a.numpy() == b.numpy()))
# Every type, small and large: its elements beside the pickle, none in it.
for name in ("float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool", "complex64"):
    for n in (6, 120000):
        t = tf.reshape(tf.cast(tf.range(n) % 5, getattr(tf, name)), (2, 3, -1))
        assert blocks(t)[0] == [n * t.dtype.size] and blocks(t)[1] < 1000, (name, blocks(t))
        for got in (manta.get(manta.put(t)), manta.get(same.remote(t)), manta.get(same.remote([t, 1]))[0], manta.get(manta.put(t), copy=True)):
            assert alike(got, t), (name, got)
for t in (tf.constant(3.5), tf.zeros((0, 3)), tf.zeros((2, 0), tf.bfloat16), tf.constant(["a", "bc"]), tf.constant(b"x")):
    assert alike(manta.get(same.remote(t)), t), t
# What arrives is no part of the object.
t = tf.ones(1 << 18)
ref = manta.put(t)
assert float(tf.reduce_sum(manta.get(add.remote(ref)))) == 2.0 * (1 << 18)
got = manta.get(ref)
v = tf.Variable(got)
v.assign_add(got)
assert float(tf.reduce_sum(manta.get(ref))) == 1 << 18
# Variables, and tensors among other things.
assert np.array_equal(manta.get(same.remote(v)).numpy(), v.numpy())
class Local:
    def __init__(self): self.t = tf.ones(3, tf.bfloat16)
assert alike(manta.get(same.remote(Local())).t, tf.ones(3, tf.bfloat16))
manta.shutdown()
assert float(tf.reduce_sum(got)) == 1 << 18
print("fine")
"""


def test_eager_tensors(python):
    assert python(PROGRAM) == "fine\n"


def test_a_driver_that_has_computed(python):
    """TensorFlow's threads run in the driver; workers are no forks of it, and compute as well."""
    assert python("""
import tensorflow as tf, manta
tf.reduce_sum(tf.matmul(tf.ones((300, 300)), tf.ones((300, 300))))
manta.init(num_cpus=2)
@manta.remote
def fit(seed):
    import tensorflow as tf
    x = tf.random.stateless_uniform((64, 1), (seed, 0))
    w = tf.Variable([[0.0]])
    for _ in range(200):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w - 3 * x) ** 2)
        w.assign_sub(tape.gradient(loss, w))
    return w
print([round(float(w.numpy()[0, 0]), 2) for w in manta.get([fit.remote(i) for i in range(2)])])
""") == "[3.0, 3.0]\n"


def test_multiprocessing_beside_tensorflow(python):
    """A pool in the driver (spawned: TensorFlow's own threads do not survive a fork) and in a worker."""
    assert python("""
import multiprocessing, manta
@manta.remote
def pooled():
    import multiprocessing
    import tensorflow as tf
    with multiprocessing.get_context("fork").Pool(2) as pool:       # before any operation has begun a thread
        out = pool.map(abs, range(-5, 0))
    return out, float(tf.reduce_sum(tf.ones(3)))
if __name__ == "__main__":
    manta.init(num_cpus=1)
    ref = pooled.remote()
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, range(-3, 0)), manta.get(ref))
""") == "[3, 2, 1] ([5, 4, 3, 2, 1], 3.0)\n"
