"""`python -m manta launch`: plain programs in several processes. Each test also proves that nothing is left of them."""
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import uuid

import pytest
from conftest import DEADLINE_S, until

# Helpers of the programs: wait for a file that another rank makes, a child that ends by SIGKILL alone.
HEAD = """
import json, os, signal, socket, subprocess, sys, time
rank = int(os.environ.get("RANK", -1))
def until(condition):
    while not condition():
        time.sleep(0.002)
def make(name):
    with open(name + ".new", "w") as f:
        f.write(str(os.getpid()))
    os.rename(name + ".new", name)
def wait_for(name):
    until(lambda: os.path.exists(name))
    return int(open(name).read())
def wait():
    while True:             # pause() would wait for the next signal, if one came just before it
        time.sleep(0.05)
"""
PACKAGE = str(pathlib.Path(importlib.util.find_spec("manta").origin).parents[1])     # also when PYTHONPATH is relative
IGNORES_SIGNALS = "import signal, os\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\nos.close(0)\nwhile True: signal.pause()"


def processes_of(token):
    """All processes that were started with this word in their environment and live."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if token.encode() in (folder / "environ").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                pass
    return found


@pytest.fixture
def launch(tmp_path):
    """launch(text, *options): starts the text as a program; after the test nothing may be left of it."""
    token = f"MANTA_TEST_LAUNCH={uuid.uuid4()}"
    begun = []

    def run(text, *options, arguments=(), wait=True, env={}, before=(), **more):
        (tmp_path / "program.py").write_text(HEAD + textwrap.dedent(text))
        name, value = token.split("=")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("TF_", "OMP_", "TORCHELASTIC_", "MASTER_")) and
                k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "PYTHONUNBUFFERED")}
        p = subprocess.Popen([*before, sys.executable, "-m", "manta", "launch", *map(str, options), "program.py", *arguments],
                             cwd=tmp_path, env={**kept, "PYTHONPATH": PACKAGE, name: value, **env},
                             **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})
        begun.append(p)
        return finish(p) if wait else p
    yield run
    for p in begun:
        if p.poll() is None:
            p.kill()
        p.wait()
        for pipe in (p.stdout, p.stderr):
            if pipe is not None:
                pipe.close()
    until(lambda: not processes_of(token), f"the end of all of {processes_of(token)}")


def make(path):
    """A file that programs wait for, with something in it from the first."""
    new = path.with_suffix(".new")
    new.write_text("1")
    new.rename(path)


def finish(p):
    out, err = p.communicate(timeout=DEADLINE_S)
    return subprocess.CompletedProcess(p.args, p.returncode, out, err)


def must(done):
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def told(done):
    """The block that tells of a failure."""
    text = done.stderr.decode(errors="replace")
    assert text.count("manta: rank ") == 1, text
    return text[text.index("manta: rank "):]


# ---- what a rank is told ----

SHOW = "os.write(1, (json.dumps(dict(os.environ)) + '\\n').encode())"


def environments(done):
    return {int(k): json.loads(v) for k, v in re.findall(r"^\[rank (\d+)\] (.*)$", must(done).decode(), re.M)}


def test_each_rank_is_told_its_place(launch):
    done = launch(SHOW, "-n", 3)
    got = environments(done)
    assert sorted(got) == [0, 1, 2] and done.stderr == b""
    for rank, e in got.items():
        assert [e[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
                               "MASTER_ADDR", "TF_GRPC_REUSE_PORT", "TORCHELASTIC_RESTART_COUNT")] == [
            str(rank), str(rank), "3", "3", "0", "0", "127.0.0.1", "1", "0"]
        config = json.loads(e["TF_CONFIG"])
        assert config["task"] == {"type": "worker", "index": rank}
        assert config["cluster"] == json.loads(got[0]["TF_CONFIG"])["cluster"]
        assert e["MASTER_PORT"] == got[0]["MASTER_PORT"]
        assert e["OMP_NUM_THREADS"] == str(max(1, len(os.sched_getaffinity(0)) // 3))
    workers = config["cluster"]["worker"]
    assert len({*workers, f"127.0.0.1:{e['MASTER_PORT']}"}) == 4 and all(re.fullmatch(r"127\.0\.0\.1:\d+", w) for w in workers)


def test_what_the_user_set_stays(launch):
    chosen = {"OMP_NUM_THREADS": "7", "TF_USE_LEGACY_KERAS": "0", "TF_GRPC_REUSE_PORT": "0", "PYTHONUNBUFFERED": ""}
    done = launch(SHOW, "-n", 2, env=chosen)
    for e in environments(done).values():
        assert {k: e[k] for k in chosen} == chosen
    assert done.stderr == b""


def test_what_is_replaced_is_told(launch):
    done = launch(SHOW, "-n", 2, env={"RANK": "9", "MASTER_PORT": "29500"})
    got = environments(done)
    assert got[1]["RANK"] == "1" and got[1]["MASTER_PORT"] != "29500"
    assert done.stderr.decode().count("\n") == 1 and "RANK, MASTER_PORT of the environment" in done.stderr.decode()


def test_tf_keras_is_used_where_it_is_installed(launch, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "tf_keras.py").write_text("raise SystemExit('nobody asked for it')")
    env = {"PYTHONPATH": f"{tmp_path / 'site'}:{PACKAGE}"}
    assert environments(launch(SHOW, "-n", 2, env=env))[1]["TF_USE_LEGACY_KERAS"] == "1"
    assert "TF_USE_LEGACY_KERAS" not in environments(launch(SHOW, "-n", 2, "--keras", 3, env=env))[1]
    if importlib.util.find_spec("tf_keras") is None:
        assert "TF_USE_LEGACY_KERAS" not in environments(launch(SHOW, "-n", 2))[1]


def test_ports_are_held_for_the_ranks(launch):
    """Nobody else is given them, and the ranks can listen there, the way TensorFlow and torch's store do."""
    assert must(launch("""
        theirs = int(json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][rank].split(":")[1])
        ports = [(theirs, socket.SO_REUSEPORT)]
        if rank == 0:
            ports.append((int(os.environ["MASTER_PORT"]), socket.SO_REUSEADDR))
        for port, option in ports:
            for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "")):
                try:
                    socket.socket(family).bind((address, port))
                    sys.exit("bound")
                except OSError:
                    pass
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, option, 1)
            server.bind(("", port))
            server.listen()
            socket.create_connection(("127.0.0.1", port)).close()
        print("fine")
        """, "-n", 2)).count(b"fine") == 2


def test_arguments_are_the_programs(launch, tmp_path):
    assert must(launch("print(sys.argv[1:], __name__, repr(sys.stdin.read()))", "-n1", arguments=["-n", "3", "--grace"])) == \
        b"['-n', '3', '--grace'] __main__ ''\n"
    (tmp_path / "tool.py").write_text("import sys; print(__name__, sys.argv[1:])")
    assert must(launch("", "-n", 1, "-m", "tool", arguments=["--x"])) == b"__main__ ['program.py', '--x']\n"


def test_manta_at_a_prompt_does_the_same(tmp_path):
    (tmp_path / "program.py").write_text("import os; print(os.environ['RANK'])")
    done = subprocess.run([sys.executable, "-c", "import sys, manta.__main__ as m; sys.argv = ['manta', 'launch', '-n', '2', "
                           "'program.py']; m.program()"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": PACKAGE},
                          capture_output=True, text=True, timeout=DEADLINE_S)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[rank 0] 0", "[rank 1] 1"]), done.stderr


# ---- output ----

def test_lines_are_whole_whatever_the_pieces(launch):
    out = must(launch("""
        text = b"".join(b"%d:%s\\n" % (i, b"x" * (i % 97)) for i in range(3000))
        for i in range(0, len(text), 61):
            os.write(1, text[i:i + 61])
        """, "-n", 3))
    lines = out.splitlines()
    assert len(lines) == 9000
    for rank in range(3):
        mine = [x.removeprefix(b"[rank %d] " % rank) for x in lines if x.startswith(b"[rank %d] " % rank)]
        assert mine == [b"%d:%s" % (i, b"x" * (i % 97)) for i in range(3000)]


def test_two_outputs_in_one_pipe_are_whole_too(launch):
    done = launch("""
        for i in range(300):
            os.write(1, b"o" * 9000 + b"\\n")
            os.write(2, b"e" * 9000 + b"\\n")
        """, "-n", 2, stderr=subprocess.STDOUT)
    assert {re.sub(rb"^\[rank [01]\] ", b"", x) for x in must(done).splitlines()} == {b"o" * 9000, b"e" * 9000}
    assert len(done.stdout.splitlines()) == 1200


def test_bytes_pass_unchanged(launch):
    program = "os.write(1, b'\\xff\\x00\\xfe a\\r\\nb\\n\\n 1%\\r 2%\\rend'); os.write(2, b'\\x80\\n')"
    done = launch(program, "-n", 1)
    assert (must(done), done.stderr) == (b"\xff\x00\xfe a\r\nb\n\n 1%\r 2%\rend", b"\x80\n")
    done = launch("if rank: " + program, "-n", 2, "--no-prefix")
    assert (must(done), done.stderr) == (b"\xff\x00\xfe a\r\nb\n\n 1%\r 2%\rend\n", b"\x80\n")
    done = launch("if rank: " + program, "-n", 2)
    p = b"[rank 1] "
    assert must(done) == p + b"\xff\x00\xfe a\r\n" + p + b"b\n" + p + b"\n" + p + b" 1%\r" + p + b" 2%\r" + p + b"end\n"


def test_a_line_without_end_is_divided(launch):
    out = must(launch("if rank: sys.stdout.write('y' * 5_000_000)", "-n", 2))
    assert out.replace(b"[rank 1] ", b"").replace(b"\n", b"") == b"y" * 5_000_000 and out.endswith(b"\n")


def test_a_line_comes_when_it_is_written(launch, tmp_path):
    """Not when the program ends or a buffer is full."""
    p = launch("print('early'); wait_for('go')", "-n", 2, wait=False)
    assert {p.stdout.readline() for _ in range(2)} == {b"[rank 0] early\n", b"[rank 1] early\n"}
    make(tmp_path / "go")
    must(finish(p))


def test_a_rank_may_close_its_outputs(launch):
    assert must(launch("print('here'); sys.stdout.flush(); os.close(1); os.close(2); make(f'closed{rank}'); "
                       "wait_for(f'closed{1 - rank}')", "-n", 2)).count(b"here") == 2


def test_logs_are_kept(launch, tmp_path):
    done = launch("os.write(1, b'out%d\\n' % rank); os.write(2, b'\\xff%d' % rank); make(f'done{rank}'); "
                  "wait_for('done0'); rank and sys.exit(1)", "-n", 2, "--logs", "some/where")
    assert done.returncode == 1 and "  log    some/where/rank-1.txt\n" in told(done)
    for rank in range(2):
        text = (tmp_path / "some" / "where" / f"rank-{rank}.txt").read_bytes()
        assert b"out%d\n" % rank in text and b"\xff%d" % rank in text and b"[rank" not in text


def test_a_log_that_cannot_be_written_is_told(launch, tmp_path):
    (tmp_path / "rank-0.txt").symlink_to("/dev/full")
    done = launch("print('here')", "-n", 1, "--logs", ".")
    assert must(done) == b"here\n" and b"rank-0.txt is not whole: No space left" in done.stderr


def test_outputs_that_are_closed_harm_nobody(launch):
    assert launch("print('x' * 100000); print('y', file=sys.stderr)", "-n", 2,
                  before=["bash", "-c", "exec \"$@\" <&- >&- 2>&-", "sh"]).returncode == 0


def test_a_reader_that_leaves_ends_the_ranks(launch):
    p = launch("while True: print('again')", "-n", 2, wait=False)
    p.stdout.readline()
    p.stdout.close()
    assert p.wait(DEADLINE_S) == 128 + signal.SIGPIPE


def test_an_output_without_room_is_told(launch):
    with open("/dev/full", "w") as full:
        done = launch("while True: print('again')", "-n", 2, stdout=full)
    assert done.returncode == 1 and b"manta launch: the output cannot be written: No space left on device\n" in done.stderr


def test_a_reader_that_stands_still_holds_up_no_signal(launch, tmp_path):
    p = launch("make(f'there{rank}')\nwhile True: print('z' * 1000)", "-n", 2, "--grace", 0.2, wait=False)
    for rank in range(2):
        until((tmp_path / f"there{rank}").exists)
    p.send_signal(signal.SIGTERM)
    assert p.wait(DEADLINE_S) == 143


# ---- ends ----

def test_a_failure_ends_the_others(launch):
    """The one that is told is the first in time, although the others fail, too."""
    done = launch("""
        if rank == 1:
            wait_for("there0"), wait_for("there2")
            sys.exit(3)
        signal.signal(signal.SIGTERM, lambda *a: sys.exit(5))
        make(f"there{rank}")
        wait()
        """, "-n", 3)
    assert done.returncode == 3
    assert re.fullmatch(r"manta: rank 1 failed\n  what   process \d+ ended with status 3\n"
                        r"  now    all ranks have ended; status 3\n", told(done))


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV"])
def test_a_death_by_signal_is_named(launch, name):
    done = launch(f"rank == 0 and os.kill(os.getpid(), signal.{name}); wait()", "-n", 2)
    number = getattr(signal, name)
    assert done.returncode == 128 + number and f"was killed by signal {number} ({name})\n" in told(done)


def test_who_ignores_sigterm_is_killed_after_the_grace(launch):
    done = launch("""
        if rank == 0:
            wait_for("deaf")
            sys.exit(4)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        make("deaf")
        wait()
        """, "-n", 2, "--grace", 0.1)
    assert done.returncode == 4 and "  also   rank 1 did not end within 0.1 s of SIGTERM: killed\n" in told(done)


def test_who_is_done_early_is_no_failure(launch):
    done = launch("""
        if rank == 0:
            make("first")
            sys.exit(0)
        first = wait_for("first")
        until(lambda: not os.path.exists(f"/proc/{first}"))
        print("still here")
        """, "-n", 2)
    assert must(done) == b"[rank 1] still here\n" and done.stderr == b""


CATCH = """
def catch(number, frame):
    os.write(1, b"got %d\\n" % number)
    os._exit(0)
for number in (1, 2, 15):
    signal.signal(number, catch)
print("ready")
wait()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on(launch, number):
    p = launch(CATCH, "-n", 2, wait=False, before=["env", "--default-signal=INT,TERM,HUP"])      # pytest under nohup
    assert [p.stdout.readline()[-7:] for _ in range(2)] == [b" ready\n"] * 2
    p.send_signal(number)
    done = finish(p)
    assert done.returncode == 128 + number and done.stderr == b""
    assert sorted(done.stdout.splitlines()) == [b"[rank %d] got %d" % (rank, number) for rank in range(2)]


DEAF = "signal.signal(signal.SIGINT, lambda *a: os.write(1, b'no\\n')); print('ready'); wait()"


def test_ctrl_c_again_waits_for_nobody(launch):
    p = launch(DEAF, "-n", 2, "--grace", 100000, wait=False)
    assert [p.stdout.readline()[9:] for _ in range(2)] == [b"ready\n"] * 2
    until(lambda: p.send_signal(signal.SIGINT) or p.poll() is not None, "the end of the launcher")
    assert p.returncode == 130


def test_two_signals_at_once_are_one(launch, tmp_path):
    """timeout(1) sends its signal to the launcher, and then to the group."""
    p = launch(CATCH.replace("os._exit(0)", "wait_for('go'); os.write(1, b'fine\\n'); os._exit(0)"), "-n", 2,
               "--grace", 100000, wait=False)
    assert [p.stdout.readline()[-7:] for _ in range(2)] == [b" ready\n"] * 2
    os.kill(p.pid, signal.SIGSTOP)
    until(lambda: pathlib.Path(f"/proc/{p.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T", "the halt of the launcher")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCONT):      # so that it finds both, however slow it is
        os.kill(p.pid, number)
    assert [p.stdout.readline()[9:13] for _ in range(2)] == [b"got "] * 2
    make(tmp_path / "go")
    done = finish(p)
    assert done.returncode in (130, 143) and done.stdout.count(b"fine") == 2


# The first process of a terminal takes with it, when it ends, what nobody has read yet: so it is a shell that waits for a line.
SHELL = ["setsid", "--ctty", "env", "--default-signal=INT", "bash", "-c",
         "trap : INT; \"$@\"; status=$?; read -r line; exit $status", "sh"]


def test_ctrl_c_at_a_terminal(launch):
    master, slave = os.openpty()
    p = launch(CATCH, "-n", 2, wait=False, before=SHELL, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    text = b""
    while text.count(b"ready\r\n") < 2:
        text += os.read(master, 1000)
    os.write(master, b"\x03")
    while text.count(b"got 2\r\n") < 2:
        text += os.read(master, 1000)
    os.write(master, b"\n")
    assert p.wait(DEADLINE_S) == 130
    os.close(master)


def test_a_signal_ends_restarts(launch):
    p = launch("print('ready'); wait()", "-n", 2, "--max-restarts", 5, wait=False)
    assert len([p.stdout.readline() for _ in range(2)]) == 2
    p.send_signal(signal.SIGTERM)
    done = finish(p)
    assert done.returncode == 143 and done.stdout == b""


# A child that ignores what can be ignored, and has the rank's outputs.
WITH_CHILD = f"""
child = subprocess.Popen([sys.executable, "-c", {IGNORES_SIGNALS!r}])
print(child.pid)
"""


def test_killing_the_launcher_leaves_nothing(launch):
    """Ranks, what they started, and the guard: the fixture waits for the end of them all."""
    p = launch("for s in (1, 2, 15): signal.signal(s, signal.SIG_IGN)\n" + WITH_CHILD + "wait()", "-n", 2, wait=False)
    assert all(p.stdout.readline().startswith(b"[rank ") for _ in range(2))
    p.kill()
    assert p.wait(DEADLINE_S) == -signal.SIGKILL


@pytest.mark.parametrize("killed", [False, True])
def test_the_folder_where_ranks_meet_goes_with_the_launcher(launch, tmp_path, killed):
    (tmp_path / "tmp").mkdir()
    p = launch("print(os.environ['MANTA_RANKS'], flush=True)\nwait_for('go')", "-n", 2, wait=False,
               env={"TMPDIR": str(tmp_path / "tmp"), "MANTA_RANKS": "unix:/of/somebody/else"})
    rows = {p.stdout.readline().split()[2].decode() for _ in range(2)}
    assert len(rows) == 1 and re.fullmatch(re.escape(f"unix:{tmp_path}/tmp/manta-launch-") + r"[^/]+/0", *rows)
    if killed:
        p.kill()
    else:
        (tmp_path / "go").write_text("1")
    p.wait(DEADLINE_S)
    until(lambda: not list((tmp_path / "tmp").iterdir()), "the end of the folder")


@pytest.mark.parametrize("end, status", [("sys.exit(0)", 0), ("sys.exit(1)", 1), ("os.kill(os.getpid(), signal.SIGKILL)", 137),
                                         ("rank and sys.exit(6); wait()", 6)])
def test_what_a_rank_has_started_ends_with_it(launch, end, status):
    assert launch(WITH_CHILD + end, "-n", 2, "--grace", 0.1).returncode == status


def test_a_process_of_another_session_is_not_waited_for(launch, tmp_path):
    done = launch("child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], start_new_session=True)\n"
                  "print(child.pid)", "-n", 1)
    os.kill(int(must(done)), signal.SIGKILL)


# ---- restarts ----

def test_all_begin_again_after_a_failure(launch):
    done = launch("""
        print(os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["TORCHELASTIC_MAX_RESTARTS"], os.environ["MASTER_PORT"])
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            make(f"begun{rank}")
            wait_for("begun0")
            rank == 1 and sys.exit(9)
            wait()
        """, "-n", 2, "--max-restarts", 3)
    rows = [x.split() for x in must(done).decode().splitlines()]
    assert sorted(x[2] for x in rows) == ["0", "0", "1", "1"] and {x[3] for x in rows} == {"3"}
    assert len({x[4] for x in rows}) == 2
    assert "rank 1 failed" in told(done) and "  now    all ranks begin again; restart 1 of 3\n" in told(done)


def test_restarts_come_to_an_end(launch):
    done = launch("sys.exit(20 + int(os.environ['TORCHELASTIC_RESTART_COUNT']))", "-n", 1, "--max-restarts=2")
    text = done.stderr.decode()
    assert done.returncode == 22 and text.count("manta: rank 0 failed") == 3
    assert "restart 1 of 3" not in text and text.endswith("all ranks have ended; status 22\n")


# ---- wrong use ----

@pytest.mark.parametrize("arguments, words", [
    ([], "-n is missing"), (["-n"], "-n is the last word"), (["-n", "0", "x.py"], "-n 0: expected"),
    (["-n", "two", "x.py"], "-n two: expected"), (["x.py"], "-n is missing"), (["-n", "2"], "expected a script"),
    (["-n", "2", "-m"], "expected a script"), (["-n", "2", "-m", "no_such_module"], "no module is called no_such_module"),
    (["-n", "2", "/no/such.py"], "/no/such.py: No such file"), (["--nodes", "2", "x.py"], "no option is called --nodes"),
    (["--no-prefix=1", "-n", "2", "x.py"], "no option is called --no-prefix"),
    (["-n", "2", "--max-restarts", "-1", "x.py"], "--max-restarts -1"), (["-n", "2", "--grace", "nan", "x.py"], "--grace nan"),
    (["-n", "2", "--keras", "2", "x.py"], "--keras 2: expected 3"),
    (["-n", "2", "--logs", "/proc/none", "-m", "json"], "/proc/none/rank-0.txt: No such file")])
def test_wrong_use_is_said_in_one_sentence(python, arguments, words):
    done = python("-m", "manta", "launch", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("manta launch: ") and done.stderr.count("\n") == 1 and words in done.stderr


def test_help(python):
    for arguments in (["--help"], ["-n", "2", "-h"]):
        done = python("-m", "manta", "launch", *arguments)
        assert done.returncode == 0 and done.stdout.startswith("usage: ") and "--max-restarts" in done.stdout


@pytest.mark.parametrize("files, words", [(40, "rank [0-9]+ could not be started"), (16, "no port can be had")])
def test_what_cannot_be_started_is_told(launch, files, words):
    """There are files for some of the ranks, or for none; those that were started end."""
    done = launch("wait()", "-n", 20, "--grace", 100000, before=["bash", "-c", f"ulimit -n {files}; exec \"$@\"", "sh"])
    assert done.returncode == 1
    assert re.fullmatch(f"manta launch: {words}: Too many open files\n", done.stderr.decode()), done.stderr


def test_of_failures_that_are_seen_at_once_signals_count_first():
    from manta._guard import Failure, first_failure
    assert first_failure([Failure(0, 10, 1), Failure(1, 11, -9), Failure(2, 12, -15)]).rank == 1
    assert first_failure([Failure(0, 10, 0), Failure(2, 12, 1), Failure(1, 11, 2)]).rank == 1
    assert first_failure([Failure(0, 10, 0)]) is None


def test_a_reader_that_leaves_after_a_failure_changes_nothing(launch, tmp_path):
    """The ranks were told to end already: they have their grace once, and the failure is what is told."""
    p = launch("""
        if rank == 1:
            wait_for("ready")
            sys.exit(3)
        def told(*_):
            print("told", flush=True)
        signal.signal(signal.SIGTERM, told)
        make("ready")
        wait_for("closed")
        while True:
            print("x" * 1000, flush=True)
            time.sleep(0.002)
    """, "-n", 2, "--grace", 5, wait=False)
    assert p.stdout.readline() == b"[rank 0] told\n"
    p.stdout.close()
    make(tmp_path / "closed")
    said = p.stderr.read()
    assert p.wait(DEADLINE_S) == 3 and b"rank 1 failed" in said and said.count(b"did not end") == 1, said


def test_a_guard_that_stands_still_is_not_waited_for(launch, tmp_path):
    p = launch("make('begun'); wait_for('go')", "-n", 1, wait=False)
    until((tmp_path / "begun").exists)
    rank = int((tmp_path / "begun").read_text())
    (guard,) = {int(n) for n in pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()} - {rank}
    os.kill(guard, signal.SIGSTOP)
    make(tmp_path / "go")
    assert p.wait(DEADLINE_S) == 0
