"""The typed surface: the options' types match `Options`, exports are literal, and pyright finds every wrong call."""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import cpdpo_jax as cp
from cpdpo_jax.simulation.options import OPTION_NAMES, Options, OptionValues

ROOT = Path(__file__).parent.parent
PYRIGHT = shutil.which("pyright") or shutil.which("pyright", path=str(Path(sys.executable).parent))
LAZY = ("cpdpo_jax", "cpdpo_jax.envs")  # packages whose names load on first use
PLUMBING = {"importlib", "annotations", "TYPE_CHECKING", "Any", "xla_options", "_WHERE"}

MISTAKES = """
import numpy as np

import cpdpo_jax as cp

cmdp = cp.envs.make("factored")
result = cp.simulate("uniform", cmdp, episodes=5, seeds=1, hparams=["tuned", {"preset": "theory"}], rho=[0.1, "solve"])
train = cp.make_train("cpdpo", cmdp, episodes=5, dtype=np.float64, checkpoints=[1, 5])
learner: cp.learners.Learner = cp.learners.get("cpdpo")
cp.learners.register(learner)
cp.learners.check(learner, constraints=1)

cp.simulate("cpdpo", cmdp, episodes=5)  # wrong
cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, hparams=3)  # wrong
cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, horizon="doubled")  # wrong
cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, monitor="yes")  # wrong
cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, dtype="float16")  # wrong
cp.simulate("cpdpo", cmdp, episodes=5, seeds=1, checkpoint=5)  # wrong
cp.simulate(3, cmdp, episodes=5, seeds=1)  # wrong
cp.make_train("cpdpo", cmdp, episodes="5")  # wrong
cp.make_train("cpdpo", cmdp, episodes=5, delta="small")  # wrong
cp.run(["cpdpo"], "out")  # wrong
cp.run({"learners": ["cpdpo"]}, "out", shard=1)  # wrong
cp.load_run(3)  # wrong
cp.concat(result)  # wrong
cp.plot_growth(result)  # wrong
cp.play_losses("podb", cmdp, losses=3, seeds=1)  # wrong
cp.plot_losses(result)  # wrong
cp.solve("factored")  # wrong
cp.stack(cmdp)  # wrong
cp.unstack([cmdp])  # wrong
cp.save_cmdp(cmdp, "a.npz")  # wrong
cp.load_cmdp(cmdp)  # wrong
cp.make_cmdp([], [], [])  # wrong
cp.from_arrays([], [], [], 1, horizon="5")  # wrong
cp.from_episodic([], [], [], 1)  # wrong
cp.from_gymnasium("CliffWalking-v1", threshold=1, horizon=5)  # wrong
cp.to_gymnasium("factored")  # wrong
cp.learners.get(3)  # wrong
cp.learners.get("cpdpo").nmae  # wrong
cp.learners.register(3)  # wrong
cp.learners.unregister(learner)  # wrong
cp.learners.check(3)  # wrong
cp.learners.names(1)  # wrong
cp.learners.recentred(3, "mask")  # wrong
cp.learners.softmax_policy(3)  # wrong
cp.learners.uniform_policy("mask", 3)  # wrong
cp.envs.make(3)  # wrong
cp.envs.help(3)  # wrong
cp.envs.names("random")  # wrong
cp.envs.defaults(cmdp)  # wrong
cp.envs.register(3)  # wrong
cp.envs.register(lambda: 3)  # wrong
cp.envs.unregister(3)  # wrong
cp.envs.best_fixed_policy(cmdp, 3)  # wrong
cp.envs.fixed_policy_regret(cmdp, 3, [])  # wrong
cp.envs.chasing(cmdp)  # wrong
cp.envs.drifting("factored", episodes=5)  # wrong
cp.envs.periodic(cmdp, episodes="5")  # wrong
cp.envs.switching(cmdp, episodes=5, switches="9")  # wrong
cp.envs.layer_states([])  # wrong
cp.envs.original_units(3, 1, 1)  # wrong
cp.envs.grid_of(3)  # wrong
cp.envs.draw_cmdp("factored")  # wrong
cp.envs.draw_grid_policy("cliff", "cliff", 3)  # wrong
cp.envs.tabulate()  # wrong
cp.nothing  # wrong
cp.envs.nothing  # wrong
cp.learners.nothing  # wrong
result.metric(3)  # wrong
result.save(3)  # wrong
result.nothing  # wrong
train.keys("five")  # wrong
train.n_hparam  # wrong
cp.kernels.action_value("P", "pi", "v")  # wrong
cp.kernels.bernstein_width("a", "b")  # wrong
cp.kernels.confidence_set(3)  # wrong
cp.kernels.dilated_bonus("x")  # wrong
cp.kernels.dual_max("x", "y", "z")  # wrong
cp.kernels.exploration_bonus("x")  # wrong
cp.kernels.extreme_expectation("a", "b", "c")  # wrong
cp.kernels.hoeffding_width("visits", "log")  # wrong
cp.kernels.lagrangian_loss("x")  # wrong
cp.kernels.maximising_transition("x", "y", "z")  # wrong
cp.kernels.occupancy("P", "pi")  # wrong
cp.kernels.occupancy_bounds("pi", "l", "u")  # wrong
cp.kernels.optimistic_evaluation("x")  # wrong
cp.kernels.paper_forms(3)  # wrong
cp.kernels.policy_value("P", "pi", "v")  # wrong
cp.kernels.recentred("w", "m")  # wrong
cp.kernels.renew_epoch("e")  # wrong
cp.kernels.root_value("P", "pi", "v")  # wrong
cp.kernels.sample_path("pi")  # wrong
cp.kernels.softmax_policy("w", "m")  # wrong
cp.kernels.truncated_evaluation("x")  # wrong
cp.kernels.uniform_policy("m")  # wrong
cp.kernels.uniforms("k", "c", "s")  # wrong
cp.kernels.Epoch(1)  # wrong
cp.kernels.nothing  # wrong
result.plot(metric="strong_regret")  # wrong
result.plot(style="papr")  # wrong
result.plot(units="dollars")  # wrong
result.plot_tradeoff(metrics="strong_regret")  # wrong
result.summary(units=3)  # wrong
result.summary_frame(units="euro")  # wrong
result.compare(1)  # wrong
result.compare_frame(units=2)  # wrong
result.growth_exponent(3)  # wrong
result.to_csv(3)  # wrong
result.to_dataframe(units="dollars")  # wrong
result.to_latex(caption=3)  # wrong
result.to_rliable(metric=3)  # wrong
result.monitor_table(1)  # wrong
result.metric("strong_regrets")  # wrong
cp.plot_losses([], size="huge")  # wrong
cp.plot_growth([result], units="dollars")  # wrong
cp.Result.load(3)  # wrong
cp.Units(1)  # wrong
cp.CMDP(1)  # wrong
cp.Trajectory(1)  # wrong
cp.Solution(1)  # wrong
cp.learners.Learner(3)  # wrong
cp.learners.Info(1)  # wrong
cp.envs.Losses(1)  # wrong
cp.envs.make("random").describe(3)  # wrong
cp.run({"learners": ["cpdpo"]}, "out", on=3)  # wrong
""".lstrip()

needs_pyright = pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")


def test_the_types_of_the_options_are_those_of_the_dataclass() -> None:
    assert tuple(OptionValues.__annotations__) == OPTION_NAMES
    for function in (cp.simulate, cp.make_train):
        shown = inspect.signature(function).parameters
        for option in fields(Options):
            assert shown[option.name].default == option.default
            assert shown[option.name].annotation == OptionValues.__annotations__[option.name].__forward_arg__


@pytest.mark.parametrize("module", [cp, cp.envs, cp.learners, cp.kernels], ids=lambda module: module.__name__)
def test_dir_shows_the_public_names_only(module: Any) -> None:
    shown = set(dir(module)) - {"__version__"}
    assert shown == set(module.__all__)
    assert not shown & PLUMBING
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("name", LAZY)
def test_checkers_and_python_know_the_same_names(name: str) -> None:
    """The literal `__all__`, the table of modules and the TYPE_CHECKING block agree."""
    module = sys.modules[name]
    body = ast.parse(Path(str(module.__file__)).read_text()).body
    imports = [statement for statement in ast.walk(ast.Module(body, [])) if isinstance(statement, ast.ImportFrom)]
    checked = {alias.asname for statement in imports for alias in statement.names if alias.asname}
    assert checked == set(module.__all__)
    assert set(module._WHERE) <= set(module.__all__)


def test_a_learner_s_package_has_what_a_learner_needs() -> None:
    needed = {"Learner", "Info", "Problem", "SafePolicy", "Analysis", "Watched", "NoHyperparameters", "Estimates"}
    needed |= {"softmax_policy", "uniform_policy", "register", "unregister", "check", "get", "names", "BUILT_IN"}
    assert needed <= set(cp.learners.__all__)
    assert not {"base", "estimates"} & set(cp.learners.__all__)  # still importable as modules
    assert not set(cp.learners.BUILT_IN) & set(cp.learners.__all__)  # modules of learners are not exported
    with pytest.warns(DeprecationWarning, match=r"learners.OURS is now learners.BUILT_IN"):
        assert cp.learners.OURS == cp.learners.BUILT_IN  # pyright: ignore[reportAttributeAccessIssue]


def found_by_pyright(path: Path) -> set[int]:
    """The lines with an error."""
    command = [str(PYRIGHT), "--pythonpath", sys.executable, "--outputjson", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=path.parent, env=environment, check=False, timeout=600
    )
    report = json.loads(done.stdout)["generalDiagnostics"]
    return {found["range"]["start"]["line"] + 1 for found in report if found["severity"] == "error"}


@needs_pyright
def test_pyright_finds_every_mistake_and_nothing_else(tmp_path: Path) -> None:
    """Each line of MISTAKES that ends in `# wrong` is wrong in one way."""
    script = tmp_path / "mistakes.py"
    script.write_text(MISTAKES)
    wrong = {i for i, line in enumerate(MISTAKES.splitlines(), 1) if line.endswith("# wrong")}
    assert found_by_pyright(script) == wrong


def test_the_script_has_a_mistake_for_every_public_function() -> None:
    public = {f"cp.{name}" for name in cp.__all__ if inspect.isroutine(getattr(cp, name))}
    public |= {f"cp.learners.{name}" for name in cp.learners.__all__ if inspect.isfunction(getattr(cp.learners, name))}
    public |= {f"cp.envs.{name}" for name in cp.envs.__all__ if inspect.isfunction(getattr(cp.envs, name))}
    public |= {f"cp.kernels.{name}" for name in cp.kernels.__all__}
    methods = {name for name, member in vars(cp.Result).items() if inspect.isfunction(member) and name[0] != "_"}
    public |= {f"result.{name}" for name in methods}
    wrong = "\n".join(line for line in MISTAKES.splitlines() if line.endswith("# wrong"))
    assert not {name for name in public if f"{name}(" not in wrong}
