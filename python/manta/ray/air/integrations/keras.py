"""ray.air.integrations.keras: a callback that reports."""
from manta.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
