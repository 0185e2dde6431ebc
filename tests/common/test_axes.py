"""Labels of the values of rho, delta and safety."""

from __future__ import annotations

import pytest

from cpdpo_jax.common import axes


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.1, "rho=0.1"), (1.0, "rho=1"), ("solve", "rho=solve"), (1e-20, "rho=1e-20"), (0.1234567, "rho=0.1234567")],
)
def test_labels_are_short_and_tell_values_apart(value, shown):
    assert axes.label("rho", value) == shown
    assert axes.label("rho", 0.1234568) != axes.label("rho", 0.1234567)
