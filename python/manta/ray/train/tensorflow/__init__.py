"""ray.train.tensorflow: TensorFlow and Keras in loops."""
from manta.train.tensorflow import TensorflowCheckpoint, TensorflowConfig, TensorflowTrainer, prepare_dataset_shard

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]
