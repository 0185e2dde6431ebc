"""Both notebooks of the documentation run from top to bottom, show tables as tables, and show every figure once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient", reason="needs the extra test")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("default")  # of Jupyter, about its own ways
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
    )
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    nbclient.NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    cells = [cell for cell in book.cells if cell.cell_type == "code"]
    kinds = [[set(output.get("data", {})) for output in cell.outputs] for cell in cells]
    drawn = [kind for cell, kind in zip(cells, kinds, strict=True) if ".plot(" in cell.source]
    assert drawn
    for outputs in drawn:
        assert sum("image/png" in kind for kind in outputs) == 1, "a figure is shown once"
    tables = [kind for cell, kind in zip(cells, kinds, strict=True) if ".compare(" in cell.source]
    assert all("text/html" in kind for outputs in tables for kind in outputs)
    assert len(tables) == 1


INTERRUPTED = """
import cpdpo_jax as cp
from cpdpo_jax.simulation import blocks
advance = blocks.advance
def first(*arguments):
    state = advance(*arguments)
    print("begun", flush=True)
    return state
blocks.advance = first
result = cp.simulate("uniform", "factored", episodes=10**9, seeds=4, progress=False)
print("kept", result.data.attrs["interrupted"], flush=True)
"""


def test_an_interrupted_kernel_keeps_the_result(monkeypatch):
    """The button of Jupyter sends SIGINT; the kernel lives on."""
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    manager = pytest.importorskip("jupyter_client.manager")
    kernel, client = manager.start_new_kernel(kernel_name="python3")
    output, texts = "", []
    try:
        client.execute(INTERRUPTED)
        while (message := client.get_iopub_msg(timeout=120))["content"].get("execution_state") != "idle":
            text = message["content"].get("text", "") + " ".join(message["content"].get("traceback", []))
            if "begun" in text and "begun" not in output:
                kernel.interrupt_kernel()
            output += text
        client.execute_interactive("print(result.data.sizes['seed'])", timeout=300, output_hook=texts.append)
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    assert "kept 1" in output, output
    assert "4\n" in [message["content"].get("text") for message in texts]


def test_notebooks_are_stored_without_outputs():
    """They are run when the documentation is tested; stored outputs would grow old."""
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        book = nbformat.read(path, as_version=4)
        assert all(not cell.outputs and cell.execution_count is None for cell in book.cells if cell.cell_type == "code")
