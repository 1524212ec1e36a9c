"""ray.train.v2.api.context"""
from manta.train import LocalTrainContext, TrainContext  # noqa: F401
