"""What is run: S-OPS with the theory's constants over many seeds, and BV-OPS at several T, each T a separate run."""

from __future__ import annotations

from typing import Any, NamedTuple

from experiments.common import Cell


class Safe(NamedTuple):
    """An instance on which the mixture of S-OPS is watched."""

    episodes: int
    seeds: int
    environment: dict[str, Any]


RANDOM = {"name": "random", "layers": 3, "states": 3, "actions": 2}
SAFE = {
    "tiny": {"2 x 1 x 2": Safe(20, 3, RANDOM | {"layers": 2, "states": 1, "key": 7})},
    "small": {
        "1 x 1 x 2": Safe(200, 200, RANDOM | {"layers": 1, "states": 1, "key": 4}),
        "3 x 3 x 2": Safe(50, 200, RANDOM | {"key": 8}),
    },
}
SAFE["paper"] = {name: safe._replace(episodes=10 * safe.episodes) for name, safe in SAFE["small"].items()}
KEYS = {"tiny": (7,), "small": (7, 8), "paper": (7, 8)}  # an instance each; the presets were chosen on other families
TIMES = {"tiny": (10, 20), "small": (125, 500, 2000), "paper": (500, 2000, 8000)}
SEEDS = {"tiny": 2, "small": 16, "paper": 16}


def safe(scale: str, name: str) -> Cell:
    """S-OPS, theory's constants."""
    of = SAFE[scale][name]
    options = {"episodes": of.episodes, "seeds": of.seeds, "checkpoints": 20, "hparams": "theory"}
    return Cell(f"safe-{name.replace(' ', '')}", "s_ops", of.environment, options)


def growth(scale: str, key: int, episodes: int) -> Cell:
    """BV-OPS, tuned, at one T."""
    options = {"episodes": episodes, "seeds": SEEDS[scale], "checkpoints": 10}
    return Cell(f"growth-{key}-{episodes}", "bv_ops", RANDOM | {"key": key}, options)


def cells(scale: str) -> list[Cell]:
    """Short ones first."""
    found = [safe(scale, name) for name in SAFE[scale]]
    return found + [growth(scale, key, t) for t in TIMES[scale] for key in KEYS[scale]]
