"""Event files as TensorBoard reads them: its reader in Python, and its own server over HTTP."""
import ctypes as c
import json
import os
import pathlib
import re
import select
import signal
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from libmanta import LIB, EventsOptions, Hparam, Model, must, view

ALL = {k: 0 for k in ("scalars", "tensors", "histograms", "images", "audio", "compressedHistograms")}
START_S = 240       # a machine that is busy with everything else


class Writer:
    def __init__(self, folder, **options):
        self.p = c.c_void_p()
        o = EventsOptions(**options)
        must(LIB.manta_events_open(str(folder).encode(), c.byref(o), c.byref(self.p)))

    def scalar(self, tag, step, value):
        must(LIB.manta_events_scalar(self.p, tag.encode(), step, value))

    def text(self, tag, step, text):
        must(LIB.manta_events_text(self.p, tag.encode(), step, text.encode()))

    def histogram(self, tag, step, a):
        must(LIB.manta_events_histogram(self.p, tag.encode(), step, c.byref(view(a))))

    def image(self, tag, step, a):
        must(LIB.manta_events_image(self.p, tag.encode(), step, c.byref(view(a))))

    def graph(self, model):
        must(LIB.manta_events_graph(self.p, model.p))

    def hparams(self, values, metrics):
        h = [Hparam(k.encode(), 2, float(v), None) if isinstance(v, bool) else
             Hparam(k.encode(), 1, 0, v.encode()) if isinstance(v, str) else
             Hparam(k.encode(), 0, v, None) for k, v in values.items()]
        tags = (c.c_char_p * len(metrics))(*[m.encode() for m in metrics])
        must(LIB.manta_events_hparams(self.p, len(h), (Hparam * len(h))(*h), len(metrics), tags))

    def end(self):
        must(LIB.manta_events_hparams_end(self.p, True))

    def close(self):
        LIB.manta_events_close(self.p)


def read(folder):
    ea = EventAccumulator(str(folder), size_guidance=ALL)
    ea.Reload()
    return ea


IMAGE = (np.arange(4 * 6 * 3) * 3 % 256).astype("uint8").reshape(4, 6, 3)


def write_run(folder):
    w = Writer(folder)
    w.hparams({"lr": 0.25, "optimizer": "adam", "augment": True}, ["loss", "val/accuracy"])
    model = Model(zoo="mnist-cnn")
    w.graph(model)
    model.close()
    for step in range(10):
        w.scalar("loss", step, 1 / (1 + step))
        w.scalar("val/accuracy", step, step / 10)
    w.histogram("conv2d/kernel", 3, np.linspace(-1, 2, 3000, dtype="float32"))
    w.text("notes", 1, "a **bold** word")
    w.image("digit", 2, IMAGE)
    w.end()
    w.close()


def test_accumulator(tmp_path):
    write_run(tmp_path)
    ea = read(tmp_path)
    tags = ea.Tags()
    assert tags["scalars"] == ["loss", "val/accuracy"]
    assert tags["histograms"] == ["conv2d/kernel"] and tags["images"] == ["digit"] and tags["graph"]
    loss = ea.Scalars("loss")
    assert [e.step for e in loss] == list(range(10))
    np.testing.assert_allclose([e.value for e in loss], [1 / (1 + s) for s in range(10)], rtol=1e-6)
    assert abs(loss[-1].wall_time - time.time()) < 600
    h = ea.Histograms("conv2d/kernel")[0].histogram_value
    assert (h.min, h.max, h.num) == (-1, 2, 3000) and sum(h.bucket) == 3000 and len(h.bucket) == 30
    image = ea.Images("digit")[0]
    assert (image.height, image.width, image.encoded_image_string[:4]) == (4, 6, b"\x89PNG")
    text = ea.Tensors("notes")[0].tensor_proto
    assert text.string_val[0] == b"a **bold** word"
    names = [n.name for n in ea.Graph().node]
    assert len(names) == len(set(names)) and "conv2d/kernel" in names
    for node in ea.Graph().node:
        assert all(i.split(":")[0] in names for i in node.input)


def test_restart(tmp_path):
    """Ten steps, then again from the checkpoint after step 5: every step once, the second values."""
    w = Writer(tmp_path)
    for step in range(10):
        w.scalar("loss", step, step)
    w.close()
    w = Writer(tmp_path, first_step=6)
    for step in range(6, 12):
        w.scalar("loss", step, 100 + step)
    w.close()
    assert len(list(tmp_path.iterdir())) == 2
    got = [(e.step, e.value) for e in read(tmp_path).Scalars("loss")]
    assert got == [(s, s if s < 6 else 100 + s) for s in range(12)]


def test_steps_that_go_back_purge_nothing(tmp_path):
    """A validation that logs by epoch beside training that logs by step."""
    w = Writer(tmp_path)
    for step in (100, 200, 1, 300, 2):
        w.scalar("a", step, step)
    w.close()
    assert [e.step for e in read(tmp_path).Scalars("a")] == [100, 200, 1, 300, 2]


KILLED = """
import sys
sys.path.insert(0, {here!r})
from test_tensorboard import Writer
w = Writer(sys.argv[1])
step = 0
while True:
    w.scalar("loss", step, step)
    if step == 50:
        print("running", flush=True)
    step += 1
"""


def test_killed_while_writing(tmp_path):
    here = str(pathlib.Path(__file__).parent)
    for k in range(3):
        folder = tmp_path / str(k)
        p = subprocess.Popen([sys.executable, "-c", KILLED.format(here=here), str(folder)], stdout=subprocess.PIPE)
        try:
            assert p.stdout.readline() == b"running\n"
        finally:
            p.send_signal(signal.SIGKILL)
            p.wait()
            p.stdout.close()
        steps = [e.step for e in read(folder).Scalars("loss")]
        assert len(steps) > 50 and steps == list(range(len(steps)))


# ---- the server --------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """TensorBoard on a port of the system's choosing, on loopback only; its address."""
    logs = tmp_path_factory.mktemp("logs")
    write_run(logs / "run")
    w = Writer(logs / "again")
    for step in range(10):
        w.scalar("loss", step, step)
    w.close()
    w = Writer(logs / "again", first_step=6)
    for step in range(6, 12):
        w.scalar("loss", step, 100 + step)
    w.close()
    p = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--host", "127.0.0.1",
                          "--port", "0", "--reload_interval", "1"], stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, start_new_session=True)
    try:
        yield address_of(p)
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        p.stderr.close()


def address_of(p):
    """What the server prints once it answers."""
    seen, deadline = b"", time.monotonic() + START_S
    while time.monotonic() < deadline:
        ready, _, _ = select.select([p.stderr], [], [], deadline - time.monotonic())
        part = os.read(p.stderr.fileno(), 4096) if ready else b""
        if not part:
            break
        seen += part
        found = re.search(rb"http://127\.0\.0\.1:(\d+)/", seen)
        if found:
            return found.group().decode()
    pytest.fail(f"tensorboard did not start:\n{seen.decode(errors='replace')}")


def fetch(server, path, data=None, **query):
    url = server + "data/" + path + ("?" + urllib.parse.urlencode(query) if query else "")
    body = json.dumps(data).encode() if data is not None else None
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=START_S) as answer:
        return answer.read()


def until(ready):
    """Asks again until the server has loaded the files; an answer that never comes fails with the last one."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            answer = ready()
            if answer:
                return answer
            why = "an empty answer"
        except (urllib.error.HTTPError, AssertionError) as e:
            why = repr(e)
        assert time.monotonic() < deadline, why
        time.sleep(0.2)     # between questions; nothing is assumed to have happened meanwhile


def test_server_scalars(server):
    def scalars(run, tag):
        points = json.loads(fetch(server, "plugin/scalars/scalars", run=run, tag=tag))
        return [(step, value) for _, step, value in points]
    got = until(lambda: scalars("run", "loss"))
    assert [s for s, _ in got] == list(range(10))
    np.testing.assert_allclose([v for _, v in got], [1 / (1 + s) for s in range(10)], rtol=1e-6)
    again = until(lambda: len(g := scalars("again", "loss")) >= 12 and g)
    assert again == [(s, s if s < 6 else 100 + s) for s in range(12)]


def test_server_histograms(server):
    points = until(lambda: json.loads(fetch(server, "plugin/histograms/histograms", run="run", tag="conv2d/kernel")))
    (_, step, buckets), = points
    assert step == 3 and abs(sum(b[2] for b in buckets) - 3000) < 1 and buckets[0][0] == -1 and buckets[-1][1] == 2


def test_server_text(server):
    points = until(lambda: json.loads(fetch(server, "plugin/text/text", run="run", tag="notes")))
    assert "<strong>bold</strong>" in points[0]["text"] and points[0]["step"] == 1


def test_server_images(server):
    images = until(lambda: json.loads(fetch(server, "plugin/images/images", run="run", tag="digit", sample=0)))
    assert len(images) == 1 and images[0]["step"] == 2
    png = fetch(server, "plugin/images/individualImage?" + images[0]["query"])
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", png[16:24]) == (6, 4)


def test_server_graph(server):
    text = until(lambda: fetch(server, "plugin/graphs/graph", run="run")).decode()
    assert 'name: "conv2d/kernel"' in text and 'op: "Placeholder"' in text


def test_server_hparams(server):
    ask = {"experimentName": "", "allowedStatuses": ["STATUS_SUCCESS", "STATUS_UNKNOWN", "STATUS_RUNNING"],
           "colParams": [{"hparam": "lr"}, {"hparam": "optimizer"}, {"hparam": "augment"},
                         {"metric": {"group": "", "tag": "loss"}}],
           "startIndex": 0, "sliceSize": 10}

    def groups():
        answer = json.loads(fetch(server, "plugin/hparams/session_groups", ask))
        return answer.get("sessionGroups")
    group, = until(groups)
    assert group["hparams"] == {"lr": 0.25, "optimizer": "adam", "augment": True}
    session, = group["sessions"]
    assert session["status"] == "STATUS_SUCCESS"
    values = {m["name"]["tag"]: m["value"] for m in group["metricValues"]}
    assert abs(values["loss"] - 0.1) < 1e-6 and abs(values["val/accuracy"] - 0.9) < 1e-6
