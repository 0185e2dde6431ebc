"""Tables of numbers: the data frame, one format per column, the worst constraint by name, LaTeX."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.common.text import column_format
from cpdpo_jax.results import latex
from cpdpo_jax.results.statistics import METRICS, bootstrap_mean
from cpdpo_jax.results.tables import common_hparams
from tests.results.support import made_up


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([52_400_000, 1_198_607], ["5.24e+07", "1.20e+06"]),  # one has ten million: all have powers of ten
        ([-0.5194, 37], ["-0.52", "37.00"]),
        ([9662.1, 57.4], ["9,662", "57"]),
        ([9662.1, 0.04], ["9,662.1", "0.0"]),
        ([1e-5, 2e-6], ["1.00e-05", "2.00e-06"]),
        ([0.0, float("nan"), 12.0], ["0.00", "-", "12.00"]),
        ([0.0], ["0"]),
    ],
)
def test_a_column_has_one_format(values, expected):
    shown = column_format(values)
    assert [shown(value) for value in values] == expected


def test_the_summary_frame_has_numbers():
    result = made_up(["a", "b"], ["s", "t"], constraints=2)
    frame = result.summary_frame()
    assert len(frame) == 2 * 2 * 4
    row = frame[(frame.learner == "b") & (frame.hparams == "s") & (frame.metric == "strong_violation")].iloc[0]
    ends = result.data.strong_violation.isel(learner=1, hparams=0, instance=0, episode=-1).max("constraint").values
    low, high = bootstrap_mean(ends)
    assert (row["mean"], row.low, row.high) == pytest.approx((ends.mean(), low, high))
    assert row.per_episode == pytest.approx(ends.mean() / 10_000)
    assert (row.worst_constraint, row.worst_share, row.unit, row.seeds) == (0, 1.0, "cost", 6)
    assert frame[frame.metric == "strong_regret"].worst_constraint.isna().all()


def test_decimals_are_the_same_in_each_column():
    table = made_up(["a", "b"]).summary()
    for column in (4, 6, 7):
        decimals = {len(row[column].partition(".")[2]) for row in table.rows[1:]}
        assert len(decimals) == 1


def test_the_table_says_which_constraint_was_the_worst():
    result = made_up(["a"], constraints=2)
    result.data.strong_violation[..., :2, :, 1] = 1e9  # in two of six seeds the second
    data = result.data.assign_attrs(unit_names=json.dumps(["dollars", "visitors", "kilograms"]), shown_units="source")
    ones = {name: ("instance", [1.0]) for name in ("reward_scale",)}
    data = data.assign(ones).assign(cost_scale=(("constraint", "instance"), [[1.0], [1.0]]))
    data = data.assign(reward_offset=("instance", [0.0]), cost_offset=(("constraint", "instance"), [[0.0], [0.0]]))
    table = cp.Result(data).summary()
    assert "worst constraint" in table.splitlines()[1]
    strong = next(line for line in table.splitlines() if "strong_violation" in line)
    assert strong.endswith("0 (visitors) in 67% of seeds")
    assert "worst constraint" not in made_up(["a"]).summary()
    frame = result.summary_frame()
    assert frame[frame.metric == "strong_violation"].worst_share.item() == pytest.approx(4 / 6)
    result.data.strong_violation[..., :2] = 1.0  # equal in all seeds: the first, by all of them
    data = result.data.assign(strong_violation=result.data.strong_violation * [1.0, 0.5])
    frame = cp.Result(data).summary_frame()
    assert frame[frame.metric == "strong_violation"].worst_share.item() == 1


def test_latex_has_intervals_and_the_least_in_bold():
    result = made_up(["a_b", "lp_optimal", "c"], instances=2)
    text = result.to_latex(metrics=["strong_regret", "weak_regret"], caption="Ours & theirs", label="tab:x")
    assert text.count(r"\textbf") == 2  # for each instance the strong regret of one; weak metrics have no best
    rows = [line for line in text.splitlines() if line.startswith(r"a\_b")]
    mean = result.data.strong_regret.isel(learner=0, instance=0, hparams=0, episode=-1).values
    assert len(rows) == 2
    assert rf"\textbf{{{mean.mean():.0f}}} [" in rows[0]
    assert r"\multicolumn{3}{@{}l@{}}{\textit{cmdp1 (1)}}" in text
    assert r"\caption{Ours & theirs}" in text
    assert r"\label{tab:x}" in text
    assert "begin{table}" not in result.to_latex()
    for only, other in (("caption", "label"), ("label", "caption")):
        text = result.to_latex(**{only: "x"})  # pyright: ignore[reportArgumentType]
        assert rf"\begin{{table}}{chr(10)}\centering{chr(10)}\{only}{{x}}" in text
        assert rf"\{other}" not in text
    best = made_up(["lp_optimal", "c"]).to_latex(metrics="strong_regret")  # the least is a reference's
    assert r"\textbf" not in best.partition("lp")[2].splitlines()[0]
    with pytest.raises(ValueError, match="no metric 'regret'"):
        result.to_latex(metrics="regret")  # pyright: ignore[reportArgumentType]
    assert latex.escaped("~&$#{}") == r"\textasciitilde{}\&\$\#\{\}"
    assert latex.escaped(r"a_b\c^%") == r"a\_b\textbackslash{}c\textasciicircum{}\%"


@pytest.mark.parametrize("hparams", [["tuned"], ["tuned", "theory"]])
@pytest.mark.parametrize("instances", [1, 2])
def test_rows_of_the_latex_table_have_a_cell_per_column(hparams, instances):
    text = made_up(["a", "b"], hparams, instances=instances).to_latex(metrics=["strong_regret", "strong_violation"])
    heads, units, *rows = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if " & " in line]
    first = ["Learner", *["Hparams"] * (len(hparams) > 1)]
    assert heads == [*first, "Strong regret", "Strong violation"]
    assert units == [*[""] * len(first), "(reward)", "(cost)"]
    assert [len(row) for row in rows] == [len(heads)] * (2 * len(hparams) * instances)
    assert f"{{@{{}}{'l' * (len(heads) - 2)}rr@{{}}}}" in text
    assert len(hparams) == 1 or [row[1] for row in rows] == hparams * (2 * instances)


def test_a_column_of_latex_shows_the_lowest_end_with_a_decimal():
    """The means are above 10 and one low end is below: all numbers of the column have a decimal."""
    result = made_up(["a", "b"])
    result.data.strong_regret[0, ..., -1] = [9_000.0, 1, 1, 1, 1, 90_000]
    result.data.strong_regret[1, ..., -1] = 50_000.0
    row = next(line for line in result.to_latex(metrics="strong_regret").splitlines() if line.startswith("b"))
    assert row == r"b & 50,000.0 [50,000.0, 50,000.0] \\"


RHO = [f"tuned, rho={rho}" for rho in (0.05, 0.1, "solve")]
LONG = ["regularized_primal_dual", "unconstrained_optimal", "optpess_primaldual", "uniform"]


@pytest.mark.parametrize(
    ("learners", "hparams", "metrics", "stacked", "scaled"),
    [
        (["a", "b"], ["tuned"], ["strong_regret"], False, False),
        (["a", "b"], ["tuned"], METRICS, True, False),
        (LONG, RHO, ["strong_regret"], False, False),
        (LONG, RHO, ["strong_regret", "strong_violation"], False, False),
        (LONG, RHO, METRICS[:3], True, False),
        (LONG, [f"{label}, delta=0.05, safety=0.3" for label in RHO], METRICS, True, True),
    ],
)
def test_a_wide_latex_table_has_intervals_below_its_means_and_a_wider_one_is_scaled(
    learners, hparams, metrics, stacked, scaled
):
    text = made_up(learners, hparams).to_latex(metrics=metrics)
    assert (r"\*[-0.4ex]" in text, "resizebox" in text) == (stacked, scaled)
    assert text.splitlines()[0].startswith(
        rf"% needs \usepackage{{{'booktabs, graphicx' if scaled else 'booktabs'}}}; mean"
    )


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
@pytest.mark.parametrize(
    ("result", "options"),
    [
        (made_up(["a_b", "c^2~"], ["s%", "t"], instances=2), {"caption": "x"}),
        (made_up(LONG, RHO), {}),
        (made_up(LONG, RHO), {"metrics": METRICS}),
        (made_up(LONG, [f"tuned, learning_rate=x{x}, delta=0.05, safety=0.3" for x in (0.5, 1, 2)]), {}),
        (made_up(LONG, RHO, instances=9), {"caption": "many rows", "label": "tab:a"}),
        (made_up([f"learner{i}" for i in range(70)]), {}),
        (made_up(LONG, episodes=10_000_000), {"metrics": METRICS, "caption": "large"}),
    ],
)
def test_latex_fits_a_page(tmp_path, result, options):
    (tmp_path / "t.tex").write_text(result.to_latex(**options))
    _compile(tmp_path)


def _compile(folder):
    """Raise if LaTeX stops, or if something is wider or higher than the page."""
    packages = r"\usepackage{booktabs,graphicx}"
    page = rf"\documentclass{{article}}{packages}\begin{{document}}\input{{t}}\end{{document}}"
    (folder / "a.tex").write_text(page)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-1000:]
    assert "Overfull" not in done.stdout, done.stdout[-1000:]
    assert "too large" not in done.stdout, done.stdout[-1000:]


def test_what_all_hparams_share_is_left_out_of_the_latex_table():
    text = made_up(["a", "b"], RHO).to_latex()
    assert "% hparams of all rows: tuned" in text
    assert re.findall(r"^a & (.*?) &", text, re.MULTILINE) == ["rho=0.05", "rho=0.1", "rho=solve"]
    assert common_hparams(["tuned", "tuned, rho=1"]) == ("", ["tuned", "tuned, rho=1"])
    assert common_hparams(["tuned, T = 20", "tuned, T = 1,000"]) == ("tuned", ["T = 20", "T = 1,000"])
    assert common_hparams(["tuned"]) == ("", ["tuned"])


def test_the_report_writes_a_table_for_latex(tmp_path, capsys):
    flags = ["--learner", "uniform", "cpd_oppo", "--env", "hard", "--episodes", "20", "40", "--seeds", "4"]
    assert cli.main(["run", *flags, "--out", str(tmp_path)]) == 0
    assert cli.main(["report", str(tmp_path), "--no-figures", "--latex"]) == 0
    assert f"latex: {tmp_path / 'table.tex'}" in capsys.readouterr().out
    text = (tmp_path / "table.tex").read_text()
    assert re.findall(r"textit\{(.*?)\}", text) == ["hard", "T = 20", "T = 40"]
    assert "Weak" not in text
    assert text.count("cpd\\_oppo &") == 2
    assert np.char.count(text, "toprule") == 1
    assert cli.main(["report", str(tmp_path), "--no-figures", "--latex", "--metric", "weak_regret"]) == 0
    text = (tmp_path / "table.tex").read_text()
    assert "Weak regret" in text
    assert "Strong" not in text


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="pdflatex is not installed")
def test_each_environment_has_a_table_that_fits(tmp_path):
    name = "random:layers=2,states=2,actions=2,constraints=2,rho=0.5,key={},concentration=0.33333,noise=deterministic"
    parts = [made_up(LONG, RHO, episodes=T) for T in (1000, 100_000)]
    runs = [(name.format(i), part.data) for i in range(5) for part in parts]
    text = latex.latex_table(runs)
    assert text.count("toprule") == 5
    (tmp_path / "t.tex").write_text(text)
    _compile(tmp_path)
