"""What a stored run is asked to do: a TOML file or flags, checked for spelling, and written back complete.

    learners = ["cpdpo", "uniform"]
    episodes = [10_000, 100_000]        # every T is a run of its own
    seeds = 64                          # how many, or a list of seeds
    settings = "tuned"                  # as `hparams` of `simulate`: a preset, a grid, a list, or a table by learner
    imports = ["mine.py"]               # files or modules that register learners and environments of your own

    [[environments]]
    name = "random"                     # or a path that ends in .npz; the rest are its parameters
    layers = 4
    grid = { states = [3, 5] }          # one environment per combination

    [slurm]                             # for `--on slurm`, see docs/clusters.md
    jobs = 16

Nothing here imports jax, so that the command line can look at a run without waiting for it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cpdpo_jax.common.words import did_you_mean
from cpdpo_jax.simulation.options import OPTION_NAMES, Options
from cpdpo_jax.sweeps.imports import is_file

WIDTH = 32  # seeds of a block, which is what one core runs, stores and resumes


@dataclass(frozen=True)
class Config:
    """Learners x environments x settings x seeds x T, and the options of `simulate`, which are keys of the file too."""

    learners: list[str]
    environments: list[dict[str, Any]]  # a name and its parameters each
    episodes: list[int]
    seeds: int | list[int]
    settings: Any = "tuned"
    imports: list[str] = field(default_factory=list)  # files (absolute) and modules of a user's own, in this order
    options: Options = field(default_factory=Options)
    block: int = WIDTH
    slurm: dict[str, Any] = field(default_factory=dict)  # jobs for `--on slurm`: changes no result

    def table(self) -> dict[str, Any]:
        """Every key of the file with its value, defaults too."""
        values = asdict(self)
        block, options, slurm = values.pop("block"), values.pop("options"), values.pop("slurm")
        return values | options | {"block": block, "slurm": slurm}

    @property
    def digest(self) -> str:
        """Equal for equal configurations."""
        return digest({name: value for name, value in self.table().items() if name != "slurm"})


_LAST = ("options", "block", "slurm")
KEYS = (*(entry.name for entry in fields(Config) if entry.name not in _LAST), *OPTION_NAMES, "block", "slurm")
OTHERWISE = {"hparams": "settings", "env": "environments", "envs": "environments", "T": "episodes"}  # called elsewhere
SLURM = {  # the keys of the table [slurm] and their kinds
    "jobs": int, "partition": str, "account": str, "time": str, "memory": str, "cores": int, "gpus": int,
    "interface": str, "directives": list, "prologue": list,
}  # fmt: skip


def digest(content: Any) -> str:
    """16 hexadecimal digits of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def read(path: Path) -> dict[str, Any]:
    """The table in a TOML file, or an error of one line."""
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file '{path}'; give a TOML file, or say by flags what to run: --learner, --env."
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file in UTF-8.") from error


def build(table: Mapping[str, Any], source: str = "the command line") -> Config:
    """Check names and kinds; what the values mean is checked when the run is expanded into blocks."""
    for name in table:
        if name not in KEYS:
            hint = did_you_mean(name, KEYS, most=1) or f"the keys are {', '.join(KEYS)}."
            hint = f"did you mean {OTHERWISE[name]}?" if name in OTHERWISE else hint
            raise ValueError(f"{source} has the key {name!r}, which is not known; {hint}")
    for name in ("learners", "environments", "episodes", "seeds"):
        if name not in table:
            flag = {"learners": "--learner", "environments": "--env"}.get(name, f"--{name}")
            raise ValueError(f"{source} does not say which {name}; give {flag}, or {name} = ... in a file.")
    values = dict(table)
    values["learners"] = _list("learners", values["learners"], str)
    values["episodes"] = _list("episodes", values["episodes"], int)
    for name in ("seeds", "block"):
        if isinstance(values.get(name), float) and values[name].is_integer():
            values[name] = int(values[name])
    environments = values["environments"]
    environments = environments if isinstance(environments, list) else [environments]
    values["environments"] = [one for each in environments for one in _environments(each)]
    values["imports"] = [_import(one) for one in _list("imports", values.get("imports", []), str)]
    for name in ("learners", "episodes", "environments", "imports"):
        texts = [json.dumps(one, sort_keys=True) for one in values[name]]
        if (not texts and name != "imports") or len(set(texts)) < len(texts):
            raise ValueError(f"{name} = {values[name]!r} {'has an entry twice' if texts else 'is empty'}.")
    by_learner = values.get("settings")
    if isinstance(by_learner, dict) and set(by_learner) & set(values["learners"]):
        for name in set(by_learner) - set(values["learners"]):
            raise ValueError(f"settings are given for {name!r}, which is not among the learners.")
    if "block" in values and (_one("block", values["block"], int) < 1 or values["block"] % WIDTH):
        raise ValueError(f"block = {values['block']!r} is not a multiple of {WIDTH}.")
    values["slurm"] = _slurm(values.get("slurm", {}))
    options = Options.made_of({name: values.pop(name) for name in OPTION_NAMES if name in values})
    return Config(**values, options=options)


def parse_environment(text: str) -> dict[str, Any]:
    """'random:layers=4,rho=0.5' -> a table; values are read as TOML, or taken as text."""
    name, _, rest = text.partition(":")
    table: dict[str, Any] = {"name": name}
    for part in re.split(r",(?![^\[]*\])", rest) if rest else []:
        parameter, equals, value = part.partition("=")
        if not equals or not parameter.strip():
            raise ValueError(f"environment {text!r}: {part!r} is not PARAMETER=VALUE.")
        if parameter.strip() in table:
            raise ValueError(f"environment {text!r} gives {parameter.strip()!r} twice; give it once.")
        table[parameter.strip()] = parse_value(value)
    return table


def parse_value(text: str) -> Any:
    """A number, a boolean, a list, or the text itself."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text.strip()


def show_environment(table: Mapping[str, Any]) -> str:
    """The inverse of `parse_environment`, as a label."""
    parts = ",".join(f"{name}={_toml(value).strip(chr(34))}" for name, value in table.items() if name != "name")
    return f"{table['name']}:{parts}" if parts else str(table["name"])


def write(config: Config) -> str:
    """TOML with every key, defaults too: the same run again, whatever the defaults become."""
    values = config.table()
    environments = values.pop("environments")
    lines = ["# Written by cpdpo; run it again with: cpdpo run FILE --out NEW_DIRECTORY"]
    lines += [f"{name} = {_toml(value)}" for name, value in values.items()]
    for one in environments:
        lines += ["", "[[environments]]", *(f"{_key(name)} = {_toml(value)}" for name, value in one.items())]
    return "\n".join(lines) + "\n"


def _environments(each: Any) -> list[dict[str, Any]]:
    """One environment as text or table; its grid multiplied out."""
    table = parse_environment(each) if isinstance(each, str) else each
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ValueError(f"environments: {each!r} is neither a name nor a table with a name.")
    grid = table.get("grid", {})
    if not isinstance(grid, dict) or not all(isinstance(one, list) and one for one in grid.values()):
        raise ValueError(f"environment {table['name']!r}: grid = {grid!r} is not a table of lists with entries.")
    for name in grid:
        if name in table:
            raise ValueError(f"environment {table['name']!r} gives {name!r} twice, by itself and in its grid.")
    fixed = {name: value for name, value in table.items() if name != "grid"}
    if str(fixed["name"]).endswith(".npz"):
        fixed["name"] = str(Path(fixed["name"]).absolute())
    return [fixed | dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*grid.values())]


def _import(name: str) -> str:
    """A file by its whole path, so that the run can be taken up from elsewhere."""
    return str(Path(name).absolute()) if is_file(name) else name


def _slurm(table: Any) -> dict[str, Any]:
    """The table [slurm], its names and kinds checked."""
    if not isinstance(table, dict):
        raise ValueError(f"slurm = {table!r} is not a table.")
    for name, value in table.items():
        if name not in SLURM:
            hint = did_you_mean(name, SLURM, most=1) or f"the keys are {', '.join(SLURM)}."
            raise ValueError(f"slurm has the key {name!r}, which is not known; {hint}")
        if SLURM[name] is list:
            _list(f"slurm.{name}", value, str)
        elif _one(f"slurm.{name}", value, SLURM[name]) == 0 or (SLURM[name] is int and value < 0):
            raise ValueError(f"slurm.{name} = {value!r} is not positive.")
    if table.get("gpus", 1) != 1:
        raise ValueError(
            f"slurm.gpus = {table['gpus']!r}: a job has one worker, which uses one GPU; ask for more jobs."
        )
    return table


def _one(name: str, value: Any, kind: type) -> Any:
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e5
    good = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    if not good or (isinstance(value, bool) and kind is not bool):
        words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise ValueError(f"{name} = {value!r} is not {words[kind]}.")
    return value


def _list(name: str, value: Any, kind: type) -> list:
    return [_one(name, one, kind) for one in (value if isinstance(value, (list, tuple)) else [value])]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (int, float)):
        return repr(float(value) if isinstance(value, float) else value)  # NumPy's say what they are
    raise ValueError(f"{value!r} is not a number, a text, a list or a table.")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
