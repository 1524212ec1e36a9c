"""manta launch --on ssh: real sshd on hosts of their own."""
import os
import re
import signal
import subprocess

import pytest

from conftest import (PROGRAM, TRAIN, failure_of, longer, needs, pids_of, processes, rank_that_trains,
                      ranks)
from world import NET, WAIT_S, wait_for

pytestmark = needs("sshd", "ssh", "ssh-keygen", "ip", "nsenter")


@pytest.fixture(scope="module")
def ssh(world, place):
    (place / "hosts.txt").write_text("".join(f"{h.address}\n" for h in world.hosts))
    return ("--on", "ssh:hosts.txt", "--ssh", world.start_sshd())


def test_the_weights_are_those_of_one_process(ssh, launch, saved):
    run = launch(*ssh, "-n", 2, program=(*TRAIN, "--shards", "4", "--save", "ssh.npz")).wait()
    assert saved("ssh.npz")
    for rank in range(4):
        assert f"[rank {rank}] " in run.text("stdout")


def test_no_key_is_seen(ssh, launch):
    """Nobody who looks at command lines or environments reads the key; nothing of it is in the file system."""
    run = launch(*ssh, program=("sh", "-c", "cat $MANTA_CLUSTER_KEY; echo; echo here; exec sleep 1000"))
    wait_for(lambda: run.text("stdout").count("here") == 2, "both ranks")
    keys = set(re.findall(r"[0-9a-f]{64}", run.text("stdout")))
    assert len(keys) == 1
    key = keys.pop().encode()
    for pid in processes():
        for name in ("cmdline", "environ"):
            try:
                assert key not in open(f"/proc/{pid}/{name}", "rb").read(), (pid, name)
            except OSError:
                continue
    run.process.send_signal(signal.SIGTERM)
    run.wait(status=None)


def test_a_killed_rank_is_replaced(ssh, launch, place):
    many = 600          # seconds of work, of which the first moments have gone by when the rank is stopped
    subprocess.run([PROGRAM, *longer(many), "--save", "long.npz"], cwd=place, capture_output=True, check=True, timeout=WAIT_S)
    run = launch(*ssh, program=longer(many, "--save", "killed.npz"))
    victim = rank_that_trains(run, 1)
    os.kill(victim, signal.SIGSTOP)         # so that it is not through before it is killed: the others wait for it
    os.kill(victim, signal.SIGKILL)
    run.wait()
    assert "rank 1 on " in run.text("stderr") and "started again, 1 of 3" in run.text("stderr")
    assert (place / "killed.npz").read_bytes() == (place / "long.npz").read_bytes()


def test_sigterm_writes_a_checkpoint(ssh, launch, place):
    run = launch(*ssh, program=longer(100000, "--run-dir", "stopped"))
    for rank in range(2):       # one that is asked before it has begun ends as any program does
        rank_that_trains(run, rank)
    run.process.send_signal(signal.SIGTERM)
    run.wait(75)
    assert "--resume" in run.text("stderr") and list((place / "stopped" / "checkpoints").iterdir())


def test_the_death_of_the_launcher_ends_all(ssh, launch):
    run = launch(*ssh, program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    run.process.kill()
    wait_for(lambda: not ranks() and not pids_of("manta agent"), "ranks and agents to end")


@pytest.mark.parametrize("which", ["agent", "keeper"])
def test_the_death_of_an_agent_ends_all(ssh, launch, world, which):
    run = launch(*ssh, program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    pid = ranks()[1]
    for _ in range(1 if which == "agent" else 2):
        pid = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)
    run.wait(1)
    assert f"the launch failed on {world.hosts[1].address}" in run.text("stderr")


def test_a_host_that_is_cut_off_ends_its_ranks(ssh, launch, world):
    run = launch(*ssh, "--lease", 20, "--grace", 5, program=longer(100000))
    for rank in range(2):
        rank_that_trains(run, rank)
    world.run("ip", "link", "set", world.hosts[1].link, "down")
    try:
        run.wait(1)
        assert f"the launch failed on {world.hosts[1].address}" in run.text("stderr")
        wait_for(lambda: not ranks(), "ranks of the host that is cut off to end by themselves")
    finally:
        world.run("ip", "link", "set", world.hosts[1].link, "up")


def test_failures_name_host_step_and_remedy(ssh, launch, place, world):
    ssh_words = ssh[2:]
    first = world.hosts[0].address
    (place / "refused.txt").write_text(f"{first}\n{world.hosts[1].address}:2222\n")
    (world.folder / "known").open("a").write(f"{NET}.99 {(world.folder / 'host_key.pub').read_text()}")
    host, step, what, remedy = failure_of(launch("--on", "ssh:refused.txt", *ssh_words))
    assert (host, step) == (f"{world.hosts[1].address}:2222", "start") and "refused" in what and "HOST:PORT" in remedy
    (place / "nobody.txt").write_text(f"{NET}.99\n")
    host, step, what, remedy = failure_of(launch("--on", "ssh:nobody.txt", *ssh_words))
    assert (host, step) == (f"{NET}.99", "start") and "No route" in what and "network" in remedy
    host, step, what, remedy = failure_of(launch(*ssh, "--manta", "/no/such/manta"))
    assert step == "start" and "/no/such/manta" in what and "--manta" in remedy
    old = place / "old"
    old.write_text("#!/bin/sh\nprintf 'welcome\\nmanta-agent 1\\n\\023\\0\\0\\0h{\"version\":\"0.0.9\"}'\nexec cat >/dev/null\n")
    old.chmod(0o755)
    host, step, what, remedy = failure_of(launch(*ssh, "--manta", old))
    assert step == "version" and "0.0.9" in what and "same version" in remedy
    host, step, what, remedy = failure_of(launch(*ssh, "--folder", "/no/such/folder"))
    assert step == "folder" and "/no/such/folder" in what
    host, step, what, remedy = failure_of(launch(*ssh, program=("./no-such-program",)))
    assert step == "program" and "no-such-program" in what


def test_hosts_that_cannot_reach_each_other(ssh, launch, world):
    for h in world.hosts:       # each has a way to the launcher, and none to the other
        world.run(*h.words("ip", "route", "add", "prohibit", f"{world.hosts[0 if h is world.hosts[1] else 1].address}/32"))
    try:
        host, step, what, remedy = failure_of(launch(*ssh))
        assert host in [h.address for h in world.hosts] and step == "route" and "20000" in remedy
    finally:
        for h in world.hosts:
            world.run(*h.words("ip", "route", "del", "prohibit", f"{world.hosts[0 if h is world.hosts[1] else 1].address}/32"))


def test_a_failing_rank_ends_all_with_its_status(ssh, launch):
    run = launch(*ssh, program=("sh", "-c", "case $TF_CONFIG in *'\"index\":1'*) exit 9;; esac; exec sleep 1000")).wait(9)
    assert "rank 1 on " in run.text("stderr") and "exited with 9" in run.text("stderr")
