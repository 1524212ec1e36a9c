"""manta launch on this host. Several hosts: tests/hosts."""
import json
import os
import re
import signal

import pytest

from samples import digits
from waits import wait_until

TRAIN = ("train", "mlp", "--data", "x.npy,y.npy", "--epochs", 2, "--global-batch", 32, "--seed", 7, "--threads-per-worker", 1)


def runs(pid):
    """Whether the process is there and not dead; one that nobody waits for may stay."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_weights_are_those_of_one_process(manta, tmp_path):
    digits(tmp_path, n=128)
    manta(*TRAIN, "--shards", 2, "--save", "one.npz")
    for words in (TRAIN, ("manta", *TRAIN)):
        said = manta("launch", "-n", 2, "--", *words, "--save", "two.npz").stdout
        assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
        assert "[rank 0] " in said and "[rank 1] " in said
        (tmp_path / "two.npz").unlink()


def test_what_a_process_gets(manta, tmp_path):
    script = 'echo "$TF_CONFIG"; echo "$MANTA_JOB"; stat -Lc %a $MANTA_CLUSTER_KEY; pwd; cat; echo last >&2'
    done = manta("launch", "-n2", "--no-prefix", "--export", "LC_ALL,NOBODY", "--", "sh", "-c", script)
    lines = done.stdout.splitlines()
    configs = [json.loads(line) for line in lines if line.startswith("{")]
    assert sorted(c["task"]["index"] for c in configs) == [0, 1] and configs[0]["cluster"] == configs[1]["cluster"]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", a) for a in configs[0]["cluster"]["worker"])
    assert lines.count("600") == 2 and lines.count(str(tmp_path)) == 2
    assert done.stderr.count("last\n") == 2


def test_a_line_without_an_end_is_given_one(manta):
    done = manta("launch", "--", "sh", "-c", r"printf 'a\tb\n\n'; printf 'no end'")
    assert done.stdout == "[rank 0] a\tb\n[rank 0] \n[rank 0] no end\n"


def test_statuses(manta):
    assert "exited with 7" in manta("launch", "-n", 2, "--", "sh", "-c", "exit 7", status=7).stderr
    assert "signal 9" in manta("launch", "--", "sh", "-c", "kill -9 $$", status=137).stderr
    said = manta("launch", "--", "./no-such-program", status=1).stderr
    assert re.search(r"step +program\n +what .*no-such-program.*\n +remedy ", said)


def test_a_killed_process_is_started_again_so_often(manta, tmp_path):
    done = manta("launch", "--max-restarts", 2, "--", "sh", "-c", "echo x >> tries; kill -9 $$", status=137)
    assert (tmp_path / "tries").read_text() == "x\n" * 3
    assert "started again, 2 of 2" in done.stderr


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_all(start, number, status):
    running = start("launch", "-n", 2, "--", "sh", "-c", "echo up; exec sleep 1000")
    for _ in range(2):
        assert "up" in running.process.stdout.readline()
    os.kill(running.process.pid, number)
    assert running.wait(60).status == status


def test_what_is_asked_and_does_not_end_is_killed(start):
    running = start("launch", "--grace", 1, "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000; done")
    assert "up" in running.process.stdout.readline()
    os.kill(running.process.pid, signal.SIGTERM)
    assert running.wait(60).status == 143


def test_the_launchers_death_ends_what_it_started(start, tmp_path):
    running = start("launch", "--", "sh", "-c", "sleep 1000 & echo $! > child; echo $$ > rank; echo up; wait")
    assert "up" in running.process.stdout.readline()
    pids = [int((tmp_path / name).read_text()) for name in ("child", "rank")]
    os.kill(running.process.pid, signal.SIGKILL)
    for pid in pids:
        wait_until(lambda pid=pid: not runs(pid))


def test_a_plan(manta, tmp_path):
    (tmp_path / "hosts.txt").write_text("a slots=2\nme@b:2222\n")
    said = manta("launch", "--on", "ssh:hosts.txt", "--dry-run", "--manta", "/opt/manta", "--", "train", "a b").stdout.splitlines()
    assert said[0].startswith("a, ranks 0 to 1: ssh ") and said[1].startswith("me@b:2222, rank 2: ssh ") and "-p 2222" in said[1]
    assert said[2] == "each rank: train 'a b'"
    said = manta("launch", "--on", "slurm", "--nodes", 2, "--dry-run", "--", "x").stdout
    assert said.startswith("first: salloc ") and "srun" in said
    assert "mpirun" in manta("launch", "--on", "mpi:hosts.txt", "--dry-run", "--", "x").stdout


def test_wrong_usage(manta, tmp_path):
    (tmp_path / "hosts.txt").write_text("-oProxyCommand=x\n")
    assert "needs a program" in manta("launch", "-n", 2, status=2).stderr
    assert "unexpected argument" in manta("launch", "x", "--", "y", status=2).stderr
    assert "--processes" in manta("launch", "-n", 0, "--", "x", status=2).stderr
    assert "line 1" in manta("launch", "--on", "ssh:hosts.txt", "--", "x", status=1).stderr
    assert "nothing.txt" in manta("launch", "--on", "ssh:nothing.txt", "--", "x", status=1).stderr
    assert "ssh:FILE" in manta("launch", "--on", "k8s", "--", "x", status=1).stderr
    assert "--nodes" in manta("launch", "--on", "slurm", "--", "x", status=1).stderr
    assert "--on slurm" in manta("launch", "--nodes", 2, "--", "x", status=1).stderr


def test_arguments_arrive_as_they_are(manta):
    odd = ["a b", "", "$(id)", "tab\there", "line\nbreak", "\x1b[31m", "é\u202e", "'\""]
    script = 'for w; do printf "%s|" "$w"; done | od -An -v -tx1 | tr -d " \\n"; echo'
    said = manta("launch", "--no-prefix", "--", "sh", "-c", script, "sh", *odd).stdout
    assert bytes.fromhex(said) == "".join(w + "|" for w in odd).encode()
    assert "UTF-8" in manta("launch", "--", "echo", "\udcff", status=1).stderr


def test_an_agent_that_hears_nothing_ends(manta):
    manta("agent")      # its input is at its end
