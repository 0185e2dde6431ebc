"""All pairs: differences, effect sizes, the sign-flip test, Holm's correction, and ranks over environments."""

from __future__ import annotations

import itertools
import json
from statistics import NormalDist

import numpy as np
import pandas as pd
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.results import comparison, significance
from cpdpo_jax.results.statistics import METRICS
from tests.results.support import made_up


def test_all_pairs_by_hand():
    result = made_up(["a", "b", "c"], instances=2)
    frame = result.compare_frame()
    assert len(frame) == 3 * 2 * 2  # pairs, metrics, instances
    row = frame[(frame.a == "a") & (frame.b == "c") & (frame.metric == "strong_regret") & (frame.instance == 1)].iloc[0]
    ends = result.data.strong_regret.isel(episode=-1, hparams=0, instance=1).values
    difference = ends[0] - ends[2]
    assert row.difference == pytest.approx(difference.mean())
    assert row.effect_size == pytest.approx(difference.mean() / difference.std(ddof=1))
    assert row.a_lower == 1.0
    assert row.p == pytest.approx(2 / 2**6)  # all differences negative: only they and their opposites are so far
    assert row.low < row.difference < row.high < 0
    table = result.compare()
    assert len(table.rows) == 1 + len(frame)
    assert "Holm's correction for 12 comparisons" in table
    with pytest.raises(ValueError, match="compare has only one learner; give both a and b, or neither"):
        result.compare("a")
    with pytest.raises(ValueError, match="no two learners or hparams share an instance and T"):
        made_up(["a"]).compare()
    pairs = made_up(["a"], ["s", "t"]).compare_frame()
    assert pairs.a.tolist() == ["a, s"] * 2


def test_the_share_of_seeds_in_which_the_first_is_lower_and_a_small_deviation():
    result = made_up(["a", "b"])
    differences = np.array([-0.2, -0.1, 0.0, 0.05, 0.2, 0.3])
    result.data.strong_regret[1, 0, 0, :, -1] = result.data.strong_regret[0, 0, 0, :, -1] - differences
    (row,) = result.compare_frame(metrics="strong_regret").to_dict("records")
    assert row["a_lower"] == pytest.approx(2 / 6)
    assert row["effect_size"] == pytest.approx(differences.mean() / differences.std(ddof=1))


def test_runs_of_different_length_are_compared_at_their_own_ends():
    """All metrics grow with T, so a difference between two T says nothing about the learners."""
    short, long = made_up(["a", "b"], episodes=30), made_up(["a", "b"], episodes=1000)
    short.data.strong_regret[0] *= 0.5
    runs = [cp.Result(run.data.assign_attrs(key=0)) for run in (short, long)]
    joined = cp.concat(runs)
    frame = joined.compare_frame()
    assert set(zip(frame.a, frame.b, frame.episode, strict=True)) == {
        ("a, tuned, T = 30", "b, tuned, T = 30", 30), ("a, tuned, T = 1,000", "b, tuned, T = 1,000", 1000)
    }  # fmt: skip
    for run, episode in ((short, 30), (long, 1000)):
        own = run.compare_frame().set_index("metric").difference
        found = frame[frame.episode == episode].set_index("metric").difference
        assert found.to_dict() == pytest.approx(own.to_dict())
    table = joined.compare()
    assert table.rows[0][-1] == "at T"
    assert {row[-1] for row in table.rows[1:]} == {"30", "1,000"}
    assert {row[-1] for row in joined.compare("a", "b").rows[1:]} == {"30", "1,000"}
    with pytest.raises(ValueError, match="'a' and 'a' share no instance and T"):
        joined.compare("a", "a")


def test_an_interrupted_run_shows_the_episode_of_the_comparison():
    result = made_up(["a", "b"])
    reached = int(result.data.episode[19])
    for name in METRICS:
        result.data[name].loc[{"learner": "b", "episode": slice(reached + 1, None)}] = np.nan
    assert {row[-1] for row in result.compare().rows[1:]} == {f"{reached:,}"}


def test_pairs_differ_in_the_learner_or_in_the_hparams():
    frame = made_up(["a", "b"], ["s", "t", "u"]).compare_frame(metrics="strong_regret")
    assert list(zip(frame.a, frame.b, strict=True)) == [
        ("a, s", "a, t"), ("a, s", "a, u"), ("a, t", "a, u"), ("a, s", "b, s"), ("a, t", "b, t"), ("a, u", "b, u"),
        ("b, s", "b, t"), ("b, s", "b, u"), ("b, t", "b, u"),
    ]  # fmt: skip
    result = made_up(["a", "b"], ["s", "t", "u"])
    for name in METRICS:  # a was run with s and t only, then b with u only
        result.data[name].loc[{"learner": "a", "hparams": "u"}] = np.nan
    pairs = [row[1:3] for row in result.compare().rows[1::2]]
    assert pairs == [["a, s", "a, t"], ["a, s", "b, s"], ["a, t", "b, t"], ["b, s", "b, t"], ["b, s", "b, u"],
                     ["b, t", "b, u"]]  # fmt: skip
    for name in METRICS:
        result.data[name].loc[{"learner": "b", "hparams": ["s", "t"]}] = np.nan
    pairs = [row[1:3] for row in result.compare().rows[1::2]]
    assert pairs == [["a, s", "a, t"], ["a, s", "b, u"], ["a, t", "b, u"]]


def test_the_exact_sign_flip_test_is_the_enumeration():
    values = np.array([0.5, -1.0, 2.0, 3.0, -0.2])
    sums = [abs(np.dot(signs, values)) for signs in itertools.product([1, -1], repeat=5)]
    assert significance.sign_flip_p(values) == pytest.approx(np.mean([s >= values.sum() - 1e-12 for s in sums]))
    assert np.isnan(significance.sign_flip_p(np.array([1.0])))
    assert significance.sign_flip_p(np.zeros(5)) == 1


@pytest.mark.parametrize("n", [8, 40, 1200])
def test_under_the_null_hypothesis_p_values_are_uniform(n):
    """400 samples; the count of p <= 0.1 is binomial with mean 40 and standard deviation 6, and 4 of these are 24."""
    samples = np.random.default_rng(n).normal(size=(400, n))
    p = np.array([significance.sign_flip_p(values) for values in samples])
    assert 16 <= (p <= 0.1).sum() <= 64
    shifted = np.array([significance.sign_flip_p(values + 1.5) for values in samples[:20]])
    assert (shifted < 0.05).mean() > 0.8  # and where the null hypothesis is false, it is rejected


def test_holm_by_hand():
    """Sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1, and never below the one before: 0.04, 0.06, 0.06, 0.5."""
    frame = significance.with_holm(pd.DataFrame({"p": [0.03, 0.01, np.nan, 0.5, 0.02]}))
    np.testing.assert_allclose(frame.p_holm, [0.06, 0.04, np.nan, 0.5, 0.06])
    assert significance.with_holm(pd.DataFrame({"p": [0.9, 0.8]})).p_holm.tolist() == [1, 1]


def test_ranks_by_hand():
    first, second = made_up(["a", "b", "c"]), made_up(["a", "b", "c"])
    second.data.strong_regret[0] = 1e9  # the second environment: a is last, and b and c are equal
    second.data.strong_regret[2] = second.data.strong_regret[1]
    frame = comparison.rank_frame([("x", first.data), ("y", second.data)])
    ranks = frame.set_index("learner").strong_regret_rank
    assert ranks.to_dict() == {"a": (1 + 3) / 2, "b": (2 + 1.5) / 2, "c": (3 + 1.5) / 2}
    assert frame.set_index("learner").strong_regret_first.to_dict() == {"a": 1, "b": 1, "c": 1}
    assert frame.set_index("learner").strong_violation_rank.to_dict() == {"a": 1, "b": 2, "c": 3}
    assert "2.00" in comparison.rank_table(frame)
    columns = [f"strong_{name}_{kind}" for name in ("regret", "violation") for kind in ("rank", "first")]
    assert list(frame.columns) == ["learner", "environments", *columns]
    assert frame.index.tolist() == [0, 1, 2]
    fewer = comparison.rank_frame([("x", first.data), ("y", made_up(["b", "c", "d"]).data)])
    assert set(fewer.learner) == {"b", "c"}
    with pytest.raises(ValueError, match="fewer than two learners were run on all environments"):
        comparison.rank_frame([("x", first.data), ("y", made_up(["c", "d"]).data)])


def test_the_command_corrects_for_all_that_it_prints(tmp_path, capsys):
    flags = ["--learner", "uniform", "cpd_oppo", "optdual", "--env", "hard", "--episodes", "20", "40", "--seeds", "8"]
    assert cli.main(["run", *flags, "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert cli.main(["compare", str(tmp_path), "--metric", "strong_violation"]) == 0
    printed = capsys.readouterr().out
    assert "hard, T = 20\n" in printed
    assert "correction for 6 comparisons" in printed
    assert "ranks over 2 environments" in printed
    assert cli.main(["compare", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["pairs"]) == 12
    assert {row["T"] for row in found["pairs"]} == {20, 40}
    assert all(row["p_holm"] >= row["p"] for row in found["pairs"])
    assert len(found["ranks"]) == 3
    assert cli.main(["compare", str(tmp_path), "--metric", "regret"]) == 2
    assert "no metric 'regret'" in capsys.readouterr().err


def test_the_tables_of_pairs_and_ranks_are_those_of_their_frames():
    row = {
        "instance": 3, "instance_name": "box", "metric": "strong_regret", "a": "x", "b": "y", "difference": -12.0,
        "low": -15.5, "high": -8.25, "effect_size": -1.234, "a_lower": 0.75, "p": 0.0004, "seeds": 4, "episode": 9,
        "p_holm": 0.0004,
    }  # fmt: skip
    table = comparison.pairs_table(pd.DataFrame([row]), "head")
    assert table.rows[1:] == [["strong_regret", "x", "y", "-12.00", "[-15.50, -8.25]", "-1.23", "75%", "< 0.001", "9"]]
    assert table.splitlines()[0] == "head"
    assert "correction for 1 comparisons" in table
    other = row | {"instance": 4, "effect_size": np.nan, "p_holm": 0.001}
    table = comparison.pairs_table(pd.DataFrame([row, other, other | {"p_holm": np.nan}]), note=False)
    assert [line[0] for line in table.rows] == ["instance", "box (3)", "box (4)", "box (4)"]
    assert [line[-4:-1] for line in table.rows[2:]] == [["-", "75%", "0.001"], ["-", "75%", "-"]]
    assert not table.notes
    frame = comparison.rank_frame([("x", made_up(["a", "b"]).data), ("y", made_up(["a", "b"]).data)])
    assert comparison.rank_table(frame).rows[1:] == [["a", "1.00", "2", "1.00", "2"], ["b", "2.00", "0", "2.00", "0"]]
    assert comparison.rank_table(frame).head.startswith("ranks over 2 environments")


def test_from_15_seeds_on_the_sign_flip_test_samples():
    """With 14 all patterns are tried; equal signs have 2 of 2^n patterns as far as the data in both cases."""
    assert significance.sign_flip_p(np.ones(14)) == 2 / 2**14
    assert significance.sign_flip_p(np.ones(30)) == 2 / 2**30
    assert significance.sign_flip_p(np.array([1.0, -1.0] * 20)) == 1
    values = np.random.default_rng(0).normal(0.05, 1, 1000)
    z = values.sum() / np.sqrt((values**2).sum())
    assert significance.sign_flip_p(values) == pytest.approx(2 * (1 - NormalDist().cdf(abs(z))))


@pytest.mark.parametrize("shift", [1.2, 1.6, 2.0])
def test_small_p_values_are_those_of_all_patterns(shift):
    """The sample of the tail has a standard error below 5 %."""
    values = np.random.default_rng(3).normal(shift, 1, 16)
    values[3] = 0.0
    patterns = 1.0 - 2.0 * ((np.arange(2**16)[:, None] >> np.arange(16)) & 1)
    exact = (np.abs(patterns @ values) >= abs(values.sum()) * (1 - 1e-12)).mean()
    assert exact < 0.01
    assert significance.tail_p(values) == pytest.approx(exact, rel=0.15)
    assert significance.tail_p(-3 * values) == pytest.approx(significance.tail_p(values))


@pytest.mark.parametrize("n", [40, 64])
def test_a_clear_difference_stays_significant_among_thousands_of_comparisons(n):
    """A mean of six standard errors has a normal p value of 2e-9; 20,000 sign patterns resolve only 5e-5."""
    values = np.random.default_rng(1).normal(0, 1, n)
    values += 6 / np.sqrt(n) - values.mean()
    p = np.append(np.full(1999, 0.5), significance.sign_flip_p(values))
    assert significance.with_holm(pd.DataFrame({"p": p})).p_holm.iloc[-1] < 0.001
