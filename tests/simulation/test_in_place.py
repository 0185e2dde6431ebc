"""An episode updates its arrays in place, and computes what it writes into them once."""

import re

import pytest

from cpdpo_jax.simulation import compiled_loop
from experiments.speed import internals
from experiments.speed.timing import Size


def loop_text(learner: str, constraints: int = 2) -> str:
    """The optimised program of an episode at (3,4,2), 64 lanes."""
    given = internals.start(Size(3, 4, 2, constraints), 64, learner)
    text = compiled_loop._run.lower(*given[:4], 0, 9).compile().as_text()
    inside = text[: text.index("ENTRY")]
    assert "while(" in inside
    return inside


@pytest.mark.optimised
@pytest.mark.parametrize(
    "learner",
    [
        "cpdpo",
        "cpd_oppo",
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("podb", "uopt_rpgpd", "ghosh")),
    ],
)
def test_an_episode_copies_no_large_array(learner):
    """No array with an entry per pair and next state is copied, and no confidence set."""
    copied = re.findall(r"= \w+\[2,4,2,4,64\][^=]* copy\(", loop_text(learner, 1 if learner == "ghosh" else 2))
    assert not copied


@pytest.mark.optimised
def test_triple_q_computes_new_values_once():
    """They are computed for each layer, and not again for each of its pairs."""
    functions = loop_text("triple_q").split("\n\n")
    writers = [text for text in functions if re.search(r"ROOT \S+ = f32\[3,3,4,2,64\]\S* select\(", text)]
    assert writers
    assert not any("multiply(" in text for text in writers)
