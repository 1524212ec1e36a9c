"""ray._private.test_utils, as far as Ray's tests use it; written here."""
import os
import subprocess
import sys
import time

import manta.ray as ray
from manta.ray.util.queue import Queue
from manta.ray._common.network_utils import find_free_port as get_current_unused_port  # noqa: F401
from manta.ray._common.test_utils import run_string_as_driver, wait_for_condition  # noqa: F401


def client_test_enabled():
    return False


def _is_there(pid):
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for_pid_to_exit(pid, timeout=20):
    wait_for_condition(lambda: not _is_there(pid), timeout=timeout, retry_interval_ms=20)


def kill_actor_and_wait_for_failure(actor, timeout=10, retry_interval_ms=100):
    ray.kill(actor)
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            ray.get(actor.__ray_ready__.remote(), timeout=timeout)
        except ray.exceptions.RayActorError:
            return
        time.sleep(retry_interval_ms / 1000)
    raise RuntimeError("the actor is still there")


def run_string_as_driver_nonblocking(driver_script, env=None):
    """Starts a program's text in an interpreter of its own."""
    process = subprocess.Popen([sys.executable, "-c", driver_script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=env)
    process.stdin.close()
    return process


def init_error_pubsub():
    return None


def get_error_message(subscriber, num=None, error_type=None, timeout=1):
    """Ray publishes failures on a channel of its own; here they are exceptions and nothing else."""
    return []


def generate_system_config_map(**kwargs):
    return {"_system_config": kwargs}


def convert_actor_state(state):
    return state


def check_call_ray(args, **_):
    raise NotImplementedError(f"the command line of Ray: ray {' '.join(args)}")


class BatchQueue(Queue):
    """A queue from which several items are taken at a time."""

    def get_batch(self, batch_size=None, total_timeout=None, first_timeout=None):
        out = [self.get(timeout=first_timeout)]
        while self.size() and (batch_size is None or len(out) < batch_size):
            out.append(self.get_nowait())
        return out


def object_memory_usage():
    return 0


def wait_until_server_available(*_, **__):
    raise NotImplementedError("a dashboard")


def environment(**variables):
    return {**os.environ, **variables}


def __getattr__(name):
    from sitecustomize import missing
    return missing(__name__, name)


def kill_raylet(raylet, graceful=False):
    """The process that the node's workers and drivers talk to is ended."""
    import signal
    from manta import node_info
    os.kill(node_info()["daemon_pid"], signal.SIGTERM if graceful else signal.SIGKILL)
