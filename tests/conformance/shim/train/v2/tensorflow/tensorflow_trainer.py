"""ray.train.v2.tensorflow.tensorflow_trainer"""
from manta.train.tensorflow import TensorflowTrainer  # noqa: F401
