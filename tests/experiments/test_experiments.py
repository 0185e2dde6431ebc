"""Every experiment at its tiny scale, from nothing by its command, and again from what it stored."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cpdpo_jax as cp
from experiments import common
from experiments.ablation.gradient import GRADIENT
from experiments.adversarial import measure as adversarial
from experiments.cancellation.analysis import sign_changes
from experiments.cost import measure
from experiments.tuning import sweep as tuning

ROOT = Path(__file__).parents[2]
NAMES = (
    "growth", "rivals", "cancellation", "slater", "no_slater", "cost", "suite", "theory", "ablation", "adversarial",
    "ops",
)  # fmt: skip


def command(name: str, *arguments: str) -> int:
    return importlib.import_module(f"experiments.{name}.__main__").EXPERIMENT.main(["--scale", "tiny", *arguments])


def never(*_args, **_options):
    raise AssertionError("what is stored is not run again")


SIMILAR = ("rivals", "cancellation", "slater", "no_slater", "suite", "theory", "ablation", "adversarial", "ops")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in SIMILAR)) for name in NAMES]
)
def test_from_nothing_and_again_from_what_is_stored(name, tmp_path, capsys, monkeypatch):
    out = ("--out", str(tmp_path))
    assert command(name, *out) == 0
    table = capsys.readouterr().out
    assert len(table.splitlines()) > 5
    assert table == (tmp_path / "table.txt").read_text() + "\n"
    assert "|---|" in (tmp_path / "table.md").read_text()
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    assert drawn
    assert drawn == {path.stem for path in tmp_path.glob("*.pdf")}
    monkeypatch.setattr(cp, "run", never)
    monkeypatch.setattr(measure, "measure", never)
    monkeypatch.setattr(adversarial, "play", never)
    assert command(name, *out) == 0
    assert capsys.readouterr().out == table


@pytest.mark.exhaustive
def test_a_run_that_was_killed_goes_on_with_what_is_missing(tmp_path, capsys, monkeypatch):
    out = ("--out", str(tmp_path))
    assert command("theory", *out) == 0
    table = capsys.readouterr().out
    blocks = tmp_path / "constraints_1-cpdpo-50" / "blocks"
    (block,) = blocks.iterdir()
    block.rename(blocks / f".{block.name}.1.unfinished")
    assert command("theory", *out, "--analysis") == 2
    assert "lacks constraints_1-cpdpo-50" in capsys.readouterr().err
    ran, run = [], cp.run

    def counted(config, directory, on):
        ran.append(directory.name)
        return run(config, directory, progress=False)

    monkeypatch.setattr(cp, "run", counted)
    assert command("theory", *out) == 0
    assert ran == ["constraints_1-cpdpo-50"]
    assert capsys.readouterr().out == table  # the same bits
    assert command("theory", *out, "--analysis") == 0
    assert capsys.readouterr().out == table
    assert list(blocks.iterdir()) == [block]


def test_a_result_of_another_question_is_refused(tmp_path):
    def cell(episodes: int) -> common.Cell:
        return common.Cell("one", "uniform", {"name": "hard", "layers": 2}, {"episodes": episodes, "seeds": 2})

    common.run(tmp_path, [cell(3)])
    assert common.load(tmp_path, [cell(3)])["one"].data.sizes["seed"] == 2
    for use in (common.run, common.load):
        with pytest.raises(ValueError, match="one holds a run of another configuration; delete it"):
            use(tmp_path, [cell(4)])


def test_ctrl_c_stores_nothing_half_done(tmp_path, capsys, monkeypatch):
    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cp, "run", stopped)
    assert command("growth", "--out", str(tmp_path)) == 130
    assert "the same command resumes" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_score_of_tuning_sees_a_few_bad_seeds():
    even, one_stuck = np.full(16, 2.0), np.array([1.0] * 15 + [17.0])
    assert even.mean() == one_stuck.mean()
    assert tuning.with_tail(even) == 2
    assert tuning.with_tail(one_stuck) == (2 + (3 * 1 + 17) / 4) / 2
    np.testing.assert_array_equal(tuning.with_tail(np.stack([even, one_stuck])), [2, 3.5])
    assert tuning.with_tail(np.array([1.0, 3.0])) == 2.5  # of two seeds the worse


@pytest.mark.exhaustive
def test_tuning_runs_all_hparams_of_a_learner_and_the_best_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tuning, "STORE", tmp_path)
    monkeypatch.setattr(tuning, "CHOICES", 3)
    monkeypatch.setattr(tuning, "FINALISTS", 2)
    monkeypatch.setattr(tuning, "EPISODES", (10, 20))
    tuning.search("optdual", run=True)
    result = common.load(tmp_path, tuning.cells("optdual", 0, [0, 1, 2]))["optdual-constraints_2-10"]
    loose = cp.envs.make("random", key=1000, tightness=0.5, layers=5, states=5, actions=3, constraints=2)
    assert result.data.sizes["instance"] == 2  # without `fixed_cost`: it needs a Slater point
    np.testing.assert_array_equal(result.data.threshold.values[:, 0], loose.threshold)
    first, second = capsys.readouterr().out.split("\n\n")[:2]
    assert first.startswith("optdual, T = 10 (median score")
    assert second.startswith("optdual, T = 20 (median score")
    drawn = []
    for text, n in ((first, 3), (second, 2)):
        rows = [line.split() for line in text.splitlines() if line[:1].isdigit()]
        assert len(rows) == n
        assert [float(row[0]) for row in rows] == sorted(float(row[0]) for row in rows)
        drawn.append([row[1:4] for row in rows])
    assert sorted(drawn[1]) == sorted(drawn[0][:2])  # the best of the first round


def test_the_command_of_the_readme_is_there_and_explains_itself():
    done = subprocess.run(
        [sys.executable, "-m", "experiments.growth", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert "--analysis" in done.stdout
    for name in NAMES:
        readme = (ROOT / "experiments" / name / "README.md").read_text()
        assert f"`python -m experiments.{name} --scale small`" in readme
        for word in ("**Question.**", "**Claim tested.**", "**Command.**", "**Figure.**", "**Answer"):
            assert word in readme, (name, word)


def test_sign_changes_by_hand():
    gaps = np.array([[1.0, -1.0, 0.0, -2.0, 3.0], [1.0, 1.0, 0.0, 1.0, 1.0]])
    assert sign_changes(gaps).tolist() == [2.0, 0.0]


def test_a_huge_gradient_step_is_the_binary_choice():
    cmdp = cp.envs.make("random", layers=3, states=2, actions=2, constraints=1, rho=0.1, key=2)
    # float32: |V - alpha| above 1e-7 times the rate 1e9 is beyond any cap, on both sides
    results = [
        cp.simulate(one, cmdp, episodes=100, seeds=3, hparams=hparams, progress=False)
        for one, hparams in (("cpd_oppo", "tuned"), (GRADIENT, {"dual_rate": 1e9}))
    ]
    choice, step = (result.data.isel(learner=0, hparams=0) for result in results)
    assert choice.multiplier.values.max() > 0
    np.testing.assert_array_equal(choice.multiplier.values, step.multiplier.values)
    np.testing.assert_array_equal(choice.strong_regret.values, step.strong_regret.values)


@pytest.mark.slow
def test_a_measurement_in_a_process_of_its_own_and_its_limit(monkeypatch):
    monkeypatch.chdir(ROOT)
    sizes = {"layers": 2, "states": 2, "actions": 2, "constraints": 1}
    found = measure.apart("uniform", sizes, 32, 0.01, 300)
    assert len(found["microseconds"]) == measure.REPEATS
    assert found["sizes"] == sizes
    assert measure.apart("uniform", sizes, 32, 0.01, 0.1)["skipped"] == "over 0.1 s"
