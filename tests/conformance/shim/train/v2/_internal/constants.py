"""ray.train.v2._internal.constants, as far as Ray's tests use it."""
CHECKPOINT_MANAGER_SNAPSHOT_FILENAME = "config.json"        # what is missing in a folder that is no run's
ENABLE_STATE_ACTOR_RECONCILIATION_ENV_VAR = "RAY_TRAIN_ENABLE_STATE_ACTOR_RECONCILIATION"
HEALTH_CHECK_INTERVAL_S_ENV_VAR = "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"


def is_v2_enabled():
    return True


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)
