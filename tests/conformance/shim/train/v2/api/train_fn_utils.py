"""ray.train.v2.api.train_fn_utils"""
from manta.train import get_all_reported_checkpoints, get_checkpoint, get_context, get_dataset_shard, report  # noqa: F401
