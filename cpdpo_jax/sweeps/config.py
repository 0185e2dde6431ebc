"""The configuration of a sweep, built and checked from a TOML file or flags.

    learners = ["cpdpo", "uniform"]
    episodes = [10_000, 100_000]        # a separate run for each T
    seeds = 64                          # a number of seeds, or a list
    hparams = "tuned"                  # as `hparams` of `simulate`: a preset, a grid, a list, or a table by learner
    imports = ["mine.py"]               # your files or modules that register learners and environments

    [[environments]]
    name = "random"                     # or a path that ends in .npz; the other keys are its parameters
    layers = 4
    grid = { states = [3, 5] }          # one environment per combination

    [slurm]                             # for `--on slurm`, see docs/clusters.md
    jobs = 16

This module does not import jax, so that the command line starts quickly.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from cpdpo_jax.common.former_names import CONFIG_KEYS, STORED, renamed
from cpdpo_jax.common.text import did_you_mean, shown
from cpdpo_jax.simulation.options import OPTION_NAMES, Options
from cpdpo_jax.sweeps.config_text import MAX_DEPTH, parse_environment
from cpdpo_jax.sweeps.imports import is_file

MAX_SIZE = 1_000_000  # of hparams, blocks and seeds, so that a mistake does not fill the memory
MAX_ENVIRONMENTS = 10_000  # each is built, solved and kept in memory before the run starts, which takes minutes
BLOCK_WIDTH = 32  # seeds per block; one core runs, stores and resumes a block


@dataclass(frozen=True)
class Config:
    """Learners x environments x hparams x seeds x T, and the options of `simulate` (also keys of the file)."""

    learners: list[str]
    environments: list[dict[str, Any]]  # each has a name and parameters
    episodes: list[int]
    seeds: int | list[int]
    hparams: Any = "tuned"
    imports: list[str] = field(default_factory=list)  # user files (absolute) and modules, in this order
    options: Options = field(default_factory=Options)
    block: int = BLOCK_WIDTH
    slurm: dict[str, Any] = field(default_factory=dict)  # jobs for `--on slurm`; does not change results

    def table(self) -> dict[str, Any]:
        """Every key of the file with its value, including defaults."""
        values = asdict(self)
        block, options, slurm = values.pop("block"), values.pop("options"), values.pop("slurm")
        return values | options | {"block": block, "slurm": slurm}

    @property
    def digest(self) -> str:
        """A hash of everything that determines the results."""
        return digest({name: value for name, value in self.table().items() if name != "slurm"})


_LAST = ("options", "block", "slurm")
KEYS = (*(entry.name for entry in fields(Config) if entry.name not in _LAST), *OPTION_NAMES, "block", "slurm")
ALIASES = {"env": "environments", "envs": "environments", "T": "episodes"}  # names used elsewhere
SLURM = {  # the keys of the table [slurm] and their types
    "jobs": int, "partition": str, "account": str, "time": str, "memory": str, "cores": int, "gpus": int,
    "interface": str, "directives": list, "prologue": list,
}  # fmt: skip


def digest(content: Any) -> str:
    """A hash of a JSON value, 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def block_key(block: Mapping[str, Any]) -> str:
    """The key of a block: its hash under the names of format 2, so that older run directories can be resumed."""
    return digest(renamed(block, {new: former for former, new in STORED.items()}))


def _check_plain(name: str, value: Any, depth: int = 0) -> None:
    """Raise for very long integers and deep nesting, which error messages could not show."""
    if isinstance(value, int) and value.bit_length() > 64:
        raise ValueError(f"{name} has {value.bit_length()} bits; give a whole number of at most 64 bits.")
    if isinstance(value, (dict, list, tuple)):
        if depth == MAX_DEPTH:
            raise ValueError(f"{name} nests lists or tables too deeply; give at most {MAX_DEPTH} levels.")
        for entry in value.values() if isinstance(value, dict) else value:
            _check_plain(name, entry, depth + 1)


def _deprecated(text: str) -> None:
    warnings.warn(text, DeprecationWarning, stacklevel=4)


def build(
    table: Mapping[str, Any], source: str = "the command line", warn: Callable[[str], None] = _deprecated
) -> Config:
    """Build a configuration and check keys and types; `specification.expand` checks the values.

    `warn` reports former names of keys.
    """
    for former, name in CONFIG_KEYS.items():
        if former in table:
            if name in table:
                raise ValueError(f"{source} has both {name!r} and its former name {former!r}; give {name!r} alone.")
            warn(f"{source}: the key {former!r} is deprecated and will be removed; use {name!r}.")
    table = renamed(table, CONFIG_KEYS)
    for name in table:
        if name not in KEYS:
            hint = did_you_mean(name, KEYS, most=1) or f"the keys are {', '.join(KEYS)}."
            hint = f"did you mean {ALIASES[name]}?" if name in ALIASES else hint
            raise ValueError(f"{source} has the unknown key {shown(name)}; {hint}")
    for name, value in table.items():
        _check_plain(name, value)
    for name in ("learners", "environments", "episodes", "seeds"):
        if name not in table:
            flag = {"learners": "--learner", "environments": "--env"}.get(name, f"--{name}")
            raise ValueError(f"{source} has no {name}; give {flag}, or {name} = ... in a file.")
    values = dict(table)
    values["learners"] = _list("learners", values["learners"], str)
    values["episodes"] = _list("episodes", values["episodes"], int)
    for name in ("seeds", "block"):
        if isinstance(values.get(name), float) and values[name].is_integer():
            values[name] = int(values[name])
    environments = values["environments"]
    environments = environments if isinstance(environments, list) else [environments]
    values["environments"] = [table for entry in environments for table in _expand_grid(entry)]
    imports = _list("imports", values.get("imports", []), str)
    values["imports"] = [str(Path(name).absolute()) if is_file(name) else name for name in imports]  # for `resume`
    for name in ("learners", "episodes", "environments", "imports"):
        texts = [json.dumps(value, sort_keys=True) for value in values[name]]
        if (not texts and name != "imports") or len(set(texts)) < len(texts):
            problem = "has an entry twice; give each once" if texts else "is empty; give at least one entry"
            raise ValueError(f"{name} = {shown(values[name])} {problem}.")
    by_learner = values.get("hparams")
    if isinstance(by_learner, dict) and set(by_learner) & set(values["learners"]):
        for name in set(by_learner) - set(values["learners"]):
            raise ValueError(f"hparams are given for {name!r}, which is not among the learners.")
    if "block" in values and (_typed("block", values["block"], int) < 1 or values["block"] % BLOCK_WIDTH):
        raise ValueError(
            f"block = {shown(values['block'])} is not a positive multiple of {BLOCK_WIDTH}; give 32, 64, ..."
        )
    values["slurm"] = _slurm(values.get("slurm", {}))
    options = Options.from_values({name: values.pop(name) for name in OPTION_NAMES if name in values})
    _check_environments("environments", len(values["environments"]))
    config = Config(**values, options=options)
    if isinstance(config.seeds, (int, list)):
        _check_size(config)
    return config


def _expand_grid(entry: Any) -> list[dict[str, Any]]:
    """The environments of a text or table, one for each combination of its grid."""
    table = parse_environment(entry) if isinstance(entry, str) else entry
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise ValueError(f"environments: {shown(entry)} is neither a name nor a table with a name.")
    grid = table.get("grid", {})
    if not isinstance(grid, dict) or not all(isinstance(values, list) and values for values in grid.values()):
        raise ValueError(f"environment {table['name']!r}: grid = {grid!r} is not a table of non-empty lists.")
    for name in grid:
        if name in table:
            raise ValueError(f"environment {table['name']!r} has {name!r} both as a key and in its grid; give it once.")
    _check_environments(f"environment {table['name']!r}: its grid", math.prod(map(len, grid.values())))
    fixed = {name: value for name, value in table.items() if name != "grid"}
    if str(fixed["name"]).endswith(".npz"):
        fixed["name"] = str(Path(fixed["name"]).absolute())
    return [fixed | dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*grid.values())]


def _check_environments(label: str, count: int) -> None:
    """Raise for more environments than can be built, before they are made."""
    if count > MAX_ENVIRONMENTS:
        raise ValueError(
            f"{label}: {count:,} environments are too many to build and keep in memory; give at most "
            f"{MAX_ENVIRONMENTS:,}, or split them into runs."
        )


def count_grid(label: str, grid: Mapping[str, Any]) -> int:
    """The number of combinations of a grid; raises if there are too many, before they are made."""
    count = math.prod(len(values) for values in grid.values() if isinstance(values, (list, tuple)))
    if count > MAX_SIZE:
        raise ValueError(f"{label} has {count:,} combinations; give at most {MAX_SIZE:,}, or split it into runs.")
    return count


def _check_size(config: Config) -> None:
    """Raise for a run of too many blocks before they are made."""
    seeds = config.seeds if isinstance(config.seeds, int) else len(config.seeds)
    environments, learners, episodes = len(config.environments), len(config.learners), len(config.episodes)
    specs = config.hparams if isinstance(config.hparams, list) else [config.hparams]
    hparams = sum(count_grid("hparams: a table", spec) if isinstance(spec, dict) else 1 for spec in specs)
    hparams *= math.prod(len(values) for values in config.options.axes.values())
    blocks = environments * learners * episodes * max(hparams, 1) * math.ceil(seeds / config.block)
    if blocks > MAX_SIZE:
        raise ValueError(
            f"{environments:,} environments x {learners} learners x {hparams:,} hparams x {episodes} T x {seeds:,} "
            f"seeds are {blocks:,} blocks; give at most {MAX_SIZE:,}, or split them into runs."
        )


def _slurm(table: Any) -> dict[str, Any]:
    """The table [slurm] with its keys and types checked."""
    if not isinstance(table, dict):
        raise ValueError(f"slurm = {shown(table)} is not a table; give {{ jobs = 16 }}.")
    for name, value in table.items():
        if name not in SLURM:
            hint = did_you_mean(name, SLURM, most=1) or f"the keys are {', '.join(SLURM)}."
            raise ValueError(f"slurm has the unknown key {shown(name)}; {hint}")
        if SLURM[name] is list:
            _list(f"slurm.{name}", value, str)
        elif _typed(f"slurm.{name}", value, SLURM[name]) == 0 or (SLURM[name] is int and value < 0):
            raise ValueError(f"slurm.{name} = {shown(value)} is not positive; give at least 1.")
    if table.get("gpus", 1) != 1:
        raise ValueError(
            f"slurm.gpus = {table['gpus']!r}, but a job's worker uses one GPU; give gpus = 1 and more jobs."
        )
    return table


def _typed(name: str, value: Any, kind: type) -> Any:
    """The value, if it has the type."""
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e5
    good = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    if not good or (isinstance(value, bool) and kind is not bool):
        names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise ValueError(f"{name} = {shown(value)} is not {names[kind]}.")
    return value


def _list(name: str, value: Any, kind: type) -> list:
    """The list of a value or of several, each of the type."""
    return [_typed(name, entry, kind) for entry in (value if isinstance(value, (list, tuple)) else [value])]
