"""The notebook of the documentation runs in a fresh kernel and produces its figures."""

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parent.parent.parent / "docs" / "tour.ipynb"


def test_it_is_stored_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)


@pytest.mark.slow
def test_it_runs_and_has_its_figures(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    types = [name for output in outputs for name in output.get("data", {})]
    assert types.count("image/png") == 2
    assert types.count("image/svg+xml") == types.count("image/gif") == 1
