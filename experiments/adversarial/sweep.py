"""What is run: two learners for adversarial MDPs on three kinds of losses, and two that also keep constraints."""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS: dict[str, dict[str, Any]] = {
    "switching": {"switches": 9},  # ten periods, in which two random tables alternate
    "drifting": {},  # a straight line from one random table to another
    "chasing": {"share": 0.5},  # half of a loss is how often the learner has played the action recently
}
LEARNERS = (("podb", "tuned"), ("uob_reps", "tuned"), ("podb", "theory"), ("uob_reps", "theory"), ("uniform", "tuned"))
CONSTRAINED = {"constrained_switching": KINDS["switching"]}  # with constraints that bind, and noisy costs
KEEPING = (("bv_ops", "tuned"), ("s_ops", "tuned"), ("bv_ops", "theory"), ("s_ops", "theory"), *LEARNERS[1::3])
SIZES = {"tiny": (2, 2, 2), "small": (3, 3, 2), "paper": (5, 5, 3)}  # layers, states, actions
EPISODES = {"tiny": (30,), "small": (300,), "paper": (1000, 3162, 10_000)}  # each with its own rates
SEEDS = {"tiny": 2, "small": 4, "paper": 8}
KEY = 5  # of the instance and the losses; no preset was chosen with it


class Game(NamedTuple):
    """A learner against a kind of losses, over T episodes."""

    kind: str
    learner: str
    preset: str
    episodes: int
    seeds: int
    sizes: tuple[int, int, int]

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.learner}-{self.preset}-{self.episodes}"


def cells(scale: str) -> list[Game]:
    """All games of a scale."""
    return [
        Game(kind, learner, preset, episodes, SEEDS[scale], SIZES[scale])
        for kinds, learners in ((KINDS, LEARNERS), (CONSTRAINED, KEEPING))
        for kind in kinds
        for learner, preset in learners
        for episodes in EPISODES[scale]
    ]
