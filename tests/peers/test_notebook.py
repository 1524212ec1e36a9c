"""The notebook of examples/python: every cell runs, what its text states holds, and its pictures are in the repository."""
import re

import nbclient
import nbformat

from conftest import ROOT

NOTEBOOK = ROOT / "examples" / "python" / "tutorial.ipynb"


def results(notebook):
    """What each cell with a value came to, in its order."""
    return [o["data"]["text/plain"] for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "execute_result"]


def pictures(notebook):
    """How many pictures, by kind: those of matplotlib, and SVG of live places."""
    shown = [o["data"] for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "display_data"]
    return sum("image/png" in d for d in shown), sum("<svg" in d.get("text/html", "") for d in shown)


def check(notebook):
    assert not [o for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "error"]
    shape, model, is_good, is_same, killed, pi, trained = results(notebook)
    assert (shape, model, is_good, is_same) == ("((2000, 8, 8, 1), 0.48)", "<Sequential 'halves'>", "True", "True")
    assert killed == "(1, True)" and abs(float(pi) - 3.14159) < 0.01 and trained == "(7, True, ['net.pt'])"
    assert pictures(notebook) == (2, 3)
    said = "".join(o["text"] for c in notebook.cells for o in c.get("outputs", []) if o.output_type == "stream")
    assert "manta: worker 1 failed" in said and "begin again from checkpoint_00000" in said and "Warning" not in said


def test_what_is_in_the_repository():
    """Its outputs are those of a run of it whole, small, and name no place of the machine that it ran on."""
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    check(notebook)
    assert NOTEBOOK.stat().st_size < 300_000
    assert not re.search(r"/(tmp|home|root|usr)/", NOTEBOOK.read_text())


def test_it_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOK, 4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbclient.NotebookClient(notebook, timeout=1000, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    check(notebook)
