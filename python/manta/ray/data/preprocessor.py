"""ray.data.preprocessor, which is manta.data's."""
from manta.data.preprocessor import Preprocessor

__all__ = ["Preprocessor"]
