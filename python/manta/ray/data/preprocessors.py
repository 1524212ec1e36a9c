"""ray.data.preprocessors: those that are here."""
from manta.data.preprocessor import Concatenator, Preprocessor

__all__ = ["Concatenator", "Preprocessor"]
