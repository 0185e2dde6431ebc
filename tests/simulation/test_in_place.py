"""An episode changes its arrays where they lie, and lanes that count late leave their neighbours alone."""

import re

import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.cli.bench import block
from cpdpo_jax.cli.bench.simulator import Size
from cpdpo_jax.simulation import compiled_loop


@pytest.mark.parametrize("learner", ["cpdpo", "podb", "cpd_oppo"])
def test_an_episode_copies_no_large_array(learner):
    """None of the arrays with an entry for every pair and next state, and no confidence set."""
    given = block.start(Size(3, 4, 2, 2), 64, learner)
    text = compiled_loop.program(given[2]).lower(*given[:4], 0, 9).compile().as_text()
    inside = text[: text.index("ENTRY")]
    assert "while(" in inside
    copied = re.findall(r"= \w+\[2,4,2,4,64\][^=]* copy\(", inside)
    assert not copied


def test_lanes_that_count_late_do_not_disturb_the_others():
    """`past_counts` of one setting beside another: each has the bits that it has alone."""
    cmdp = cp.envs.make("random", layers=3, states=3, actions=2, constraints=1, rho=0.3, key=2)

    def run(past: list[float]) -> np.ndarray:
        hparams = {"preset": "tuned", "past_counts": past}
        result = cp.simulate("cpdpo", cmdp, episodes=300, seeds=3, hparams=hparams, checkpoints=4, progress=False)
        return np.asarray(result.data["strong_regret"])[0, 0]  # setting, seed, checkpoint

    both = run([0.0, 1.0])
    np.testing.assert_array_equal(both, np.concatenate([run([0.0]), run([1.0])]))
    on_time, late = np.split(both, 2)
    assert not np.array_equal(on_time, late)
