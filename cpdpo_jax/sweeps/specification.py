"""From a configuration to blocks, and from a block's description to the plan that runs it.

A block is one learner on one instance with one hparams for up to `block` seeds (`HOST_LANES` on the host). Its
description is a table of JSON values, and its key is a hash of the description. Blocks are independent, so any number
of threads or machines can run them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from cpdpo_jax import envs
from cpdpo_jax.common.interrupts import raise_if_requested
from cpdpo_jax.common.plugins import cached_by_name
from cpdpo_jax.common.text import counted
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs import registry
from cpdpo_jax.envs.build import unstack
from cpdpo_jax.exact import optimum
from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.kernels.machines.sizes import HOST_LANES, SIMD_LANES
from cpdpo_jax.learners import base
from cpdpo_jax.learners.hparams import parse, with_options
from cpdpo_jax.simulation import inputs
from cpdpo_jax.simulation.lanes import LaneIndex, is_builtin, pad_block
from cpdpo_jax.simulation.options import OPTION_NAMES, Options
from cpdpo_jax.simulation.plan import LearnerPlan, SimulationPlan, prepare, select_instance
from cpdpo_jax.sweeps import adhoc_code, imports
from cpdpo_jax.sweeps.config import Config, block_key
from cpdpo_jax.sweeps.config_text import environment_label

BlockSpec = dict[str, Any]
MANY_ENVIRONMENTS = 20  # building them takes seconds, so it is announced


def expand(config: Config, log: Callable[[str], None] = lambda text: None) -> dict[str, BlockSpec]:
    """All blocks of a run by key; checks all values before anything is written.

    Environments are built and solved here. Ctrl-C takes effect after the current learner or environment.
    """
    imported = imports.load(config.imports)
    if len(config.environments) >= MANY_ENVIRONMENTS:
        log(f"building and solving {counted(len(config.environments), 'environment')} before the run starts ...")
    seeds = inputs.seeds(config.seeds).tolist()
    blocks: dict[str, BlockSpec] = {}
    options = {name: value for name, value in asdict(config.options).items() if name not in config.options.axes}
    for episodes in config.episodes:
        for environment in map(_with_digest, config.environments):
            raise_if_requested()
            cmdp = _environment(json.dumps(environment))
            for learner in config.learners:
                raise_if_requested()
                code = _code(imported, learner, environment["name"])
                for hparams in _hparams(config, learner):
                    kind = {"learner": learner, "environment": environment, "hparams": hparams, "episodes": episodes}
                    width = HOST_LANES if runs_on_host(kind | options) else config.block
                    for instance in range(cmdp.batch_shape[0]):
                        for first in range(0, len(seeds), width):
                            block = {
                                **kind,
                                **options,
                                "instance": instance,
                                "width": width,
                                "seeds": seeds[first : first + width],
                            } | code
                            blocks[block_key(block)] = block
    if not blocks:
        raise ValueError(f"hparams = {config.hparams!r} is empty, so there is nothing to run; give 'tuned'.")
    return blocks


def _code(imported: Sequence[imports.Imported], learner: str, environment: str) -> dict[str, list[str]]:
    """The code that determines a block: hashes of user code, and the packages of learner and environment."""
    packages = [base.source(learner), registry.source(environment)]
    sources = [*(code.digest for code in imported), *(package for package in packages if package is not None)]
    sources += adhoc_code.code_hashes(learner, environment, imports.registered_names())
    return {"code": sources} if sources else {}


def build_block(block: BlockSpec) -> tuple[SimulationPlan, LearnerPlan, LaneIndex]:
    """The plan and the lanes of a block, from its description alone."""
    plan = _block_plan(block)
    seeds = np.asarray(block["seeds"])
    zeros = np.zeros(len(seeds), int)
    width = len(seeds) if plan.learners[0].on_host else block["width"]
    return plan, select_instance(plan.learners[0], block["instance"], 0), pad_block(zeros, zeros, seeds, width)


def build_batch(blocks: Sequence[BlockSpec], batch: bool, narrow: bool = False) -> tuple[LearnerPlan, LaneIndex]:
    """One plan for blocks that differ only in instance, hparams and seeds, with their lanes concatenated.

    batch: every lane has the model of its own instance; otherwise all blocks must have the same instance.
    narrow: see `launch_width`.
    """
    plans = {json.dumps(block["hparams"]): _block_plan(block).learners[0] for block in blocks}
    each = [plan if batch else select_instance(plan, blocks[0]["instance"], 0) for plan in plans.values()]
    plan = replace(each[0], hparams=[p.hparams[0] for p in each], problems=[p.problems[0] for p in each])
    position = {text: i for i, text in enumerate(plans)}
    lanes = [
        (block["instance"] if batch else 0, position[json.dumps(block["hparams"])], seed)
        for block in blocks
        for seed in block["seeds"]
    ]
    instance, hparams, seed = np.array(lanes).T
    width = len(lanes) if plan.on_host else launch_width(blocks[0], narrow)
    return plan, pad_block(instance, hparams, seed, width)


def launch_width(block: BlockSpec, narrow: bool = False) -> int:
    """The number of lanes of the program that runs a block: the block's width, or on an accelerator as many as fit.

    narrow: one vector of a CPU instead (see `fits_narrow`). Otherwise it does not depend on the number of blocks:
    missing lanes are padding, which is cheap on an accelerator, and lanes are independent of each other bit for bit.
    """
    if narrow:
        return SIMD_LANES
    return block["width"] if runs_on_host(block) else programs.launch_lanes(block["width"], mdp_shape(block))


def fits_narrow(block: BlockSpec, lanes: int) -> bool:
    """Whether up to `lanes` lanes of a block's kind run as one vector of a CPU, by the rule of `simulate`."""
    learner = _block_plan(block).learners[0].learner
    return not runs_on_host(block) and programs.padded_lanes(lanes, narrow=is_builtin(learner)) == SIMD_LANES


def mdp_shape(block: BlockSpec) -> tuple[int, ...]:
    """(L, S, A) of a block's environment."""
    return _block_plan(block).learners[0].cmdp.reward.shape[:3]


def has_instances(block: BlockSpec) -> bool:
    """Whether a block's environment has several instances."""
    return _block_plan(block).learners[0].cmdp.batch_shape[0] > 1


def runs_on_host(block: BlockSpec) -> bool:
    """Whether a block runs on the host, without compilation."""
    return _block_plan(block).learners[0].on_host


def program_key(block: BlockSpec, batch: bool = False, narrow: bool = False) -> str:
    """Equal for blocks that run the same compiled program; `batch` and `narrow` as in `build_batch`."""
    names = ("learner", "environment", "width", "horizon", "monitor", "dtype")
    explores = str(block.get("rho")).startswith("estimate")
    return json.dumps([explores, batch, narrow, block.get("code"), *(block[name] for name in names)], sort_keys=True)


def _block_plan(block: BlockSpec) -> SimulationPlan:
    """The plan of a block for all instances of its environment."""
    names = ("learner", "environment", "hparams", "episodes", *OPTION_NAMES)
    return _plan(json.dumps({name: block[name] for name in names if name in block}))  # older runs lack newer options


@cached_by_name
def description(text: str, instance: int) -> str:
    """The description of an instance; text: JSON of its environment."""
    return unstack(_environment(text))[instance].describe()


@cached_by_name
def _plan(text: str) -> SimulationPlan:
    """The plan of one learner with one hparams on all instances of an environment; text: JSON."""
    block = json.loads(text)
    environment = json.dumps(block["environment"])
    cmdp, solution = _environment(environment), _solution(environment)
    preset, values = block["hparams"]["preset"], block["hparams"]["values"]
    axes = {name: [value] for name, value in block["hparams"].get("options", {}).items()}
    options = Options.from_values({name: block[name] for name in OPTION_NAMES if name in block} | axes)
    hparams = {"preset": preset, **values}
    return prepare(
        block["learner"], cmdp, episodes=block["episodes"], seeds=1, hparams=hparams, options=options, solution=solution
    )


@cached_by_name
def _environment(text: str) -> CMDP:
    """An environment as a batch; text: JSON of its table."""
    table = json.loads(text)
    parameters = {name: value for name, value in table.items() if name not in ("name", "sha256")}
    inputs.refuse_learner_name(table["name"])
    try:
        return inputs.batch(envs.make(table["name"], **parameters))
    except TypeError as error:
        raise ValueError(f"environment {environment_label(table)}: {error}.") from error


@cached_by_name
def _solution(text: str) -> optimum.Solution:
    try:
        return optimum.solve(_environment(text))
    except optimum.InfeasibleError as error:
        raise ValueError(f"environment {environment_label(json.loads(text))}: {error}") from error


def _with_digest(environment: dict[str, Any]) -> dict[str, Any]:
    """The environment with a hash of its file, so that the content identifies it and not the path."""
    name = environment["name"]
    if not name.endswith(".npz") or not Path(name).is_file():
        return environment
    return environment | {"sha256": hashlib.sha256(Path(name).read_bytes()).hexdigest()[:16]}


def _hparams(config: Config, learner: str) -> list[dict[str, Any]]:
    """The hparams of a learner as plain tables, which include the options that are axes."""
    spec = config.hparams
    if isinstance(spec, dict) and set(spec) & set(config.learners):
        spec = spec.get(learner, "tuned")
    tables = [
        with_options(choice, values)._asdict() for choice in parse(spec) for values, _ in config.options.combinations()
    ]
    return [{name: value for name, value in table.items() if name != "options" or value} for table in tables]
