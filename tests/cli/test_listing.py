"""The texts of `cpdpo list`: descriptions, options with meanings, and lines that fit the terminal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from cpdpo_jax.cli import listing
from cpdpo_jax.learners import NoHyperparameters


class Sizes(NamedTuple):
    """The problem for which a preset is shown."""

    layers: Any  # L
    states: Any  # |X|
    actions: Any
    episodes: Any  # T   # as given
    delta: Any  # 1 - confidence
    rho: Any
    safe_cost: Any  # of the safe policy


def sizes(problem: Any, preset: str) -> Sizes:
    factor = {"tuned": 1, "theory": 2}[preset]
    found = (len(problem.action_mask), problem.n_states, problem.n_actions, problem.episodes, problem.delta,
             problem.slater_margin, getattr(problem.safe, "cost", 0.5))  # fmt: skip
    return Sizes(*(factor * np.ones(1) * value for value in found))


def learner(extra: str | None = None, hyperparameters: Any = sizes) -> Any:
    return SimpleNamespace(name="mine", extra_knowledge=extra, hyperparameters=hyperparameters, update=sizes)


@pytest.mark.parametrize("extra", [None, "a safe policy"])
def test_presets_are_shown_for_a_problem_with_the_stated_sizes(extra):
    """One state in the first layer; `n_states` also counts the end: 4 * 5 + 2."""
    rows = {row.pop("name"): row for row in listing.hyperparameters(learner(extra))}
    values = {"layers": 5, "states": 22, "actions": 3, "episodes": 100_000, "delta": 0.05, "rho": 0.5}
    values |= {"safe_cost": 0.75 if extra else 0.5}
    assert {name: row["tuned"] for name, row in rows.items()} == pytest.approx(values)
    assert {name: row["theory"] for name, row in rows.items()} == pytest.approx({x: 2 * y for x, y in values.items()})
    assert [row["means"] for row in rows.values()] == [
        "L", "|X|", "", "T   # as given", "1 - confidence", "", "of the safe policy"
    ]  # fmt: skip


def test_the_table_of_hyperparameters():
    head, names, *lines = listing.table(learner()).splitlines()
    assert head == "Hyperparameters:"
    assert names == " " * 18 + "tuned      theory"
    assert lines[0] == "  layers              5          10  L"
    assert lines[2] == "  actions             3           6"
    assert lines[6] == "  safe_cost         0.5           1  of the safe policy"
    assert lines[7] == "Values at 5 layers, 5 states, 3 actions, 1 constraint, T = 100,000, rho = 0.5."
    assert "--hparams NAME=x2" not in lines[8]
    assert len(lines) == 9
    assert listing.table(learner(hyperparameters=lambda *_: NoHyperparameters())) == "It has no hyperparameters."


def test_lines_fit_the_terminal(monkeypatch):
    entries = {"a": "one two three four five six seven eight", "longer": "short"}
    monkeypatch.setenv("COLUMNS", "45")
    assert listing.lines(entries).splitlines() == [
        "  a       one two three four five six seven", "          eight", "  longer  short"
    ]  # fmt: skip
    monkeypatch.setenv("COLUMNS", "10")  # 30 letters of text all the same
    assert listing.lines(entries).splitlines() == [
        "  a       one two three four five six", "          seven eight", "  longer  short"
    ]  # fmt: skip


def test_a_description_is_an_entry_of_about_or_the_docstring(monkeypatch):
    assert listing.about(learner()) == (__doc__ or "").strip()
    monkeypatch.setitem(globals(), "ABOUT", {"mine": "My own."})
    assert listing.about(learner()) == "My own."
    unknown = learner()
    unknown.hyperparameters = SimpleNamespace(__module__="not.loaded")
    assert listing.about(unknown) == "a user-defined learner"
    assert listing.meanings(type("Interactive", (), {})) == {}
