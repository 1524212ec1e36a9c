"""What large weights cost, as objects: Keras's names and options.

    manta.layers.Dense(10, kernel_regularizer=manta.regularizers.L2(1e-4))
"""
from manta.models._words import Config


class L1(Config):
    """l1 times the sum of absolute values: L1(0.01)."""
    class_name, keys = "L1", ("l1",)


class L2(Config):
    """l2 times the sum of squares: L2(0.01)."""
    class_name, keys = "L2", ("l2",)


class L1L2(Config):
    """Both: L1L2(l1=0.01, l2=0.01)."""
    class_name, keys = "L1L2", ("l1", "l2")
