"""manta start, stop, status, ps, timeline, stack and bench core; programs in a node: tests/runtime/node.py."""
import json
import os
import signal

import pytest


@pytest.fixture
def folder(tmp_path, environment):
    environment["XDG_RUNTIME_DIR"] = str(tmp_path)
    return tmp_path / "manta"


@pytest.fixture
def node(folder, manta):
    pid = json.loads(manta("start", "--num-cpus", 3, "--num-gpus", 1, "--resources", "disk=2", "--store-memory", "64M",
                           "--json").stdout)["pid"]
    yield pid
    if (folder / "node.sock").exists():
        manta("stop")


@pytest.mark.parametrize("args", [["status"], ["ps"], ["timeline"], ["stop"], ["status", "--json"], ["ps", "--json"]])
def test_no_node_runs(manta, folder, args):
    done = manta(*args, status=1)
    assert done.stdout == "" and done.stderr == "manta: no node runs; manta start starts one\n"


@pytest.mark.parametrize("args, sentence", [
    (["strat"], "did you mean start?"), (["stauts"], "did you mean status?"), (["timelin"], "did you mean timeline?"),
    (["start", "--num-cpu", "2"], "did you mean --num-cpus?"), (["start", "--num-cpus", "0"], "num-cpus"),
    (["start", "--num-cpus", "x"], "num-cpus"), (["start", "--store-memory", "4X"], "512M or 4G"),
    (["start", "--store-memory", "-1"], "512M or 4G"), (["stack"], "PID"), (["stack", "one"], "PID"),
    (["stack", "-1"], ""), (["ps", "extra"], "extra"), (["bench", "cor"], "did you mean bench core?"),
    (["status", "--jsn"], "did you mean --json?")])
def test_wrong_usage(manta, folder, args, sentence):
    assert sentence in manta(*args, status=2).stderr


def test_start_says_what_is_wrong_with_resources(manta, folder):
    assert "name=amount is expected" in manta("start", "--resources", "disk", status=1).stderr
    assert not (folder / "node.sock").exists()


def test_status_of_an_empty_node(manta, folder, node):
    status = json.loads(manta("status", "--json").stdout)
    assert status["pid"] == node and status["started"] and status["address"] == str(folder / "node.sock")
    assert status["resources"]["cpu"] == {"total": 3, "used": 0} and status["resources"]["gpu"]["total"] == 1
    assert status["resources"]["disk"] == {"total": 2, "used": 0}
    assert status["store"]["limit"] == 64 << 20 and status["store"]["used"] == 0
    assert status["workers"] == status["actors"] == status["objects"] == 0 and status["programs"] == []
    text = manta("status").stdout
    assert f"process {node}" in text and "0 of 3 used" in text and "64.0 MiB" in text
    assert "Workers: 0" in manta("ps").stdout
    assert [json.loads(line)["kind"] for line in manta("ps", "--json").stdout.splitlines()] == ["queue"]
    assert "0 calls of 0 workers" in manta("timeline").stdout


def test_the_folder_is_closed_to_others(manta, folder, node):
    assert folder.stat().st_mode & 0o777 == 0o700
    os.chmod(folder, 0o750)
    assert "open to other users (mode 750, 700 is expected)" in manta("status", status=1).stderr
    os.chmod(folder, 0o700)


def test_a_link_is_no_folder(manta, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert "folder that only this user can open" in manta("start", status=1).stderr


def test_a_folder_of_another_user_is_not_used(manta, folder):
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)
    for args in (["start"], ["status"]):
        done = manta(*args, status=1)
        assert done.stderr == f"manta: {folder} belongs to user 65534, not to 0: it is not used\n"
    assert not list(folder.iterdir())


def test_a_path_that_is_too_long(manta, folder, tmp_path):
    long = tmp_path / ("x" * 120)
    long.mkdir()
    assert "too long for a socket" in manta("start", status=1, env={"XDG_RUNTIME_DIR": str(long)}).stderr


def test_foreground_ends_with_ctrl_c(start, manta, folder):
    run = start("start", "--foreground", "--json")
    pid = json.loads(run.process.stdout.readline())["pid"]
    assert json.loads(manta("status", "--json").stdout)["pid"] == pid
    run.process.send_signal(signal.SIGINT)
    assert run.wait(240).status == 130
    assert "no node runs" in manta("status", status=1).stderr


def test_foreground_notices_the_end(start, manta, folder):
    run = start("start", "--foreground", "--json")
    pid = json.loads(run.process.stdout.readline())["pid"]
    os.kill(pid, signal.SIGKILL)
    done = run.wait(240)
    assert done.status == 1 and f"its daemon was process {pid}" in done.stderr


def test_bench_core_rows(manta, folder):
    rows = [json.loads(line) for line in manta("bench", "core", "--quick", "--json", "--row", "single client t",
                                               timeout_s=240).stdout.splitlines()]
    assert [r["row"] for r in rows] == ["single client tasks and get batch", "single client tasks sync",
                                        "single client tasks async"]
    assert all(r["per_s"] > 0 for r in rows)
    text = manta("bench", "core", "--quick", "--row", "init").stdout
    assert "manta_init to first result" in text and "ms" in text
