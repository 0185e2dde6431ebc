"""What is given by flags reaches the run under the right name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cpdpo_jax.cli import arguments, commands, entry, flags
from cpdpo_jax.common import files
from cpdpo_jax.simulation.blocks import SNAPSHOT_SECONDS
from cpdpo_jax.sweeps import report, run, runner
from cpdpo_jax.sweeps.engine_spec import EngineSpec
from cpdpo_jax.sweeps.specification import expand
from cpdpo_jax.sweeps.store import Store


def test_hyperparameters_without_a_preset_are_those_of_tuned():
    given = flags.table(arguments.Run(hparams=("rate=x2,3",)))
    assert given["hparams"] == [{"preset": "tuned", "rate": ["x2", 3]}]
    given = flags.table(arguments.Run(hparams=("theory", "rate=x2", "tuned")))
    assert [entry["preset"] for entry in given["hparams"]] == ["theory", "tuned"]
    assert flags.table(arguments.Run(hparams=("theory",)))["hparams"] == ["theory"]


@pytest.mark.parametrize(
    ("former", "present"),
    [
        (["--setting", "theory", "--set", "rate=x2,3", "bonus=1"], ["--hparams", "theory", "rate=x2,3", "bonus=1"]),
        (["--set=rate=2", "--learner", "a", "b"], ["--learner", "a", "b", "--hparams", "rate=2"]),
        (["--hparams", "theory", "--set", "rate=2", "--json"], ["--json", "--hparams", "theory", "rate=2"]),
    ],
)
def test_former_flags_work_and_say_so(former, present, capsys):
    assert entry._with_new_names(["run", *former]) == ["run", *present]
    assert "--set is deprecated and will be removed; use --hparams NAME=VALUE." in capsys.readouterr().err
    assert entry._with_new_names(["run", *present]) == ["run", *present]
    assert not capsys.readouterr().err


class Reached(Exception):
    """The run would begin now."""


@pytest.mark.parametrize("text", ["0.05,0.1", "[0.05, 0.1]"])
def test_a_list_of_rho_by_flag(text):
    options = arguments.OptionFlags(rho=text, delta="0.1", safety="{x = 1}", checkpoints="[5, 9]")
    given = flags.table(arguments.Run(simulation=options))
    assert given == {"rho": [0.05, 0.1], "delta": 0.1, "safety": {"x": 1}, "checkpoints": [5, 9]}


def test_every_flag_of_a_run_reaches_it(tmp_path, monkeypatch):
    seen = {}

    def execute(config, out, **options):
        seen.update(options, config=config, out=out)
        raise Reached

    monkeypatch.setattr(run, "execute", execute)
    engine = arguments.EngineFlags(on="local:3", no_shared=True)
    how = arguments.ExecutionFlags(any_version=True, checkpoint_every=0.25, shard="1/3", no_lock=True)
    args = arguments.Run(
        learner=("uniform",), env=("factored",), episodes=("10",), seeds="2", out=str(tmp_path / "a"), execution=how,
        engine=engine,
    )  # fmt: skip
    with pytest.raises(Reached):
        commands.run(args)
    assert (seen["every"], seen["any_version"], seen["lock"], str(seen["shard"])) == (0.25, True, False, "1/3")
    assert (seen["engine_spec"].on, seen["engine_spec"].shared, seen["out"]) == ("local:3", False, tmp_path / "a")


@pytest.mark.parametrize("command", ["run", "resume"])
def test_what_is_done_without_flags(tmp_path, monkeypatch, command):
    """Locked, with this version only, in threads, with a snapshot as often as from Python."""
    seen = {}

    def execute(config, out, **options):
        seen.update(options, out=out)
        raise Reached

    monkeypatch.setattr(run, "execute", execute)
    monkeypatch.chdir(tmp_path)
    config = run.build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": 10, "seeds": 2})
    (tmp_path / "runs" / "uniform").mkdir(parents=True)
    Store(tmp_path / "runs" / "uniform").begin(config, {})
    flags = {
        "run": ["--learner", "uniform", "--env", "factored", "--episodes", "10", "--seeds", "2"],
        "resume": ["runs/uniform"],
    }
    with pytest.raises(Reached):
        entry.main([command, *flags[command], "--debug"])
    assert (seen["every"], seen["any_version"], seen["lock"], seen["shard"]) == (SNAPSHOT_SECONDS, False, True, None)
    assert (seen["engine_spec"], str(seen["out"])) == (EngineSpec(), "runs/uniform")


def test_the_text_of_a_dry_run(tmp_path, monkeypatch, capsys):
    """All of a run, then what is left of it."""
    measured = runner.Probe(2, 3.25, 125.0, 4.5, {"uniform on factored": 1.234})
    monkeypatch.setattr(runner, "probe", lambda *_: measured)
    flags = ["--learner", "uniform", "--env", "factored", "--episodes", "10", "20", "--seeds", "5"]
    out = tmp_path / "a"
    assert entry.main(["run", *flags, "--out", str(out), "--dry-run"]) == 0
    lanes, *lines = capsys.readouterr().out.splitlines()
    assert lanes.startswith("  uniform on factored: 16 lanes per launch")
    rest = "2 compilations took 3.2 s (cached for the run); then about 2 min; about 4.5 MB of results"
    assert lines[-2:] == [
        "  uniform on factored: 1.23 microseconds per seed and episode on one core",
        f"{out}: 2 blocks, 0 finished, 2 to run; {rest}",
    ]
    config = run.build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": [10, 20], "seeds": 5})
    blocks, store = expand(config), Store(out)
    out.mkdir()
    store.begin(config, blocks)
    files.write(store.result_path(next(iter(blocks))), b"finished")
    assert entry.main(["run", *flags, "--out", str(out), "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{out}: 2 blocks, 1 finished, 1 to run; {rest}"


def test_durations_are_rounded():
    shown = [commands._duration(seconds) for seconds in (0.4, 99.4, 100, 150, 5999, 6000, 36_000)]
    assert shown == ["0 s", "99 s", "2 min", "2 min", "100 min", "1.7 h", "10.0 h"]


def test_flags_of_a_report(tmp_path, monkeypatch, capsys):
    seen = {}

    def write(stores, out, **options):
        seen.update(options, out=out)
        return {"report": "r", "csv": "c", "latex": "l", "figures": [], "rows": []}

    monkeypatch.setattr(report, "write", write)
    config = run.build_config({"learners": ["uniform"], "environments": ["factored"], "episodes": 10, "seeds": 2})
    Store(tmp_path).begin(config, {})
    assert entry.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "report: r, csv: c, latex: l\n"
    usual = {"units": "source", "draw": True, "csv": False, "latex": False, "out": tmp_path}
    usual["metrics"] = ("strong_regret", "strong_violation")
    assert {name: seen[name] for name in usual} == usual
    more = ["--out", "b", "--no-figures", "--csv", "--latex", "--units", "learner", "--metric", "weak_regret", "--json"]
    assert entry.main(["report", str(tmp_path), *more]) == 0
    assert json.loads(capsys.readouterr().out)["latex"] == "l"
    other = {
        "units": "learner",
        "draw": False,
        "csv": True,
        "latex": True,
        "metrics": ("weak_regret",),
        "out": Path("b"),
    }
    assert {name: seen[name] for name in other} == other
