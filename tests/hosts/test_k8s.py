"""manta launch --on k8s: what its manifests have pods run, on hosts that stand for pods. There is no Kubernetes here: the Job's part
is played by this file, with the variables, names and files that Kubernetes gives to pods; it is not run by a cluster."""
import os
import signal
import subprocess

import pytest
import yaml

from conftest import PROGRAM, TRAIN, Launched, longer, needs, processes, ranks
from world import WAIT_S, wait_for

pytestmark = needs("ip", "nsenter", "unshare", "mount")
KEY = "5a" * 32


class Job:
    """The pods of a manifest."""

    def __init__(self, world, place, manifest):
        self.world, self.place = world, place
        self.spec = manifest["spec"]["template"]["spec"]
        self.name, self.pods = manifest["metadata"]["name"], {}
        self.key = place / "secret-key"
        self.key.write_text(KEY)

    def hosts_file(self, index):
        return self.place / f"{self.name}-{index}-hosts"

    def publish(self, index):
        """The Service has a pod's name from now on: the others find it, and so does the pod itself."""
        for file in self.place.glob(f"{self.name}-*-hosts"):
            with open(file, "a") as f:
                f.write(f"{self.world.hosts[index].address} {self.name}-{index}.{self.name}\n")

    def start(self, index, is_published=True):
        """A pod: processes and mounts of its own, with the command as the first of them, as in a container."""
        # The kubelet writes this much; the others' names are the Service's to know, and come when they come.
        known = "".join(f"{self.world.hosts[i].address} {self.name}-{i}.{self.name}\n" for i in self.pods if i != index)
        self.hosts_file(index).write_text(f"127.0.0.1 localhost\n{self.world.hosts[index].address} {self.name}-{index}\n" +
                                          (known if is_published else ""))
        if is_published:
            self.publish(index)
        container = self.spec["containers"][0]
        variables = {e["name"]: e["value"] for e in container["env"]}
        variables["MANTA_CLUSTER_KEY"] = str(self.key)      # where the Secret is mounted
        env = {"PATH": os.environ["PATH"], "HOME": str(self.place), "LC_ALL": "C.UTF-8", "HOSTNAME": f"{self.name}-{index}",
               "JOB_COMPLETION_INDEX": str(index), **variables}
        words = [*container["command"], *(a.replace("$$", "$") for a in container["args"])]
        inside = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c",
                  f'mount --bind {self.hosts_file(index)} /etc/hosts && exec "$@"', "pod", *words]
        self.pods[index] = Launched(self.world.hosts[index].words(*inside), self.place, env)
        return self.pods[index]

    def process(self, index):
        """The pod's first process, as it is seen from outside."""
        def find():
            for pid in processes():
                try:
                    if open(f"/proc/{pid}/comm").read().strip() == "manta" and b" launch" in open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ") \
                            and f"JOB_COMPLETION_INDEX={index}".encode() in open(f"/proc/{pid}/environ", "rb").read().split(b"\0"):
                        return pid
                except OSError:
                    continue
            return None
        return wait_for(find, f"pod {index}")


@pytest.fixture
def job(world, place):
    """job(program): a Job of two pods with two ranks each."""
    made, before = [], set(processes())

    def make(program):
        text = subprocess.run([PROGRAM, "launch", "--on", "k8s", "--print", "--image", "i", "--nodes", "2", "-n", "2", "--manta", PROGRAM, "--job", "j",
                               "--", *program], capture_output=True, text=True, check=True, timeout=WAIT_S, cwd=place).stdout
        made.append(Job(world, place, list(yaml.safe_load_all(text))[1]))
        return made[-1]

    yield make
    for j in made:
        for pod in j.pods.values():
            if pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
    wait_for(lambda: not [pid for pid in processes() if pid not in before], "processes to end")


def both(job):
    return [job.start(i) for i in range(2)]


def test_the_weights_are_those_of_one_process(job, saved):
    pods = both(job((*TRAIN, "--shards", "4", "--save", "pods.npz")))
    for i, pod in enumerate(pods):
        pod.wait()
        assert f"[rank {2 * i}] " in pod.text("stdout") and f"[rank {2 * i + 1}] " in pod.text("stdout")
    assert saved("pods.npz")


def test_pods_wait_for_names_that_the_service_does_not_have_yet(job, saved):
    """A pod runs before its own name is known to anybody, itself included."""
    j = job((*TRAIN, "--shards", "4", "--save", "late.npz"))
    pods = [j.start(i, is_published=False) for i in range(2)]
    for pod in pods:
        wait_for(lambda: "waiting for" in pod.text("stderr"), "a rank that waits for others")
    for i in range(2):
        j.publish(i)
    for pod in pods:
        pod.wait()
    assert saved("late.npz")


@pytest.fixture(scope="module")
def many(place):
    """A training of many epochs, and the weights that one process ends with."""
    program = longer(200)
    subprocess.run([PROGRAM, *program, "--save", "many.npz"], cwd=place, check=True, capture_output=True, timeout=WAIT_S,
                   env={"PATH": os.environ["PATH"], "HOME": str(place)})
    return program


def stop_in_the_middle(pods):
    """Stops a rank of pod 1 when all have trained an epoch: the others wait for it."""
    wait_for(lambda: "Epoch 1/" in pods[1].text("stdout"), "an epoch")
    rank = ranks()[2]
    os.kill(rank, signal.SIGSTOP)
    return rank


def test_a_pod_that_is_killed_comes_again(job, place, many):
    """Kubernetes makes a pod with the same index and name; the others give it the state."""
    j = job((*many, "--save", "again.npz", "--run-dir", "again-run"))
    stop_in_the_middle(both(j))
    os.kill(j.process(1), signal.SIGKILL)
    j.pods[1].wait(status=None)
    assert j.pods[0].process.poll() is None
    j.start(1).wait()
    j.pods[0].wait()
    assert (place / "again.npz").read_bytes() == (place / "many.npz").read_bytes()


@pytest.mark.parametrize("index", [0, 1])
def test_a_pod_that_is_asked_to_end_ends_with_75_and_comes_again(job, place, many, index):
    """A node is drained: one pod gets SIGTERM, and the policy of the Job makes another without counting it."""
    j = job((*many, "--save", f"asked-{index}.npz", "--run-dir", f"asked-{index}"))
    rank = stop_in_the_middle(both(j))
    os.kill(j.process(index), signal.SIGTERM)
    os.kill(rank, signal.SIGCONT)
    j.pods[index].wait(75)
    j.start(index).wait()
    j.pods[1 - index].wait()
    assert (place / f"asked-{index}.npz").read_bytes() == (place / "many.npz").read_bytes()


def test_the_key_is_nowhere_to_be_seen(job, place, many):
    j = job((*many, "--run-dir", "seen"))
    pods = both(j)
    rank = stop_in_the_middle(pods)
    for pid in processes():
        for name in ("cmdline", "environ"):
            try:
                assert KEY.encode() not in open(f"/proc/{pid}/{name}", "rb").read()
            except OSError:
                continue
    os.kill(rank, signal.SIGCONT)
    for pod in pods:
        pod.wait()
        assert KEY not in pod.text("stdout") + pod.text("stderr")
    for path in (place / "seen").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_where_in_a_pod(world, place):
    env = {"JOB_COMPLETION_INDEX": "1", "MANTA_WORLD_SIZE": "2", "HOSTNAME": "j-1", "PATH": os.environ["PATH"]}
    done = subprocess.run([PROGRAM, "where"], env=env, cwd=place, capture_output=True, text=True, timeout=WAIT_S, check=True)
    assert "rank        1 of 2" in done.stdout and "j, as kubernetes calls it" in done.stdout
