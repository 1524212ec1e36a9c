"""Modules of Ray that are not here: importing one, or looking at it, says so."""
from __future__ import annotations

from typing import NoReturn

MODULES = {"dag": "graphs of calls", "workflow": "workflows", "autoscaler": "nodes that come and go",
           "job_submission": "jobs that are sent to a cluster", "cross_language": "calls of Java and C++",
           "util.client": "Ray's client protocol"}


class MissingModule(ImportError, NotImplementedError):
    """Of a module of Ray that is not part of manta.ray."""


def refuse(name: str) -> NoReturn:
    raise MissingModule(f"ray.{name} ({MODULES[name]}) is not part of manta.ray; docs/from-ray-python.md lists what is",
                        name=f"ray.{name}")
