"""ray.exceptions: relations, duals, pickles."""
import pickle

import pytest

from manta.exceptions import MantaError
from manta.ray import exceptions as e
from manta.ray._dialect import RayDialect

NAMES = """RayError CrossLanguageError TaskCancelledError RayTaskError LocalRayletDiedError WorkerCrashedError RayActorError
ActorDiedError ActorUnavailableError RaySystemError AuthenticationError UserCodeException ObjectStoreFullError OutOfDiskError
OutOfMemoryError NodeDiedError ObjectLostError ObjectFetchTimedOutError RpcError ReferenceCountingAssertionError
ObjectFreedError OwnerDiedError ObjectReconstructionFailedError GetTimeoutError PlasmaObjectNotAvailable AsyncioActorExit
RuntimeEnvSetupError TaskPlacementGroupRemoved ActorPlacementGroupRemoved PendingCallsLimitExceeded TaskUnschedulableError
ActorUnschedulableError ObjectRefStreamEndOfStreamError StreamingGeneratorReplayInconsistentError
OufOfBandObjectRefSerializationException RayChannelError RayChannelTimeoutError RayCgraphCapacityExceeded
RayDirectTransportError UnserializableException ActorAlreadyExistsError ActorHandleNotFoundError""".split()


def task_error(cause):
    return RayDialect().task_error(cause, type(cause).__name__, str(cause), '  File "x.py", line 1, in f\n    bad()\n', 7,
                                   "host", "f")


def test_every_class_is_there():
    for name in NAMES:
        assert issubclass(getattr(e, name), (e.RayError,)) and issubclass(getattr(e, name), MantaError), name


def test_relations():
    assert issubclass(e.GetTimeoutError, TimeoutError)
    assert issubclass(e.ActorDiedError, e.RayActorError) and issubclass(e.ActorUnavailableError, e.RayActorError)
    assert issubclass(e.OwnerDiedError, e.ObjectLostError) and issubclass(e.ActorAlreadyExistsError, ValueError)


class Own(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)
        self.a, self.b = a, b


class Strange(Exception):
    def __new__(cls, a, *, must):
        return super().__new__(cls)

    def __init__(self, a, *, must):
        self.must = must


@pytest.mark.parametrize("cause", [ValueError("x"), Own(1, 2), KeyError("k"), OSError(2, "no"), Strange(1, must=3),
                                   UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), StopIteration(3), MemoryError("m")])
def test_an_error_is_also_of_the_causes_class(cause):
    error = task_error(cause)
    assert isinstance(error, e.RayTaskError) and isinstance(error, type(cause))
    assert type(error).__name__ == f"RayTaskError({type(cause).__name__})"
    assert error.cause is cause and error.pid == 7
    assert "f() " in str(error).replace("\x1b[39m", "") and "bad()" in str(error)


def test_attributes_are_the_causes():
    error = task_error(Own(1, 2))
    assert (error.a, error.b) == (1, 2)
    with pytest.raises(AttributeError):
        error.c
    assert task_error(FileNotFoundError(2, "no", "x.txt")).filename == "x.txt"
    assert task_error(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad")).object == b"x"


class Locked(Exception):
    args = property(lambda self: ("mine",))


def test_args_are_the_cause():
    for cause in (ValueError("x"), Locked("y"), OSError(2, "no")):
        assert task_error(cause).args == (cause,)


def test_a_dual_is_pickled():
    error = pickle.loads(pickle.dumps(task_error(Own(1, 2))))
    assert isinstance(error, Own) and isinstance(error, e.RayTaskError) and error.a == 1 and "bad()" in str(error)


def test_groups_can_be_split():
    error = task_error(ExceptionGroup("g", [ValueError(1), TypeError(2)]))
    seen = []
    try:
        raise error
    except* ValueError as group:
        seen += group.exceptions
    except* TypeError as group:
        seen += group.exceptions
    assert [type(x) for x in seen] == [ValueError, TypeError]


def test_a_base_exception_is_one_too():
    class Mine(BaseException):
        pass
    assert isinstance(task_error(Mine("x")), Mine)


@pytest.mark.parametrize("kind, cls", [
    ("worker", e.WorkerCrashedError), ("actor", e.ActorDiedError), ("unavailable", e.ActorUnavailableError),
    ("cancelled", e.TaskCancelledError), ("lost", e.ObjectLostError), ("full", e.ObjectStoreFullError),
    ("node", e.NodeDiedError), ("memory", e.OutOfMemoryError), ("placement_group", e.TaskPlacementGroupRemoved),
    ("timeout", e.GetTimeoutError), ("impossible", e.TaskUnschedulableError), ("submit", ValueError),
    ("system", e.RaySystemError), ("exists", e.ActorAlreadyExistsError), ("pending_calls", e.PendingCallsLimitExceeded)])
def test_each_kind_of_failure_has_its_class(kind, cls):
    error = RayDialect().failure(kind, "what happened")
    assert type(error) is cls and "what happened" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls and str(again) == str(error)


def test_the_constructors_error_is_shown():
    inner = task_error(ValueError("no"))
    error = RayDialect().failure("actor", "x", cause=inner, actor_id="ab")
    assert error.actor_init_failed and "creation task" in str(error) and "bad()" in str(error)
