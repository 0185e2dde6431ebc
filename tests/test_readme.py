"""What the README says is run, its lists match the code, and every name, command, flag and file it mentions exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.kernels.cpu.switch import VARIABLE
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import config

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROSE = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
INLINE = sorted({" ".join(text.split()) for text in re.findall(r"`([^`]+)`", PROSE)})
FENCED = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
BLOCKS = [
    re.sub(r"^    ", "", text, flags=re.MULTILINE) for text in re.findall(r"(?:^    .*\n|^\n(?=    ))+", PROSE, re.M)
]
# in backticks, but names of other things: other libraries, the paper's lemmas, files of a run, the README's own marks
ELSEWHERE = {"jit", "vmap", "scan", "jax.export", "JAX_COMPILATION_CACHE_DIR", 'pip install ".[cuda]"'}
ELSEWHERE |= {"strong_plus", "lagrangian", "lagrangian_cor", "Deviation: name", "~/.cache/cpdpo_jax"}
ELSEWHERE |= {"config.toml", "manifest.json", "blocks/*.nc", "checkpoints/", "report.html"}
ELSEWHERE |= {f"{VARIABLE}=0", "with cp.kernels.cpu_acceleration(False):", "python -m tests.test_house"}
DEVIATION = r"[a-z]+(?:-[a-z]+)+"


def code_blocks(begins: str) -> list[str]:
    """The indented blocks with a line that begins so."""
    found = [block for block in BLOCKS if re.search(rf"^{begins}", block, re.MULTILINE)]
    assert found, f"the README has no block with a line that begins with {begins}"
    return found


def resolve(dotted: str) -> Any:
    """The object that `cp.solve`, `kernels.dual_max` or `learners.podb.step` names."""
    first, *rest = dotted.split(".")
    places = {"cp": "cpdpo_jax", "monitor": "cpdpo_jax.simulation.monitor", "rollout": "cpdpo_jax.simulation.rollout"}
    found = importlib.import_module(places.get(first, f"cpdpo_jax.{first}"))
    for name in rest:
        found = getattr(found, name)
    return found


@cache
def parameters() -> set[str]:
    """What may be set: of `simulate` and `Learner`, hyperparameters, keys of a configuration, and of environments."""
    functions = (cp.simulate, base.Learner, cp.make_cmdp)
    names = {name for one in functions for name in inspect.signature(one).parameters}
    problem = base.make_problem(cp.stack([cp.envs.make("factored")]), episodes=9, delta=0.1, slater_margin=1.0)
    for name in base.names():
        names |= set(base.get(name).hyperparameters(problem, "tuned")._fields)
    return names


@pytest.fixture(scope="module")
def data() -> Any:
    """Of a run, with every variable there is."""
    one = cp.simulate("optcmdp", cp.envs.make("factored"), episodes=2, seeds=1, progress=False)
    return one.data


@cache
def flags(command: str) -> set[str]:
    """Every flag that the help of `cpdpo COMMAND` shows; of "" the commands themselves."""
    import contextlib
    import io

    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert cli.main([*([command] if command else []), "--help"]) == 0
    if command:
        return {*re.findall(r"--[a-z][a-z-]*", said.getvalue())}
    return set(re.findall(r"\{([a-z,]+)\}", said.getvalue())[0].split(","))


def test_the_learner_of_ones_own_runs(capsys):
    (example,) = FENCED
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
    for path in [*(ROOT / "cpdpo_jax/kernels").rglob("*.py"), *(ROOT / "cpdpo_jax/learners").glob("*.py")]:
        marked |= set(re.findall(r"Deviation: `?([a-z-]+)", path.read_text()))
    assert listed
    assert listed == marked


def test_every_call_of_the_first_example_is_one_of_the_package():
    """Names by `getattr`, keywords by the signature: parsed, not run, for it takes a minute."""
    (example,) = code_blocks("import cpdpo_jax")
    calls = [node for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Call)]
    checked = 0
    for call in calls:
        owner, _, rest = ast.unparse(call.func).partition(".")
        if owner not in ("cp", "result"):
            continue
        function = resolve(f"cp.{rest}") if owner == "cp" else getattr(cp.Result, rest.split("(")[0])
        known = set(inspect.signature(function).parameters)
        if function is cp.envs.make:
            known |= set(cp.envs.defaults(ast.literal_eval(call.args[0])))
        assert {one.arg for one in call.keywords} <= known, ast.unparse(call)
        checked += 1
    assert checked >= 6


def test_the_sweep_of_the_readme_is_a_configuration():
    (example,) = code_blocks("learners = ")
    one = config.build(tomllib.loads(example))
    for environment in one.environments:
        name = environment.pop("name")
        cp.envs.make(name, **environment)
    assert set(one.learners) <= set(base.names())


COMMANDS = [text for text in INLINE if re.match(r"cpdpo |--[a-z]", text)]
COMMANDS += [line[line.index("cpdpo ") :] for block in BLOCKS for line in block.splitlines() if "/cpdpo " in line]


@pytest.mark.parametrize("text", COMMANDS)
def test_every_command_and_flag_exists(text):
    given = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", text))
    if text.startswith("--"):
        assert any(given <= flags(command) for command in flags("")), "a flag of no command"
    else:
        command = text.split()[1]
        assert command in flags("")
        assert given <= flags(command)


def test_every_path_exists():
    """Also `test_extreme.py`, which lies beside the path before it; modules that are run by -m."""
    table = PROSE.split("| in the paper |")[1].split("\n\n")[0]
    rows = [re.findall(r"`([\w/]+\.py)`", row) for row in table.splitlines()]
    named = [[path if "/" in path else str(Path(row[0]).parent / path) for path in row] for row in rows if row]
    assert len(named) > 10
    others = [text for text in INLINE if re.fullmatch(r"(tests|experiments|\.ci)/[\w/.]*|[A-Z]+\.cff", text)]
    missing = [path for path in [*(one for row in named for one in row), *others] if not (ROOT / path).exists()]
    assert missing == []


def test_every_function_of_the_table_exists():
    """A bare name belongs to the module of the dotted one before it."""
    checked = 0
    for row in PROSE.split("| in the paper |")[1].split("\n\n")[0].splitlines()[2:]:
        module = "cp"
        for name in re.findall(r"`([\w.]+)`", row.split("|")[2]):
            module, _, last = name.rpartition(".") if "." in name else (module, "", name)
            assert callable(resolve(f"{module}.{last}")), f"{module}.{last}"
            checked += 1
    assert checked > 15


def test_every_other_name_in_backticks_is_known(data):
    """A learner, environment, parameter, metric, public name, deviation or path; whatever else is listed above."""
    known = {*base.names(), *cp.envs.names(), *parameters(), *base.PRESETS, *cp.__all__, *map(str, data.data_vars)}
    known |= {name for name in vars(cp.kernels) if not name.startswith("_")} | {"concentration_bounds"}
    for text in INLINE:
        if text in ELSEWHERE or text in COMMANDS or "/" in text or re.fullmatch(r"\S+\.(py|cff)", text):
            continue
        if re.fullmatch(DEVIATION, text):
            continue
        if dotted := re.fullmatch(r"(?:print\()?result\.(\w+)(?:\.(\w+))?.*", text):
            assert hasattr(cp.Result, dotted[1]) or dotted[1] == "data", text
            assert not dotted[2] or dotted[2] in data, text
        elif re.fullmatch(r"[a-z]+(\.\w+)+", text):
            resolve(text)
        elif setting := re.fullmatch(r"(\w+)\s?=.*", text):
            assert setting[1] in parameters(), text
        elif call := re.fullmatch(r"(\w+)\((.*)\)", text):
            assert call[1] == "Learner", text
            assert set(re.findall(r"(\w+)=", call[2])) <= parameters(), text
        else:
            assert text.strip('"') in known, text
    grid = next(text for text in INLINE if text.startswith("hparams={"))
    assert set(ast.literal_eval(grid.partition("=")[2])) <= parameters()


def test_nothing_is_listed_as_elsewhere_that_the_readme_does_not_say():
    assert set(INLINE) >= ELSEWHERE
