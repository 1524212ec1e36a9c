"""--storage s3://bucket/prefix, on a server of the tests' own with faults."""
import functools
import http.server
import json
import os
import signal
import subprocess
import threading
import urllib.request

import numpy as np
import pytest

from conftest import PROGRAM
from s3_server import SECRET, S3Server
from samples import digits
from waits import wait_until

RUN = ("--epochs", 2, "--batch", 8, "--seed", 3, "--checkpoint-every", "16steps", "--optimizer", "adam", "--json")


@pytest.fixture
def s3():
    with S3Server() as s:
        s.make("bkt")
        yield s


@pytest.fixture
def there(s3):
    """What the program needs to find the server."""
    return {**s3.environment(), "MANTA_STORAGE": "s3://bkt/runs", "MANTA_S3_TIMEOUT_S": "20"}


def train(tmp_path, *more):
    return ("train", "mlp", "--data", digits(tmp_path), *RUN, *more)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """The weights of the same training in a folder."""
    folder = tmp_path_factory.mktemp("calm")
    arguments = [str(a) for a in train(folder, "--storage", folder / "runs", "--name", "a", "--save", "calm.npz")]
    subprocess.run([PROGRAM, *arguments], cwd=folder, check=True, timeout=240, stdout=subprocess.DEVNULL)
    return folder


def weights(calm):
    return (calm / "calm.npz").read_bytes()


def test_a_run_in_s3_is_the_run_in_a_folder(manta, s3, there, tmp_path, calm):
    manta(*train(tmp_path, "--name", "a", "--save", "s3.npz"), env=there)
    assert (tmp_path / "s3.npz").read_bytes() == weights(calm)
    for name in ("config.json", "result.json", "metrics.jsonl"):
        assert f"runs/a/{name}" in s3.keys("bkt")
    # The files of a checkpoint have the same bytes as in a folder, under the same names.
    here = calm / "runs" / "a" / "checkpoints"
    for path in sorted(p for p in here.rglob("*") if p.is_file() and p.name == "state.safetensors"):
        key = "runs/a/checkpoints/" + str(path.relative_to(here))
        if key in s3.keys("bkt"):       # the last ones; who is slow passes others over
            assert s3.objects["bkt"][key].data == path.read_bytes()
    assert not [k for k in s3.keys("bkt") if "manta-tmp" in k or "probe" in k]
    listed = manta("runs", env=there)
    assert "a" in listed.stdout and "done" in listed.stdout
    shown = manta("runs", "show", "a", env=there)
    assert "s3://bkt/runs/a" in shown.stdout and "checkpoint-000005" in shown.stdout
    again = manta("train", "--resume", "a", "--epochs", 3, "--save", "longer.npz", "--json", env=there)
    assert again.event("resumed")["checkpoint"].startswith("s3://bkt/runs/a/checkpoints/checkpoint-")
    manta("train", "--resume", "a", "--epochs", 3, "--save", "here.npz", "--storage", calm / "runs")
    assert (tmp_path / "longer.npz").read_bytes() == (tmp_path / "here.npz").read_bytes()


def test_what_workers_print_is_there(manta, s3, there, tmp_path):
    manta(*train(tmp_path, "--name", "w", "--workers", 2), env=there)
    said = manta("logs", "w", "--rank", 1, env=there)
    assert "started" in said.stdout


WORDS = ["500", "cut", "503", "deaf", "409", "truncate"]


def test_faults_that_pass(manta, s3, there, tmp_path, calm):
    """Every third request fails once, each time by another fault; the run does not notice."""
    last = [0, 0]

    def fault(ask):
        word = WORDS[last[1] % len(WORDS)]
        if ask.number - last[0] < 3 or (word == "truncate" and ask.method != "GET"):
            return None
        last[:] = [ask.number, last[1] + 1]
        return word

    s3.fault = fault
    manta(*train(tmp_path, "--name", "a", "--save", "s3.npz"), env=there)
    assert (tmp_path / "s3.npz").read_bytes() == weights(calm) and last[1] >= len(WORDS)
    s3.fault = lambda ask: None
    assert [k for k in s3.keys("bkt") if "manta-tmp" in k] == []
    manta("train", "--resume", "a", "--epochs", 3, "--json", env=there)


def crash_points():
    """Every change of the bucket is one; a sample of them, all with MANTA_LONG."""
    return range(1, 61) if os.environ.get("MANTA_LONG") else (2, 13, 21, 30)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("point", crash_points())
def test_killed_at_any_change(manta, start, s3, there, tmp_path, point, done, calm):
    """Killed when the bucket is to be changed for the n-th time, or has just been: what is listed is whole, and
    the resumed run ends with the bytes of one that nothing happened to."""
    running = []

    def fault(ask):
        if ask.change != point:
            return None
        wait_until(lambda: running)     # it may be here before start() has returned

        def kill(_):
            os.killpg(running[0].process.pid, signal.SIGKILL)
            return "deaf" if done else "cut"
        return kill

    s3.fault = fault
    running.append(start(*train(tmp_path, "--name", "a", "--save", "s3.npz"), env=there))
    running[0].wait()
    s3.fault = lambda ask: None
    for key in s3.keys("bkt", "runs/a/checkpoints/"):
        if key.endswith("/manifest.json") and "manta-tmp" not in key:
            for f in json.loads(s3.objects["bkt"][key].data)["files"]:
                assert key.replace("manifest.json", f if isinstance(f, str) else f["name"]) in s3.keys("bkt")
    if "runs/a/config.json" in s3.keys("bkt"):
        manta("train", "--resume", "a", "--save", "s3.npz", "--json", env=there)
    else:
        manta(*train(tmp_path, "--name", "a", "--save", "s3.npz"), env=there)
    assert (tmp_path / "s3.npz").read_bytes() == weights(calm)
    assert [k for k in s3.keys("bkt") if "manta-tmp" in k] == [] and not s3.uploads


def test_one_run_in_one_place(manta, start, s3, there, tmp_path):
    held = lambda ask: "hold" if "state.safetensors" in ask.key else None
    s3.fault = held
    first = start(*train(tmp_path, "--name", "a"), env=there)
    wait_until(lambda: any("state.safetensors" in a.key for a in list(s3.asks)))
    second = manta(*train(tmp_path, "--name", "a"), env=there, status=1)
    assert "running now, as process" in second.stderr
    s3.release()
    assert first.wait().status == 0


def other_lock():
    return json.dumps({"host": "elsewhere", "pid": 1, "scope": "another", "start": 1, "nonce": "another", "count": 1,
                       "lease_s": 30, "released": False}).encode()


def test_nothing_is_put_behind_the_lock(manta, s3, there, tmp_path):
    """The lock is taken by another while a put is tried again: it is not tried any more."""
    def fault(ask):
        if ask.method == "PUT" and ask.key == "runs/a/run.lock" and "If-Match" in ask.headers:
            s3.put("bkt", ask.key, other_lock())
        return "503" if "state.safetensors" in ask.key else None

    s3.fault = fault
    done = manta(*train(tmp_path, "--name", "a"), env={**there, "MANTA_STORAGE_LEASE_S": "3"}, status=1)
    assert "has been taken by another" in done.stderr.splitlines()[-1] and "SlowDown" not in done.stderr
    assert s3.objects["bkt"]["runs/a/run.lock"].data == other_lock()


def test_a_renewal_without_an_answer_loses_no_lock(start, s3, there, tmp_path):
    """All answers to one renewal are lost. The lock that it has changed is the run's, which goes on storing."""
    first = []

    def fault(ask):
        if ask.method != "PUT" or ask.key != "runs/a/run.lock" or "If-Match" not in ask.headers:
            return None
        first[:] = first or [ask.headers["x-amz-content-sha256"]]
        return "deaf" if first == [ask.headers["x-amz-content-sha256"]] else None

    def count():
        there = s3.objects["bkt"].get("runs/a/run.lock")
        return json.loads(there.data)["count"] if there else 0

    def whole():
        return {k for k in s3.keys("bkt") if k.endswith("/manifest.json") and "manta-tmp" not in k}

    s3.fault = fault
    running = start(*train(tmp_path, "--name", "a", "--epochs", 100000),
                    env={**there, "MANTA_STORAGE_LEASE_S": "3", "MANTA_S3_TIMEOUT_S": "4"})
    done = []
    reader = threading.Thread(target=lambda: done.append(running.wait(240)), daemon=True)
    reader.start()
    wait_until(lambda: count() > 2)
    before = whole()
    wait_until(lambda: whole() - before)
    running.signal(signal.SIGTERM)
    reader.join()
    assert "is another's now" not in done[0].stderr


def test_a_storage_with_a_slash_at_its_end(manta, s3, there, tmp_path):
    env = {**there, "MANTA_STORAGE": "s3://bkt/runs/"}
    manta(*train(tmp_path, "--name", "a"), env=env)
    assert not [k for k in s3.keys("bkt") if "//" in k] and "runs/a/result.json" in s3.keys("bkt")
    for told in (env, there):
        assert "done" in manta("runs", env=told).stdout


def test_names_in_a_list_lead_nowhere(manta, s3, there, tmp_path):
    """A server that lists a way out of the folder; logs are brought here when a run goes on."""
    manta(*train(tmp_path, "--name", "a", "--workers", 2), env=there)
    s3.lies = {f"runs/a/log/{'../' * n}stolen": b"words" for n in range(1, 6)}
    manta("train", "--resume", "a", "--epochs", 3, "--json", env=there)
    assert not list(tmp_path.rglob("stolen"))


def test_a_server_without_conditions_is_refused(manta, tmp_path):
    with S3Server(conditions=False) as s:
        s.make("bkt")
        env = {**s.environment(), "MANTA_STORAGE": "s3://bkt/runs"}
        done = manta(*train(tmp_path, "--name", "a"), env=env, status=1)
        assert "two runs could write to one place" in done.stderr and "MANTA_STORAGE_UNLOCKED=1" in done.stderr
        manta(*train(tmp_path, "--name", "a"), env={**env, "MANTA_STORAGE_UNLOCKED": "1"})


def test_training_does_not_wait_for_s3(manta, start, s3, there, tmp_path):
    """Nothing of a checkpoint is answered until all steps are done."""
    s3.fault = lambda ask: "hold" if "state.safetensors" in ask.key else None
    running = start(*train(tmp_path, "--name", "a"), env=there)
    epochs = []
    for text in running.process.stdout:
        event = json.loads(text)
        if event["event"] == "epoch":
            epochs.append(event["epoch"])
            if len(epochs) == 1:
                break
    assert epochs == [1]
    s3.release()
    assert running.wait().status == 0


def test_the_mapping_of_a_table_lies_with_its_run(manta, s3, there, tmp_path):
    """With the bytes that it has in a folder; a run that goes on reads it, and one that is damaged is named by its place."""
    (tmp_path / "t.csv").write_text("a,b,y\n" + "1,red,no\n2,blue,yes\n3,red,no\n4,green,yes\n" * 4)
    line = ("train", "linear", "--data", "t.csv:x=a,y=y", "--loss", "mse", "--name", "a", "--checkpoint-every", "1epoch")
    manta(*line, "--epochs", 1, "--storage", tmp_path / "runs")
    manta(*line, "--epochs", 1, env=there)
    kept = s3.objects["bkt"]["runs/a/table.json"].data
    assert kept == (tmp_path / "runs" / "a" / "table.json").read_bytes()
    # Another category comes first in the file now: the mapping of the run is used.
    (tmp_path / "t.csv").write_text("a,b,y\n" + "4,green,yes\n1,red,no\n" * 8)
    for storage in (there, {"MANTA_STORAGE": str(tmp_path / "runs")}):
        manta("train", "--resume", "a", "--epochs", 2, "--save", "w.npz", env=storage)
        (tmp_path / "w.npz").rename(tmp_path / f"{len(storage)}.npz")
    assert (tmp_path / f"{len(there)}.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()
    assert s3.objects["bkt"]["runs/a/table.json"].data == kept
    s3.put("bkt", "runs/a/table.json", b"{}")
    done = manta("train", "--resume", "a", "--epochs", 3, env=there, status=1)
    assert "s3://bkt/runs/a/table.json: it is no mapping of a table" in done.stderr


def test_stop_ends_a_run(manta, start, s3, there, tmp_path):
    running = start(*train(tmp_path, "--name", "a", "--steps-per-epoch", 100000000), env=there)
    wait_until(lambda: any(key.endswith("manifest.json") for key in s3.keys("bkt")))
    assert manta("stop", "a", env=there).stdout.startswith("a: interrupted, epoch ")
    assert running.wait().status == 75
    assert "is not running" in manta("stop", "a", env=there, status=1).stderr


def test_a_run_that_could_not_be_stored_says_so(manta, s3, there, tmp_path):
    s3.fault = lambda ask: "403" if "state.safetensors" in ask.key else None
    done = manta(*train(tmp_path, "--name", "a", "--save", "s3.npz"), env=there, status=1)
    assert "s3://bkt/runs/a/checkpoints/checkpoint-" in done.stderr and "403 AccessDenied" in done.stderr
    assert "from the environment" in done.stderr
    assert SECRET not in done.stderr + done.stdout


BRIEF = {"MANTA_S3_TIMEOUT_S": "1"}     # where nobody answers; whoever does may be slow
REFUSALS = [
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "SignatureDoesNotMatch", "are not valid there"),
    ({"AWS_ENDPOINT_URL": "http://nobody.invalid", "MANTA_S3_TIMEOUT_S": "5"}, "not known", "AWS_ENDPOINT_URL"),
    ({"AWS_ENDPOINT_URL": "http://127.0.0.1:99999"}, "; tries: 1)", "check AWS_ENDPOINT_URL"),
    ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9", **BRIEF}, "no connection", "can be reached from here"),
    ({"AWS_ACCESS_KEY_ID": ""}, "no credentials for S3", "~/.aws/credentials"),
    ({"MANTA_STORAGE": "s3://absent/runs"}, "NoSuchBucket", "make it, or correct its name"),
    ({"MANTA_STORAGE": "s3:///runs"}, "expected s3://BUCKET/PREFIX", ""),
    ({"AWS_ENDPOINT_URL": "http://user:word@host"}, "cannot be used", "without path, name or password"),
]


@pytest.mark.parametrize("env, what, remedy", REFUSALS, ids=[r[1] for r in REFUSALS])
def test_refusals_name_place_and_remedy(manta, s3, there, tmp_path, env, what, remedy):
    done = manta(*train(tmp_path, "--name", "a"), env={**there, **env}, status=1)
    assert what in done.stderr and remedy in done.stderr
    assert SECRET not in done.stderr and "word@" not in done.stderr


def test_clock_and_region(manta, s3, there, tmp_path):
    s3.ahead_s = 5000
    done = manta(*train(tmp_path, "--name", "a"), env=there, status=1)
    assert "RequestTimeTooSkewed" in done.stderr and "clock" in done.stderr


def test_no_key_stays_anywhere(manta, s3, there, tmp_path):
    manta(*train(tmp_path, "--name", "a", "--workers", 2), env={**there, "MANTA_LOG": "debug"})
    for key in s3.keys("bkt"):
        assert SECRET.encode() not in s3.objects["bkt"][key].data
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()


def test_credentials_of_a_profile(manta, s3, there, tmp_path):
    env = {k: v for k, v in there.items() if not k.startswith("AWS_")}
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n[mine]\naws_access_key_id=AKIDTEST\n"
        f"aws_secret_access_key={SECRET}\n")
    (tmp_path / ".aws" / "config").write_text(f"[profile mine]\nregion = test-2\nendpoint_url = {s3.url}\n")
    manta(*train(tmp_path, "--name", "a"), env={**env, "AWS_PROFILE": "mine"})
    assert "/test-2/s3/" in s3.asks[0].headers["Authorization"]


# ---- data ----

def test_data_from_s3(manta, s3, there, tmp_path, calm):
    digits(tmp_path)
    for name in ("x.npy", "y.npy"):
        s3.put("bkt", f"data/{name}", (tmp_path / name).read_bytes())
        (tmp_path / name).unlink()
    data = "s3://bkt/data/x.npy,s3://bkt/data/y.npy"
    run = ("train", "mlp", "--data", data, *RUN, "--name", "a", "--save", "s3.npz")
    manta(*run, env=there)
    assert (tmp_path / "s3.npz").read_bytes() == weights(calm)
    # What is here is asked for, and not brought again; what was changed is.
    s3.asks.clear()
    manta("train", "--resume", "a", "--epochs", 3, "--json", env=there)
    assert {a.method for a in s3.asks if a.key.startswith("data/")} == {"HEAD"}
    s3.put("bkt", "data/y.npy", s3.objects["bkt"]["data/y.npy"].data + b"\0")
    s3.asks.clear()
    manta("inspect", data, env=there, status=None)
    assert {a.key for a in s3.asks if a.method == "GET" and a.key.startswith("data/")} == {"data/y.npy"}


def test_large_data_comes_in_ranges(manta, s3, there, tmp_path):
    """Twenty megabytes, with a connection that is cut and a range that is half: the same bytes."""
    x = np.random.default_rng(1).random((5000, 1024), dtype=np.float32)
    np.save(tmp_path / "big.npy", x)
    s3.put("bkt", "big.npy", (tmp_path / "big.npy").read_bytes())
    words = {3: "cut", 5: "truncate", 6: "503"}
    s3.fault = lambda ask: words.pop(ask.number, None)
    done = manta("data", "fetch", "s3://bkt/big.npy", env=there)
    path = next((tmp_path / "cache").rglob("big.npy"))
    assert path.read_bytes() == (tmp_path / "big.npy").read_bytes() and str(path) in done.stdout
    assert len([a for a in s3.asks if a.method == "GET"]) >= 5


def test_data_that_changes_while_it_is_read_is_refused(manta, s3, there, tmp_path):
    s3.put("bkt", "big.npy", bytes(20 << 20))
    s3.fault = lambda ask: "etag" if "If-Match" in ask.headers else None
    done = manta("data", "fetch", "s3://bkt/big.npy", env=there, status=1)
    assert "s3://bkt/big.npy: it was changed while it was read" in done.stderr
    assert not list((tmp_path / "cache").rglob("big.npy"))


def test_addresses_that_would_tell_a_secret_are_refused(manta, s3, there, tmp_path):
    for url in ("https://me:hush@host/x.npy", "https://me:hush@host/", "https://host/x.npy?X-Amz-Signature=hush",
                "https://host/x.npy?sv=1&sig=hush"):
        done = manta("train", "mlp", "--data", url, env=there, status=1)
        assert "expected s3://BUCKET/KEY with credentials" in done.stderr and "hush" not in done.stderr


class Plain(http.server.SimpleHTTPRequestHandler):
    """Files of a folder; `asked` is what was asked for."""
    asked = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


def test_data_from_an_address(manta, there, tmp_path, calm):
    web = tmp_path / "web"
    web.mkdir()
    digits(web)
    Plain.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Plain, directory=web)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        at = f"http://127.0.0.1:{server.server_address[1]}"
        run = ("train", "mlp", "--data", f"{at}/x.npy,{at}/y.npy", *RUN, "--save", "web.npz")
        for name in "ab":
            manta(*run, "--storage", tmp_path / "runs", "--name", name)
            assert (tmp_path / "web.npz").read_bytes() == weights(calm)
        assert Plain.asked == ["/x.npy", "/y.npy"]
        gone = manta("train", "mlp", "--data", f"{at}/z.npy,{at}/y.npy", status=1)
        assert f"{at}/z.npy" in gone.stderr and "404" in gone.stderr
        server.shutdown()
    # Without the server, what was brought is read, and that is said.
    offline = manta(*run, "--storage", tmp_path / "runs", "--name", "c")
    assert "what was brought earlier is read" in offline.stderr


def test_processes_that_want_the_same_file_wait_for_one(start, s3, there, tmp_path):
    x = np.arange(12, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    s3.put("bkt", "x.npy", (tmp_path / "x.npy").read_bytes())
    s3.fault = lambda ask: "hold" if ask.method == "GET" else None
    env = {**there, "MANTA_LOG": "info"}
    first = start("data", "fetch", "s3://bkt/x.npy", env=env)
    wait_until(lambda: any(a.method == "GET" for a in list(s3.asks)))
    second = start("data", "fetch", "s3://bkt/x.npy", env=env)
    assert any("waiting for another process" in line for line in second.process.stderr)
    s3.release()
    assert first.wait().status == 0 and second.wait().status == 0
    assert [a.method for a in s3.asks] == ["HEAD", "GET", "HEAD"]


# ---- somebody else's server ----

@pytest.fixture(scope="module")
def moto():
    """The server of the package moto."""
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    s = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    s.start()
    host, port = s.get_host_and_port()
    yield f"http://{host}:{port}"
    s.stop()


def test_moto(manta, moto, there, tmp_path, calm):
    urllib.request.urlopen(urllib.request.Request(f"{moto}/bkt", method="PUT")).close()
    env = {**there, "AWS_ENDPOINT_URL": moto, "AWS_REGION": "us-east-1"}
    manta(*train(tmp_path, "--name", "a", "--save", "s3.npz"), env=env)
    assert (tmp_path / "s3.npz").read_bytes() == weights(calm)
    again = manta("train", "--resume", "a", "--epochs", 3, "--save", "longer.npz", "--json", env=env)
    assert again.event("resumed")["checkpoint"] == "s3://bkt/runs/a/checkpoints/checkpoint-000005"
    assert "done" in manta("runs", env=env).stdout
