"""ray.train.constants, as far as Ray's tests use it."""
from pathlib import Path

TRAIN_DATASET_KEY = "train"
RAY_CHDIR_TO_TRIAL_DIR = "RAY_CHDIR_TO_TRIAL_DIR"
TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S = "RAY_TRAIN_TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S"
ENABLE_V2_MIGRATION_WARNINGS_ENV_VAR = "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS"


def _get_ray_train_session_dir():
    return Path("/nowhere").as_posix()
