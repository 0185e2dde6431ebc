"""Play each game once and store its curves in NAME.npz."""

from __future__ import annotations

import functools
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.common import files
from experiments import common
from experiments.adversarial import sweep
from experiments.adversarial.sweep import Game

CHECKPOINTS = 20
ARRAYS = ("episodes", "loss", "best", "regret", "violation")  # fields of an `AdversarialRun`


def run(directory: Path, games: Sequence[Game], on: str = "") -> None:
    """Play the games that are not stored, on this machine."""
    missing = [game for game in games if not _stored(directory, game)]
    for i, game in enumerate(missing, 1):
        common.say(f"{i} of {len(missing)}: {game.name} ({game.episodes:,} episodes, {game.seeds} seeds)")
        started = time.perf_counter()
        played = play(game)
        seconds, buffer = np.array(time.perf_counter() - started), io.BytesIO()
        np.savez(
            buffer,
            configuration=np.array(_configuration(game)),
            seconds=seconds,
            **{name: getattr(played, name) for name in ARRAYS},
        )
        files.write(directory / f"{game.name}.npz", buffer.getvalue())


@functools.cache  # a compiled learner is compiled once for a sequence, not for each preset
def _sequence(kind: str, episodes: int, sizes: tuple[int, int, int]) -> tuple[cp.CMDP, Any]:
    layers, states, actions = sizes
    binding, maker = kind in sweep.CONSTRAINED, getattr(cp.envs, kind.removeprefix("constrained_"))
    cmdp = cp.envs.make("random", layers=layers, states=states, actions=actions, binding=binding, key=sweep.KEY)
    return cmdp, maker(cmdp, episodes=episodes, key=sweep.KEY, **_parameters(kind))


def _parameters(kind: str) -> dict[str, Any]:
    return (sweep.KINDS | sweep.CONSTRAINED)[kind]


def play(game: Game) -> cp.AdversarialRun:
    """A complete run of one game."""
    cmdp, losses = _sequence(game.kind, game.episodes, game.sizes)
    keeps = game.kind in sweep.CONSTRAINED
    return cp.play_losses(
        game.learner, cmdp, losses, seeds=game.seeds, hparams=game.preset, constraints=keeps, noisy_costs=keeps,
        key=sweep.KEY, checkpoints=CHECKPOINTS,
    )  # fmt: skip


def read(directory: Path, game: Game) -> common.Values | None:
    """Regret and violation at T, [seed], and the curve of regret: mean, 10 and 90 % quantiles over seeds."""
    if not _stored(directory, game):
        return None
    with np.load(directory / f"{game.name}.npz") as stored:
        regret = stored["regret"]  # [episode, seed]
        curve = np.array([regret.mean(axis=1), *np.quantile(regret, [0.1, 0.9], axis=1)])
        values = {"regret": regret[-1], "curve": curve, "seconds": stored["seconds"]}
        if game.kind in sweep.CONSTRAINED:
            values["violation"] = stored["violation"][-1]
        return {name: common.rounded(value) for name, value in values.items()} | {
            "episode": stored["episodes"].tolist()
        }


def _configuration(game: Game) -> str:
    return json.dumps([*game, _parameters(game.kind), sweep.KEY, ARRAYS])


def _stored(directory: Path, game: Game) -> bool:
    """Whether it has been played; ValueError if its file was written for a different configuration."""
    path = directory / f"{game.name}.npz"
    if not path.exists():
        return False
    with np.load(path) as stored:
        if str(stored.get("configuration")) != _configuration(game):
            raise ValueError(f"{path} was written for a different configuration; delete it, or give another --out.")
    return True
