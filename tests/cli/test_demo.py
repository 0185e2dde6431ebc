"""The demo: its words say what its table shows."""

from __future__ import annotations

import numpy as np
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.cli import demo
from cpdpo_jax.sweeps.load import Table


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


def _table(regret: dict[str, float], cap: float) -> Table:
    lead = ("learner", "instance", "hparams", "seed")
    data = xr.Dataset(
        {
            "strong_regret": ((*lead, "episode"), np.reshape([[1, r] for r in regret.values()], (-1, 1, 1, 1, 2))),
            "hyper_dual_cap": (lead[:3], np.full((len(regret), 1, 1), cap)),
            "believed_slater_margin": (lead, np.full((len(regret), 1, 1, 1), 0.25)),
        },
        coords={"learner": list(regret), "episode": [3, 9], "constraint": [0, 1]},
        attrs={"layers": 3},
    )
    return Table("random:layers=3", 9, cp.Result(data))


def test_the_reason_for_the_regret_of_cpdpo_is_computed():
    """(3+1) * 2 / 0.25 = 32; a cap of 5 adds 2 * 5 = 10; 90 is 30 times the median 3 of 2 and 4."""
    text = demo.slow_reward([_table({"a": 2, "cpdpo": 90, "b": 4}, 5), _table({"a": 50, "cpdpo": 80}, 7)])
    assert "On random the strong regret of cpdpo is 30 times the median" in text
    assert "(L+1)m/rho = (3+1) x 2 / 0.25 = 32 in the paper, 10 with the hparams used here" in text
    only = _table({"cpdpo": 90}, 5)
    assert demo.slow_reward([only, only]) == ""  # nothing to compare it with
    same = _table({"a": 2, "cpdpo": 90, "b": 4}, 5)
    assert demo.slow_reward([same._replace(environment="other:layers=3"), same]).startswith("On other ")  # the first
    assert demo.slow_reward([_table({"a": 50, "cpdpo": 80}, 7)]) == ""  # nothing to explain
    assert demo.slow_reward([_table({"a": 50, "b": 80}, 7)]) == ""


def test_the_demo_runs_and_speaks(tmp_path, capsys):
    assert cli.main(["demo", "--out", str(tmp_path / "demo"), "--episodes", "6e1", "--seeds", "2"]) == 0
    printed = capsys.readouterr().out
    for learner in demo.TABLE["learners"]:
        assert learner in printed
    assert printed.count(" is first with ") == 2
    assert (tmp_path / "demo" / "report.html").is_file()
