"""Several processes with TF_CONFIG: the same bytes as one, also when some are lost and come back."""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import pytest

from conftest import PROGRAM, Done, heed_signals
from samples import digits

TRAIN = ("--global-batch", 32, "--seed", 7, "--threads-per-worker", 1, "--json")


class Cluster:
    """The processes of a cluster. Its ports are held here, so that nobody else gets them."""

    def __init__(self, folder, environment, n, jobs=None):
        self.folder, self.environment, self.n = folder, environment, n
        self.doors = []
        for _ in range(n):
            door = socket.socket()
            door.bind(("127.0.0.1", 0))
            door.listen()
            self.doors.append(door)
        self.addresses = [f"127.0.0.1:{d.getsockname()[1]}" for d in self.doors]
        self.jobs = jobs or [("worker", i) for i in range(n)]
        self.running = [None] * n
        self.ended = []

    def config(self, rank):
        cluster = {}
        for (job, _), address in zip(self.jobs, self.addresses):
            cluster.setdefault(job, []).append(address)
        return json.dumps({"cluster": cluster, "task": dict(zip(("type", "index"), self.jobs[rank]))})

    def start(self, rank, *args, env=None, held=False):
        """`held`: what it says goes through a page, so that it cannot be through before it is listened to."""
        door = self.doors[rank]
        process = subprocess.Popen([str(PROGRAM), *map(str, args)], cwd=self.folder, text=True,
                                   env={**self.environment, "TF_CONFIG": self.config(rank),
                                        "MANTA_LISTEN_FD": str(door.fileno()), **(env or {})},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   pass_fds=[door.fileno()], preexec_fn=heed_signals,
                                   pipesize=4096 if held else -1)
        process.rank, process.seen, process.unread = rank, [], b""
        self.running[rank] = process
        return process

    def read_event(self, rank, name):
        """The next event called `name`; the pipe blocks until there is one. None: there will not be."""
        process = self.running[rank]
        while True:
            line, end, rest = process.unread.partition(b"\n")
            if not end:     # not process.stdout: communicate() would read past what that has in its buffer
                more = os.read(process.stdout.fileno(), 256)
                if not more:
                    return None
                process.unread += more
                continue
            process.unread = rest
            process.seen.append(json.loads(line))
            if process.seen[-1]["event"] == name:
                return process.seen[-1]

    def kill(self, rank):
        process = self.running[rank]
        process.kill()
        process.communicate()

    def wait(self, status=0):
        done = []
        for process in self.running:
            try:
                out, err = process.communicate(timeout=300)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGCONT)
                process.kill()
                out, err = process.communicate()
                pytest.fail(f"rank {process.rank}: not done after 300 s\n{out}\n{err}")
            assert process.returncode == status, f"rank {process.rank}: {process.returncode}\n{out}\n{err}"
            events = process.seen + Done([], 0, process.unread.decode() + out, err).events
            done.append((events, err))
        return done

    def close(self):
        for process in filter(None, self.running):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
            process.stdout.close()
            process.stderr.close()
        for door in self.doors:
            door.close()


@pytest.fixture
def cluster(tmp_path, environment):
    made = []

    def make(n, jobs=None):
        made.append(Cluster(tmp_path, environment, n, jobs))
        return made[-1]

    yield make
    for c in made:
        c.close()


def epochs_of(events):
    return [{k: v for k, v in e.items() if k not in ("images_per_s", "seconds")}
            for e in events if e["event"] == "epoch"]


@pytest.mark.parametrize("model, n, shards", [("mnist-cnn", 2, 2), ("mlp", 2, 3), ("mlp", 3, 7)])
def test_same_bytes_as_one_process(manta, cluster, tmp_path, model, n, shards):
    data = digits(tmp_path, n=88)       # the last batch is not a whole one
    args = ("train", model, "--data", data, "--validation", data, "--epochs", 2, "--shards", shards, *TRAIN)
    one = manta(*args, "--save", "one.npz")
    c = cluster(n, [("chief", 0)] + [("worker", i) for i in range(n - 1)] if n == 3 else None)
    for rank in reversed(range(n)):     # the order does not matter
        c.start(rank, *args, "--save", "many.npz")
    for rank, (events, err) in enumerate(c.wait()):
        assert epochs_of(events) == epochs_of(one.events), err
        assert events[0]["rank"] == rank
        assert events[-1]["path"] == (None if rank else "many.npz")     # the chief saves
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()


def test_lost_processes_come_back(manta, cluster, tmp_path):
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--validation", data, "--epochs", 200, "--steps-per-epoch", 10,
            "--shards", 4, "--optimizer", "adam", *TRAIN)
    one = manta(*args, "--save", "one.npz")
    c = cluster(2)
    more = ("--save", "many.npz", "--run-dir", "run", "--resume")       # which is the chief's business
    for rank in range(2):
        c.start(rank, *args, *more, held=rank == 0)     # neither is far ahead of what the chief could say
    assert c.read_event(0, "epoch")
    c.kill(1)
    c.start(1, *args, *more)
    for event in ("recovered", "epoch"):
        assert c.read_event(0, event)
    c.kill(0)
    c.start(0, *args, *more)
    done = c.wait()
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()
    assert epochs_of(done[0][0])[-1] == epochs_of(one.events)[-1]
    survivor = [e for e in done[1][0] if e["event"] == "recovered"]
    assert survivor and survivor[-1]["rank"] == 0 and "worker/0" in survivor[-1]["cause"]


def test_a_chief_that_comes_back_to_where_the_others_wait(manta, cluster, tmp_path):
    """Its checkpoint stands where they are: it has all of the state, but not the sums of the last validation."""
    data = digits(tmp_path, n=2048)
    args = ("train", "mnist-cnn", "--data", data, "--validation", data, "--validation-steps", 1, "--epochs", 6,
            "--steps-per-epoch", 1, "--shards", 2, "--seed", 7, "--threads-per-worker", 1, "--json",
            "--global-batch", 2048)
    one = manta(*args, "--save", "one.npz")
    c = cluster(2)
    more = ("--save", "many.npz", "--run-dir", "run", "--resume")
    for rank in range(2):
        c.start(rank, *args, *more)
    c.read_event(1, "epoch")
    c.running[1].send_signal(signal.SIGSTOP)    # in the middle of a step, which is a long one
    while not (tmp_path / "run" / "checkpoints" / "checkpoint-000001").exists():
        assert c.running[0].poll() is None
        time.sleep(0.001)
    c.kill(0)
    c.running[1].send_signal(signal.SIGCONT)
    c.start(0, *args, *more)
    done = c.wait()
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()
    assert epochs_of(done[0][0])[-1] == epochs_of(one.events)[-1]


def test_the_chief_decides_when_it_ends(cluster, tmp_path):
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--validation", data, "--epochs", 50, "--steps-per-epoch", 2,
            "--learning-rate", 0.5, *TRAIN)
    c = cluster(2)
    c.start(0, *args, "--early-stop", "val_loss:patience=2,restore-best", "--reduce-lr", "val_loss:factor=0.5,patience=1")
    c.start(1, *args)
    done = [epochs_of(events) for events, _ in c.wait()]
    assert done[0] == done[1] and 1 < len(done[0]) < 50


def test_an_evaluator_scores_checkpoints(cluster, tmp_path):
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--validation", data, "--epochs", 3, "--shards", 2, *TRAIN,
            "--run-dir", "run")
    c = cluster(3, [("worker", 0), ("worker", 1), ("evaluator", 0)])
    for rank in (2, 1, 0):
        c.start(rank, *args)
    done = c.wait()
    scores = [e for e in done[2][0] if e["event"] == "evaluation"]
    last = epochs_of(done[0][0])[-1]
    assert scores[-1]["iterations"] == 6 and scores[-1]["loss"] == last["val_loss"]
    assert done[2][0][-1]["status"] == "done"


def test_a_stopped_process_is_named_and_waited_for(manta, cluster, tmp_path):
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--epochs", 100, "--steps-per-epoch", 3, "--shards", 2, *TRAIN)
    manta(*args, "--save", "one.npz")
    c = cluster(2)
    for rank in range(2):
        c.start(rank, *args, "--save", "many.npz", held=rank == 0)
    assert c.read_event(1, "epoch")
    c.running[1].send_signal(signal.SIGSTOP)
    while "step" not in read_waiting_for(c, 0, 1)["cause"]:     # on a busy machine it was waited for at the beginning, too
        pass
    c.running[1].send_signal(signal.SIGCONT)
    c.wait()
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()


def read_waiting_for(c, rank, whom):
    """The first event of `rank` that says that it waits for `whom`; before that another may be named for a while."""
    while True:
        event = c.read_event(rank, "waiting")
        assert event, f"rank {rank} has ended without having named rank {whom}"
        if event["rank"] == whom:
            assert f"worker/{whom} (" in event["cause"], event
            return event


def test_all_name_the_one_that_keeps_them_waiting(cluster, tmp_path):
    """Not the ones that wait for it themselves."""
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--epochs", 240, "--steps-per-epoch", 4, *TRAIN)
    c = cluster(4)
    for rank in range(4):
        c.start(rank, *args, held=rank == 0)
    for stopped in (3, 2, 3, 1):
        for rank in range(4):
            c.read_event(rank, "epoch")
        c.running[stopped].send_signal(signal.SIGSTOP)
        for rank in {0, 1, 2, 3} - {stopped}:
            read_waiting_for(c, rank, stopped)
        c.running[stopped].send_signal(signal.SIGCONT)
    c.wait()


@pytest.mark.parametrize("victim", [0, 1])
def test_all_name_the_one_that_was_lost(cluster, tmp_path, victim):
    """Not the one that was the first to close its connections."""
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--epochs", 240, "--steps-per-epoch", 4, *TRAIN)
    c = cluster(4)
    others = [rank for rank in range(4) if rank != victim]
    for rank in range(4):
        c.start(rank, *args, held=rank == others[0])
    for _ in range(3):
        assert c.read_event(others[0], "epoch")
        c.kill(victim)
        c.start(victim, *args)
        causes = set()
        for rank in others:
            event = c.read_event(rank, "recovered")
            assert event["rank"] == victim, (rank, event)
            causes.add(event["cause"])
        assert len(causes) == 1 and f"worker/{victim}" in causes.pop()
    while c.read_event(others[0], "epoch"):     # it is held: nobody would get on while another is listened to
        pass
    c.wait()


def test_who_is_missing_is_named(cluster, tmp_path):
    c = cluster(3)
    c.running = [None]
    c.start(0, "train", "mlp", "--data", digits(tmp_path), *TRAIN, "--cluster-timeout", 1)
    (events, err), = c.wait(status=1)
    assert "worker/1" in err and "worker/2" in err and "1 s" in err
    assert events[-1]["status"] == "failed"


@pytest.mark.parametrize("strategy", ["mirrored", "parameter-server"])
@pytest.mark.parametrize("other, says", [
    (("--seed", 8), "its seed is 8, not 7"), (("--shards", 6), "its number of shards is 6, not 3"),
    (("--epochs", 3), "its number of epochs is 3, not 1"), (("--optimizer", "sgd"), "its optimizer is sgd, not adam"),
    (("--beta-1", 0.8), "its beta_1 is 0.8, not 0.9"), (("--beta-1", 0.9000000000001), "its beta_1 is 0.90000000000"),
    (("--steps-per-epoch", 1), "steps in an epoch is 1, not 2"),
    (("--precision", "mixed_bfloat16"), "its precision is mixed_bfloat16, not exact"),
    (("--data", "other"), "its digest of the data is"), (("--data", "shorter"), "in the data is 63, not 64")])
def test_processes_that_do_not_fit(cluster, tmp_path, strategy, other, says):
    """All are told at once, in the same words, which name the host and what is other there."""
    served = strategy == "parameter-server"
    if served and other[0] in ("--shards", "--epochs"):
        pytest.skip("the chief's business alone")
    data = digits(tmp_path, n=64)
    for name, size, seed in (("other", 64, 9), ("shorter", 63, 0)):
        (tmp_path / name).mkdir()
        digits(tmp_path / name, n=size, seed=seed)
    args = ("train", "mlp", "--data", data, *TRAIN)
    c = cluster(3, [("chief", 0), ("worker", 0), ("ps", 0)] if served else None)
    if served:
        args = ("train", "mlp", "--data", data, "--batch", 32, "--seed", 7, "--json", "--strategy", strategy)
    c.start(1, *args, *(f"{o}/x.npy,{o}/y.npy" if o in ("other", "shorter") else o for o in other))
    c.start(0, *args)
    c.start(2, *args)
    sentences = set()
    for events, err in c.wait(status=1):
        assert says in err and " is at another training than " in err, err
        assert "worker/1 (" in err or served, err
        sentences.add(err[err.rindex("its "):])
        assert not [e for e in events if e["event"] == "epoch"]
    assert len(sentences) == 1, sentences


def test_another_key_is_of_no_use(cluster, tmp_path):
    data = digits(tmp_path)
    (tmp_path / "other.key").write_text("ab" * 32)
    (tmp_path / "other.key").chmod(0o600)
    c = cluster(2)
    c.start(0, "train", "mlp", "--data", data, *TRAIN, "--cluster-timeout", 100)
    c.start(1, "train", "mlp", "--data", data, *TRAIN, "--cluster-timeout", 100, "--cluster-key", "other.key")
    done = c.wait(status=1)
    assert "another cluster key" in done[0][1]
    assert "worker/0" in done[1][1]
    key = tmp_path / ".config/manta/cluster.key"
    assert key.stat().st_mode & 0o777 == 0o600 and len(key.read_text()) == 65


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_another_key_ends_all(cluster, tmp_path, odd):
    """Whoever has it, and long before --cluster-timeout; who has called in vain is counted, not listed."""
    data = digits(tmp_path)
    (tmp_path / "other.key").write_text("ab" * 32)
    (tmp_path / "other.key").chmod(0o600)
    c = cluster(3)
    for rank in range(3):
        c.start(rank, "train", "mlp", "--data", data, *TRAIN, *(("--cluster-key", "other.key") if rank == odd else ()))
    for rank, (_, err) in enumerate(c.wait(status=1)):
        assert "--cluster-key" in err, err
        assert rank == odd or f"worker/{odd} ({c.addresses[odd]}) closes every connection" in err, err
        assert err.count("turned away") <= 4, err


def test_one_that_is_refused_ends_all(cluster, tmp_path):
    """As long as nothing has begun. It is called by worker/2 alone, and calls worker/0."""
    data = digits(tmp_path)
    c = cluster(3)
    for rank in range(3):
        c.start(rank, "train", "mlp", "--data", data, *TRAIN, *(("--insecure-bulk",) if rank == 1 else ()))
    for _, err in c.wait(status=1):
        assert "--insecure-bulk is given" in err, err


def test_many_strangers_are_counted(cluster, tmp_path):
    data = digits(tmp_path)
    c = cluster(2)
    c.start(0, "train", "mlp", "--data", data, *TRAIN)
    host, port = c.addresses[0].split(":")
    for _ in range(200):
        with socket.create_connection((host, int(port))) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert stranger.recv(1) == b""      # it has been turned away, without an answer
    c.start(1, "train", "mlp", "--data", data, *TRAIN)
    (_, err), _ = c.wait()
    assert 1 <= err.count("turned away") <= 8 and "in all=200" in err.replace('"', ""), err


def test_a_key_of_a_run_of_its_own(cluster, manta, tmp_path):
    manta("key", "run.key")
    c = cluster(2)
    for rank in range(2):
        c.start(rank, "train", "mlp", "--data", digits(tmp_path), *TRAIN, "--cluster-key", "run.key")
    c.wait()
    assert not (tmp_path / ".config").exists()


def test_other_hosts_need_a_key_that_is_given(manta, tmp_path):
    config = {"cluster": {"worker": ["0.0.0.0:4711", "10.1.2.3:4711"]}, "task": {"type": "worker", "index": 0}}
    done = manta("train", "mlp", "--data", digits(tmp_path), env={"TF_CONFIG": json.dumps(config)}, status=1)
    assert "--cluster-key" in done.stderr
    (tmp_path / "open.key").write_text("ab" * 32)
    (tmp_path / "open.key").chmod(0o644)
    done = manta("train", "mlp", "--data", "x.npy,y.npy", "--cluster-key", "open.key",
                 env={"TF_CONFIG": json.dumps(config)}, status=1)
    assert "can be read by others" in done.stderr


def test_unencrypted_bulk_is_said(manta, cluster, tmp_path):
    args = ("train", "mlp", "--data", digits(tmp_path), "--shards", 2, *TRAIN)
    manta(*args, "--save", "one.npz")
    c = cluster(2)
    for rank in range(2):
        c.start(rank, *args, "--save", "many.npz", "--insecure-bulk")
    for _, err in c.wait():
        assert "unencrypted" in err
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()


@pytest.mark.parametrize("text, says", [("{", "not JSON"), ('{"cluster": []}', "cluster must be an object"),
                                        ('{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, '
                                         '"task": {"type": "worker", "index": 0}}', "parameter servers")])
def test_wrong_tf_config(manta, tmp_path, text, says):
    done = manta("train", "mlp", "--data", digits(tmp_path), env={"TF_CONFIG": text}, status=1)
    assert says in done.stderr


def test_empty_tf_config_is_none(manta, tmp_path):
    manta("train", "mlp", "--data", digits(tmp_path), *TRAIN, env={"TF_CONFIG": "{}"})


# Two hosts: network namespaces joined by a pair of virtual cables. Status 77: the machine does not allow it.
TWO_HOSTS = r"""
ip link set lo up && ip link add v0 type veth peer name v1 || exit 77
unshare -n sleep 300 & other=$!
trap 'kill $other' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do kill -0 $other || exit 77; done
ip link set v1 netns $other && ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up || exit 77
nsenter -t $other -n sh -c 'ip link set lo up && ip addr add 10.77.0.2/24 dev v1 && ip link set v1 up' || exit 77
TF_CONFIG="$CONFIG0" "$@" & first=$!
TF_CONFIG="$CONFIG1" nsenter -t $other -n "$@" > other.out || exit 1
wait $first
"""


def test_two_hosts(manta, tmp_path, environment):
    if not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("ip, unshare or nsenter is not installed")
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--validation", data, "--epochs", 2, "--shards", 3, *TRAIN)
    manta(*args, "--save", "one.npz")
    (tmp_path / "both.key").write_text("5a" * 32)
    (tmp_path / "both.key").chmod(0o600)
    hosts = {"worker": ["10.77.0.1:4711", "10.77.0.2:4711"]}
    configs = {f"CONFIG{i}": json.dumps({"cluster": hosts, "task": {"type": "worker", "index": i}}) for i in range(2)}
    done = subprocess.run(["unshare", "-rn", "sh", "-c", TWO_HOSTS, "sh", str(PROGRAM), *map(str, args),
                           "--cluster-key", "both.key", "--save", "many.npz"], cwd=tmp_path, text=True,
                          env={**environment, **configs}, capture_output=True, timeout=240)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"the machine does not allow network namespaces: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()


# A host with two addresses; prints where it listens as soon as it does.
LISTEN = r"""
ip link set lo up && ip addr add 10.77.0.1/32 dev lo && ip addr add 10.77.0.9/32 dev lo || exit 77
"$@" & first=$!
trap 'kill $first' EXIT
until grep -q ':1267 .* 0A ' /proc/net/tcp; do kill -0 $first || exit 1; done
grep ':1267 .* 0A ' /proc/net/tcp
"""


@pytest.mark.parametrize("own, listens", [("10.77.0.1", "01004D0A"), ("10.77.0.5", "00000000")])
def test_listens_where_tf_config_says(tmp_path, environment, own, listens):
    """Not on all addresses, unless the one that is given is none of this host's."""
    if not all(map(shutil.which, ("ip", "unshare"))):
        pytest.skip("ip or unshare is not installed")
    (tmp_path / "both.key").write_text("5a" * 32)
    (tmp_path / "both.key").chmod(0o600)
    config = {"cluster": {"worker": [f"{own}:4711", "10.77.0.2:4711"]}, "task": {"type": "worker", "index": 0}}
    done = subprocess.run(["unshare", "-rn", "sh", "-c", LISTEN, "sh", str(PROGRAM), "train", "mlp", "--data",
                           digits(tmp_path), "--cluster-key", "both.key"], cwd=tmp_path, text=True,
                          env={**environment, "TF_CONFIG": json.dumps(config)}, capture_output=True, timeout=240)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"the machine does not allow network namespaces: {done.stderr}")
    assert f" {listens}:1267 " in done.stdout, done.stdout + done.stderr
    assert ("listening on all" in done.stderr) == (own == "10.77.0.5"), done.stderr


# The same, with a cable that is pulled when the first host has begun, and put back when both have noticed.
CUT = r"""
ip link set lo up && ip link add v0 type veth peer name v1 || exit 77
unshare -n sleep 300 & other=$!
trap 'kill $other' EXIT
while [ "$(readlink /proc/$other/ns/net)" = "$(readlink /proc/$$/ns/net)" ]; do kill -0 $other || exit 77; done
ip link set v1 netns $other && ip addr add 10.77.0.1/24 dev v0 && ip link set v0 up || exit 77
nsenter -t $other -n sh -c 'ip link set lo up && ip addr add 10.77.0.2/24 dev v1 && ip link set v1 up' || exit 77
TF_CONFIG="$CONFIG0" "$@" > first.out 2> first.err & first=$!
TF_CONFIG="$CONFIG1" nsenter -t $other -n "$@" > other.out 2> other.err & second=$!
trap 'kill $other $first $second 2> /dev/null' EXIT
until grep -q '"event":"epoch"' first.out; do kill -0 $first || exit 1; done
nsenter -t $other -n ip link set v1 down
until grep -q 'all meet again' first.err && grep -q 'all meet again' other.err; do
    kill -0 $first && kill -0 $second || exit 1
    sleep 0.1
done
nsenter -t $other -n ip link set v1 up
wait $first && wait $second
"""


def test_a_cut_network_is_noticed_and_heals(manta, tmp_path, environment):
    """While it is cut, not when it has healed; and the bytes are those of one process."""
    if not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("ip, unshare or nsenter is not installed")
    data = digits(tmp_path, n=64)
    args = ("train", "mlp", "--data", data, "--epochs", 150, "--steps-per-epoch", 20, "--shards", 2, *TRAIN)
    manta(*args, "--save", "one.npz")
    (tmp_path / "both.key").write_text("5a" * 32)
    (tmp_path / "both.key").chmod(0o600)
    hosts = {"worker": ["10.77.0.1:4711", "10.77.0.2:4711"]}
    configs = {f"CONFIG{i}": json.dumps({"cluster": hosts, "task": {"type": "worker", "index": i}}) for i in range(2)}
    done = subprocess.run(["unshare", "-rn", "sh", "-c", CUT, "sh", str(PROGRAM), *map(str, args),
                           "--cluster-key", "both.key", "--save", "many.npz"], cwd=tmp_path, text=True,
                          env={**environment, **configs, "MANTA_LOG": "info"}, capture_output=True, timeout=240)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"the machine does not allow network namespaces: {done.stderr}")
    assert done.returncode == 0, done.stderr + (tmp_path / "first.err").read_text() + (tmp_path / "other.err").read_text()
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "many.npz").read_bytes()


# ---- parameter servers ----

SERVED = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]


def test_parameter_servers(manta, cluster, tmp_path):
    """Without staleness the steps come one after the other, whoever does them: the bytes of one process."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--seed", 7, "--epochs", 2, "--json")
    one = manta(*args, "--save", "one.npz")
    c = cluster(5, SERVED)
    for rank in (1, 3, 0, 4, 2):
        c.start(rank, *args, "--strategy", "parameter-server", "--staleness", 0, "--save", "served.npz")
    done = c.wait()
    assert epochs_of(done[0][0]) == epochs_of(one.events)
    assert [events[-1]["path"] for events, _ in done] == ["served.npz", None, None, None, None]
    assert (tmp_path / "served.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()


@pytest.mark.parametrize("victim", [1, 2])
def test_a_lost_worker_or_server_comes_back(cluster, tmp_path, victim):
    """There is one of each, so that the training cannot end without it."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--epochs", 80, "--json")
    c = cluster(3, [("chief", 0), ("worker", 0), ("ps", 0)])
    for rank in range(3):
        c.start(rank, *args, held=rank == 0)
    assert c.read_event(0, "epoch")
    c.kill(victim)
    c.start(victim, *args)
    events = c.wait()[0][0]
    assert [e["epoch"] for e in events if e["event"] == "epoch"] == list(range(1, 81))
    assert all(e["steps"] == 3 for e in events if e["event"] == "epoch")
    if victim == 2:     # nobody sees the loss of a worker but for the step that it had in hand
        (lost,) = [e for e in events if e["event"] == "recovered"]
        assert lost["role"] == "server" and lost["rank"] == 0 and "ps/0" in lost["cause"]


def test_a_lost_server_without_staleness_is_the_end(cluster, tmp_path):
    """What it had taken is nowhere else, and the bytes of one process were promised: all say so."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--epochs", 2000, "--json",
            "--strategy", "parameter-server", "--staleness", 0)
    c = cluster(4, [("chief", 0), ("worker", 0), ("ps", 0), ("ps", 1)])
    for rank in range(4):
        c.start(rank, *args)
    while c.read_event(0, "epoch"):     # between two epochs nothing is lost with it, and it goes on
        c.kill(2)
        c.start(2, *args)
    c.kill(2)                           # which has come too late
    c.running.pop(2)
    for _, err in c.wait(status=1):
        assert "parameter server 0 was lost in the middle of an epoch" in err and "staleness of 0" in err, err


@pytest.mark.parametrize("event, n", [("worker", 1), ("epoch", 1), ("epoch", 2), ("epoch", 7)])
@pytest.mark.parametrize("victim", [3, 4])
def test_a_lost_server_never_changes_the_result(manta, cluster, tmp_path, event, n, victim):
    """Without staleness: the bytes of one process, and the loss is told, or none at all, and why."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--seed", 7, "--epochs", 100, "--json")
    one = manta(*args, "--save", "one.npz")
    served = (*args, "--strategy", "parameter-server", "--staleness", 0, "--save", "served.npz")
    c = cluster(5, SERVED)
    for rank in range(5):
        c.start(rank, *served, held=rank == 0)
    for _ in range(n):
        assert c.read_event(0, event)
    c.kill(victim)
    c.start(victim, *served)
    while c.read_event(0, "epoch"):
        pass
    goes_on = c.running[0].wait(240) == 0
    if not goes_on:                     # its successor may have come too late to hear of the end
        c.kill(victim)
        c.running.pop(victim)
        for _, err in c.wait(status=1):
            assert f"parameter server {victim - 3} was lost in the middle of an epoch" in err, err
        assert not (tmp_path / "served.npz").exists()
        return
    events = c.wait()[0][0]
    assert epochs_of(events) == epochs_of(one.events)
    assert (tmp_path / "served.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()
    losses = [e for e in events if e["event"] == "recovered"]
    assert len(losses) == 1 or (event == "worker" and not losses)       # it may not have met anybody yet
    for lost in losses:
        assert lost["role"] == "server" and lost["rank"] == victim - 3 and f"ps/{victim - 3}" in lost["cause"]


def test_a_lost_server_is_told_of(cluster, tmp_path):
    """In words, on a terminal or not; the last line that the chief has printed before says that it trains."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--epochs", 80)
    c = cluster(3, [("chief", 0), ("worker", 0), ("ps", 0)])
    for rank in range(3):
        c.start(rank, *args, held=rank == 0)
    chief = c.running[0]
    while b"epoch 2" not in chief.unread.lower():
        more = os.read(chief.stdout.fileno(), 256)
        assert more, chief.communicate()
        chief.unread += more
    c.kill(2)
    c.start(2, *args)
    out, err = chief.communicate(timeout=300)
    assert chief.returncode == 0, err
    assert (out + err).count("parameter server 0 failed") == 1, out + err
    for other in c.running[1:]:
        other.communicate(timeout=240)
        assert other.returncode == 0


def test_a_lost_chief_comes_back(manta, cluster, tmp_path):
    """The servers have its state, position and sums: no step is lost or done twice, whenever it is killed."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--seed", 7, "--epochs", 100,
            "--optimizer", "adam", "--json")
    one = manta(*args, "--save", "one.npz")
    served = (*args, "--strategy", "parameter-server", "--staleness", 0, "--save", "served.npz")
    c = cluster(5, SERVED)
    for rank in range(5):
        c.start(rank, *served, held=rank == 0)
    for event in ("epoch", "worker"):       # the second may be killed before it has met anybody
        assert c.read_event(0, event)
        c.kill(0)
        c.start(0, *served, held=True)
    epochs = epochs_of(c.wait()[0][0])
    assert epochs and epochs == epochs_of(one.events)[-len(epochs):]
    assert (tmp_path / "served.npz").read_bytes() == (tmp_path / "one.npz").read_bytes()


def test_a_lost_chief_is_missed(cluster, tmp_path):
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--epochs", 80, "--json")
    c = cluster(3, [("chief", 0), ("worker", 0), ("ps", 0)])
    for rank in range(3):
        c.start(rank, *args, held=rank == 0)
    assert c.read_event(0, "epoch")
    c.kill(0)
    for rank in (1, 2):
        while True:     # on a busy machine others may have been missed at the beginning
            missing = c.read_event(rank, "waiting")["cause"]
            if "chief/0" in missing and c.addresses[0] in missing:
                break
    # It takes another's place only with the same work, and says what differs.
    for other, says in [(("--steps-per-epoch", 2), "its number of steps in an epoch is 3, not 2"),
                        (("--seed", 8), "its seed is 0, not 8"),
                        (("--learning-rate", 0.5), "its learning rate is 0.001, not 0.5"),
                        (("--optimizer", "sgd"), "its optimizer is adam, not sgd"),
                        (("--batch", 16), "its batch size is 32, not 16")]:
        c.start(0, *args, *other)
        out, err = c.running[0].communicate(timeout=240)
        assert c.running[0].returncode == 1, out + err
        assert f"ps/0 is at another training than coordinator: {says}" in err, err
    c.start(0, *args)
    events = c.wait()[0][0]
    assert [e["epoch"] for e in events if e["event"] == "epoch"][-1] == 80


def test_a_worker_with_other_options_is_refused(cluster, tmp_path):
    """In the same words on both sides; when it comes with the right ones the training goes on."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--epochs", 80, "--json")
    c = cluster(3, [("chief", 0), ("worker", 0), ("ps", 0)])
    for rank in range(3):
        c.start(rank, *args, held=rank == 0)
    assert c.read_event(0, "epoch")
    c.kill(1)
    c.start(1, *args, "--seed", 5)
    out, err = c.running[1].communicate(timeout=240)
    assert c.running[1].returncode == 1, out + err
    assert "worker/0 is at another training than coordinator: its seed is 5, not 0" in err, err
    c.start(1, *args)
    (events, err), *_ = c.wait()
    assert [e["epoch"] for e in events if e["event"] == "epoch"] == list(range(1, 81))
    assert "worker/0 is at another training than coordinator: its seed is 5, not 0" in err, err


def test_a_chief_and_a_server_lost_at_once(cluster, tmp_path):
    """What they had is nowhere else: it begins again."""
    args = ("train", "mlp", "--data", digits(tmp_path, n=88), "--batch", 32, "--epochs", 80, "--json")
    c = cluster(4, [("chief", 0), ("worker", 0), ("ps", 0), ("ps", 1)])
    for rank in range(4):
        c.start(rank, *args, held=rank == 0)
    assert c.read_event(0, "epoch")
    for rank in (0, 2):
        c.kill(rank)
    for rank in (0, 2):
        c.start(rank, *args)
    events = c.wait()[0][0]
    assert [e["epoch"] for e in events if e["event"] == "epoch"] == list(range(1, 81))


def test_a_chief_that_does_not_come_is_named(cluster, tmp_path):
    c = cluster(3, [("chief", 0), ("worker", 0), ("ps", 0)])
    for rank in (1, 2):
        c.start(rank, "train", "mlp", "--data", digits(tmp_path), "--json", "--cluster-timeout", 1)
    c.running = c.running[1:]
    for _, err in c.wait(status=1):
        assert "chief/0" in err and c.addresses[0] in err and "1 s" in err


def test_parameter_servers_need_a_chief(cluster, tmp_path):
    c = cluster(2, [("worker", 0), ("ps", 0)])
    c.start(0, "train", "mlp", "--data", digits(tmp_path))
    c.start(1, "train", "mlp", "--data", digits(tmp_path))
    assert all("no chief" in err for _, err in c.wait(status=1))
