"""What notebooks show: HTML of models, datasets, histories and results, live pictures, plots; hostile names stay texts."""
import html.parser
import subprocess
import sys
import types
import xml.etree.ElementTree

import pytest

import manta
from manta import _display, _plot, callbacks, layers, train
from manta.models import _listen

numpy = pytest.importorskip("numpy")
HOSTILE = "<script>alert('x')</script>\"&\x00\x1b\ud800"
X = numpy.random.default_rng(0).random((64, 4), dtype=numpy.float32)


@pytest.fixture(autouse=True, scope="module")
def no_node_stays():
    """The first trainer starts a node: it ends with this file."""
    yield
    manta.shutdown()


class Reader(html.parser.HTMLParser):
    """Notes tags and texts, and that every tag is closed."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.texts, self.open = set(), [], []
        self.feed(source)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read(thing):
    out = Reader(thing if isinstance(thing, str) else thing._repr_html_())
    assert out.tags <= {"div", "b", "table", "tr", "th", "td", "ol", "li", "progress", "svg", "rect", "text", "tspan", "line",
                        "path", "circle"}
    return out


def small(name="small"):
    model = manta.Sequential([manta.Input((4,)), layers.Dense(3), layers.Dense(1)], name=name)
    model.compile("sgd", "mse", threads=1)
    return model


def history_of(values, **more):
    out = callbacks.History()
    for epoch, value in enumerate(values):
        out.on_epoch_end(epoch, {"loss": value, **{k: v[epoch] for k, v in more.items()}})
    return out


def test_importing_manta_imports_none_of_them():
    program = ("import sys, manta, manta.models, manta.train, manta.train.torch, manta.data, manta._display, manta._plot\n"
               "print(sorted({'IPython', 'matplotlib', 'pandas', 'torch', 'tensorflow'} & set(sys.modules)))")
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_model_and_one_whose_input_is_not_known():
    seen = read(small("<b>net</b>"))
    assert "Sequential <b>net</b>: 19 parameters, 19 of them trained" in "".join(seen.texts)
    assert ["dense", "Dense", "(None, 3)", "15"] == [t for t in seen.texts if t in ("dense", "Dense", "(None, 3)", "15")][:4]
    assert "not known yet" in "".join(read(manta.Sequential([layers.Dense(1)])).texts)


def test_datasets():
    assert "Dataset of 64 samples" in "".join(read(manta.Dataset({"<i>x</i>": X})).texts)
    assert "<i>x</i>" in read(manta.Dataset({"<i>x</i>": X})).texts


def test_a_history_shows_epochs_and_leaves_out_the_middle():
    seen = read(history_of([0.5, 0.25]))
    assert [t for t in seen.texts if t.strip()] == ["epoch", "loss", "1", "0.5000", "2", "0.2500"]
    seen = [t for t in read(history_of([1.0] * 50)).texts if t.strip()]
    assert seen[2::2] == [str(i) for i in range(1, 11)] + ["…"] + [str(i) for i in range(41, 51)]


def test_hostile_names_are_texts_everywhere():
    result = train.Result(metrics={HOSTILE: HOSTILE}, checkpoint=None, error=ValueError(HOSTILE), path=HOSTILE,
                          history=[{HOSTILE: 1.0}, {HOSTILE: 2.0}])
    history = history_of([1.0, 2.0], **{HOSTILE: [3.0, 4.0]})
    for thing in (result, history, _display.table([[HOSTILE]], [HOSTILE], HOSTILE), _display.bar(1, 2, HOSTILE),
                  _plot.svg({HOSTILE: [(1.0, 1.0), (2.0, 2.0)]}, HOSTILE)):
        seen = read(thing)
        assert "script" not in seen.tags and "<script>alert('x')</script>" in "".join(seen.texts)
    xml.etree.ElementTree.fromstring(_plot.svg({HOSTILE: [(1.0, 1.0)]}))        # well-formed as XML, too


class Stubborn:
    def __str__(self):
        raise RuntimeError("no")


def test_a_result():
    result = train.Result(metrics={"loss": 0.125, "odd": Stubborn()}, checkpoint=None, error=None, path="/r", history=[{"loss": 0.125}])
    texts = [t for t in read(result).texts if t.strip()]
    assert texts == ["Result", "run", "/r", "ended", "well", "reports", "1", "checkpoint", "none", "loss", "0.1250", "odd",
                     "<Stubborn>"]


def test_values_that_are_no_numbers_are_gaps():
    nan, inf = float("nan"), float("inf")
    picture = _plot.svg({"loss": [(1.0, 1.0), (2.0, nan), (3.0, 2.0), (4.0, 3.0)], "none": [(1.0, nan), (2.0, inf)]})
    assert picture.count("M") == 2 and picture.count("<circle") == 1 and "no number" in picture and "nan" not in picture
    for points in ([(1.0, 0.0)], [(1.0, 1e300), (2.0, -1e300)], [(1.0, 5e-324), (2.0, 0.0)], [(1.0, 7.0)] * 3):
        xml.etree.ElementTree.fromstring(_plot.svg({"x": points}))
    assert "nothing was reported" in _plot.svg({})


def test_a_long_training_makes_a_small_picture_with_all_peaks_and_gaps():
    points = [(float(i), 1.0) for i in range(200_000)]
    points[123_456], points[150_000] = (123_456.0, 9.0), (150_000.0, float("nan"))
    source = _plot.svg({"loss": points})
    path = source.partition(' d="')[2].partition('"')[0]
    assert len(source) < 100_000 and path.count(f" {_plot.ABOVE:.1f}") == 1 and path.count("M") == 2
    assert read(source).tags


def test_plots_without_matplotlib(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    history = history_of([3.0, 2.0, 1.0], val_loss=[4.0, 3.0, 2.0], mae=[1.0, 1.0, 1.0])
    picture = history.plot("loss")
    assert "val_loss" in picture._repr_svg_() and "mae" not in picture._repr_svg_()
    picture.save(tmp_path / "loss.svg")
    root = xml.etree.ElementTree.parse(tmp_path / "loss.svg").getroot()
    assert root.tag.endswith("svg") and len(root.findall("{*}path")) == 2
    assert "mae" in history.plot()._repr_svg_()
    with pytest.raises(ValueError, match="there is no metric 'lose', expected 'loss'"):
        history.plot("lose")
    with pytest.raises(ValueError, match="ends with .svg"):
        picture.save(tmp_path / "loss.png")
    result = train.Result(metrics=None, checkpoint=None, error=None, path="", history=[{"a": 1, "b": "text"}, {"a": 2.5}])
    assert ">a<" in result.plot()._repr_svg_() and ">b<" not in result.plot()._repr_svg_()


@pytest.fixture
def notebook(monkeypatch):
    """An IPython with a kernel; what was displayed, a list of places with their pictures."""
    places = []

    class Place:
        def __init__(self, first):
            self.pictures = [first]
            places.append(self)

        def update(self, shown):
            self.pictures.append(shown)

    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    display.display = lambda shown, display_id: Place(shown)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(_display, "EVERY_S", 0.0)
    return places


def test_a_terminal_of_ipython_is_no_notebook(monkeypatch):
    assert not _display.in_notebook()
    ipython = types.ModuleType("IPython")
    for shell, expected in ((None, False), (types.SimpleNamespace(), False), (types.SimpleNamespace(kernel=1), True)):
        ipython.get_ipython = lambda shell=shell: shell
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        assert _display.in_notebook() is expected


@pytest.mark.parametrize("how", [{}, {"workers": 2}])
def test_fit_draws_one_place_in_a_notebook(notebook, capsys, how):
    small().fit(X, X.sum(1, keepdims=True), batch_size=16, epochs=2, validation_data=(X, X.sum(1, keepdims=True)), **how)
    assert capsys.readouterr().out == "" and len(notebook) == 1
    pictures = notebook[0].pictures
    assert all("progress" in read(p).tags for p in pictures) and len(pictures) >= 2 + 2 * 4
    last = pictures[-1]
    assert "<progress value='2' max='2'" in last._repr_html_() and "val_loss" in "".join(read(last).texts)
    assert "Epoch 2/2 4/4" in repr(last) and " - loss: " in repr(last) and "<svg" in last._repr_html_()


def test_fit_is_silent_or_prints_lines_where_it_was_asked_to(notebook, capsys):
    small().fit(X, X[:, :1], epochs=1, verbose=0)
    assert not notebook and capsys.readouterr().out == ""
    small().fit(X, X[:, :1], epochs=1, verbose=2)
    assert not notebook and capsys.readouterr().out.startswith("Epoch 1/1\n")
    assert isinstance(_listen.printers("auto")[0], _listen.NotebookBar)


def test_a_trainer_draws_one_place_in_a_notebook(notebook, tmp_path):
    def loop():
        for i in range(3):
            train.report({"loss": 1.0 / (i + 1)})

    run = train.RunConfig(name="<u>first", storage_path=str(tmp_path))
    result = train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=run).fit()
    assert len(notebook) == 1 and result.metrics == {"loss": 1 / 3}
    last = notebook[0].pictures[-1]
    assert "<u>first: done, 1 workers" in "".join(read(last).texts) and "3 reports - loss: 0.3333" in repr(last)
    assert "<svg" in last._repr_html_()


def test_a_trainer_that_fails_says_so(notebook, tmp_path):
    def loop():
        train.report({"loss": 1.0})
        raise ValueError("broken")

    run = train.RunConfig(name="bad", storage_path=str(tmp_path), failure_config=train.FailureConfig(max_failures=1))
    with pytest.raises(train.WorkerGroupError):
        train.DataParallelTrainer(loop, scaling_config=train.ScalingConfig(num_workers=1), run_config=run).fit()
    assert "bad: failed, 1 workers" in repr(notebook[0].pictures[-1]) and "2 reports, 2 failures" in repr(notebook[0].pictures[-1])
