"""What the README says is run, and its lists match the code."""

from __future__ import annotations

import re
from pathlib import Path

import cpdpo_jax as cp

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_the_learner_of_ones_own_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(example.splitlines()) < 40
    scope: dict = {}
    exec(compile(example, "README.md", "exec"), scope)
    assert "myopic" in cp.learners.names()
    regret = scope["result"].data.weak_regret.isel(episode=-1, instance=0).mean("seed")
    # greedier on rewards earns more: a hundred times the float32 noise of 2,000 episodes
    cold, warm = (float(regret.sel(learner="myopic", setting=f"tuned, temperature={t}")) for t in (0.05, 0.5))
    assert cold < warm - 0.2
    assert "myopic" in capsys.readouterr().out


def test_the_deviations_of_the_readme_are_those_of_the_code():
    section = README.split("## Deviations from the paper")[1].split("\n## ")[0]
    listed = set(re.findall(r"^- `([a-z-]+)`:", section, re.MULTILINE))
    marked = set()
    for path in [*(ROOT / "cpdpo_jax/kernels").glob("*.py"), *(ROOT / "cpdpo_jax/learners").glob("*.py")]:
        marked |= set(re.findall(r"Deviation: `?([a-z-]+)", path.read_text()))
    assert listed == marked


def test_every_function_and_test_of_the_table_exists():
    for name in re.findall(r"`(tests/[\w/]+\.py)`", README):
        assert (ROOT / name).is_file(), name
    table = README.split("| in the paper |")[1].split("\n\n")[0]
    for name in re.findall(r"`kernels\.(\w+)`", table):
        assert hasattr(cp.kernels, name), name
