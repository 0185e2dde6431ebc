"""Learners that ignore rho, delta or safety are shown once, and tables have these values as numbers."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import json

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.results.copies import without_copies


@pytest.fixture(scope="module")
def swept():
    options = {"episodes": 60, "seeds": 4, "progress": False}
    return cp.simulate(["cpd_oppo", "uniform"], "hard", rho=[0.05, 0.4, "solve"], delta=[0.1, 0.2], **options)


def test_equal_curves_of_a_learner_are_one_row(swept):
    frame = swept.summary_frame()
    uniform = frame[(frame.learner == "uniform") & (frame.metric == "strong_regret")]
    assert uniform.hparams.tolist() == ["tuned, any rho, any delta"]
    ends = swept.data.strong_regret.sel(learner="uniform").isel(hparams=0, episode=-1, instance=0)
    assert uniform["mean"].item() == pytest.approx(ends.mean().item())
    assert uniform[["rho", "delta"]].isna().all(axis=None)
    other = frame[(frame.learner == "cpd_oppo") & (frame.metric == "strong_regret")]
    assert len(other) == 6
    assert sorted(other.rho.dropna()) == [0.05, 0.05, 0.4, 0.4]
    assert sorted(other.delta) == [0.1] * 3 + [0.2] * 3
    assert swept.summary().count("any rho, any delta") == 4  # metrics
    assert swept.to_latex(metrics="strong_regret").count("any rho, any delta") == 1
    assert len(swept.to_dataframe().hparams.unique()) == 6  # the rows of all runs


def test_a_learner_that_uses_one_of_the_options_is_merged_over_the_other():
    data = cp.simulate(["cpd_oppo", "uniform"], "hard", rho=[0.1, 0.2], delta=[0.1, 0.2], episodes=30, seeds=2,
                       progress=False).data  # fmt: skip
    for name in ("strong_regret", "weak_regret", "strong_violation", "weak_violation"):
        scale = np.where(np.isclose(data.delta, 0.1), 1.0, 2.0)[None, None, :]
        shape = data[name].shape
        data[name].values = np.broadcast_to(scale.reshape(1, 1, 4, *[1] * (len(shape) - 3)), shape).copy()
    merged = without_copies(data)
    assert merged.hparams.values.tolist() == ["tuned, any rho, delta=0.1", "tuned, any rho, delta=0.2"]
    np.testing.assert_array_equal(merged.delta, [0.1, 0.2])
    np.testing.assert_array_equal(merged.rho, [np.nan, np.nan])


def test_results_with_a_single_value_or_without_copies_are_unchanged():
    alone = cp.simulate("uniform", "hard", episodes=20, seeds=2, rho=0.3, progress=False)
    assert without_copies(alone.data) is alone.data
    frame = alone.summary_frame()
    assert set(frame.rho) == {0.3}
    assert frame.delta.notna().all()
    several = cp.simulate("cpd_oppo", "hard", episodes=200, seeds=2, rho=[0.05, 0.4], progress=False)
    assert without_copies(several.data) is several.data


def test_comparisons_have_the_values_and_no_copies(swept):
    frame = swept.compare_frame(metrics="strong_regret")
    assert len(frame) == 6 * 5 / 2 + 6  # pairs of cpd_oppo's hparams, and each of them with uniform
    pair = frame[frame.b == "uniform, tuned, any rho, any delta"]
    assert sorted(pair.a_rho.dropna()) == [0.05, 0.05, 0.4, 0.4]
    assert pair.b_rho.isna().all()
    assert sorted(frame.a_delta.unique()) == [0.1, 0.2]
    assert "a_safety" not in frame


def test_figures_and_the_report_have_a_line_for_it(swept, tmp_path):
    (axis,) = swept.plot(metrics="strong_regret").axes
    labels = [line.get_label() for line in axis.lines if np.size(line.get_xdata()) > 2]
    assert len(labels) == 7
    assert "uniform, any rho, any delta" in labels  # without "tuned", which all share
    figure = swept.plot_tradeoff()
    looks = {(line.get_color(), line.get_marker(), line.get_fillstyle()) for line in figure.axes[0].lines
             if line.get_marker() not in ("None", "|", "_")}  # fmt: skip
    assert len(looks) == 7
    flags = [
        "--learner",
        "cpd_oppo",
        "uniform",
        "--env",
        "hard",
        "--episodes",
        "30",
        "--seeds",
        "3",
        "--rho",
        "0.1,0.4",
    ]
    assert cli.main(["run", *flags, "--out", str(tmp_path)]) == 0
    assert cli.main(["report", str(tmp_path), "--no-figures", "--csv", "--json"]) == 0
    assert (tmp_path / "curves.csv").read_text().count("uniform") > 60  # all runs


def test_the_commands_print_it_once(tmp_path, capsys):
    flags = [
        "--learner",
        "cpd_oppo",
        "uniform",
        "--env",
        "hard",
        "--episodes",
        "30",
        "--seeds",
        "3",
        "--rho",
        "0.1,0.4",
    ]
    assert cli.main(["run", *flags, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("uniform") == 1
    assert cli.main(["compare", str(tmp_path), "--metric", "strong_regret", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["pairs"]) == 3
