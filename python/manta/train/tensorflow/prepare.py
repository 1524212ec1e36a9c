"""What makes a dataset of TensorFlow that of a rank."""
from __future__ import annotations

from typing import Any

__all__ = ["prepare_dataset_shard"]


def prepare_dataset_shard(tf_dataset_shard: Any) -> Any:
    """A tf.data.Dataset that is a rank's part already: TensorFlow does not divide it again, and reads ahead.

        model.fit(prepare_dataset_shard(dataset))
    """
    import tensorflow as tf
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf_dataset_shard.with_options(options).prefetch(tf.data.AUTOTUNE)
