"""A network y = w x + b in an actor for each batch: weights travel, and their mean begins the next round.

Written for Ray: `python -m manta run average_weights.py`.
"""
import numpy as np

import ray

BATCH_SIZE, NUM_BATCHES, NUM_ITERS, RATE = 100, 2, 201, 0.5


class Network:
    def __init__(self, x, y):
        self.x, self.y = x, y
        self.weights = {"w": np.random.default_rng(0).uniform(-1, 1, 1), "b": np.zeros(1)}

    def gradients(self, weights):
        error = weights["w"] * self.x + weights["b"] - self.y
        return {"w": np.array([2 * (error * self.x).mean()]), "b": np.array([2 * error.mean()])}

    def step(self, weights):
        gradients = self.gradients(weights)
        self.weights = {name: weights[name] - RATE * gradients[name] for name in weights}
        return self.weights

    def get_weights(self):
        return self.weights


@ray.remote(num_returns=2)
def generate_fake_x_y_data(num_data, seed=0):
    x = np.random.default_rng(seed).random(num_data)
    return x, x * 0.1 + 0.3


def main():
    ray.init()
    batches = [generate_fake_x_y_data.remote(BATCH_SIZE, seed=i) for i in range(NUM_BATCHES)]
    remote_network = ray.remote(Network)
    actors = [remote_network.remote(x, y) for x, y in batches]
    weights = ray.get(actors[0].get_weights.remote())
    for iteration in range(NUM_ITERS):
        weights_id = ray.put(weights)           # once, for all actors
        new = ray.get([actor.step.remote(weights_id) for actor in actors])
        weights = {name: sum(w[name] for w in new) / NUM_BATCHES for name in weights}
        if iteration % 20 == 0:
            print(f"Iteration {iteration}: weights are {weights}")
    print(f"converged to w = {weights['w'][0]:.4f}, b = {weights['b'][0]:.4f}")


if __name__ == "__main__":
    main()
