"""A network y = w x + b here and a copy of it in an actor for each batch: gradients travel and are applied here.

Written for Ray: `python -m manta run average_gradients.py`.
"""
import numpy as np

import ray

from average_weights import BATCH_SIZE, NUM_BATCHES, NUM_ITERS, RATE, Network, generate_fake_x_y_data


def main():
    ray.init()
    batches = [generate_fake_x_y_data.remote(BATCH_SIZE, seed=i) for i in range(NUM_BATCHES)]
    actors = [ray.remote(Network).remote(x, y) for x, y in batches]
    weights = {"w": np.zeros(1), "b": np.zeros(1)}
    for iteration in range(NUM_ITERS):
        weights_id = ray.put(weights)
        gradients = ray.get([actor.gradients.remote(weights_id) for actor in actors])
        mean = {name: sum(g[name] for g in gradients) / NUM_BATCHES for name in weights}
        weights = {name: weights[name] - RATE * mean[name] for name in weights}
        if iteration % 20 == 0:
            print(f"Iteration {iteration}: weights are {weights}")
    print(f"converged to w = {weights['w'][0]:.4f}, b = {weights['b'][0]:.4f}")


if __name__ == "__main__":
    main()
