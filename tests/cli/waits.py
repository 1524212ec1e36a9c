"""What tests of running programs wait for, and look at meanwhile."""
import json
import os
import pathlib
import time

import pytest


def wait_until(condition, timeout_s=240):
    """Until the condition holds; the deadline only ends what would never come to pass."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        os.sched_yield()


def checkpoints(run):
    """The names of the whole checkpoints of a run's folder, oldest first."""
    return sorted(p.name for p in (run / "checkpoints").glob("checkpoint-*")) if run.is_dir() else []


def kill_with_backup(start, backup, *run):
    """Starts runs until one is killed after its first backup: one that ended before removed them."""
    while not list(backup.glob("checkpoint-*")):
        running = start(*run)
        wait_until(lambda: list(backup.glob("checkpoint-*")) or running.process.poll() is not None)
        running.process.kill()
        assert running.process.wait(240) in (0, -9)


def read_event(running, name):
    """The next event called `name`; the pipe blocks until there is one."""
    for text in running.process.stdout:
        event = json.loads(text)
        if event["event"] == name:
            return event
    pytest.fail(f"no event {name!r} came:\n{running.process.stderr.read()}")


def is_gone(pid):
    """Whether there is no such process any more (a zombie has ended too)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
