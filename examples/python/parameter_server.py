"""A parameter server in forty lines: workers fetch weights, send gradients, and wait for nobody."""
import numpy as np

import manta


@manta.remote
class ParameterServer:
    def __init__(self, size):
        self.weights = np.zeros(size)

    def apply(self, gradient, rate):
        self.weights = self.weights - rate * gradient
        return self.weights

    def get(self):
        return self.weights


@manta.remote
def work(server, seed, rounds):
    """Least squares on samples of this worker's own; returns its last loss."""
    random = np.random.default_rng(seed)
    goal = np.arange(10.0)
    weights = manta.get(server.get.remote())
    loss = 0.0
    for _ in range(rounds):
        x = random.standard_normal((64, goal.size))
        error = x @ weights - x @ goal
        loss = float(np.mean(error ** 2))
        weights = manta.get(server.apply.remote(2 * x.T @ error / len(x), 0.05))
    return loss


def main():
    server = ParameterServer.remote(10)
    losses = manta.get([work.remote(server, seed, 100) for seed in range(2)])
    weights = manta.get(server.get.remote())
    print("loss of each worker:", ", ".join(f"{loss:.2e}" for loss in losses))
    print("weights:", np.round(np.abs(weights), 3))


if __name__ == "__main__":
    main()
