"""`make_train`: a learner's whole run as a pure JAX function of a key, to be mapped, compiled and built into programs.

    train = cp.make_train("cpdpo", cmdp, episodes=10_000)
    curves = jax.jit(jax.vmap(train))(train.keys(256))               # the seeds of simulate(..., seeds=256)
    curves = jax.jit(jax.vmap(train))(jax.random.split(key, 256))    # any other keys are as good

`simulate` does the same from the host, with a progress bar, all cores, snapshots and labelled results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.learners.base import Learner, Problem
from cpdpo_jax.simulation import inputs, monitor
from cpdpo_jax.simulation.compiled_loop import LaneInputs
from cpdpo_jax.simulation.lanes import lane_inputs, padded
from cpdpo_jax.simulation.options import Options, takes_options
from cpdpo_jax.simulation.plan import LearnerPlan, prepare
from cpdpo_jax.simulation.randomness import lane_keys
from cpdpo_jax.simulation.rollout import Model
from cpdpo_jax.simulation.whole_run import LaneCurves, whole_run


class Instance(NamedTuple):
    """A CMDP as `train` takes it: the model for the environment's side, what the learner knows, the optimum."""

    model: Model
    problem: Problem
    optimum: Array  # [] OPT
    truth: monitor.Truth | None = None  # given: watch the analysis


class Curves(NamedTuple):
    """What `train` returns for one seed, in the run's type; C checkpoints (`train.checkpoints`), M constraints.

    The names are those of `Result.data`.
    """

    strong_regret: Array  # [C] cumulative
    strong_violation: Array  # [C,M]
    weak_regret: Array  # [C]
    weak_violation: Array  # [C,M]
    regret_gap: Array  # [C] OPT - V(r) of the last policy played
    violation_gap: Array  # [C,M] V(g) - alpha
    multiplier: Array  # [C,M]
    multiplier_mean: Array  # [C,M]
    epochs: Array  # [C] int32
    final_policy: Array  # [L,S,A]
    first_non_finite: Array  # [] int32, episode, 0 for none: look at it, nothing is raised inside a program
    failures: Array = None  # [C,events] int32; None unless monitor=True
    slack: Array = None  # [C,events]
    watched_sum: Array = None  # [C,sums]


@dataclass(frozen=True, eq=False)
class Train:
    """A pure function: train(key), train(key, hyper), train(key, hyper, instance) -> `Curves` of one seed.

    `hyper` and `instance` are the learner's hyperparameters (a NamedTuple of numbers) and the CMDP. Where `make_train`
    was given several, they lead with an axis: hyper [instances, settings, ...], instance [instances, ...], either
    without the axis of which there is one. What has an axis must be handed over, mapped; what has none is the default.
    """

    learner: Learner
    checkpoints: np.ndarray  # [C] the episodes of the curves' points
    hyper: Any
    instance: Instance
    n_instances: int
    n_settings: int
    key: int
    _lanes: Callable[[LaneInputs], LaneCurves]

    def __call__(self, key: Array, hyper: Any = None, instance: Instance | None = None) -> Curves:
        """The run of one seed."""
        if hyper is None and self.n_instances * self.n_settings > 1:
            raise ValueError(
                f"train was made of {self.n_instances} instances and {self.n_settings} settings, so hyper = None is "
                "none of them; map over train.hyper, or make it of one."
            )
        if instance is None and self.n_instances > 1:
            raise ValueError(
                f"train was made of {self.n_instances} instances, so instance = None is none of them; map over "
                "train.instance, or make it of one."
            )
        hyper, instance = (self.hyper if hyper is None else hyper), (self.instance if instance is None else instance)
        like = jax.tree.map(lambda leaf: leaf.dtype, (self.hyper, self.instance))
        hyper, instance = jax.tree.map(lambda leaf, dtype: jnp.asarray(leaf, dtype)[..., None], (hyper, instance), like)
        one: Any = instance
        lanes = LaneInputs(hyper=hyper, keys=_words(key)[:, None], **one._asdict())
        return jax.tree.map(lambda leaf: leaf[..., 0], _curves(self._lanes(lanes)))

    def keys(self, seeds: int | Sequence[int], *, key: Any = None) -> jax.Array:
        """The keys with which `train` computes what `simulate(..., key=key, seeds=seeds)` does.

        A seed's luck is one key, made of (key, position of the instance, seed). -> jax keys [seeds], or
        [instances, seeds] where there are several; key None is that of `make_train`.
        """
        numbers = inputs.seeds(seeds)
        run_key = self.key if key is None else Options(key=key).key
        position, number = np.meshgrid(np.arange(self.n_instances), numbers, indexing="ij")
        words = np.moveaxis(lane_keys(run_key, position, number), 0, -1)
        made = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        return made if self.n_instances > 1 else made[0]


@takes_options
def make_train(
    learner: str | Learner,
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    hparams: Any = "tuned",
    **options: Any,
) -> Train:
    """A pure JAX function of a key that runs a learner for `episodes` episodes and returns the curves of one seed.

    learner      a name or a `Learner`; one that is compiled (the LP learners run on the host)
    cmdp         as for `simulate`; several instances become an axis of `train.instance`
    hparams      as for `simulate`; several settings become an axis of `train.hyper`
    @OPTIONS

    horizon="doubling" and rho="estimate:N" restart the learner from the host: `simulate` has them, this has not.

    `jax.vmap` joins its axis to the lanes, which lie last in memory (the fast layout), however often it is nested;
    lanes run in blocks that fit the cache. Three instances, four settings and 64 seeds:

        train = cp.make_train("cpdpo", three, episodes=1000, hparams={"learning_rate": ["x0.5", "x1", "x2", "x4"]})
        seeds = jax.vmap(train, in_axes=(0, None, None))
        settings = jax.vmap(seeds, in_axes=(None, 0, None))
        curves = jax.jit(jax.vmap(settings))(train.keys(64), train.hyper, train.instance)      # [3, 4, 64, ...]
    """
    asked = Options.made_of(options)
    if asked.horizon != "known":
        raise ValueError(f"horizon = {asked.horizon!r} restarts the learner from the host; use simulate, or 'known'.")
    if isinstance(asked.rho, str) and asked.rho.startswith("estimate:"):
        raise ValueError(f"rho = {asked.rho!r} restarts the learner from the host; use simulate, or give a number.")
    if not isinstance(learner, str | Learner):
        raise ValueError(f"learner = {learner!r} is not one learner; make a function of each.")
    plan = prepare(learner, cmdp, episodes=episodes, seeds=1, hparams=hparams, options=asked).learners[0]
    if plan.on_host:
        raise ValueError(f"learner {plan.learner.name!r} runs on the host and has no JAX function; use simulate.")
    hyper, instance = _of_plan(plan)
    points = tuple(int(point) for point in plan.checkpoints)
    return Train(
        learner=plan.learner,
        checkpoints=plan.checkpoints,
        hyper=hyper,
        instance=instance,
        n_instances=plan.cmdp.batch_shape[0],
        n_settings=len(plan.settings),
        key=plan.key,
        _lanes=_mappable(partial(whole_run, plan.learner, plan.cmdp.noise, points)),
    )


def _of_plan(plan: LearnerPlan) -> tuple[Any, Instance]:
    """The hyperparameters [instances, settings, ...] and the instances [instances, ...], without axes of size 1."""
    shape = plan.cmdp.batch_shape[0], len(plan.settings)
    instance, setting = (index.ravel() for index in np.indices(shape))

    def arrays(instance: np.ndarray, setting: np.ndarray) -> LaneInputs:
        lane = padded(instance, setting, np.zeros(len(instance), int), len(instance))
        return lane_inputs(plan, lane, plan.phases[-1], np.asarray(plan.problem.slater_margin)[instance])

    def leading(leaf: Array, *sizes: int) -> np.ndarray:
        first = np.moveaxis(np.asarray(leaf), -1, 0)
        return first.reshape((*(n for n in sizes if n > 1), *first.shape[1:]))

    hyper = jax.tree.map(lambda leaf: leading(leaf, *shape), arrays(instance, setting).hyper)
    every = np.arange(shape[0])
    lanes = arrays(every, 0 * every)
    parts = Instance(lanes.model, lanes.problem, lanes.optimum, lanes.truth)
    return hyper, jax.tree.map(lambda leaf: leading(leaf, shape[0]), parts)


def _words(key: Array) -> jax.Array:
    """The two words of a jax key, typed or not."""
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):  # pyright: ignore[reportPrivateImportUsage]
        key = jax.random.key_data(key)
    if key.shape != (2,) or key.dtype != jnp.uint32:
        raise ValueError(
            f"key has shape {key.shape} and type {key.dtype}, which is not one key of two words; map over several with "
            "jax.vmap, and make them with train.keys or jax.random.key (threefry2x32)."
        )
    return key


def _curves(lanes: LaneCurves) -> Curves:
    points = lanes.points
    return Curves(
        strong_regret=points.strong[:, 0],
        strong_violation=points.strong[:, 1:],
        weak_regret=points.weak[:, 0],
        weak_violation=points.weak[:, 1:],
        regret_gap=points.gaps[:, 0],
        violation_gap=points.gaps[:, 1:],
        multiplier=points.multiplier,
        multiplier_mean=points.multiplier_mean,
        epochs=points.epochs,
        final_policy=lanes.policy,
        first_non_finite=lanes.first_bad,
        failures=points.failures,
        slack=points.slack,
        watched_sum=points.watched,
    )


def _mappable(run: Callable[[LaneInputs], LaneCurves]) -> Callable[[LaneInputs], LaneCurves]:
    """`run` with a rule for `jax.vmap`: the mapped axis joins the lanes, the trailing axis; nested ones one by one."""
    call = jax.custom_batching.custom_vmap(run)

    @call.def_vmap
    def _(size: int, is_mapped: Any, lanes: LaneInputs) -> tuple[LaneCurves, LaneCurves]:
        mapped = is_mapped[0] if isinstance(is_mapped, list | tuple) and len(is_mapped) == 1 else is_mapped
        flags = jax.tree.leaves(mapped)
        leaves, structure = jax.tree.flatten(lanes)
        count = max(leaf.shape[-1] for leaf in leaves)

        def joined(leaf: jax.Array, is_mapped: bool) -> jax.Array:
            if not is_mapped and leaf.shape[-1] == 1:
                return leaf  # one for all lanes
            last = jnp.moveaxis(leaf, 0, -1) if is_mapped else leaf[..., None]
            full = jnp.broadcast_to(last, (*last.shape[:-2], count, size))
            return full.reshape(*full.shape[:-2], count * size)

        given = structure.unflatten([joined(leaf, flag) for leaf, flag in zip(leaves, flags, strict=True)])
        curves = jax.tree.map(
            lambda leaf: jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], count, size), -1, 0), call(given)
        )
        return curves, jax.tree.map(lambda _: True, curves)

    return call
