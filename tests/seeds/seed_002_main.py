"""Seed 002, "Multi-worker training with Keras": main.py, which each worker runs with a TF_CONFIG of its own."""
import os
import json

import tensorflow as tf
import mnist_setup

per_worker_batch_size = 64
tf_config = json.loads(os.environ['TF_CONFIG'])
num_workers = len(tf_config['cluster']['worker'])

strategy = tf.distribute.MultiWorkerMirroredStrategy()

global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = mnist_setup.mnist_dataset(global_batch_size)

with strategy.scope():
    # Model building/compiling need to be within `strategy.scope()`.
    multi_worker_model = mnist_setup.build_and_compile_cnn_model()


history = multi_worker_model.fit(multi_worker_dataset, epochs=3, steps_per_epoch=70)

weights = sum(float(tf.reduce_sum(tf.cast(w, tf.float64))) for w in multi_worker_model.get_weights())
print("RESULT", json.dumps({"workers": num_workers, "replicas": strategy.num_replicas_in_sync,
                            "steps": int(multi_worker_model.optimizer.iterations.numpy()), "loss": history.history["loss"],
                            "weights": weights}))
