"""The house stays a house: imports go down, no rings, no learner that sees the model, tests where the code is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import house
from tests.house import PACKAGE, ROOMS, ROOT

LEARNERS_MAY_IMPORT = {"common", "kernels", "learners"}
HIDDEN_FROM_LEARNERS = ("exact", "envs", "simulation")
TESTS_WITHOUT_A_ROOM = {"reference", "experiments"}
MOST_ENTRIES = 10


@pytest.fixture(scope="module")
def found() -> list[house.Import]:
    return house.imports(PACKAGE)


def test_every_room_is_in_the_order(found):
    assert {house.room(name) for name in house.modules(PACKAGE)} == set(ROOMS)
    assert len(found) > 100  # an order of nothing would hold too


def test_the_top_level_has_at_most_ten_entries():
    entries = {path.name for path in PACKAGE.iterdir()} - {"py.typed", "__pycache__"}
    assert len(entries) <= MOST_ENTRIES, sorted(entries)


def test_no_room_imports_one_above_it(found):
    assert not (told := house.upward(found)), "\n".join(told)


@pytest.mark.parametrize("room", ROOMS)
def test_no_ring_of_imports_inside_a_room(found, room):
    inside = [one for one in found if house.room(one.source) == house.room(one.target) == room]
    assert house.cycle(inside) == []


def test_learners_import_kernels_common_and_each_other_only(found):
    told = [
        str(one)
        for one in found
        if house.room(one.source) == "learners" and house.room(one.target) not in LEARNERS_MAY_IMPORT
    ]
    assert not told, "\n".join(told)


def test_learners_load_nothing_that_knows_the_model():
    """What `import cpdpo_jax.learners` really loads, however it is written."""
    code = "import sys, cpdpo_jax.learners; print(*[name for name in sys.modules if name.startswith('cpdpo_jax.')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "cpdpo_jax.learners.cpdpo" in loaded
    assert [name for name in loaded if house.room(name) in HIDDEN_FROM_LEARNERS] == []


def test_no_module_takes_a_private_name_of_another():
    assert not (told := house.private(PACKAGE)), "\n".join(told)


def test_tests_mirror_the_package():
    folders = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*") if path.is_dir()]
    folders = [one for one in folders if "__pycache__" not in one.parts and not one.parts[0].startswith(".")]
    assert len(folders) > len(TESTS_WITHOUT_A_ROOM)
    missing = [str(one) for one in folders if one.parts[0] not in TESTS_WITHOUT_A_ROOM and not (PACKAGE / one).is_dir()]
    assert missing == []


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
    """A package of two rooms, low and high; the keywords are the text of low_a, low_c, high_b."""
    for name in ("__init__", "low/__init__", "high/__init__", "low/a", "low/c", "high/b"):
        path = folder / "toy" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files.get(name.replace("/", "_"), ""))
    return folder / "toy"


@pytest.mark.parametrize("way", HIDDEN)
def test_an_upward_import_is_seen_wherever_it_hides(tmp_path, way):
    order = ("low", "high", house.TOP)
    package = toy(tmp_path, low_a=HIDDEN[way])
    (told,) = house.upward(house.imports(package), order)
    assert told.startswith("toy/low/a.py:")
    assert house.upward(house.imports(package), ("high", house.TOP, "low")) == []


def test_rings_and_private_names_are_seen(tmp_path):
    package = toy(tmp_path / "ring", low_a="from toy.low import c", low_c="def f():\n    import toy.low.a")
    assert house.cycle(house.imports(package)) == ["toy.low.a", "toy.low.c", "toy.low.a"]
    package = toy(tmp_path / "line", low_a="from toy.low import c", high_b="from toy.low import a, c")
    assert house.cycle(house.imports(package)) == []
    package = toy(tmp_path / "private", low_a="from toy.low.c import _x, y", high_b="from toy.low import c\nc._z, c.z")
    assert len(told := house.private(package)) == 2
    assert "(_x)" in told[0]
    assert "c._z" in told[1]


def test_the_graph_names_every_room():
    lines = house.graph().splitlines()
    assert [line.split()[0] for line in lines] == list(reversed(ROOMS))


if __name__ == "__main__":
    print(house.graph())
