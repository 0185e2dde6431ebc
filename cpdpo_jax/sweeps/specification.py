"""From a configuration to blocks, and from a block's description to the arrays it runs on.

A block is one learner on one instance under one setting for up to `block` seeds (`HOST_LANES` on the host). Its
description is a table of plain values, its key the hash of it. Blocks share nothing, so any number of threads, or
machines under a scheduler, can be handed them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from cpdpo_jax import envs
from cpdpo_jax.common.plugins import remembered
from cpdpo_jax.common.types import CMDP
from cpdpo_jax.envs import registry
from cpdpo_jax.envs.build import unstack
from cpdpo_jax.exact import optimum
from cpdpo_jax.kernels.target import for_accelerator, target_platform
from cpdpo_jax.learners import base, settings
from cpdpo_jax.simulation import inputs
from cpdpo_jax.simulation.lanes import HOST_LANES, LaneIndex, lanes_that_fit, padded, whole_rounds
from cpdpo_jax.simulation.options import OPTION_NAMES, Options
from cpdpo_jax.simulation.plan import LearnerPlan, SimulationPlan, prepare, select_instance
from cpdpo_jax.sweeps import by_hand, imports
from cpdpo_jax.sweeps.config import Config, digest, show_environment

BlockSpec = dict[str, Any]


def expand(config: Config) -> dict[str, BlockSpec]:
    """All blocks of a run by key, everything checked: an error here means that nothing has been written."""
    own = load_imports(config)
    seeds = inputs.seeds(config.seeds).tolist()
    blocks: dict[str, BlockSpec] = {}
    options = asdict(config.options)
    for episodes in config.episodes:
        for environment in map(_with_digest, config.environments):
            cmdp = _environment(json.dumps(environment))
            for learner in config.learners:
                for setting in _settings(config, learner):
                    kind = {"learner": learner, "environment": environment, "setting": setting, "episodes": episodes}
                    width = HOST_LANES if _plan(json.dumps(kind | options)).learners[0].on_host else config.block
                    for instance in range(cmdp.batch_shape[0]):
                        for first in range(0, len(seeds), width):
                            block = {
                                **kind,
                                **options,
                                "instance": instance,
                                "width": width,
                                "seeds": seeds[first : first + width],
                            } | _code(own, learner, environment["name"])
                            blocks[digest(block)] = block
    if not blocks:
        raise ValueError(f"settings = {config.settings!r} names no setting, so there is nothing to run; give 'tuned'.")
    return blocks


def load_imports(config: Config) -> list[imports.Imported]:
    """Register the learners and environments of a user's own."""
    return imports.load(config.imports)


def _code(own: Sequence[imports.Imported], learner: str, environment: str) -> dict[str, list[str]]:
    """What else determines a block: hashes of code of one's own, the packages that learner and environment are from."""
    sources = [base.source(learner), registry.source(environment)]
    known = [*(one.digest for one in own), *(one for one in sources if one is not None)]
    known += by_hand.code_of(learner, environment, imports.registered())
    return {"code": known} if known else {}


def build_block(block: BlockSpec) -> tuple[SimulationPlan, LearnerPlan, LaneIndex]:
    """The plan and the lanes of a block, from its description alone."""
    plan = _plan_of(block)
    seeds = np.asarray(block["seeds"])
    nothing = np.zeros(len(seeds), int)
    width = len(seeds) if plan.learners[0].on_host else block["width"]
    return plan, select_instance(plan.learners[0], block["instance"], 0), padded(nothing, nothing, seeds, width)


def build_together(blocks: Sequence[BlockSpec], batch: bool) -> tuple[LearnerPlan, LaneIndex]:
    """One plan for blocks that differ in instance, setting and seeds alone, their lanes side by side.

    batch: every lane has its instance's model, else all lanes have one model, which must be that of all of them.
    """
    plans = {json.dumps(block["setting"]): _plan_of(block).learners[0] for block in blocks}
    plan = next(iter(plans.values()))
    if not batch:
        plan = select_instance(plan, blocks[0]["instance"], 0)
    plan = replace(plan, settings=[one.settings[0] for one in plans.values()])
    position = {text: i for i, text in enumerate(plans)}
    lanes = [
        (block["instance"] if batch else 0, position[json.dumps(block["setting"])], seed)
        for block in blocks
        for seed in block["seeds"]
    ]
    instance, setting, seed = np.array(lanes).T
    return plan, padded(instance, setting, seed, len(lanes) if plan.on_host else launch_width(blocks[0]))


def launch_width(block: BlockSpec) -> int:
    """The lanes of the program that runs a block: its own width, or on an accelerator as many as there is room for.

    It does not depend on how many blocks there are: what is missing is padding, which costs an accelerator little, and
    a block's bits do not depend on what runs beside it.
    """
    if not for_accelerator() or on_host(block):
        return block["width"]
    return max(block["width"], whole_rounds(lanes_that_fit(shape_of(block), target_platform())))


def shape_of(block: BlockSpec) -> tuple[int, ...]:
    """(L, S, A) of its environment."""
    return _plan_of(block).learners[0].cmdp.reward.shape[:3]


def has_instances(block: BlockSpec) -> bool:
    """Its environment has several."""
    return _plan_of(block).learners[0].cmdp.batch_shape[0] > 1


def on_host(block: BlockSpec) -> bool:
    """Nothing of it is compiled."""
    return _plan_of(block).learners[0].on_host


def kind(block: BlockSpec, batch: bool = False) -> str:
    """Blocks of one kind run the same compiled program; `batch` as of `build_together`."""
    names = ("learner", "environment", "width", "horizon", "monitor", "dtype")
    explores = str(block["rho"]).startswith("estimate")
    return json.dumps([explores, batch, block.get("code"), *(block[name] for name in names)], sort_keys=True)


def _plan_of(block: BlockSpec) -> SimulationPlan:
    """The plan of all instances of a block's environment."""
    asked = ("learner", "environment", "setting", "episodes", *OPTION_NAMES)
    return _plan(json.dumps({name: block[name] for name in asked if name in block}))  # older runs lack newer options


@remembered
def description(text: str, instance: int) -> str:
    """What an instance is, in words; text: JSON of its environment."""
    return unstack(_environment(text))[instance].describe()


@remembered
def _plan(text: str) -> SimulationPlan:
    """One learner under one setting on all instances of an environment; text: JSON."""
    block = json.loads(text)
    environment = json.dumps(block["environment"])
    cmdp, solution = _environment(environment), _solution(environment)
    preset, values = block["setting"]["preset"], block["setting"]["values"]
    options = Options.made_of({name: block[name] for name in OPTION_NAMES if name in block})
    hparams = {"preset": preset, **values}
    return prepare(
        block["learner"], cmdp, episodes=block["episodes"], seeds=1, hparams=hparams, options=options, solution=solution
    )


@remembered
def _environment(text: str) -> CMDP:
    """An environment as a batch; text: JSON of its table."""
    table = json.loads(text)
    parameters = {name: value for name, value in table.items() if name not in ("name", "sha256")}
    inputs.no_learner(table["name"])
    try:
        return inputs.batch(envs.make(table["name"], **parameters))
    except TypeError as error:
        raise ValueError(f"environment {show_environment(table)}: {error}.") from error


@remembered
def _solution(text: str) -> optimum.Solution:
    try:
        return optimum.solve(_environment(text))
    except optimum.InfeasibleError as error:
        raise ValueError(f"environment {show_environment(json.loads(text))}: {error}") from error


def _with_digest(environment: dict[str, Any]) -> dict[str, Any]:
    """A file is known by its content, not by its name."""
    name = environment["name"]
    if not name.endswith(".npz") or not Path(name).is_file():
        return environment
    return environment | {"sha256": hashlib.sha256(Path(name).read_bytes()).hexdigest()[:16]}


def _settings(config: Config, learner: str) -> list[dict[str, Any]]:
    """The settings of a learner, as plain tables."""
    spec = config.settings
    if isinstance(spec, dict) and set(spec) & set(config.learners):
        spec = spec.get(learner, "tuned")
    return [one._asdict() for one in settings.parse(spec)]
