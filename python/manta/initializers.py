"""How weights start, as objects: Keras's names and options.

    manta.layers.Dense(10, kernel_initializer=manta.initializers.RandomNormal(stddev=0.01))

Where there is nothing to say a text will do: kernel_initializer="he_normal".
"""
from manta.models._words import Config


class Zeros(Config):
    """All 0."""
    class_name = "Zeros"


class Ones(Config):
    """All 1."""
    class_name = "Ones"


class Constant(Config):
    """All `value`: Constant(0.1)."""
    class_name, keys = "Constant", ("value",)


class RandomUniform(Config):
    """Between minval and maxval: RandomUniform(-0.1, 0.1)."""
    class_name, keys = "RandomUniform", ("minval", "maxval")


class RandomNormal(Config):
    """Normal: RandomNormal(stddev=0.01)."""
    class_name, keys = "RandomNormal", ("mean", "stddev")


class TruncatedNormal(Config):
    """Normal, cut at two deviations: TruncatedNormal(stddev=0.02)."""
    class_name, keys = "TruncatedNormal", ("mean", "stddev")


class VarianceScaling(Config):
    """By the shape: VarianceScaling(2.0, "fan_in", "truncated_normal")."""
    class_name, keys = "VarianceScaling", ("scale", "mode", "distribution")


class GlorotUniform(Config):
    """Keras's default of most layers."""
    class_name = "GlorotUniform"


class GlorotNormal(Config):
    """GlorotNormal()."""
    class_name = "GlorotNormal"


class HeUniform(Config):
    """HeUniform()."""
    class_name = "HeUniform"


class HeNormal(Config):
    """HeNormal()."""
    class_name = "HeNormal"


class LecunUniform(Config):
    """LecunUniform()."""
    class_name = "LecunUniform"


class LecunNormal(Config):
    """LecunNormal()."""
    class_name = "LecunNormal"


NAMES = ["zeros", "ones", "constant", "random_uniform", "random_normal", "truncated_normal", "glorot_uniform",
         "glorot_normal", "he_uniform", "he_normal", "lecun_uniform", "lecun_normal", "uniform", "normal", "zero", "one",
         "Zeros", "Ones", "Constant", "RandomUniform", "RandomNormal", "TruncatedNormal", "GlorotUniform", "GlorotNormal",
         "HeUniform", "HeNormal", "LecunUniform", "LecunNormal", "VarianceScaling"]
