"""What a person types and sees: lists with meanings, numbers as 1e5, tables that fit, lines in a log, the version."""

from __future__ import annotations

import io
import json
import re

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.cli import flags, listing
from cpdpo_jax.common.text import format_number
from cpdpo_jax.simulation import progress
from cpdpo_jax.sweeps import config
from cpdpo_jax.sweeps.load import format_rows


def test_version(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"cpdpo {cp.__version__}\n"


def test_list_says_what_can_be_set_and_both_presets_values(capsys):
    assert cli.main(["list", "cpdpo"]) == 0
    printed = capsys.readouterr().out
    row = next(line.split() for line in printed.splitlines() if line.strip().startswith("dual_cap"))
    assert [float(row[1]), float(row[2])] == [6, 12]  # (L+1)/rho = 6/0.5, and half of it
    assert "the larger of the two multipliers" in printed
    assert cli.main(["list", "cpdpo", "--json"]) == 0
    assert {"learning_rate", "clip"} <= {row["name"] for row in json.loads(capsys.readouterr().out)["hyperparameters"]}
    assert cli.main(["list", "uniform"]) == 0
    assert "no hyperparameters" in capsys.readouterr().out


def test_every_hyperparameter_of_every_learner_has_a_meaning():
    package = [
        name for name in cp.learners.names() if (cp.learners.get(name).update.__module__ or "").startswith("cpdpo_jax")
    ]
    assert len(package) > 8
    silent = [(name, row["name"]) for name in package for row in listing.hyperparameters(cp.learners.get(name))
              if not row["means"]]  # fmt: skip
    assert silent == []


def test_whole_numbers_may_be_written_with_an_exponent():
    table = {"learners": "uniform", "environments": "hard", "episodes": [1e4, 100_000.0], "seeds": 1e2, "block": 64.0}
    built = config.build(table)
    assert (built.episodes, built.seeds, built.block) == ([10_000, 100_000], 100, 64)
    assert built == config.build(table | {"episodes": [10_000, 100_000], "seeds": 100, "block": 64})
    with pytest.raises(ValueError, match=r"episodes = 1.5 is not a whole number"):
        config.build(table | {"episodes": 1.5})


@pytest.mark.parametrize(("text", "seeds"), [("64", 64), ("1e2", 100), ("5,7,9", [5, 7, 9]), ("3-5,8", [3, 4, 5, 8])])
def test_seeds_by_flag(text, seeds):
    assert flags.parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["5,x", "9-5", "1-2-3"])
def test_seeds_that_are_none(text):
    with pytest.raises(ValueError, match="give 64, or 5,7,9, or 64-127"):
        flags.parse_seeds(text)


@pytest.mark.parametrize("text", [f"5,{'9' * 5000}", f"5,{'9' * 11}", "0-99999999999", f"0,5-{5 + config.MAX_SIZE}"])
def test_seeds_that_are_too_large(text):
    with pytest.raises(ValueError, match=r"^seeds = '[-0-9]{1,30}' is too large; give at most [0-9,]+, below 2\^32\.$"):
        flags.parse_seeds(text)


def test_help_names_every_key_of_the_file(capsys):
    assert cli.main(["run", "--help"]) == 0
    section = capsys.readouterr().out.partition("keys of the file")[2]
    words = set(re.findall(r"[a-z_]+", section))
    assert set(config.KEYS) <= words


def rows(learners, environment="random:layers=4", **more):
    four = {"mean": 12345.678, "low": 12000.0, "high": 12800.0, "median": 1.0}
    names = ("strong_regret", "weak_regret", "strong_violation", "weak_violation")
    base = {
        "environment": environment,
        "episodes": 1000,
        "instance": 0,
        "hparams": "tuned",
        "seeds": 4,
        "units": "",
        "extra_knowledge": "",
        "worst_constraint": "",
    }
    return [base | {"learner": name} | dict.fromkeys(names, four) | more for name in learners]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_tables_fit_a_terminal(width):
    text = format_rows(rows(["cpdpo", "regularized_primal_dual"], hparams="theory, learning_rate=x0.5"), width)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("12,346 ± 400") == 8
    assert "random:layers=4, T = 1,000, 4 seeds" in text


def test_numbers_have_one_style():
    shown = [format_number(x) for x in (0.0, 0.0001234, 0.12345, 12.345, 1234.5, 123456.7, 1.2345e9, -56789.0)]
    assert shown == ["0", "1.23e-04", "0.1235", "12.35", "1,234", "123,457", "1.23e+09", "-56,789"]


def test_a_log_gets_a_line_now_and_then(monkeypatch):
    clock = iter(range(0, 10_000, 7))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    out = io.StringIO()
    with progress.Lines(100, out) as bar:
        bar.set_description("cpdpo on hard")
        for _ in range(25):
            bar.update(4)
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) <= 4  # 25 updates of 7 seconds each, one line a minute
    assert lines[0] == "cpdpo: 8% of 100 episodes after 14 s, about 161 s left (cpdpo on hard)"


def test_a_log_says_what_is_being_compiled(monkeypatch):
    monkeypatch.setattr(progress, "FIRST", 0.01)
    out = io.StringIO()
    with progress.Lines(100, out) as bar:
        bar.set_description("cpd_oppo: compiling")
        bar.waiting.join(60)
        assert not bar.waiting.is_alive()
    assert out.getvalue() == "cpdpo: 0% of 100 episodes after 0 s (cpd_oppo: compiling)\n"


def test_a_file_gets_lines_and_no_bar(monkeypatch):
    monkeypatch.setattr(progress.sys, "stderr", io.StringIO())
    assert isinstance(progress.progress_bar(10), progress.Lines)
    assert progress.progress_bar(10, show=False).disable
