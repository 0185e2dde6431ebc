"""The fault campaign's own checks, on small cases."""

from __future__ import annotations

import pytest

import cpdpo_jax as cp
from cpdpo_jax.sweeps.store import Store
from experiments.faults import interrupts, precision

TABLE = {"learners": ["uniform"], "environments": ["factored"], "episodes": 10, "seeds": 2}


@pytest.mark.usefixtures("standard_promotion")
def test_a_damaged_block_after_an_interrupt_is_noticed(tmp_path):
    """A run without finished blocks is fine."""
    cp.run(TABLE, out=tmp_path, progress=False)
    assert interrupts._unreadable(tmp_path) is None
    (block,) = Store(tmp_path).path.glob("blocks/*.nc")
    content = block.read_bytes()
    block.write_bytes(content[:-200] + bytes(200))
    assert "damaged" in (interrupts._unreadable(tmp_path) or "")
    block.unlink()
    assert interrupts._unreadable(tmp_path) is None


@pytest.mark.usefixtures("standard_promotion")
def test_precisions_differ_by_flipped_choices_and_means_agree(monkeypatch):
    """`triple_q`: both precisions agree until one choice flips, and its effect has mean 0 (three half widths)."""
    monkeypatch.setattr(precision, "EPISODES", 150)
    monkeypatch.setattr(precision, "SEEDS", 16)
    found = precision.compare("triple_q")
    assert found["seeds that part"] > 0
    assert found["states flipped at once, median"] <= 2
    assert found["largest difference of multipliers before"] < 1e-6
    assert abs(found["mean difference"]) < 3 * found["half width of the difference"]
