"""ray.train.v2.api.exceptions"""
from manta.train import ControllerError, TrainingFailedError, WorkerGroupError  # noqa: F401
