"""ray.train.v2.api.report_config"""
from manta.train import CheckpointConsistencyMode, CheckpointUploadMode  # noqa: F401
