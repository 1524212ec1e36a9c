"""The programs of examples/python and the lines of the first page, as a user runs them; the types of those that have them."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
SAYS = {
    "hello.py": ["squares: [0, 1, 4, 9]", "their sum: 14", "counter: 13"],
    "parameter_server.py": ["weights: [0. 1. 2. 3. 4. 5. 6. 7. 8. 9.]"],
    "crawl.py": ["200 pages of 200"],
    "average_weights.py": ["converged to w = 0.1000, b = 0.3000"],
    "average_gradients.py": ["converged to w = 0.1000, b = 0.3000"],
    "model.py": ["Total params: 658 (2.57 KB)", "good enough: True", "the same predictions: True"],
    "train_loop.py": ["w: 3.00", "checkpoints kept: 2"],
    "train_data.py": ["a: 2.00, b: -1.00, batches of an epoch: 18"],
}


def test_every_example_is_here():
    assert sorted(SAYS) == sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SAYS)
def test_an_example(python, name):
    text = (EXAMPLES / name).read_text()
    how = ["-m", "manta", "run"] if "import ray" in text else []
    done = python(*how, EXAMPLES / name)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in SAYS[name]:
        assert line in done.stdout.splitlines() or line in done.stdout, done.stdout


def test_the_lines_of_the_first_page(python, tmp_path):
    lines, = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    program = tmp_path / "lines.py"
    program.write_text(lines)
    done = python(program, cwd=tmp_path, env={"MANTA_DATA": str(ROOT / "data")})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[143, 143, 143, 143]", done.stdout
    assert (tmp_path / "digits.keras").stat().st_size > 100_000


@pytest.mark.parametrize("name", ["hello.py", "model.py", "train_loop.py", "train_data.py"])
def test_types(name):
    """mypy --strict accepts an example that has types, and so the type files that it uses."""
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", EXAMPLES / name], capture_output=True, text=True,
                          cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
