"""A checkpoint: a folder of files that a loop wrote.

    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
        manta.train.report({"loss": loss}, checkpoint=Checkpoint.from_directory(folder))

    with result.checkpoint.as_directory() as folder:
        model.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
"""
from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import tempfile
from typing import Any, Iterator, Mapping, Optional, Union

__all__ = ["Checkpoint"]

METADATA = ".metadata.json"             # as Ray names it
PREPROCESSOR = ".preprocessor.pkl"
VALUES = "dict_checkpoint.pkl"          # what from_dict() was given


def _local_filesystem(who: str) -> Any:
    try:
        import pyarrow.fs
    except ImportError as e:
        raise ImportError(f"{who} needs pyarrow (pip install pyarrow); the path is one of this host in any case") from e
    return pyarrow.fs.LocalFileSystem()


class Checkpoint:
    """A folder, by its path; nothing is read before it is asked for.

        Checkpoint("/data/runs/first/checkpoints/checkpoint-000003/checkpoint_000002")
    """

    def __init__(self, path: Union[str, os.PathLike[str]], filesystem: Optional[Any] = None) -> None:
        if filesystem is not None and getattr(filesystem, "type_name", "") != "local":
            raise NotImplementedError("Checkpoint: the filesystem is another than this host's; the path is one of this host")
        text = os.fspath(path)
        if "://" in text and not text.startswith("file://"):
            raise NotImplementedError(f"Checkpoint: {text}, expected a folder of this host")
        self._path: Optional[str] = os.path.abspath(os.path.expanduser(text.removeprefix("file://")))
        self._values: Optional[dict[str, Any]] = None

    # ---- folders ----

    @classmethod
    def from_directory(cls, path: Union[str, os.PathLike[str]]) -> Checkpoint:
        """The checkpoint that lies in a folder, which stays where it is.

            Checkpoint.from_directory(folder)
        """
        return cls(path)

    @property
    def path(self) -> str:
        """The folder. One of from_dict() is written to a temporary one when this is first asked."""
        if self._path is None:
            self._path = tempfile.mkdtemp(prefix="manta-checkpoint-")
            self.write_to(self._path)
        return self._path

    @property
    def filesystem(self) -> Any:
        """This host's file system as pyarrow has it, which must be installed."""
        return _local_filesystem("Checkpoint.filesystem")

    def to_directory(self, path: Optional[Union[str, os.PathLike[str]]] = None) -> str:
        """Copies the files into a folder, which is made, and returns its path.

            folder = checkpoint.to_directory()
        """
        folder = os.fspath(path) if path is not None else tempfile.mkdtemp(prefix="manta-checkpoint-")
        os.makedirs(folder, exist_ok=True)
        self.write_to(folder)
        return folder

    @contextlib.contextmanager
    def as_directory(self) -> Iterator[str]:
        """The folder with the files, which is to be read and not changed.

            with checkpoint.as_directory() as folder: ...
        """
        if not os.path.isdir(self.path):
            raise FileNotFoundError(f"{self}: there is no such folder; it may not have been among those that are kept")
        yield self.path

    def write_to(self, folder: str) -> None:
        """Puts the files into a folder that is there."""
        if self._values is not None:
            import cloudpickle
            with open(os.path.join(folder, VALUES), "wb") as f:
                cloudpickle.dump(self._values, f)
        elif self._path is not None:
            if not os.path.isdir(self._path):
                raise FileNotFoundError(f"{self}: there is no such folder")
            shutil.copytree(self._path, folder, dirs_exist_ok=True)

    # ---- dictionaries, of older programs ----

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Checkpoint:
        """A checkpoint of values that can be pickled.

            Checkpoint.from_dict({"epoch": 3, "weights": model.get_weights()})
        """
        out = cls.__new__(cls)
        out._path, out._values = None, dict(data)
        return out

    def to_dict(self) -> dict[str, Any]:
        """What from_dict() was given.

            checkpoint.to_dict()["epoch"]
        """
        if self._values is not None:
            return dict(self._values)
        at = os.path.join(self.path, VALUES)
        if not os.path.isfile(at):
            raise ValueError(f"{self} was not made by Checkpoint.from_dict(): read its files (as_directory())")
        with open(at, "rb") as f:
            values: dict[str, Any] = pickle.load(f)
        return values

    # ---- metadata ----

    def get_metadata(self) -> dict[str, Any]:
        """What set_metadata() was given; {} before.

            checkpoint.get_metadata()["model"]
        """
        try:
            with open(os.path.join(self.path, METADATA), encoding="utf-8") as f:
                metadata: dict[str, Any] = json.load(f)
                return metadata
        except FileNotFoundError:
            return {}

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Keeps texts, numbers, lists and dictionaries in the folder.

            checkpoint.set_metadata({"model": "resnet18"})
        """
        at = os.path.join(self.path, METADATA)
        with open(at + ".manta-tmp", "w", encoding="utf-8") as f:
            json.dump(dict(metadata), f)
        os.replace(at + ".manta-tmp", at)

    def update_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Adds to what is kept.

            checkpoint.update_metadata({"epoch": 3})
        """
        self.set_metadata({**self.get_metadata(), **metadata})

    # ---- preprocessors ----

    def set_preprocessor(self, preprocessor: Any) -> None:
        """Keeps what made the data of the training, in the folder.

            checkpoint.set_preprocessor(preprocessor)
        """
        import cloudpickle
        with open(os.path.join(self.path, PREPROCESSOR), "wb") as f:
            cloudpickle.dump(preprocessor, f)

    def get_preprocessor(self) -> Any:
        """What set_preprocessor() was given; None before.

            checkpoint.get_preprocessor()
        """
        try:
            with open(os.path.join(self.path, PREPROCESSOR), "rb") as f:
                return pickle.load(f)
        except FileNotFoundError:
            return None

    # ---- as every object ----

    def __repr__(self) -> str:
        if self._path is None:
            return f"Checkpoint(of a dictionary with {', '.join(map(str, self._values or {}))})"
        return f"Checkpoint(filesystem=local, path={self._path})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Checkpoint):
            return NotImplemented
        return self is other or self._values is None and other._values is None and self._path == other._path

    def __hash__(self) -> int:
        return hash(self._path)

    def __fspath__(self) -> str:
        return self.path
