"""manta data: sets by name, and fetching from a server of our own."""
import gzip
import hashlib
import http.server
import json
import pathlib
import re
import threading

import pytest

from conftest import ROOT

MNIST = ROOT / "data" / "mnist"


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder with ranges. `cut`: the next answer ends after so many bytes. `asked`: (path, range)."""
    daemon_threads = True

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.cut, self.asked = pathlib.Path(folder), None, []

    def url(self, path=""):
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        path = self.path.lstrip("/")
        wanted = self.headers.get("Range")
        self.server.asked.append((path, wanted))
        file = self.server.folder / path
        if not file.is_file():
            self.send_error(404)
            return
        whole = file.read_bytes()
        first = int(re.match(r"bytes=(\d+)-$", wanted).group(1)) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{len(whole) - 1}/{len(whole)}")
        self.send_header("Content-Length", str(len(whole) - first))
        self.end_headers()
        body = whole[first:]
        if self.server.cut is not None:
            body, self.server.cut = body[:self.server.cut], None
        self.wfile.write(body)
        self.close_connection = True


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    s = Server(folder)
    thread = threading.Thread(target=s.serve_forever)
    thread.start()
    yield s
    s.shutdown()
    thread.join()
    s.server_close()


def parts(folder):
    return [p for p in folder.rglob("*.part*")]


def test_list_and_path(manta):
    sets = [json.loads(l) for l in manta("data", "list", "--json").stdout.splitlines()]
    assert [s["name"] for s in sets] == ["mnist", "fashion-mnist"]
    assert sets[0]["path"] == manta("data", "path", "mnist").stdout.strip()
    assert (pathlib.Path(sets[0]["path"]) / "train-labels-idx1-ubyte.gz").is_file()
    assert json.loads(manta("data", "path", "mnist", "--json").stdout) == sets[0]
    assert manta("data", "list").stdout.splitlines()[0].split() == ["mnist", sets[0]["path"]]


def test_path_of_what_is_not_here(manta):
    assert "manta data fetch fashion-mnist" in manta("data", "path", "fashion-mnist", status=1).stderr
    assert "did you mean mnist" in manta("data", "path", "mnits", status=1).stderr


def test_manta_data_is_looked_in_first(manta, tmp_path):
    (tmp_path / "mine" / "mnist").mkdir(parents=True)
    for f in MNIST.iterdir():
        (tmp_path / "mine" / "mnist" / f.name).symlink_to(f)
    done = manta("data", "path", "mnist", env={"MANTA_DATA": str(tmp_path / "mine")})
    assert done.stdout.strip() == str(tmp_path / "mine" / "mnist")


def test_fetch_a_file(manta, server, tmp_path):
    body = bytes(range(256)) * 4000
    (server.folder / "set.bin").write_bytes(body)
    done = manta("data", "fetch", server.url("set.bin"), "--sha256", hashlib.sha256(body).hexdigest())
    path = pathlib.Path(done.stdout.strip())
    assert path.read_bytes() == body and tmp_path / "cache" in path.parents
    assert done.stderr == "" and not parts(tmp_path)


def test_fetch_goes_on_where_it_was_cut(manta, server, tmp_path):
    body = bytes(range(256)) * 4000
    sha256 = hashlib.sha256(body).hexdigest()
    (server.folder / "set.bin").write_bytes(body)
    server.cut = 300000
    done = manta("data", "fetch", server.url("set.bin"), "--sha256", sha256, status=1)
    assert "set.bin" in done.stderr and done.stdout == ""
    assert not [p for p in (tmp_path / "cache").rglob("set.bin")]
    done = manta("data", "fetch", server.url("set.bin"), "--sha256", sha256)
    assert pathlib.Path(done.stdout.strip()).read_bytes() == body
    assert server.asked[-1] == ("set.bin", "bytes=300000-") and not parts(tmp_path)


def test_fetch_with_the_wrong_checksum_leaves_nothing(manta, server, tmp_path):
    (server.folder / "set.bin").write_bytes(b"not what was promised")
    done = manta("data", "fetch", server.url("set.bin"), "--sha256", "0" * 64, status=1)
    assert "set.bin" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not [p for p in (tmp_path / "cache").rglob("set.bin")]


def test_fetch_failures(manta, server):
    assert "404" in manta("data", "fetch", server.url("none.bin"), status=1).stderr
    assert "nonesuch" in manta("data", "fetch", "nonesuch", status=1).stderr
    assert "--sha256" in manta("data", "fetch", "mnist", "--sha256", "00", status=2).stderr
    assert manta("data", "fetch", "file:///etc/passwd", status=1).stdout == ""


def test_fetch_a_named_set_and_use_it(manta, server, tmp_path):
    """From a mirror that packs differently: checksums are of what is inside."""
    (server.folder / "mnist").mkdir()
    for f in MNIST.glob("*.gz"):
        (server.folder / "mnist" / f.name).write_bytes(gzip.compress(gzip.decompress(f.read_bytes()), 1))
    env = {"MANTA_DATA_URL": server.url().rstrip("/")}
    folder = pathlib.Path(manta("data", "fetch", "mnist", env=env).stdout.strip())
    assert tmp_path / "cache" in folder.parents
    assert len(list(folder.glob("*-ubyte*"))) == 4 and len(server.asked) == 4
    assert manta("data", "path", "mnist").stdout.strip() == str(folder)     # before the bundled one
    done = manta("evaluate", "mlp", "--data", "mnist:test", "--steps", 2, "--json")
    assert done.event("result")["status"] == "done"
    manta("data", "fetch", "mnist", env=env)
    assert len(server.asked) == 4                                           # it is there already
