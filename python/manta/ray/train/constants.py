"""ray.train.constants: names that programs share with their datasets."""

__all__ = ["TRAIN_DATASET_KEY"]

TRAIN_DATASET_KEY = "train"
