"""manta launch on this host. Several hosts: tests/hosts."""
import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from conftest import PROGRAM

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
    assert running.wait(240).status == status


def test_what_is_asked_and_does_not_end_is_killed(start):
    running = start("launch", "--grace", 1, "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000; done")
    assert "up" in running.process.stdout.readline()
    os.kill(running.process.pid, signal.SIGTERM)
    assert running.wait(240).status == 143


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
    assert "names alone" in manta("launch", "--on", "mpi:hosts.txt", "--dry-run", "--", "x", status=1).stderr
    (tmp_path / "hosts.txt").write_text("a slots=2\nb\n")
    assert "mpirun" in manta("launch", "--on", "mpi:hosts.txt", "--dry-run", "--", "x").stdout
    assert "x" * 20000 in manta("launch", "--dry-run", "--", "echo", "x" * 20000).stdout


def test_wrong_usage(manta, tmp_path):
    (tmp_path / "hosts.txt").write_text("-oProxyCommand=x\n")
    assert "needs a program" in manta("launch", "-n", 2, status=2).stderr
    assert "unexpected argument" in manta("launch", "x", "--", "y", status=2).stderr
    assert "--processes" in manta("launch", "-n", 0, "--", "x", status=2).stderr
    assert "line 1" in manta("launch", "--on", "ssh:hosts.txt", "--", "x", status=1).stderr
    assert "nothing.txt" in manta("launch", "--on", "ssh:nothing.txt", "--", "x", status=1).stderr
    assert "ssh:FILE" in manta("launch", "--on", "k9s", "--", "x", status=1).stderr
    assert "needs --print" in manta("launch", "--on", "k8s", "--", "x", status=2).stderr
    assert "--nodes" in manta("launch", "--on", "slurm", "--", "x", status=1).stderr
    assert "--on slurm" in manta("launch", "--nodes", 2, "--", "x", status=1).stderr
    assert "names alone" in manta("launch", "--export", "A=b", "--", "x", status=1).stderr
    assert "can be sent" in manta("launch", "--", "echo", *["x" * 100000] * 12, status=1).stderr


def test_arguments_arrive_as_they_are(manta):
    odd = ["a b", "", "$(id)", "tab\there", "line\nbreak", "\x1b[31m", "é\u202e", "'\""]
    script = 'for w; do printf "%s|" "$w"; done | od -An -v -tx1 | tr -d " \\n"; echo'
    said = manta("launch", "--no-prefix", "--", "sh", "-c", script, "sh", *odd).stdout
    assert bytes.fromhex(said) == "".join(w + "|" for w in odd).encode()
    assert "UTF-8" in manta("launch", "--", "echo", "\udcff", status=1).stderr


def test_an_agent_that_hears_nothing_ends(manta):
    manta("agent")      # its input is at its end


# ---- readers ----

def start_with(environment, tmp_path, *args, **how):
    return subprocess.Popen([PROGRAM, *map(str, args)], cwd=tmp_path, env=environment, **how)


def open_unread(what):
    """Two ends of a pipe or of a terminal: what is written to the second nobody reads."""
    return os.pipe() if what == "pipe" else pty.openpty()


def await_standstill(count, run):
    """Until the rank, which counts its lines in a file, has written some, and then none for a second."""
    wait_until(count.exists)
    before = None
    while before != count.stat().st_size:
        before = count.stat().st_size
        assert run.poll() is None
        time.sleep(1)


@pytest.mark.parametrize("what", ["pipe", "terminal"])
def test_who_does_not_read_does_not_keep_it_from_ending(environment, tmp_path, what):
    ours, theirs = open_unread(what)
    script = "while :; do printf x >> count; head -c 60000 /dev/zero | tr '\\0' y; echo; done"
    run = start_with(environment, tmp_path, "launch", "--grace", 1, "--", "sh", "-c", script, stdout=theirs,
                     stderr=subprocess.PIPE, start_new_session=True)
    os.close(theirs)
    try:
        await_standstill(tmp_path / "count", run)
        run.send_signal(signal.SIGTERM)
        assert run.wait(240) == 143 and run.stderr.read() == b""
    finally:
        run.kill()
        run.stderr.close()
        os.close(ours)


def test_a_block_does_not_wait_for_its_reader(environment, tmp_path):
    """The rank fills the pipe of standard error, fails, and the launcher has to say so there."""
    ours, theirs = os.pipe()
    run = start_with(environment, tmp_path, "launch", "--", "sh", "-c", "head -c 200000 /dev/zero | tr '\\0' y >&2; echo up; exit 3",
                     stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    try:
        assert b"up" in run.stdout.readline()
        wait_until(lambda: not [p for p in os.listdir("/proc") if p.isdigit() and parent(p) == run.pid])
        run.send_signal(signal.SIGTERM)
        assert run.wait(240) == 3
    finally:
        run.kill()
        run.stdout.close()
        os.close(ours)


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_disk_that_is_full_is_said(environment, tmp_path):
    with open("/dev/full", "w", encoding="utf-8") as full:
        run = start_with(environment, tmp_path, "launch", "--", "sh", "-c", "echo a; exec sleep 1000", stdout=full, stderr=subprocess.PIPE)
        said = run.communicate(timeout=240)[1].decode()
    assert run.returncode == 1 and "standard output cannot be written: No space left" in said


def test_closed_descriptors(environment, tmp_path):
    def closed(*fds):
        words = " ".join(f"{fd}>&-" for fd in fds)
        return subprocess.run(["sh", "-c", f'exec "$0" launch -- sh -c "echo a; echo b >&2" {words}', PROGRAM], cwd=tmp_path,
                              env=environment, capture_output=True, text=True, timeout=240, check=False)

    assert (closed(0).returncode, closed(0).stdout) == (0, "[rank 0] a\n")
    assert (closed(2).returncode, closed(2).stdout) == (0, "[rank 0] a\n")
    assert closed(1).returncode == 1 and "standard output cannot be written" in closed(1).stderr
    assert closed(0, 1, 2).returncode == 1


# ---- what is left, and the time it takes ----

def test_what_left_its_group_and_goes_on_writing_is_not_listened_to(manta):
    flood = "setsid sh -c 'echo > up$0; exec yes' $i"
    manta("launch", "--", "sh", "-c", f"for i in 1 2 3 4; do {flood} & done; for i in 1 2 3 4; do while ! test -e up$i; do :; done; done",
          timeout_s=240)


def test_what_a_command_left_behind_is_not_listened_to(manta, tmp_path):
    (tmp_path / "hosts.txt").write_text("a\n")
    (tmp_path / "ssh").write_text("#!/bin/sh\nfor i in 1 2 3 4; do (echo > up$i; exec yes >&2) & done\n"
                                  "for i in 1 2 3 4; do while ! test -e up$i; do :; done; done\nexit 3\n")
    (tmp_path / "ssh").chmod(0o755)
    assert "exited with 3" in manta("launch", "--on", "ssh:hosts.txt", "--ssh", "./ssh", "--", "true", status=1, timeout_s=240).stderr


def test_what_an_agent_was_asked_leaves_time(start):
    """Slurm asks agents and launcher: that is one request, and ranks have time to write a checkpoint."""
    script = "trap 'echo asked; sleep 2; echo saved; exit 75' TERM; echo up; while :; do sleep 0.1; done"
    running = start("launch", "--", "sh", "-c", script)
    assert "up" in running.process.stdout.readline()
    keeper = next(p for p in os.listdir("/proc") if p.isdigit() and parent(p) == running.process.pid)
    agent = next(p for p in os.listdir("/proc") if p.isdigit() and parent(p) == int(keeper))
    os.kill(int(agent), signal.SIGTERM)
    assert "asked" in running.process.stdout.readline()
    os.kill(running.process.pid, signal.SIGTERM)
    done = running.wait(240)
    assert done.status == 75 and "saved" in done.stdout


# ---- other hosts, which a program in the place of ssh leads to: this one ----

FAKE = """#!/bin/sh
# ssh OPTION... -- HOST COMMAND
while test "$1" != --; do shift; done
export SSH_CONNECTION="127.0.0.1 1 127.0.0.1 22"
case $2 in
slow) exec sleep 1000 ;;
mute) sh -c "$3"; exec >&-; exec sleep 1000 ;;
esac
eval "$3"
"""


@pytest.fixture
def hosts(tmp_path):
    """hosts(*names): the words that start a launch on them."""
    def write(*names):
        (tmp_path / "ssh").write_text(FAKE)
        (tmp_path / "ssh").chmod(0o755)
        (tmp_path / "hosts.txt").write_text("\n".join(names) + "\n")
        return ("launch", "--on", "ssh:hosts.txt", "--ssh", "./ssh", "--manta", PROGRAM)

    return write


def test_the_host_that_is_late_is_named(manta, hosts):
    said = manta(*hosts("a", "slow", "b"), "--start-timeout", 10, "--", "true", status=1).stderr
    assert re.search(r"failed on slow\n +step +start\n +what +its agent has not begun within 10 s", said)


def test_a_host_whose_channel_ended_is_lost(manta, hosts):
    """Its agent is gone, what led there is not: the lease ends the wait."""
    said = manta(*hosts("mute"), "--lease", 2, "--", "sh", "-c", "kill -9 $PPID; exec sleep 1000", status=1, timeout_s=240).stderr
    assert "nothing was heard of it for 2 s" in said


def test_a_host_that_cannot_be_started_leaves_our_input_alone(environment, tmp_path, hosts):
    """There are not enough descriptors for all: those that were not started have no channel, and 0 is none of theirs."""
    words = hosts(*(f"h{i}" for i in range(20)))
    (tmp_path / "input").write_text("")
    with open(tmp_path / "input", "r+", encoding="utf-8") as ours:
        run = subprocess.run(["sh", "-c", 'ulimit -n 40; exec "$0" "$@"', PROGRAM, *map(str, words), "--", "true"], cwd=tmp_path, env=environment,
                             stdin=ours, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 1 and "ulimit -n" in run.stderr
    assert (tmp_path / "input").read_bytes() == b""


@pytest.mark.parametrize("where", ["hosts", "this host"])
def test_the_soft_limit_of_open_files_is_no_limit_of_hosts_or_ranks(environment, tmp_path, hosts, where):
    """Launcher and agent take as many as they may. What they start has the limit that there was."""
    words = hosts(*(f"h{i}" for i in range(20))) if where == "hosts" else ("launch", "-n", 20)
    run = subprocess.run(["sh", "-c", 'ulimit -Sn 40; exec "$0" "$@"', PROGRAM, *map(str, words), "--no-prefix", "--", "sh", "-c", "ulimit -Sn"],
                         cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert (run.returncode, run.stderr, run.stdout) == (0, "", "40\n" * 20)


def test_a_wait_for_nodes_can_be_given_up(start, tmp_path):
    """salloc, which waits in the queue, is asked to end: killed it would leave its request there."""
    (tmp_path / "salloc").write_text("#!/bin/sh\ntrap 'echo revoked > end; exit 1' TERM\n: > queued\nfor i in $(seq 6000); do sleep 0.1; done\n")
    (tmp_path / "salloc").chmod(0o755)
    running = start("launch", "--on", "slurm", "--nodes", 2, "--", "true", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    wait_until((tmp_path / "queued").exists)
    os.kill(running.process.pid, signal.SIGINT)
    assert running.wait(240).status == 130 and (tmp_path / "end").exists()


def test_a_folder_that_is_relative_is_refused(manta):
    """Agents begin in folders of their own, by ssh in the home folder: what it is relative to would depend on the way there."""
    for folder in ("here", "./here", "-x"):
        assert "from / on" in manta("launch", f"--folder={folder}", "--", "true", status=1).stderr
