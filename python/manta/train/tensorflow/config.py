"""TensorflowConfig, and what it does around a loop: TF_CONFIG, the ports in it, and which Keras there is.

The ports of TF_CONFIG are held by the driver as long as the attempt lasts (manta._ports), so that TensorFlow can listen there
and nobody else is given them.
"""
from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import socket
import sys
from typing import Mapping, Optional

from manta._ports import reserve_port
from manta.train._backend import Backend, BackendConfig
from manta.train.config import ScalingConfig
from manta.train.context import Place

__all__ = ["TensorflowConfig"]


@dataclasses.dataclass
class TensorflowConfig(BackendConfig):
    """TensorFlow in the ranks of a TensorflowTrainer.

        TensorflowConfig(keras=3)

    keras: 3 leaves Keras as TensorFlow brings it; else tf.keras is tf_keras, if that is installed, because
    Keras 3 refuses MultiWorkerMirroredStrategy. A TF_USE_LEGACY_KERAS of the environment's own counts more.
    """
    keras: Optional[int] = None

    def make_backend(self) -> Backend:
        return TensorflowBackend(self.keras)


class TensorflowBackend(Backend):
    """TF_CONFIG of each rank."""

    def __init__(self, keras: Optional[int]) -> None:
        self.keras = keras
        self.addresses: list[str] = []
        self._held: list[socket.socket] = []

    def environment(self) -> Mapping[str, str]:
        out = {"TF_GRPC_REUSE_PORT": "1"}
        if self.keras != 3 and "TF_USE_LEGACY_KERAS" not in os.environ and importlib.util.find_spec("tf_keras"):
            out["TF_USE_LEGACY_KERAS"] = "1"
        return out

    def attempt(self, n: int, folder: str, scaling: ScalingConfig) -> None:
        self._held = [reserve_port() for _ in range(n)]
        self.addresses = ["127.0.0.1:%d" % held.getsockname()[1] for held in self._held]

    def end_attempt(self) -> None:
        for held in self._held:
            held.close()
        self._held = []

    def start(self, place: Place) -> None:
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": self.addresses},
                                              "task": {"type": "worker", "index": place.rank}})
        if place.world_size > 1 and place.rank == 0 and "TF_USE_LEGACY_KERAS" not in os.environ and self.keras != 3:
            print("manta: tf_keras is not installed (pip install tf_keras), and Keras 3 refuses MultiWorkerMirroredStrategy",
                  file=sys.stderr)
