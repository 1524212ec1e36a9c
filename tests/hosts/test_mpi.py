"""manta launch --on mpi: the real mpirun of Open MPI, which reaches the hosts by ssh."""
import json
import os
import signal
import subprocess

import pytest

from conftest import PROGRAM, TRAIN, longer, needs, pids_of, rank_that_trains, ranks
from world import WAIT_S, wait_for

pytestmark = needs("mpirun", "sshd", "ssh", "ip", "nsenter")


@pytest.fixture(scope="module")
def variables(world):
    """What makes mpirun use our ssh, and run as root, which it does not like."""
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": world.start_sshd(),
            "OMPI_MCA_orte_keep_fqdn_hostnames": "1", "OMPI_MCA_oob_tcp_if_include": "10.77.0.0/24", "OMPI_MCA_plm": "rsh"}


@pytest.fixture
def on_mpi(variables, world, place, launch):
    (place / "mpi.txt").write_text("".join(f"{h.address}\n" for h in world.hosts))
    return lambda *options, **more: launch("--on", "mpi:mpi.txt", *options, env=variables, **more)


def test_the_weights_are_those_of_one_process(on_mpi, saved):
    run = on_mpi("-n", 2, program=(*TRAIN, "--shards", "4", "--save", "mpi.npz")).wait()
    assert saved("mpi.npz")
    for rank in range(4):
        assert f"[rank {rank}] " in run.text("stdout")


def test_the_death_of_the_launcher_ends_all(on_mpi):
    run = on_mpi(program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    run.process.kill()
    wait_for(lambda: not ranks() and not pids_of("manta agent") and not pids_of("orted"), "ranks, agents and daemons to end")


def test_sigterm_writes_a_checkpoint(on_mpi, place):
    run = on_mpi(program=longer(100000, "--run-dir", "stopped-mpi"))
    for rank in range(2):       # one that is asked before it has begun ends as any program does
        rank_that_trains(run, rank)
    run.process.send_signal(signal.SIGTERM)
    run.wait(75)
    assert list((place / "stopped-mpi" / "checkpoints").iterdir())


def test_where_under_mpirun(variables, place):
    done = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", PROGRAM, "where", "--json"], cwd=place, env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=WAIT_S, stdin=subprocess.DEVNULL, check=True)
    found = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda w: w["rank"])
    assert [(w["launcher"], w["rank"], w["size"]) for w in found] == [("openmpi", r, 2) for r in range(2)]
