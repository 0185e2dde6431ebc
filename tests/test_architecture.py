"""The architecture: imports go downward, no cycles, no learner that sees the model, tests beside their subpackage."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import import_graph
from tests.import_graph import PACKAGE, ROOT, SUBPACKAGES

LEARNERS_MAY_IMPORT = {"common", "kernels", "learners"}
HIDDEN_FROM_LEARNERS = ("exact", "envs", "simulation")
TESTS_WITHOUT_A_SUBPACKAGE = {"reference", "experiments"}
MOST_ENTRIES = 10
UPWARD = {("cpdpo_jax.common.types", "cpdpo_jax.envs.describe")}  # `CMDP.describe`, when it is called


@pytest.fixture(scope="module")
def found() -> list[import_graph.Import]:
    return import_graph.imports(PACKAGE)


def test_every_subpackage_is_in_the_order(found):
    assert {import_graph.subpackage(name) for name in import_graph.modules(PACKAGE)} == set(SUBPACKAGES)
    assert len(found) > 100  # an order of nothing would hold too


def test_the_top_level_has_at_most_ten_entries():
    entries = {path.name for path in PACKAGE.iterdir()} - {"py.typed", "__pycache__"}
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_no_subpackage_imports_a_higher_one(found):
    below = [item for item in found if (item.source, item.target) not in UPWARD]
    assert len(below) == len(found) - len(UPWARD)  # each exception is one import, and still needed
    assert not (errors := import_graph.upward_imports(below)), "\n".join(errors)


@pytest.mark.parametrize("subpackage", SUBPACKAGES)
def test_no_import_cycle_inside_a_subpackage(found, subpackage):
    inside = [
        item
        for item in found
        if import_graph.subpackage(item.source) == import_graph.subpackage(item.target) == subpackage
    ]
    assert import_graph.find_cycle(inside) == []


def test_learners_import_kernels_common_and_each_other_only(found):
    errors = [
        str(item)
        for item in found
        if import_graph.subpackage(item.source) == "learners"
        and import_graph.subpackage(item.target) not in LEARNERS_MAY_IMPORT
    ]
    assert not errors, "\n".join(errors)


def test_learners_do_not_know_for_which_machine_they_are_traced(found):
    errors = [
        str(item)
        for item in found
        if import_graph.subpackage(item.source) == "learners" and item.target.startswith("cpdpo_jax.kernels.machines")
    ]
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize("name", ["for_accelerator", "target_platform"])
def test_only_kernels_depend_on_the_target(name):
    """Other subpackages call the functions of `kernels.machines.programs`, which have the conditions."""
    users = {path for path in PACKAGE.rglob("*.py") if name in path.read_text()}
    assert users
    assert [str(path) for path in users if not path.is_relative_to(PACKAGE / "kernels")] == []


def test_learners_load_nothing_that_knows_the_model():
    """What `import cpdpo_jax.learners` really loads, however it is written."""
    code = "import sys, cpdpo_jax.learners; print(*[name for name in sys.modules if name.startswith('cpdpo_jax.')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=600)
    loaded = done.stdout.split()
    assert "cpdpo_jax.learners.cpdpo" in loaded
    assert [name for name in loaded if import_graph.subpackage(name) in HIDDEN_FROM_LEARNERS] == []


def test_no_module_takes_a_private_name_of_another():
    assert not (errors := import_graph.private_uses(PACKAGE)), "\n".join(errors)


def test_tests_mirror_the_package():
    folders = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*") if path.is_dir()]
    folders = [path for path in folders if "__pycache__" not in path.parts and not path.parts[0].startswith(".")]
    assert len(folders) > len(TESTS_WITHOUT_A_SUBPACKAGE)
    missing = [
        str(path)
        for path in folders
        if path.parts[0] not in TESTS_WITHOUT_A_SUBPACKAGE and not (PACKAGE / path).is_dir()
    ]
    assert missing == []


@pytest.mark.parametrize("folder", ["tests", "experiments/faults"])
def test_waits_for_processes_have_time_limits(folder):
    """`subprocess.run`, `wait`, `communicate`, `result` and `join` of threads."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
                name = ast.unparse(node.func)
                waits = name.endswith((".communicate", ".result", "thread.join", "process.wait"))
                assert not waits or node.keywords, f"{path}:{node.lineno}: {name} without a time limit"
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "subprocess.run":
                limits = [keyword.arg for keyword in node.keywords]
                assert "timeout" in limits, f"{path}:{node.lineno}: subprocess.run without a time limit"


HIDDEN = {  # every way to write an import of `toy.high.b`
    "at the top": "from toy.high import b",
    "the module": "import toy.high.b as b",
    "relative": "from ..high import b",
    "in a function": "def f():\n    from toy.high.b import g\n    return g",
    "in a method": "class C:\n    def f(self):\n        import toy.high.b",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from toy.high.b import C",
    "by its text": "import importlib\nb = importlib.import_module('toy.high.b')",
    "by half of its text": "from importlib import import_module\ndef f(x):\n    return import_module(f'toy.high.{x}')",
    "the package itself": "import toy",
}


def toy(folder: Path, **files: str) -> Path:
    """A package of two subpackages, low and high; the keywords are the text of low_a, low_c, high_b."""
    for name in ("__init__", "low/__init__", "high/__init__", "low/a", "low/c", "high/b"):
        path = folder / "toy" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files.get(name.replace("/", "_"), ""))
    return folder / "toy"


@pytest.mark.parametrize("way", HIDDEN)
def test_an_upward_import_is_seen_wherever_it_hides(tmp_path, way):
    order = ("low", "high", import_graph.TOP)
    package = toy(tmp_path, low_a=HIDDEN[way])
    (error,) = import_graph.upward_imports(import_graph.imports(package), order)
    assert error.startswith("toy/low/a.py:")
    assert import_graph.upward_imports(import_graph.imports(package), ("high", import_graph.TOP, "low")) == []


def test_cycles_and_private_names_are_seen(tmp_path):
    package = toy(tmp_path / "ring", low_a="from toy.low import c", low_c="def f():\n    import toy.low.a")
    assert import_graph.find_cycle(import_graph.imports(package)) == ["toy.low.a", "toy.low.c", "toy.low.a"]
    package = toy(tmp_path / "line", low_a="from toy.low import c", high_b="from toy.low import a, c")
    assert import_graph.find_cycle(import_graph.imports(package)) == []
    package = toy(tmp_path / "private", low_a="from toy.low.c import _x, y", high_b="from toy.low import c\nc._z, c.z")
    assert len(errors := import_graph.private_uses(package)) == 2
    assert "(_x)" in errors[0]
    assert "c._z" in errors[1]


def test_the_graph_names_every_subpackage():
    lines = import_graph.graph().splitlines()
    assert [line.split()[0] for line in lines] == list(reversed(SUBPACKAGES))
