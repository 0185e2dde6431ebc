"""What README and docs/ say is run, their lists match the code, and every name, command, flag, file and link exists."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import cpdpo_jax as cp
from cpdpo_jax import cli
from cpdpo_jax.kernels.machines.target import PAPER_VARIABLE
from cpdpo_jax.learners import base
from cpdpo_jax.sweeps import config

ROOT = Path(__file__).parent.parent
OURS = ("start", "own_cmdp", "own_learner", "sweeps", "metrics", "paper", "speed", "contributing", "plugins")
OURS += ("experiments_index",)
PAGES = {"README.md": (ROOT / "README.md").read_text()}
PAGES |= {f"docs/{name}.md": (ROOT / "docs" / f"{name}.md").read_text() for name in OURS}
MOST_WORDS = 900


def prose(text: str) -> str:
    """Without fenced code."""
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def inline(text: str) -> set[str]:
    """What stands in backticks."""
    return {" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text))}


def indented(text: str) -> list[str]:
    """Indented blocks of code."""
    found = re.findall(r"(?:^    .*\n|^\n(?=    ))+", prose(text), re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


FENCED = {name: re.findall(r"```python\n(.*?)```", text, re.DOTALL) for name, text in PAGES.items()}
INLINE = sorted(set().union(*map(inline, PAGES.values())))
BLOCKS = [block for text in PAGES.values() for block in indented(text)]
# in backticks, but names of other things: other libraries, the paper's lemmas, files of a run, code that is checked
# where it runs, marks of our own
ELSEWHERE = {"jit", "vmap", "scan", "JAX_COMPILATION_CACHE_DIR", 'pip install ".[cuda12]"', "cuda13", ">=", "<="}
ELSEWHERE |= {"strong_plus", "lagrangian", "lagrangian_cor", "Deviation: name", "~/.cache/cpdpo_jax", ".npz"}
ELSEWHERE |= {"config.toml", "manifest.json", "blocks/*.nc", "checkpoints/", "report.html", "runs/demo"}
ELSEWHERE |= {f"{PAPER_VARIABLE}=1", "with cp.kernels.paper_forms():"}
ELSEWHERE |= {"python -m experiments.NAME --scale small", "python -m experiments.faults.precision", "ValueError"}
ELSEWHERE |= {"env.unwrapped.P", "strong_violation_0"}
ELSEWHERE |= {"-m exhaustive", "LEARNER = base.register(Learner(...))"}
ELSEWHERE |= {"curves.csv", "Hyperparameters", "mine.py", 'imports = ["mine.py"]', "CPDPO_RUN_NOTEBOOKS=false"}
ELSEWHERE |= {
    "jax.enable_x64(True)",
    'jax.numpy_rank_promotion("raise")',
    "TypePromotionError",
    "Learner",
    'MYOPIC = Learner(name="myopic", ...)',
}
DEVIATION = r"[a-z]+(?:-[a-z]+)+"
SHAPE = r"\[[\w, +\-]+\]"


def resolve(dotted: str) -> Any:
    """The object that `cp.solve`, `kernels.dual_max` or `learners.podb.step` names."""
    first, *rest = dotted.split(".")
    places = {
        "cp": "cpdpo_jax",
        "jax": "jax",
        "monitor": "cpdpo_jax.simulation.monitor",
        "rollout": "cpdpo_jax.simulation.rollout",
    }
    found = importlib.import_module(places.get(first, f"cpdpo_jax.{first}"))
    for name in rest:
        found = getattr(found, name)
    return found


@cache
def parameters() -> set[str]:
    """What may be set: of functions, hyperparameters, keys of a configuration, and of environments."""
    functions = (cp.simulate, cp.play_losses, base.Learner, cp.make_cmdp, cp.from_episodic)
    functions += (cp.Result.plot, cp.Result.metric)
    names = {name for function in functions for name in inspect.signature(function).parameters}
    problem = base.make_problem(cp.stack([cp.envs.make("factored")]), episodes=9, delta=0.1, slater_margin=1.0)
    for name in base.names():
        names |= set(base.get(name).hyperparameters(problem, "tuned")._fields)
    return names


@pytest.fixture(scope="module")
def data() -> Any:
    """Of a run, with every variable there is."""
    return cp.simulate("optcmdp", cp.envs.make("factored"), episodes=2, seeds=1, progress=False).data


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


def test_the_readme_is_one_screen():
    assert len(PAGES["README.md"].split()) <= MOST_WORDS
    assert len(FENCED["README.md"]) == 1
    assert len(FENCED["README.md"][0].strip().splitlines()) <= 10


@pytest.mark.parametrize(
    "page", ["README.md", pytest.param("docs/start.md", marks=pytest.mark.exhaustive), "docs/own_cmdp.md"]
)
def test_the_example_runs(standard_promotion, page, tmp_path, monkeypatch, capsys):
    import matplotlib as mpl

    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(compile("\n".join(FENCED[page]), page, "exec"), scope)
    printed = capsys.readouterr().out
    assert "strong_violation" in printed
    if page == "docs/own_cmdp.md":
        assert "OPT 45 dollars" in printed
        assert "regret in dollars, violation in visitors" in printed
        assert "OPT 0 points" in printed
        assert "tuned, any rho" in printed
        assert r"optprimaldual & rho=0.05 &" in (tmp_path / "taxi.tex").read_text()
        assert (tmp_path / "taxi.pdf").stat().st_size > 1000
    assert list(tmp_path.iterdir())  # every example writes a file


def test_the_learner_of_ones_own_runs(standard_promotion, capsys):
    (example,) = FENCED["docs/own_learner.md"]
    assert len(example.splitlines()) < 40
    scope: dict = {}
    exec(compile(example, "own_learner.md", "exec"), scope)
    assert "myopic" in cp.learners.names()
    regret = scope["result"].data.weak_regret.isel(episode=-1, instance=0).mean("seed")
    # greedier on rewards earns more: a hundred times the float32 noise of 2,000 episodes
    cold, warm = (float(regret.sel(learner="myopic", hparams=f"tuned, temperature={t}")) for t in (0.05, 0.5))
    assert cold < warm - 0.2
    assert "myopic" in capsys.readouterr().out


def test_the_deviations_of_the_page_are_those_of_the_code():
    section = PAGES["docs/paper.md"].split("## Deviations from the paper")[1].split("\n## ")[0]
    listed = set(re.findall(r"^- `([a-z-]+)`:", section, re.MULTILINE))
    marked = set()
    for path in [*(ROOT / "cpdpo_jax/kernels").rglob("*.py"), *(ROOT / "cpdpo_jax/learners").glob("*.py")]:
        marked |= set(re.findall(r"Deviation: `?([a-z-]+)", path.read_text()))
    assert listed
    assert listed == marked


@pytest.mark.parametrize("page", ["README.md", "docs/sweeps.md"])
def test_the_sweep_is_a_configuration(page):
    (example,) = [block for block in indented(PAGES[page]) if re.search(r"^learners = ", block, re.MULTILINE)]
    sweep = config.build(tomllib.loads(example))
    for environment in sweep.environments:
        name = environment.pop("name")
        cp.envs.make(name, **environment)
    assert set(sweep.learners) <= set(base.names())


COMMANDS = [text for text in INLINE if re.match(r"cpdpo |--[a-z]", text)]
COMMANDS += [line[line.index("cpdpo ") :] for block in BLOCKS for line in block.splitlines() if "/cpdpo " in line]


@pytest.mark.parametrize("text", sorted(set(COMMANDS)))
def test_every_command_and_flag_exists(text):
    given = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", text))
    if text == "cpdpo --version":
        assert cli.main(["--version"]) == 0
    elif text.startswith("--"):
        assert any(given <= flags(command) for command in flags("")), "a flag of no command"
    else:
        command = text.split()[1]
        assert command in flags("")
        assert given <= flags(command)


def test_every_path_exists():
    """Also `test_extreme.py`, which lies beside the path before it; modules that are run by -m."""
    table = PAGES["docs/paper.md"].split("| in the paper |")[1].split("\n\n")[0]
    rows = [re.findall(r"`([\w/]+\.py)`", row) for row in table.splitlines()]
    named = [[path if "/" in path else str(Path(row[0]).parent / path) for path in row] for row in rows if row]
    assert len(named) > 10
    others = [text for text in INLINE if re.fullmatch(r"(tests|experiments|docs|\.ci)/[\w/.]*|[A-Z]+\.cff", text)]
    others += [f"cpdpo_jax/{text}" for text in INLINE if re.fullmatch(r"(?:learners|envs|simulation)/\w+\.py", text)]
    missing = [path for path in [*(path for row in named for path in row), *others] if not (ROOT / path).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(PAGES[page]))
    here = (ROOT / page).parent
    missing = [target for target in targets if "://" not in target and not (here / target.partition("#")[0]).exists()]
    assert missing == []
    if page == "README.md":
        assert len(targets) > 8


def test_every_function_of_the_table_exists():
    """A bare name belongs to the module of the dotted one before it."""
    checked = 0
    for row in PAGES["docs/paper.md"].split("| in the paper |")[1].split("\n\n")[0].splitlines()[2:]:
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
    methods = {name for cls in (cp.Result, cp.CMDP) for name in vars(cls) if not name.startswith("_")}
    for text in INLINE:
        if text in ELSEWHERE or text in COMMANDS or "/" in text or re.fullmatch(r"\S+\.(py|cff)", text):
            continue
        if command := re.fullmatch(r"python -m ((?:experiments|tests)\.[a-z_]+)(?: .*)?", text):
            assert importlib.util.find_spec(command[1]), text
            continue
        if re.fullmatch(DEVIATION, text) or re.fullmatch(SHAPE, text):
            continue
        if dotted := re.fullmatch(r"(?:print\()?result\.(\w+)(?:\.(\w+))?.*", text):
            assert dotted[1] in methods or dotted[1] == "data", text
            assert not dotted[2] or dotted[2] in data, text
            if dotted[1] == "plot":
                assert set(re.findall(r"(\w+)=", text)) <= set(inspect.signature(cp.Result.plot).parameters)
        elif dotted := re.fullmatch(r"(cp\.[\w.]+)(\(.*\))?", text):
            function = resolve(dotted[1])
            if dotted[2]:
                assert set(re.findall(r"(\w+)=", dotted[2])) <= set(inspect.signature(function).parameters), text
        elif re.fullmatch(r"[a-z]+(\.\w+)+", text):
            resolve(text)
        elif assignment := re.fullmatch(r"(\w+)\s?=.*", text):
            assert assignment[1] in parameters(), text
        elif call := re.fullmatch(r"(\w+)\((.*)\)", text):
            assert call[1] == "Learner" or call[1] in methods, text
            assert set(re.findall(r"(\w+)=", call[2])) <= parameters(), text
        else:
            assert text.strip('"') in known | methods, text
    grid = next(text for text in INLINE if text.startswith("hparams={"))
    assert set(ast.literal_eval(grid.partition("=")[2])) <= parameters()


def test_every_learner_of_the_table_is_one():
    rows = PAGES["README.md"].split("| learner | guarantee |")[1].split("\n\n")[0].splitlines()[2:]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(named) > 8
    assert set(named) <= set(base.names())


def test_everything_public_is_on_the_page_of_the_api():
    page = (ROOT / "docs" / "api.md").read_text()
    subpackages = {"envs", "learners", "kernels", "exact"}
    assert [name for name in cp.__all__ if name not in subpackages and not re.search(rf"\b{name}\b", page)] == []


def test_nothing_is_listed_as_elsewhere_that_no_page_says():
    assert set(INLINE) >= ELSEWHERE
