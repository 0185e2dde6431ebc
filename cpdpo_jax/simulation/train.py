"""`make_train`: a learner's complete run as a pure JAX function of a key, for use with `vmap`, `jit` and programs.

    train = cp.make_train("cpdpo", cmdp, episodes=10_000)
    curves = jax.jit(jax.vmap(train))(train.keys(256))               # the seeds of simulate(..., seeds=256)
    curves = jax.jit(jax.vmap(train))(jax.random.split(key, 256))    # any other keys work too

`simulate` runs the same computation from the host, on all cores, with a progress bar and labelled results.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from cpdpo_jax.common.types import CMDP, Array
from cpdpo_jax.kernels.machines import programs
from cpdpo_jax.learners.base import Learner, Problem
from cpdpo_jax.learners.hparams import HparamsLike
from cpdpo_jax.simulation import inputs, monitor
from cpdpo_jax.simulation.blocks import with_plan_precision
from cpdpo_jax.simulation.compiled_loop import LaneInputs
from cpdpo_jax.simulation.curves import BlockCurves
from cpdpo_jax.simulation.lanes import lane_inputs, pad_block
from cpdpo_jax.simulation.options import Options, OptionValues, takes_options
from cpdpo_jax.simulation.plan import LearnerPlan, prepare
from cpdpo_jax.simulation.randomness import lane_keys
from cpdpo_jax.simulation.rollout import Model
from cpdpo_jax.simulation.traced_run import run_lanes


class Instance(NamedTuple):
    """A CMDP as an argument of `train`: the true model, the learner's problem and the optimum."""

    model: Model
    problem: Problem
    optimum: Array  # [] OPT
    truth: monitor.Truth | None = None  # if given, the analysis is monitored


class Curves(NamedTuple):
    """The curves of one seed at C checkpoints (`train.checkpoints`) for M constraints, in the run's type.

    Names are those of `Result.data`. A mapped `train` adds leading axes.
    """

    strong_regret: jax.Array  # [C] cumulative
    strong_violation: jax.Array  # [C,M]
    weak_regret: jax.Array  # [C]
    weak_violation: jax.Array  # [C,M]
    regret_gap: jax.Array  # [C] OPT - V(r) of the last policy played
    violation_gap: jax.Array  # [C,M] V(g) - alpha
    multiplier: jax.Array  # [C,M]
    multiplier_mean: jax.Array  # [C,M]
    epochs: jax.Array  # [C] int32
    final_policy: jax.Array  # [L,S,A]
    first_non_finite: jax.Array  # [] int32, episode, 0 if none: check it, because programs cannot raise errors
    failures: jax.Array | None = None  # [C,events] int32; None unless monitor=True
    slack: jax.Array | None = None  # [C,events]
    watched_sum: jax.Array | None = None  # [C,sums]


@dataclass(frozen=True, eq=False)
class Train:
    """A pure function: train(key), train(key, hyper), train(key, hyper, instance) -> `Curves` of one seed.

    `hyper` and `instance` are the learner's hyperparameters (a NamedTuple of numbers) and the CMDP. If `make_train`
    received several, the attributes have leading axes: hyper [instances, hparams, ...], instance [instances, ...],
    without axes of size 1. An argument with such an axis must be passed and mapped; the others are optional.
    """

    learner: Learner  # the learner that is run
    checkpoints: np.ndarray  # [C] episodes of the checkpoints
    hyper: Any  # the default hyperparameters, and the form of others
    instance: Instance  # the default CMDP, and the form of others
    n_instances: int  # instances given to `make_train`
    n_hparams: int  # choices of hparams given to `make_train`
    key: int  # the run's random seed
    _lanes: Callable[[LaneInputs], BlockCurves]

    @property
    def n_settings(self) -> int:
        """Deprecated: `n_hparams`."""
        warnings.warn("Train.n_settings is now Train.n_hparams.", DeprecationWarning, stacklevel=2)
        return self.n_hparams

    def __call__(self, key: Array, hyper: Any = None, instance: Instance | None = None) -> Curves:
        """Run one seed."""
        if hyper is None and self.n_instances * self.n_hparams > 1:
            raise ValueError(
                f"train has {self.n_instances} instances and {self.n_hparams} hparams, so hyper = None is ambiguous; "
                "map over train.hyper, or pass single ones to make_train."
            )
        if instance is None and self.n_instances > 1:
            raise ValueError(
                f"train has {self.n_instances} instances, so instance = None is ambiguous; map over "
                "train.instance, or pass a single instance to make_train."
            )
        is_double: bool = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
        if self.instance.optimum.dtype == np.float64 and not is_double:
            raise ValueError(
                "dtype = 'float64' needs jax in double precision; call train inside `with "
                "jax.enable_x64(True):`, or set JAX_ENABLE_X64=1."
            )
        hyper, instance = (self.hyper if hyper is None else hyper), (self.instance if instance is None else instance)
        like = jax.tree.map(lambda leaf: leaf.dtype, (self.hyper, self.instance))
        hyper, instance = jax.tree.map(lambda leaf, dtype: jnp.asarray(leaf, dtype)[..., None], (hyper, instance), like)
        fields: Any = instance
        lanes = LaneInputs(hyper=hyper, keys=_key_words(key)[:, None], **fields._asdict())
        return jax.tree.map(lambda leaf: leaf[..., 0], _curves(self._lanes(lanes)))

    def keys(self, seeds: int | Sequence[int], *, key: Any = None) -> jax.Array:
        """The keys with which `train` reproduces `simulate(..., key=key, seeds=seeds)`.

        Each key is computed from (key, position of the instance, seed); key None means the key of `make_train`.
        -> jax keys [seeds], or [instances, seeds] with several instances.
        """
        numbers = inputs.seeds(seeds)
        run_key = self.key if key is None else Options(key=key).key
        position, number = np.meshgrid(np.arange(self.n_instances), numbers, indexing="ij")
        words = np.moveaxis(lane_keys(run_key, position, number), 0, -1)
        keys = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
        return keys if self.n_instances > 1 else keys[0]


@takes_options
def make_train(
    learner: str | Learner,
    cmdp: str | CMDP | Sequence[CMDP],
    *,
    episodes: int,
    hparams: HparamsLike = "tuned",
    **options: Unpack[OptionValues],
) -> Train:
    """A pure JAX function of a key that runs a learner for `episodes` episodes and returns the curves of one seed.

    learner      a name or a `Learner`; it must be compiled (LP learners run on the host)
    cmdp         as for `simulate`; several instances become an axis of `train.instance`
    hparams      as for `simulate`; several choices become an axis of `train.hyper`
    @OPTIONS

    Use `simulate` for horizon="doubling" and rho="estimate:N", which restart the learner from the host, and for lists
    of rho, delta or safety.

    `jax.vmap`, nested or not, merges its axis into the lanes, the last axis in memory (the fast layout); lanes run in
    blocks that fit the cache. Three instances, four hparams and 64 seeds:

        train = cp.make_train("cpdpo", three, episodes=1000, hparams={"learning_rate": ["x0.5", "x1", "x2", "x4"]})
        seeds = jax.vmap(train, in_axes=(0, None, None))
        hparams = jax.vmap(seeds, in_axes=(None, 0, None))
        curves = jax.jit(jax.vmap(hparams))(train.keys(64), train.hyper, train.instance)      # [3, 4, 64, ...]
    """
    chosen = Options.from_values(options)
    if chosen.horizon != "known":
        raise ValueError(f"horizon = {chosen.horizon!r} restarts the learner from the host; use simulate, or 'known'.")
    if isinstance(chosen.rho, str) and chosen.rho.startswith("estimate:"):
        raise ValueError(f"rho = {chosen.rho!r} restarts the learner from the host; use simulate, or give a number.")
    for name, values in chosen.axes.items():
        raise ValueError(f"{name} = {values} is an axis; use simulate, or make one function per value.")
    if not isinstance(learner, str | Learner):
        raise ValueError(
            f"learner = {learner!r} is not a learner; give a name or a Learner, and make one function per learner."
        )
    programs.warn_if_options_are_missing()
    plan = prepare(learner, cmdp, episodes=episodes, seeds=1, hparams=hparams, options=chosen).learners[0]
    if plan.on_host:
        raise ValueError(f"learner {plan.learner.name!r} runs on the host and cannot be traced; use simulate.")
    hyper, instance = _plan_arrays(plan)
    points = tuple(int(point) for point in plan.checkpoints)
    return Train(
        learner=plan.learner,
        checkpoints=plan.checkpoints,
        hyper=hyper,
        instance=instance,
        n_instances=plan.cmdp.batch_shape[0],
        n_hparams=len(plan.hparams),
        key=plan.key,
        _lanes=_mappable(partial(run_lanes, plan.learner, plan.cmdp.noise, points)),
    )


@with_plan_precision
def _plan_arrays(plan: LearnerPlan) -> tuple[Any, Instance]:
    """The hyperparameters [instances, hparams, ...] and the instances [instances, ...], without axes of size 1."""
    shape = plan.cmdp.batch_shape[0], len(plan.hparams)
    instance, hparams = (index.ravel() for index in np.indices(shape))

    def arrays(instance: np.ndarray, hparams: np.ndarray) -> LaneInputs:
        block = pad_block(instance, hparams, np.zeros(len(instance), int), len(instance))
        return lane_inputs(plan, block, plan.phases[-1], plan.believed(hparams, instance))

    def leading(leaf: Array, *sizes: int) -> np.ndarray:
        first = np.moveaxis(np.asarray(leaf), -1, 0)
        return first.reshape((*(n for n in sizes if n > 1), *first.shape[1:]))

    hyper = jax.tree.map(lambda leaf: leading(leaf, *shape), arrays(instance, hparams).hyper)
    positions = np.arange(shape[0])
    lanes = arrays(positions, 0 * positions)
    parts = Instance(lanes.model, lanes.problem, lanes.optimum, lanes.truth)
    return hyper, jax.tree.map(lambda leaf: leading(leaf, shape[0]), parts)


def _key_words(key: Array) -> jax.Array:
    """The two words of a typed or untyped jax key."""
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):  # pyright: ignore[reportPrivateImportUsage]
        key = jax.random.key_data(key)
    if key.shape != (2,) or key.dtype != jnp.uint32:
        raise ValueError(
            f"key has shape {key.shape} and type {key.dtype}, but a key has shape (2,) and type uint32; use jax.vmap "
            "for several keys, from train.keys or jax.random.key (threefry2x32)."
        )
    return key


def _curves(block: BlockCurves) -> Curves:
    curves: Any = block  # traced arrays
    return Curves(
        strong_regret=curves.strong[:, 0],
        strong_violation=curves.strong[:, 1:],
        weak_regret=curves.weak[:, 0],
        weak_violation=curves.weak[:, 1:],
        regret_gap=curves.gaps[:, 0],
        violation_gap=curves.gaps[:, 1:],
        multiplier=curves.multiplier,
        multiplier_mean=curves.multiplier_mean,
        epochs=curves.epochs,
        final_policy=curves.policy,
        first_non_finite=curves.first_non_finite,
        failures=curves.failures,
        slack=curves.slack,
        watched_sum=curves.watched,
    )


def _mappable(run: Callable[[LaneInputs], BlockCurves]) -> Callable[[LaneInputs], BlockCurves]:
    """`run` with a rule for `jax.vmap` that merges the mapped axis into the lanes, the trailing axis."""
    call = jax.custom_batching.custom_vmap(run)

    @call.def_vmap
    def _(size: int, is_mapped: Any, lanes: LaneInputs) -> tuple[BlockCurves, BlockCurves]:
        mapped = is_mapped[0] if isinstance(is_mapped, list | tuple) and len(is_mapped) == 1 else is_mapped
        flags = jax.tree.leaves(mapped)
        leaves, structure = jax.tree.flatten(lanes)
        count = max(leaf.shape[-1] for leaf in leaves)

        def merge(leaf: jax.Array, is_mapped: bool) -> jax.Array:
            if not is_mapped and leaf.shape[-1] == 1:
                return leaf  # shared by all lanes
            last = jnp.moveaxis(leaf, 0, -1) if is_mapped else leaf[..., None]
            full = jnp.broadcast_to(last, (*last.shape[:-2], count, size))
            return full.reshape(*full.shape[:-2], count * size)

        merged = structure.unflatten([merge(leaf, flag) for leaf, flag in zip(leaves, flags, strict=True)])
        curves = jax.tree.map(
            lambda leaf: jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], count, size), -1, 0), call(merged)
        )
        return curves, jax.tree.map(lambda _: True, curves)

    return call
