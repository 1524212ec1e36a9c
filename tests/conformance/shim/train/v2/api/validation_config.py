"""ray.train.v2.api.validation_config"""
from manta.train import ValidationConfig, ValidationTaskConfig  # noqa: F401
