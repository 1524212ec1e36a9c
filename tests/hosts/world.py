"""Hosts for tests: namespaces on a bridge, in a world that ends with the process that made it.

    world: unshare, with namespaces of its own for processes, mounts, network and name
      bridge 10.77.0.1, where the launcher is
        h1 10.77.0.11      a network and a name each; one file system
        h2 10.77.0.12 ...

Everything is a process of the world's namespace: when the world's first process ends, or whoever started it is killed, the
kernel kills all of them, and with them go networks, mounts and daemons. Nothing is written outside a temporary folder.

`python tests/hosts/world.py COMMAND...` runs a command in a new world; where that is not allowed it says why and ends with
status 77. The class World is for what runs inside.
"""
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time

NET = "10.77.0"
SKIPPED = 77
MARK = "MANTA_TEST_WORLD"
WAIT_S = 240            # for what must come; nothing takes nearly so long, but a machine may be busy


def die_with_parent():
    """Run in a child before its program: it is killed when the thread that started it ends."""
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)


def wait_for(condition, what, seconds=WAIT_S):
    """Waits until the condition holds; fails naming `what`."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.02)


class NotPossible(Exception):
    """This machine has not what a daemon needs."""


class Host:
    """A network and a host name of its own."""

    def __init__(self, world, number):
        self.name, self.address = f"h{number}", f"{NET}.{10 + number}"
        self.link = f"v{world.number}-{number}"
        self.init = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname {self.name}; echo up; exec sleep infinity"],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        self.init.stdout.readline()
        world.run("ip", "link", "add", "name", self.link, "type", "veth", "peer", "name", "eth0", "netns", str(self.init.pid))
        world.run("ip", "link", "set", self.link, "master", world.bridge, "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):
            world.run(*self.words("ip", *words))

    def words(self, *command):
        """The command, as it is started on this host."""
        return ["nsenter", f"--target={self.init.pid}", "--net", "--uts", "--", *map(str, command)]


class World:
    """Hosts, and daemons on them. The kernel takes a network apart some time after its last process: the next one has other names."""

    made = 0

    def __init__(self, folder, n):
        World.made += 1
        self.number, self.bridge = World.made, f"hosts{World.made}"
        self.folder = pathlib.Path(folder)
        self.daemons = []
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "link", "add", "name", self.bridge, "type", "bridge")
        self.run("ip", "addr", "add", f"{NET}.1/24", "dev", self.bridge)
        self.run("ip", "link", "set", self.bridge, "up")
        self.hosts = [Host(self, 1 + i) for i in range(n)]

    @staticmethod
    def run(*command, **options):
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=WAIT_S, **options)
        if done.returncode:
            raise AssertionError(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def start(self, name, *command, host=None, env=None):
        """A daemon, in the foreground; what it prints goes to NAME.log."""
        log = open(self.folder / f"{name}.log", "ab")
        words = [str(c) for c in command] if host is None else host.words(*command)
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
                                   preexec_fn=die_with_parent)
        log.close()
        self.daemons.append(process)
        return process

    def close(self):
        for process in self.daemons + [h.init for h in self.hosts]:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        for process in self.daemons + [h.init for h in self.hosts]:
            process.wait()
        self.run("ip", "link", "del", self.bridge)

    # ---- ssh ----

    def start_sshd(self):
        """An sshd on each host. Returns what ssh has to be called."""
        d = self.folder
        key, host_key = d / "user_key", d / "host_key"
        for path in (key, host_key):
            self.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)
        (d / "authorized").write_text((d / "user_key.pub").read_text())
        (d / "known").write_text("".join(f"{h.address} {(d / 'host_key.pub').read_text()}" for h in self.hosts))
        (d / "sshd_config").write_text(f"HostKey {host_key}\nAuthorizedKeysFile {d}/authorized\nStrictModes no\nUsePAM no\nPidFile none\n"
                                       "PasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 100\n")
        (d / "ssh_config").write_text(f"Host *\n  IdentityFile {key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {d}/known\n"
                                      "  GlobalKnownHostsFile /dev/null\n  LogLevel ERROR\n")
        os.makedirs("/run/sshd", exist_ok=True)
        for h in self.hosts:
            self.start(f"sshd-{h.name}", "/usr/sbin/sshd", "-D", "-e", "-f", d / "sshd_config", host=h)
        ssh = f"ssh -F {d}/ssh_config"
        for h in self.hosts:
            wait_for(lambda h=h: subprocess.run([*ssh.split(), "-o", "BatchMode=yes", h.address, "true"], capture_output=True,
                                                stdin=subprocess.DEVNULL, timeout=WAIT_S, check=False).returncode == 0, f"sshd of {h.name}")
        return ssh

    # ---- Slurm ----

    def start_slurm(self):
        """munged, slurmctld and a slurmd on each host. Returns the variables that its commands need."""
        d = self.folder / "slurm"
        (d / "state").mkdir(parents=True)
        os.chmod(self.folder, 0o755)
        (d / "munge.key").write_bytes(os.urandom(1024))
        os.chmod(d / "munge.key", 0o400)
        socket = d / "munge.socket"
        self.start("munged", "munged", "--foreground", "--force", f"--key-file={d}/munge.key", f"--socket={socket}", f"--pid-file={d}/munged.pid",
                   f"--log-file={d}/munged.log", f"--seed-file={d}/munged.seed")
        wait_for(lambda: subprocess.run(["munge", "-n", f"--socket={socket}"], capture_output=True, check=False).returncode == 0, "munged")
        (d / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        nodes = "".join(f"NodeName={h.name} NodeAddr={h.address} CPUs=2 RealMemory=1000 State=UNKNOWN\n" for h in self.hosts)
        (d / "slurm.conf").write_text(
            f"ClusterName=test\nSlurmctldHost={os.uname().nodename}({NET}.1)\nAuthType=auth/munge\nAuthInfo=socket={socket}\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nSelectType=select/cons_tres\n"
            "SelectTypeParameters=CR_Core\nReturnToService=2\nSlurmUser=root\nSlurmdTimeout=300\nMpiDefault=none\nSlurmdParameters=config_overrides\n"
            "MessageTimeout=60\nPlugStackConfig=/dev/null\n"
            f"StateSaveLocation={d}/state\nSlurmdSpoolDir={d}/spool-%n\nSlurmctldLogFile={d}/ctl.log\nSlurmdLogFile={d}/%n.log\n"
            f"SlurmctldPidFile={d}/ctl.pid\nSlurmdPidFile={d}/%n.pid\n{nodes}"
            f"PartitionName=p Nodes={','.join(h.name for h in self.hosts)} Default=YES State=UP MaxTime=INFINITE\n")
        # slurmd looks for controllers of version 1 and refuses a mixture with version 2; these mounts are the world's own.
        self.run("mount", "-t", "tmpfs", "cgroups", "/sys/fs/cgroup")
        for name in ("freezer", "memory", "cpuset", "cpu", "cpuacct", "devices"):
            os.makedirs(f"/sys/fs/cgroup/{name}")
            try:
                self.run("mount", "-t", "cgroup", "-o", name, "cgroup", f"/sys/fs/cgroup/{name}")
            except AssertionError as e:
                raise NotPossible(f"Slurm of Debian 12 wants the controller {name} of version 1: {e}") from e
        env = {**os.environ, "SLURM_CONF": f"{d}/slurm.conf"}
        self.start("slurmctld", "slurmctld", "-D", "-i", env=env)
        for h in self.hosts:
            (d / f"spool-{h.name}").mkdir()
            self.start(f"slurmd-{h.name}", "slurmd", "-D", "-N", h.name, host=h, env=env)
        idle = ["sinfo", "-h", "-t", "idle", "-o", "%D"]
        wait_for(lambda: subprocess.run(idle, capture_output=True, text=True, env=env, check=False).stdout.strip() == str(len(self.hosts)),
                 "Slurm's nodes")
        return {"SLURM_CONF": env["SLURM_CONF"]}


def main(command):
    """Runs the command in a new world; the status to end with."""
    inside = ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "--propagation", "private"]
    probe = "hostname login && mount -t tmpfs none /mnt && ip link add name br0 type bridge && ip link add name ve0 type veth peer name ve1"
    tried = subprocess.run([*inside, "sh", "-c", probe], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if tried.returncode:
        print(f"skipped: this machine does not let us make network namespaces: {tried.stderr.strip() or tried.returncode}")
        return SKIPPED
    die_with_parent()
    os.environ[MARK] = "1"
    os.execvp(inside[0], [*inside, "sh", "-c", 'hostname login; mount -t tmpfs -o mode=755 run /run && exec "$@"', "world", *command])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
