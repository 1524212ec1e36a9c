"""TensorFlow and Keras in the loops of manta.train.

    from manta.train.tensorflow import TensorflowTrainer

    def loop(config):
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        with strategy.scope():
            model = ...
        model.fit(...)

    TensorflowTrainer(loop, scaling_config=ScalingConfig(num_workers=2)).fit()

Importing it does not import TensorFlow.
"""
from manta.train.tensorflow.checkpoint import TensorflowCheckpoint
from manta.train.tensorflow.config import TensorflowConfig
from manta.train.tensorflow.prepare import prepare_dataset_shard
from manta.train.tensorflow.trainer import TensorflowTrainer

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]
