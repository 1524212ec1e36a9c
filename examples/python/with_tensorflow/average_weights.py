"""A network of TensorFlow 1 in an actor for each batch: it trains a step, and the mean of the weights begins the next.

Written for Ray: `python -m manta run average_weights.py`.
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
        self.x_data = tf.constant(x, dtype=tf.float32)
        self.y_data = tf.constant(y, dtype=tf.float32)
        w = tf.Variable(tf.random_uniform([1], -1.0, 1.0))
        b = tf.Variable(tf.zeros([1]))
        y = w * self.x_data + b
        self.loss = tf.reduce_mean(tf.square(y - self.y_data))
        optimizer = tf.train.GradientDescentOptimizer(0.5)
        self.grads = optimizer.compute_gradients(self.loss)
        self.train = optimizer.apply_gradients(self.grads)
        init = tf.global_variables_initializer()
        self.sess = tf.Session()
        # What gets and sets the weights, without adding to the graph each time.
        self.variables = ray.experimental.TensorFlowVariables(self.loss, self.sess)
        self.sess.run(init)

    def step(self, weights):
        self.variables.set_weights(weights)
        self.sess.run(self.train)
        return self.variables.get_weights()

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
weights = ray.get(actor_list[0].get_weights.remote())

for iteration in range(NUM_ITERS):
    weights_id = ray.put(weights)       # one object, however many actors read it
    new_weights_ids = [actor.step.remote(weights_id) for actor in actor_list]
    new_weights_list = ray.get(new_weights_ids)
    weights = {variable: sum(weight_dict[variable] for weight_dict in new_weights_list) / NUM_BATCHES
               for variable in new_weights_list[0]}
    if iteration % 20 == 0:
        print("Iteration {}: weights are {}".format(iteration, weights))
