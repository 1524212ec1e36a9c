"""ray._raylet: the names that public code imports from there."""
from manta import ObjectRef
from manta.ray._generator import DynamicObjectRefGenerator, ObjectRefGenerator
from manta.ray._ids import (ActorID, JobID, NodeID, PlacementGroupID, TaskID, UniqueID, WorkerID)
from manta.ray.exceptions import ObjectRefStreamEndOfStreamError

__all__ = ["ActorID", "DynamicObjectRefGenerator", "JobID", "NodeID", "ObjectRef", "ObjectRefGenerator",
           "ObjectRefStreamEndOfStreamError", "PlacementGroupID", "TaskID", "UniqueID", "WorkerID"]
