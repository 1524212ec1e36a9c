"""ray.train.v2.api.data_parallel_trainer"""
from manta.train import DataParallelTrainer  # noqa: F401
