"""TorchCheckpoint: a checkpoint of a model or of its weights.

    train.report(metrics, checkpoint=TorchCheckpoint.from_model(model))
    model = TorchCheckpoint(result.checkpoint.path).get_model()
"""
from __future__ import annotations

import os
import tempfile
from typing import Any, Mapping, Optional

from manta.train.checkpoint import Checkpoint

__all__ = ["TorchCheckpoint"]

MODEL = "model.pt"          # a module, or its weights by name
_PREFIX = "module."         # what DistributedDataParallel puts before names


class TorchCheckpoint(Checkpoint):
    """A folder with a model of PyTorch in it."""
    MODEL_FILENAME = MODEL

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any], *, preprocessor: Any = None) -> TorchCheckpoint:
        """A checkpoint of a model's weights, which get_model(model) puts into a model.

            TorchCheckpoint.from_state_dict(model.state_dict())
        """
        return cls._written(dict(state_dict), preprocessor)

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> TorchCheckpoint:
        """A checkpoint of a whole model, of which the class must be there where it is read. Of DistributedDataParallel the
        model inside is taken.

            TorchCheckpoint.from_model(model)
        """
        import torch
        if isinstance(model, torch.nn.parallel.DistributedDataParallel):
            model = model.module
        return cls._written(model, preprocessor)

    @classmethod
    def _written(cls, what: Any, preprocessor: Any) -> TorchCheckpoint:
        import torch
        folder = tempfile.mkdtemp(prefix="manta-checkpoint-")
        torch.save(what, os.path.join(folder, MODEL))
        out = cls.from_directory(folder)
        if preprocessor is not None:
            out.set_preprocessor(preprocessor)
        return out                  # type: ignore[return-value]  # from_directory() is of this class

    def get_model(self, model: Optional[Any] = None) -> Any:
        """The model. Of a checkpoint of weights a model must be given, which gets them.

            model = checkpoint.get_model(Net())
        """
        import torch
        with self.as_directory() as folder:
            kept = torch.load(os.path.join(folder, MODEL), map_location="cpu", weights_only=False)
        if isinstance(kept, torch.nn.Module):
            if model is not None:
                raise ValueError("get_model(): the checkpoint is of a whole model, and another was given")
            return kept
        if model is None:
            raise ValueError("get_model(): the checkpoint is of weights; give the model that is to get them")
        model.load_state_dict({name.removeprefix(_PREFIX): value for name, value in kept.items()})
        return model
