"""`experiments.speed.compare`: the times of two checkouts, here of stand-ins that report known seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.speed import compare

STAND_IN = """
from types import SimpleNamespace
envs = SimpleNamespace(make=lambda name, **parameters: parameters)
compiled = []
def simulate(learner, cmdp, *, episodes, seeds, checkpoints, progress):
    if learner == "new_learner" and {old}:
        raise ValueError("learner = 'new_learner' is unknown.")
    first = 3.0 if not compiled else 0.0
    compiled.append(learner)
    seconds = first + 0.01 + {microseconds} * 1e-6 * cmdp["states"] * episodes
    return SimpleNamespace(data=SimpleNamespace(attrs={{"seconds": seconds}}))
"""


def checkout(path: Path, microseconds: float, old: bool) -> str:
    (path / "cpdpo_jax").mkdir(parents=True)
    (path / "cpdpo_jax" / "__init__.py").write_text(STAND_IN.format(microseconds=microseconds, old=old))
    return str(path)


def test_a_table_of_ratios(tmp_path, capsys):
    trees = [checkout(tmp_path / "old", 8, True), checkout(tmp_path / "new", 2, False)]
    flags = ["--learners", "cpdpo", "new_learner", "--sizes", "3,5,2,1", "--seeds", "4", "--markdown"]
    assert compare.main([*trees, *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "| learner | size | seeds | old us | new us | new / old | first call s, old | new |",
        "|---|---|---|---|---|---|---|---|",
        "| cpdpo | 3 x 5 x 2, 1 | 4 | 40 | 10 | 0.25 | 3.0 | 3.0 |",
        f"| new_learner | 3 x 5 x 2, 1 | 4 | {trees[0]}: ValueError: learner = 'new_learner' is unknown. |  |  |  |  |",
    ]


def test_a_directory_without_the_package_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        compare.main([str(tmp_path), str(tmp_path)])
    assert "give a checkout of the repository" in capsys.readouterr().err
