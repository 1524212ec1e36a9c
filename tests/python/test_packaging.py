"""`pip install .`, `-e .`, the sdist: minutes of compiling, so behind --long; and what import does."""
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = """
import manta, manta.ray
@manta.remote
def f(x): return x + 1
print(manta.get([f.remote(i) for i in range(4)]), manta.__file__)
"""


def must(*command, **kwargs):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of the source distribution: what is left out of it cannot be built."""
    folder = tmp_path_factory.mktemp("dist")
    must(sys.executable, "-c", "import sys, scikit_build_core.build as b; b.build_sdist(sys.argv[1])", folder, cwd=ROOT)
    source = next(folder.glob("manta-*.tar.gz"))
    with tarfile.open(source) as tar:
        top = {name.split("/")[1] for name in tar.getnames()}
    assert {"src", "include", "cmake", "python", "CMakeLists.txt", "LICENSE", "README.md"} <= top
    assert not top & {"build", "tests", "data", "bench", ".ci"}, top
    must(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source)
    return next(folder.glob("*.whl"))


def environment(folder):
    """A fresh virtual environment that sees this one's packages, and no PYTHONPATH."""
    must(sys.executable, "-m", "venv", "--system-site-packages", folder)
    site = next((folder / "lib").glob("python*/site-packages"))
    here = next(p for p in sys.path if p.endswith("site-packages"))
    (site / "more.pth").write_text(here + "\n")
    return folder / "bin" / "python", {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}


@pytest.mark.long
def test_the_wheel(wheel, tmp_path):
    assert "-cp311-abi3-linux" in wheel.name
    python, env = environment(tmp_path / "venv")
    must(python, "-m", "pip", "install", "--no-deps", wheel, env=env)
    out = must(python, "-c", PROGRAM, cwd=tmp_path, env=env)
    assert out.startswith("[1, 2, 3, 4]") and str(tmp_path) in out
    assert must(python.parent / "manta", "--version", env=env).startswith("manta ")
    names = must(python, "-m", "zipfile", "-l", wheel).split()
    assert len([n for n in names if n.startswith("manta/_lib/libmanta.so")]) == 1
    assert not [n for n in names if n.startswith("tests/") or n.endswith(".pyc")]
    library = next((tmp_path / "venv").rglob("_manta.abi3.so"))
    dynamic = must("readelf", "-d", library)
    assert "$ORIGIN/_lib" in dynamic and str(ROOT) not in dynamic


# Run in a place of its own where headers, compilers and what the wheel brings itself are empty files.
HIDE = """
set -e
libs=$1; shift
mount -t tmpfs none /usr/include
hide() { for f in "$@"; do if [ -f "$f" ]; then mount --bind /dev/null "$(readlink -f "$f")"; fi; done; }
hide /usr/bin/gcc /usr/bin/cc /usr/bin/clang /usr/bin/cmake /usr/bin/ninja
for f in "$libs"/*; do
    name=$(basename "$f"); name=${name%%-*}
    hide /usr/lib/*-linux-gnu/"$name".so* /usr/lib/*-linux-gnu/"$name"-*.so*
done
exec "$@"
"""


@pytest.mark.long
def test_a_wheel_for_other_machines(tmp_path):
    said = must(sys.executable, ROOT / "tools" / "wheel.py", tmp_path / "dist").split()
    assert said[0].endswith(f"-cp311-abi3-manylinux_2_36_{os.uname().machine}.whl") and float(said[1]) < 15
    must(sys.executable, "-m", "venv", tmp_path / "venv")
    python, env = tmp_path / "venv" / "bin" / "python", {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    must(python, "-m", "pip", "install", "--disable-pip-version-check", "-q", said[0], env=env)
    libs = next((tmp_path / "venv").rglob("manta.libs"))
    assert not [p for p in libs.iterdir() if p.name.startswith(("libdnnl", "libgomp", "libcairo", "libpython"))]
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/usr/include"], capture_output=True).returncode:
        pytest.skip("nothing can be hidden here: a mount namespace is not allowed")
    hidden = ["unshare", "-m", "bash", "-c", HIDE, "hide", libs]
    assert must(*hidden, python, "-c", PROGRAM, cwd=tmp_path, env=env).startswith("[1, 2, 3, 4]")
    assert must(*hidden, python.parent / "manta", "--version", env=env).startswith("manta ")
    trained = must(*hidden, python.parent / "manta", "bench", "train", "--model", "mlp", "--steps", "2", cwd=tmp_path, env=env)
    assert "ms/step" in trained
    used = must(*hidden, python, "-c", "import manta._manta; print(open('/proc/self/maps').read())", cwd=tmp_path, env=env)
    from_here = {line.split()[-1] for line in used.splitlines() if ".so" in line and str(tmp_path) in line}
    assert [p for p in from_here if "/manta.libs/" in p] and [p for p in from_here if "libmanta" in p]


@pytest.mark.long
def test_an_editable_install(tmp_path):
    python, env = environment(tmp_path / "venv")
    must(python, "-m", "pip", "install", "--no-deps", "--no-build-isolation", "-e", ROOT, env=env)
    out = must(python, "-c", PROGRAM, cwd=tmp_path, env=env)
    assert out.startswith("[1, 2, 3, 4]") and str(ROOT / "python" / "manta") in out


QUIET = """
import logging, os, signal, sys, multiprocessing, threading
def state():
    return ({n: (l.level, l.handlers, l.propagate) for n, l in logging.root.manager.loggerDict.items() if isinstance(l, logging.Logger)},
            logging.root.level, list(logging.root.handlers), {s: signal.getsignal(s) for s in signal.valid_signals()},
            dict(os.environ), multiprocessing.get_start_method(allow_none=True), threading.active_count(), sys.excepthook)
before = state()
import manta%s
after = state()
mine = {n: v for n, v in after[0].items() if n in before[0]}
assert (before[0], *before[1:]) == (mine, *after[1:])
print(sorted(m for m in sys.modules if m in ("numpy", "cloudpickle", "asyncio", "pandas")))
"""


@pytest.mark.parametrize("module, heavy", [("", ["asyncio", "cloudpickle", "numpy", "pandas"]), (".ray", ["cloudpickle", "numpy", "pandas"])])
def test_import_changes_nothing(python, module, heavy):
    done = python("-c", QUIET % module)
    assert done.returncode == 0, done.stderr
    assert not set(eval(done.stdout)) & set(heavy) , done.stdout
