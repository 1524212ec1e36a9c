"""manta launch --on mpi: the real mpirun of Open MPI and of MPICH, which reach the hosts by ssh."""
import json
import os
import shutil
import signal
import subprocess

import pytest

from conftest import PROGRAM, TRAIN, longer, needs, pids_of, rank_that_trains, ranks
from world import WAIT_S, wait_for

pytestmark = needs("sshd", "ssh", "ip", "nsenter")


def write_script(path, command):
    """A program of one word that runs the command."""
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)


@pytest.fixture(scope="module")
def ssh(world):
    return world.start_sshd()


@pytest.fixture(scope="module", params=["openmpi", "mpich"])
def mpi(request):
    """Which MPI has mpirun. Debian's packages of both can be installed beside each other."""
    if shutil.which(f"mpirun.{request.param}") is None:
        pytest.skip(f"not installed: mpirun.{request.param}")
    return request.param


@pytest.fixture(scope="module")
def variables(mpi, world, ssh, tmp_path_factory):
    """What makes this MPI's mpirun the one that is found, use our ssh, and run as root, which Open MPI's does not like."""
    folder = tmp_path_factory.mktemp(mpi)
    write_script(folder / "mpirun", shutil.which(f"mpirun.{mpi}"))      # no link: MPICH's looks for its other programs beside itself
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    if mpi == "openmpi":
        return {**path, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm_rsh_agent": ssh,
                "OMPI_MCA_orte_keep_fqdn_hostnames": "1", "OMPI_MCA_oob_tcp_if_include": "10.77.0.0/24", "OMPI_MCA_plm": "rsh"}
    write_script(folder / "their-ssh", ssh)
    return {**path, "HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": str(folder / "their-ssh"), "HYDRA_IFACE": world.bridge}


@pytest.fixture
def on_mpi(variables, world, place, launch):
    (place / "mpi.txt").write_text("".join(f"{h.address}\n" for h in world.hosts))
    return lambda *options, **more: launch("--on", "mpi:mpi.txt", *options, env=variables, **more)


def test_the_weights_are_those_of_one_process(on_mpi, mpi, saved):
    run = on_mpi("-n", 2, program=(*TRAIN, "--shards", "4", "--save", f"{mpi}.npz")).wait()
    assert saved(f"{mpi}.npz")
    for rank in range(4):
        assert f"[rank {rank}] " in run.text("stdout")


def test_the_death_of_the_launcher_ends_all(on_mpi):
    run = on_mpi(program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    run.process.kill()
    wait_for(lambda: not ranks() and not pids_of("manta agent") and not pids_of("orted|hydra_pmi_proxy"), "ranks, agents and daemons to end")


def test_sigterm_writes_a_checkpoint(on_mpi, mpi, place):
    run = on_mpi(program=longer(100000, "--run-dir", f"stopped-{mpi}"))
    for rank in range(2):       # one that is asked before it has begun ends as any program does
        rank_that_trains(run, rank)
    run.process.send_signal(signal.SIGTERM)
    run.wait(75)
    assert list((place / f"stopped-{mpi}" / "checkpoints").iterdir())


def test_where_under_mpirun(mpi, variables, place):
    words = ["mpirun", *(["--oversubscribe"] if mpi == "openmpi" else []), "-n", "2"]
    done = subprocess.run([*words, PROGRAM, "where", "--json"], cwd=place, env={**os.environ, **variables},
                          capture_output=True, text=True, timeout=WAIT_S, stdin=subprocess.DEVNULL, check=True)
    found = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda w: w["rank"])
    assert [(w["launcher"], w["rank"], w["size"]) for w in found] == [({"openmpi": "openmpi", "mpich": "pmi"}[mpi], r, 2) for r in range(2)]
