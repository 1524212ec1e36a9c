"""ray.train.v2.api.reported_checkpoint"""
from manta.train import ReportedCheckpoint, ReportedCheckpointStatus  # noqa: F401
