"""The demo: its words say what its table shows."""

from __future__ import annotations

import pytest

from cpdpo_jax import cli
from cpdpo_jax.cli import demo

pytestmark = pytest.mark.usefixtures("fast_compile")


def row(learner: str, regret: float, violation: float, weak: float) -> dict:
    means = {"strong_regret": regret, "strong_violation": violation, "weak_violation": weak}
    return {"environment": "hard", "learner": learner, **{name: {"mean": value} for name, value in means.items()}}


def test_the_story_names_who_hides_most_and_who_is_first():
    told = demo.story([row("a", 10, 20, 19), row("b", 5, 100, 3), row("c", 50, 1, 0.5)])
    first, second = told.splitlines()
    assert first.startswith("hard: b violates by 100 in sum, of which its weak violation shows 3:")
    assert "a is first with 30, then c with 51." in second
    assert demo.story([row("a", 1, 1, 1)]).count("\n") == 0  # nobody to be ahead of


def test_the_demo_runs_and_speaks(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), "--episodes", "60", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    for learner in demo.TABLE["learners"]:
        assert learner in printed
    assert printed.count(" is first with ") == 2
    assert (tmp_path / "demo" / "report.html").is_file()
