#!/usr/bin/env python3
"""One run of mnist-cnn in Keras: model_keras.py OUT.npz DATA THREADS f32|f64. See make_models."""
import os
import sys

out, data, threads, kind = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

from golden import formula, idx, scale_of

tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)
if kind == "f64":
    keras.backend.set_floatx("float64")
BATCH, STEPS = 64, 100
x = idx(os.path.join(data, "mnist", "train-images-idx3-ubyte.gz"))[:BATCH * STEPS].astype(np.float32) / np.float32(255)
y = idx(os.path.join(data, "mnist", "train-labels-idx1-ubyte.gz"))[:BATCH * STEPS].astype(np.int64)
x = x.astype(keras.backend.floatx())

L = keras.layers
model = keras.Sequential([keras.Input((28, 28)), L.Reshape((28, 28, 1)), L.Conv2D(32, 3, activation="relu"), L.Flatten(),
                          L.Dense(128, activation="relu"), L.Dense(10)])
scales = {}
for number, w in enumerate(model.trainable_variables):
    key = f"{w.path.split('/')[-2]}/{w.path.split('/')[-1]}"
    fan_in = int(np.prod(w.shape[:-1]))
    if w.path.endswith("bias"):
        w.assign(np.zeros(w.shape))
        scales[key] = np.float32(0)
    else:
        scales[key] = scale_of(fan_in)
        w.assign(formula(number, int(np.prod(w.shape)), scales[key]).reshape(w.shape))

loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)


@tf.function
def step(a, b):
    with tf.GradientTape() as tape:
        value = loss(b, model(a, training=True))
    g = tape.gradient(value, model.trainable_variables)
    optimizer.apply(g, model.trainable_variables)
    return value, g


losses, first = [], None
for i in range(STEPS):
    value, g = step(tf.constant(x[i * BATCH:(i + 1) * BATCH]), tf.constant(y[i * BATCH:(i + 1) * BATCH]))
    losses.append(float(value))
    first = first or [t.numpy() for t in g]
arrays = {"loss": np.array(losses, np.float64)}
for (key, scale), g in zip(scales.items(), first):
    arrays["scale:" + key] = scale
    arrays["grad:" + key] = g
np.savez(out, **arrays, made_by=f"keras {keras.__version__}, tensorflow {tf.__version__}")
