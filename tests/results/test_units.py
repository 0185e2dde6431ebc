"""Units: a result in dollars says dollars, by the numbers of its source."""

from __future__ import annotations

import json

import matplotlib as mpl
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.results import units

# a shop: a day without advertising earns 50 dollars and draws 1 visitor, one with it costs 20 and draws 5
DOLLARS, VISITORS = np.array([[50.0, -20.0]]), np.array([[1.0, 5.0]])


def shop(**more):
    return cp.from_episodic(
        np.ones((1, 2, 1)), DOLLARS, VISITORS[None], [9.0], horizon=3, sense=">=", noise="deterministic", name="shop",
        **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result():
    named = shop(reward_unit="dollars", cost_units="visitors")
    return cp.simulate(["uniform", "lp_optimal"], named, episodes=20, seeds=2, progress=False)


def test_regret_and_violation_are_the_sources_scaled_and_not_offset(result):
    """Uniform play earns 3 * 15 dollars and draws 3 * 3 = 9 visitors. OPT: a days of advertising in the mean with
    3 + 4 a >= 9, so a = 1.5, 150 - 70 * 1.5 = 45 dollars.
    """
    shown = units.convert(result.data)
    assert shown.optimum.item() == pytest.approx(45)
    assert shown.threshold.item() == pytest.approx(9)
    assert shown.optimal_multipliers.item() == pytest.approx(70 / 4)  # dollars for a visitor
    assert shown.strong_regret.dims == result.data.strong_regret.dims
    np.testing.assert_allclose(shown.strong_regret, 70 * result.data.strong_regret, rtol=1e-12)
    np.testing.assert_allclose(shown.violation_gap, 4 * result.data.violation_gap, rtol=1e-12)
    assert units.convert(shown) is shown  # not twice
    assert units.convert(result.data, "learner") is result.data
    with pytest.raises(ValueError, match=r"units = 'euro' is not valid; give 'source' or 'learner'"):
        units.convert(result.data, "euro")


def test_a_run_in_dollars_by_hand():
    """Without advertising on the first day uniform play earns 50 + 2 * 15 = 80 dollars and draws 1 + 2 * 3 = 7 visitors
    in each of 20 episodes: half a visitor short of 7.5. OPT: 3 + 4 a >= 7.5, a = 1.125, 150 - 70 a = 71.25 dollars.
    """
    forbidden = cp.from_episodic(
        np.ones((1, 2, 1)), DOLLARS, VISITORS[None], [7.5], horizon=3, sense=">=", noise="deterministic",
        action_mask=np.array([[[True, False]], [[True, True]], [[True, True]]]),
    )  # fmt: skip
    played = units.convert(cp.simulate("uniform", forbidden, episodes=20, seeds=2, progress=False).data)
    assert played.optimum.item() == pytest.approx(71.25)
    np.testing.assert_allclose(played.weak_regret.isel(episode=-1), 20 * (71.25 - 80), rtol=1e-5)
    np.testing.assert_allclose(played.strong_violation.isel(episode=-1), 20 * 0.5, rtol=1e-5)
    assert played.strong_regret.isel(episode=-1).max() == 0


def test_what_people_see_is_in_dollars(result, tmp_path):
    table = result.summary()
    assert "in the units of the source (regret in dollars, violation in visitors)" in table.splitlines()[0]
    assert "in the learner's units" in result.summary(units="learner").splitlines()[0]
    assert "regret in dollars" in result.compare("uniform", "lp_optimal").splitlines()[0]
    ours, theirs = result.to_dataframe(units="learner"), result.to_dataframe()
    np.testing.assert_allclose(theirs.strong_regret, 70 * ours.strong_regret)
    np.testing.assert_allclose(theirs.weak_violation, 4 * ours.weak_violation)
    result.to_csv(tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == theirs.to_csv(index=False)
    mpl.use("Agg")
    labels = [(axis.get_title().split()[1], axis.get_ylabel()) for axis in result.plot().axes]
    assert sorted(labels) == [("regret", "cumulative, dollars")] * 2 + [("violation", "cumulative, visitors")] * 2
    np.testing.assert_array_equal(result.metric("weak_regret"), result.data.weak_regret)
    np.testing.assert_allclose(result.metric("weak_regret", units="source"), 70 * result.data.weak_regret)


def test_a_cmdp_that_is_in_the_learners_units_shows_no_remark():
    unscaled = cp.simulate("uniform", cp.envs.make("hard"), episodes=20, seeds=2, progress=False)
    assert units.remark(unscaled.data) == ""
    assert units.convert(unscaled.data) is unscaled.data
    assert "units" not in unscaled.summary()


def test_names_of_units_survive_files_and_stacks(tmp_path):
    named = shop(reward_unit="dollars", cost_units=["visitors"])
    assert named.unit_names == ("dollars", "visitors")
    assert shop(reward_unit="dollars").unit_names == ("dollars", "cost")
    assert "OPT 45 dollars" in named.describe()
    assert ">= 9 visitors" in named.describe()
    cp.save_cmdp(tmp_path / "shop.npz", named)
    assert cp.load_cmdp(tmp_path / "shop.npz").unit_names == named.unit_names
    assert cp.stack([named, named]).unit_names == named.unit_names
    with pytest.raises(ValueError, match="stack CMDPs of the same units"):
        cp.stack([named, shop()])
    with pytest.raises(ValueError, match=r"cost_units are \['a', 'b'\]; give words, one for all or one for each of 1"):
        shop(cost_units=["a", "b"])


def test_a_stored_run_is_reported_in_dollars(tmp_path, capsys):
    cp.save_cmdp(tmp_path / "shop.npz", shop(reward_unit="dollars", cost_units="visitors"))
    flags = ["--learner", "uniform", "--env", str(tmp_path / "shop.npz"), "--episodes", "20", "--seeds", "2", "--json"]
    assert cli.main(["run", *flags, "--out", str(tmp_path / "run")]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert "regret in dollars" in row["units"]
    for name in ("source", "learner"):
        assert cli.main(["report", str(tmp_path / "run"), "--units", name, "--json"]) == 0
        (reported,) = json.loads(capsys.readouterr().out)["rows"]
        factor = 1 if name == "source" else 70
        assert row["strong_regret"]["mean"] == pytest.approx(factor * reported["strong_regret"]["mean"], abs=1e-9)


def test_a_common_unit_is_that_of_all_constraints(result):
    """Constraints in different units have none in common; each has its own."""
    shown = units.convert(result.data)
    assert (units.reward_unit(shown), units.cost_unit(shown), units.cost_unit(shown, 0)) == (
        "dollars",
        *["visitors"] * 2,
    )
    assert (units.reward_unit(result.data), units.cost_unit(result.data)) == ("reward", "cost")
    both = shown.assign_attrs(unit_names=json.dumps(["dollars", "visitors", "kilograms"]))
    assert units.cost_unit(both) == "cost"
    assert [units.cost_unit(both, i) for i in range(2)] == ["visitors", "kilograms"]
    assert units.remark(both) == "in the units of the source (regret in dollars, violation in visitors, kilograms)"


def test_a_data_frame_is_in_the_units_that_were_asked_for(result, tmp_path):
    for given, data in (("learner", result.data), ("source", units.convert(result.data))):
        frame = result.to_dataframe(units=given)
        last = frame[(frame.learner == "uniform") & (frame.episode == 20)].sort_values("seed")
        np.testing.assert_array_equal(last.weak_regret, data.weak_regret.sel(learner="uniform", episode=20).squeeze())
        result.to_csv(tmp_path / "a.csv", units=given)
        assert (tmp_path / "a.csv").read_text() == frame.to_csv(index=False)
