"""The demo: its words say what its table shows."""

from __future__ import annotations

from cpdpo_jax import cli
from cpdpo_jax.cli import demo


def row(learner: str, regret: float, violation: float, weak: float) -> dict:
    means = {"strong_regret": regret, "strong_violation": violation, "weak_violation": weak}
    return {"environment": "hard", "learner": learner, **{name: {"mean": value} for name, value in means.items()}}


def test_the_story_names_who_hides_most_and_who_is_first():
    text = demo.story([row("a", 10, 20, 19), row("b", 5, 100, 3), row("c", 50, 1, 0.5)])
    assert text.startswith("On hard the violations of b add up to 100, but its weak violation is 3, because ")
    assert text.endswith("; by strong regret + strong violation a is first with 30, then c with 51.")
    assert "first" not in demo.story([row("a", 1, 1, 1)])  # nobody to be ahead of
    two = demo.story([row("a", 1, 11_152, 1), row("a", 1, 1, 1) | {"environment": "random:layers=4"}])
    assert "add up to 11,152" in two  # as the table writes it
    assert [line.split()[1] for line in two.splitlines()] == ["hard", "random"]


def test_the_demo_runs_and_speaks(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), "--episodes", "6e1", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    for learner in demo.TABLE["learners"]:
        assert learner in printed
    assert printed.count(" is first with ") == 2
    assert (tmp_path / "demo" / "report.html").is_file()
