"""The mutants of a source, and the choice of tests for them."""

from __future__ import annotations

import pytest

from experiments.faults import mutants
from experiments.faults.mutant_sources import mutants as mutants_of
from experiments.faults.mutant_tests import Coverage

EXPECTED = {
    "x = a + b": {"x = (a - b)"},
    "x = a < b": {"x = (a <= b)", "x = (a >= b)"},
    "x = a and not b": {"x = (a or not b)", "x = a and (b)"},
    "x = 3": {"x = (4)", "x = (2)"},
    "x = True": {"x = (False)"},
    "x = min(a)": {"x = (max)(a)"},
    "x = f(a, k=b)": {"x = (f(a))"},
    "x = a if b else c": {"x = (c if b else a)"},
    "x = [a for a in b if a]": {"x = ([a for a in b])"},
    "x += a": {"x -= a", "pass"},
    "f()": {"pass"},
    "if a:\n    f()": {"if not a:\n    f()", "if a:\n    pass"},
    "def f():\n    return a": {"def f():\n    return None"},
    "x = {a: b, c: d}": {"x = ({c: d})", "x = ({a: b})"},
    "x: int = a": set(),
    "raise ValueError(f'{a + 1} is wrong')": set(),
}


@pytest.mark.parametrize("source", EXPECTED)
def test_the_mutants_of_a_line(source):
    assert {mutant.source for mutant in mutants_of(source)} == EXPECTED[source]


def test_mutants_keep_the_other_lines():
    source = '"""A text."""\nx = "ü" + y; z = 1\n\nif (a and\n        b):\n    w = 2\n'
    found = list(mutants_of(source))
    assert [mutant.line for mutant in found if "and" in mutant.change] == [4, 4]
    for mutant in found:
        compile(mutant.source, "", "exec")
        lines, changed = source.splitlines(), mutant.source.splitlines()
        assert changed[: mutant.line - 1] == lines[: mutant.line - 1]
        assert changed[-1:] == lines[-1:] or mutant.line == 6
    assert {mutant.lines for mutant in found if mutant.line == 4} == {range(4, 6)}


def test_targets_are_rooms_files_and_lines():
    (whole, line) = (
        mutants.selected(f"cpdpo_jax/common/axes.py{at}", None, mutants.random.Random(0)) for at in ("", ":13")
    )
    assert {path for path, _ in whole} == {"cpdpo_jax/common/axes.py"}
    assert line == [each for each in whole if each[1].line == 13] != []
    assert len(mutants.selected("cli", 5, mutants.random.Random(0))) == 5
    with pytest.raises(SystemExit, match="neither a room"):
        mutants.selected("nowhere", None, mutants.random.Random(0))


def test_the_tests_of_a_line_come_before_the_others_of_their_files(tmp_path):
    tests = Coverage(tmp_path, tmp_path)
    tests.seconds = {
        "t.py::a[1]": 3.0,
        "t.py::a[2]": 1.0,
        "t.py::b": 2.0,
        "t.py::c": 0.5,
        "u.py::d": 0.1,
        "v.py::e": 0.2,
    }
    for test in ("t.py::a[1]", "t.py::a[2]", "t.py::b"):
        tests.lines[test] = {("x.py", 5)}
    tests.lines["u.py::"] = {("x.py", 1)}  # while its tests are collected
    tests.lines["v.py::e"] = {("y.py", 5)}
    assert tests.choose("x.py", range(4, 7), 100) == ["t.py::a[2]", "t.py::b", "t.py::a[1]", "t.py::c"]
    assert tests.choose("x.py", range(4, 7), 3.5) == ["t.py::a[2]", "t.py::b"]
    assert tests.choose("x.py", range(1, 2), 100) == ["u.py::d", "t.py::c", "t.py::a[2]", "t.py::b", "t.py::a[1]"]
    assert tests.choose("z.py", range(1, 9), 100) == []


def test_constants_of_a_module_concern_all_tests_that_use_it(tmp_path):
    """A line that runs at import is recorded for one test alone."""
    (tmp_path / "x.py").write_text("N = 2\n\n\ndef f(a=3):\n    return N + a\n")
    tests = Coverage(tmp_path, tmp_path)
    tests.seconds = {"t.py::first": 3.0, "u.py::second": 2.0, "v.py::other": 1.0}
    tests.lines["t.py::first"] = {("x.py", 1), ("x.py", 4)}
    tests.lines["u.py::second"] = {("x.py", 5)}
    tests.lines["v.py::other"] = {("y.py", 1)}
    for line, chosen in ((1, ["u.py::second", "t.py::first"]), (4, ["u.py::second", "t.py::first"]),
                         (5, ["u.py::second"])):  # fmt: skip
        assert tests.choose("x.py", range(line, line + 1), 100) == chosen
