"""ray.train.tensorflow: TensorFlow and Keras in loops."""
from manta.train.tensorflow import TensorflowConfig, TensorflowTrainer, prepare_dataset_shard

__all__ = ["TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]
