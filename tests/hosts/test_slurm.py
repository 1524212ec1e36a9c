"""manta launch --on slurm: a real Slurm, a slurmd on each host."""
import json
import os
import signal
import subprocess

import pytest

from conftest import PROGRAM, TRAIN, longer, needs, pids_of, rank_that_trains, ranks
from world import WAIT_S, NotPossible, wait_for

pytestmark = needs("slurmctld", "slurmd", "srun", "salloc", "munged", "ip", "nsenter")
WEIGHTS = (*TRAIN, "--shards", "4", "--save")


@pytest.fixture(scope="module")
def slurm(world):
    try:
        return world.start_slurm()
    except NotPossible as e:
        pytest.skip(str(e))


def jobs(slurm):
    return subprocess.run(["squeue", "-h", "-o", "%i"], env={**os.environ, **slurm}, capture_output=True, text=True, check=True,
                          timeout=WAIT_S).stdout.split()


@pytest.fixture
def on_slurm(slurm, launch):
    """Launches on two nodes of Slurm. At the end no job is left."""
    yield lambda *options, **more: launch("--on", "slurm", "--nodes", 2, *options, env=slurm, **more)
    wait_for(lambda: not jobs(slurm), "jobs to end")


def test_the_weights_are_those_of_one_process(on_slurm, saved):
    """From the login node: nodes are asked for, and given back."""
    run = on_slurm("-n", 2, program=(*WEIGHTS, "slurm.npz")).wait()
    assert saved("slurm.npz")
    for rank in range(4):
        assert f"[rank {rank}] " in run.text("stdout")


def test_inside_an_allocation(slurm, place, saved):
    words = ["salloc", "--quiet", "--nodes=2", PROGRAM, "launch", "--on", "slurm", "-n", "2", "--export", "HOME", "--", *WEIGHTS, "inside.npz"]
    done = subprocess.run(words, cwd=place, env={**os.environ, "HOME": str(place), **slurm}, capture_output=True, text=True, timeout=WAIT_S,
                          stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, done.stderr
    assert saved("inside.npz")
    wait_for(lambda: not jobs(slurm), "the job to end")


def test_where_in_a_step(slurm, place):
    done = subprocess.run(["srun", "--nodes=2", "--ntasks=4", PROGRAM, "where", "--json"], cwd=place, env={**os.environ, **slurm},
                          capture_output=True, text=True, timeout=WAIT_S, stdin=subprocess.DEVNULL, check=True)
    found = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda w: w["rank"])
    assert [(w["launcher"], w["rank"], w["size"], w["local_size"]) for w in found] == [("slurm", r, 4, 2) for r in range(4)]
    assert all(w["hosts"] == ["h1", "h2"] for w in found)


def test_the_death_of_the_launcher_ends_all(slurm, on_slurm):
    run = on_slurm(program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    run.process.kill()
    wait_for(lambda: not ranks() and not pids_of("manta agent") and not jobs(slurm), "ranks, agents and the job to end")


def test_sigterm_writes_a_checkpoint(on_slurm, place):
    run = on_slurm(program=longer(100000, "--run-dir", "stopped-slurm"))
    for rank in range(2):       # one that is asked before it has begun ends as any program does
        rank_that_trains(run, rank)
    run.process.send_signal(signal.SIGTERM)
    run.wait(75)
    assert list((place / "stopped-slurm" / "checkpoints").iterdir())


def test_pre_emption_writes_a_checkpoint(slurm, on_slurm, place):
    """Slurm asks every process of the job, agents and ranks alike; agents pass it on, and it is still one request."""
    run = on_slurm(program=longer(100000, "--run-dir", "pre-empted"))
    for rank in range(2):
        rank_that_trains(run, rank)
    subprocess.run(["scancel", "--signal=TERM", *jobs(slurm)], env={**os.environ, **slurm}, check=True, timeout=WAIT_S)
    run.wait(75)
    assert list((place / "pre-empted" / "checkpoints").iterdir())


def test_a_job_that_is_cancelled_ends(slurm, on_slurm):
    run = on_slurm(program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    subprocess.run(["scancel", *jobs(slurm)], env={**os.environ, **slurm}, check=True, timeout=WAIT_S)
    run.wait(status=None)
    assert run.process.returncode != 0
