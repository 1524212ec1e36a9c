"""A network of TensorFlow 1 in an actor for each batch: it computes gradients, and a network here applies their mean.

Written for Ray: `python -m manta run average_gradients.py`.
"""
import numpy as np
import tensorflow.compat.v1 as tf

import ray

ray.init()

BATCH_SIZE = 100
NUM_BATCHES = 1
NUM_ITERS = 201


class Network(object):
    def __init__(self, x, y):
        tf.disable_v2_behavior()
        tf.set_random_seed(0)
        x_data = tf.constant(x, dtype=tf.float32)
        y_data = tf.constant(y, dtype=tf.float32)
        w = tf.Variable(tf.random_uniform([1], -1.0, 1.0))
        b = tf.Variable(tf.zeros([1]))
        y = w * x_data + b
        self.loss = tf.reduce_mean(tf.square(y - y_data))
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        self.grads = optimizer.compute_gradients(self.loss)
        self.train = optimizer.apply_gradients(self.grads)
        init = tf.global_variables_initializer()
        self.sess = tf.Session()
        self.variables = ray.experimental.TensorFlowVariables(self.loss, self.sess)
        self.sess.run(init)

    def step(self, weights):
        self.variables.set_weights(weights)
        # Pairs of a gradient and its variable: only the numbers of the first travel.
        actual_grads = self.sess.run([grad[0] for grad in self.grads])
        return actual_grads

    def get_weights(self):
        return self.variables.get_weights()


@ray.remote(num_return_vals=2)
def generate_fake_x_y_data(num_data, seed=0):
    np.random.seed(seed)
    x = np.random.rand(num_data)
    y = x * 0.1 + 0.3
    return x, y


batch_ids = [generate_fake_x_y_data.remote(BATCH_SIZE, seed=i) for i in range(NUM_BATCHES)]
x_ids = [x_id for x_id, y_id in batch_ids]
y_ids = [y_id for x_id, y_id in batch_ids]
x_test, y_test = ray.get(generate_fake_x_y_data.remote(BATCH_SIZE, seed=NUM_BATCHES))

remote_network = ray.remote(Network)
actor_list = [remote_network.remote(x_ids[i], y_ids[i]) for i in range(NUM_BATCHES)]
local_network = Network(x_test, y_test)
weights = local_network.get_weights()

for iteration in range(NUM_ITERS):
    weights_id = ray.put(weights)
    gradients_ids = [actor.step.remote(weights_id) for actor in actor_list]
    gradients_list = ray.get(gradients_ids)
    mean_grads = [sum([gradients[i] for gradients in gradients_list]) / len(gradients_list)
                  for i in range(len(gradients_list[0]))]
    # The numbers take the place of the gradients that the local graph would compute.
    feed_dict = {grad[0]: mean_grad for (grad, mean_grad) in zip(local_network.grads, mean_grads)}
    local_network.sess.run(local_network.train, feed_dict=feed_dict)
    weights = local_network.get_weights()
    if iteration % 20 == 0:
        print("Iteration {}: weights are {}".format(iteration, weights))
