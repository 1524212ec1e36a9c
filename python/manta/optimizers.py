"""Optimizers and learning-rate schedules as objects: Keras's names, options and defaults.

    rate = manta.optimizers.CosineDecay(0.1, decay_steps=1000)
    model.compile(manta.optimizers.SGD(rate, momentum=0.9), "mse")

Where there is nothing to say a name will do: model.compile("adam", "mse").
"""
from manta.models._words import Config

_COMMON = ("weight_decay", "clipnorm", "clipvalue", "global_clipnorm", "use_ema", "ema_momentum", "ema_overwrite_frequency",
           "gradient_accumulation_steps")


class SGD(Config):
    """Gradient descent: SGD(0.1, momentum=0.9, nesterov=True)."""
    class_name, keys = "SGD", ("learning_rate", "momentum", "nesterov", *_COMMON)


class Adam(Config):
    """Adam(1e-3)."""
    class_name, keys = "Adam", ("learning_rate", "beta_1", "beta_2", "epsilon", "amsgrad", *_COMMON)


class AdamW(Config):
    """Adam whose decay of weights is apart: AdamW(1e-3, weight_decay=0.004)."""
    class_name, keys = "AdamW", ("learning_rate", "weight_decay", "beta_1", "beta_2", "epsilon", "amsgrad", *_COMMON[1:])


class RMSprop(Config):
    """RMSprop(1e-3, rho=0.9, centered=True)."""
    class_name, keys = "RMSprop", ("learning_rate", "rho", "momentum", "epsilon", "centered", *_COMMON)


class ExponentialDecay(Config):
    """ExponentialDecay(0.1, decay_steps=1000, decay_rate=0.96)."""
    class_name, keys = "ExponentialDecay", ("initial_learning_rate", "decay_steps", "decay_rate", "staircase")


class CosineDecay(Config):
    """CosineDecay(0.0, decay_steps=1000, warmup_target=0.1, warmup_steps=100)."""
    class_name, keys = "CosineDecay", ("initial_learning_rate", "decay_steps", "alpha", "name", "warmup_target", "warmup_steps")


class PolynomialDecay(Config):
    """PolynomialDecay(0.1, decay_steps=1000, end_learning_rate=0.001, power=2.0)."""
    class_name, keys = "PolynomialDecay", ("initial_learning_rate", "decay_steps", "end_learning_rate", "power", "cycle")


class InverseTimeDecay(Config):
    """InverseTimeDecay(0.1, decay_steps=100, decay_rate=0.5)."""
    class_name, keys = "InverseTimeDecay", ("initial_learning_rate", "decay_steps", "decay_rate", "staircase")


class PiecewiseConstantDecay(Config):
    """PiecewiseConstantDecay([1000, 2000], [0.1, 0.01, 0.001])."""
    class_name, keys = "PiecewiseConstantDecay", ("boundaries", "values")


NAMES = ["sgd", "adam", "adamw", "rmsprop"]
