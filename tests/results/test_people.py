"""A result in people's tools: notebooks, pandas, rliable; comparisons whatever the hparams are called."""

from __future__ import annotations

import numpy as np
import pytest

from tests.results.support import made_up


def test_tables_are_text_and_a_table_in_a_notebook():
    result = made_up(["a<b", "c"])
    table = result.summary()
    assert isinstance(table, str)
    assert print(table) is None
    shown = table._repr_html_()
    assert shown.count("<tr>") == 1 + 2 * 4
    assert "a&lt;b" in shown
    assert result._repr_html_() == shown
    assert repr(result).startswith("Result(a<b, c: 1 instance, 1 hparams, 6 seeds, 10,000 episodes")


def test_learners_are_paired_whatever_their_hparams_are_called():
    result = made_up(["a", "b"], ["tuned", "x=1", "x=2"])
    curves = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")
    for name in curves:
        result.data[name][0, :, 1:] = np.nan  # a: tuned
        result.data[name][1, :, :1] = np.nan  # b: a grid of x
    table = result.compare("a", "b")
    assert "nan" not in table
    assert [row[1:3] for row in table.rows[1::4]] == [["tuned", "x=1"], ["tuned", "x=2"]]
    ends = result.data.strong_regret.isel(episode=-1, instance=0)
    expected = float((ends[0, 0] - ends[1, 1]).mean())
    assert table.rows[1][4] == f"{expected:.4g}"
    own = result.compare("b", "b")
    assert [row[1:3] for row in own.rows[1::4]] == [["x=1", "x=2"]]
    same = made_up(["a", "b"], ["s", "t"]).compare("a", "b")
    assert same.rows[0][1] == "hparams"
    assert [row[1] for row in same.rows[1::4]] == ["s", "t"]


def test_an_interrupted_run_is_compared_at_the_last_common_checkpoint():
    result = made_up(["a", "b"])
    curves = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")
    for name in curves:
        result.data[name][1, :, :, :, 12:] = np.nan  # b ended at the 12th checkpoint
        result.data[name][1, :, :, 0, 10:] = np.nan  # one of its seeds at the 10th
        result.data[name][1, :, :, 1] = np.nan  # and one was not begun
    table = result.compare("a", "b")
    strong = result.data.strong_regret[:, 0, 0, :, 9]
    pairs = (strong[0] - strong[1]).values
    assert table.rows[1][3] == f"{np.nanmean(pairs):.4g}"
    assert table.rows[1][-2:] == ["5", f"{int(result.data.episode[9]):,}"]
    for name in curves:
        result.data[name][1] = np.nan
    with pytest.raises(ValueError, match="'a' and 'b' share no instance and T"):
        result.compare("a", "b")


def test_a_data_frame_has_a_row_for_what_was_run():
    result = made_up(["a", "b"], ["s", "t"], constraints=2)
    for name in ("strong_regret", "weak_regret", "strong_violation", "weak_violation"):
        result.data[name][0, :, 1] = np.nan
    frame = result.to_dataframe()
    assert len(frame) == 3 * 6 * result.data.sizes["episode"]
    assert {"learner", "hparams", "seed", "episode", "strong_regret", "instance_name"} <= set(frame)
    assert "constraint" not in frame
    last = frame[(frame.learner == "b") & (frame.hparams == "t")].groupby("seed").last()
    for i in range(2):
        np.testing.assert_array_equal(last[f"strong_violation_{i}"], result.data.strong_violation[1, 0, 1, :, -1, i])
        np.testing.assert_array_equal(last[f"multiplier_{i}"], result.data.multiplier[1, 0, 1, :, -1, i])


def test_the_mean_over_the_rows_of_a_frame_is_that_of_the_worst_constraint():
    """As in the summary; the mean over both constraints would be lower by a quarter."""
    result = made_up(["a"], constraints=2)
    result.data.strong_violation[..., 3, :, 1] *= 10  # in one seed the second is the worst
    frame = result.to_dataframe()
    last = frame[frame.episode == 10_000]
    expected = float(result.metric("strong_violation").isel(episode=-1).mean())
    assert last.groupby("learner").strong_violation.mean()["a"] == pytest.approx(expected)
    assert expected > 1.2 * float(result.data.strong_violation.isel(episode=-1).mean())
    assert last.worst_constraint.tolist() == [0, 0, 0, 1, 0, 0]
    columns = {
        "strong_regret",
        "weak_regret",
        "strong_violation",
        "weak_violation",
        "regret_gap",
        "epochs",
        "infeasible",
    }
    each = {
        f"{name}_{i}" for name in ("strong_violation", "weak_violation", "violation_gap", "multiplier") for i in (0, 1)
    }
    index = {"learner", "instance", "instance_name", "hparams", "seed", "episode"}
    assert set(frame) == columns | each | index | {"worst_constraint"}
    single = made_up(["a"]).to_dataframe()
    assert {"multiplier", "violation_gap"} <= set(single)
    assert "worst_constraint" not in single


def test_rliable_gets_seeds_by_tasks_with_larger_scores_better():
    result = made_up(["a", "b"], instances=3)
    scores = result.to_rliable(metric="strong_violation")
    assert {name: values.shape for name, values in scores.items()} == {"a": (6, 3), "b": (6, 3)}
    np.testing.assert_allclose(scores["b"][2, 1], -result.data.strong_violation[1, 1, 0, 2, -1, 0] / 10_000)
    assert (scores["a"] > scores["b"]).mean() > 0.9  # b's violation is four times a's
    both = result.to_rliable(made_up(["a", "b"]), metric="strong_violation")
    assert both["a"].shape == (6, 4)
    with pytest.raises(ValueError, match="different numbers of tasks"):
        result.to_rliable(made_up(["a"]))
    with pytest.raises(ValueError, match="run the same seeds on each"):
        result.to_rliable(made_up(["a", "b"], seeds=3))
