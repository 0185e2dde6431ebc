"""Playing the games, each once: its curves are kept in NAME.npz."""

from __future__ import annotations

import functools
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

import cpdpo_jax as cp
from cpdpo_jax.common import files
from cpdpo_jax.simulation.adversarial import Played, play_losses
from experiments import common
from experiments.adversarial import sweep
from experiments.adversarial.sweep import Game

CHECKPOINTS = 20


def run(directory: Path, games: list[Game]) -> None:
    """Play the games that are not stored."""
    missing = [game for game in games if not _stored(directory, game)]
    for i, game in enumerate(missing, 1):
        common.say(f"{i} of {len(missing)}: {game.name} ({game.episodes:,} episodes, {game.seeds} seeds)")
        played = play(game)
        buffer = io.BytesIO()
        np.savez(buffer, asked=np.array(_asked(game)), **played._asdict())
        files.write(directory / f"{game.name}.npz", buffer.getvalue())


@functools.cache  # a compiled learner is compiled once for a sequence, not for each preset
def _sequence(kind: str, episodes: int, sizes: tuple[int, int, int]) -> tuple[cp.CMDP, Any]:
    layers, states, actions = sizes
    cmdp = cp.envs.make("random", layers=layers, states=states, actions=actions, binding=False, key=sweep.KEY)
    return cmdp, getattr(cp.envs, kind)(cmdp, episodes=episodes, key=sweep.KEY, **sweep.KINDS[kind])


def play(game: Game) -> Played:
    """One game, whole."""
    cmdp, losses = _sequence(game.kind, game.episodes, game.sizes)
    return play_losses(
        game.learner, cmdp, losses, seeds=game.seeds, hparams=game.preset, key=sweep.KEY, checkpoints=CHECKPOINTS
    )


def load(directory: Path, games: list[Game]) -> dict[Game, Played]:
    """All games, from what is stored."""
    missing = [game.name for game in games if not _stored(directory, game)]
    if missing:
        raise ValueError(f"{directory} lacks {', '.join(missing)}; run the command without --analysis first.")
    found = {}
    for game in games:
        with np.load(directory / f"{game.name}.npz") as stored:
            found[game] = Played(**{name: stored[name] for name in Played._fields})
    return found


def _asked(game: Game) -> str:
    return json.dumps([*game, sweep.KINDS[game.kind], sweep.KEY])


def _stored(directory: Path, game: Game) -> bool:
    """Whether it has been played; an error if its file holds the answer to another question."""
    path = directory / f"{game.name}.npz"
    if not path.exists():
        return False
    with np.load(path) as stored:
        if str(stored["asked"]) != _asked(game):
            raise ValueError(f"{path} holds a game of another configuration; delete it, or give another --out.")
    return True
