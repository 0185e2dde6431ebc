"""The names, signatures and docstrings of `cp.kernels`."""

from __future__ import annotations

import inspect

import pytest

from cpdpo_jax import kernels
from cpdpo_jax.kernels import counting, lookup, loops, optimistic, path, widths
from cpdpo_jax.kernels.machines import target

FORMER = {
    "layer": loops.layer,
    "unrolled_reduce": loops.unrolled_reduce,
    "renewed_epoch": widths.renew_epoch,
    "walk": path.sample_path,
    "at_pairs": lookup.at_pairs,
    "count_episode": counting.count_episode,
    "cpu_acceleration": target.cpu_acceleration,
    "steps_to_go": optimistic.steps_to_go,
}


def test_dir_lists_the_public_names():
    assert dir(kernels) == sorted(kernels.__all__)
    assert not set(FORMER) & set(kernels.__all__)


@pytest.mark.parametrize("name", sorted(set(kernels.__all__) - {"Epoch"}))
def test_every_kernel_has_a_docstring_and_a_typed_signature(name):
    function = getattr(kernels, name)
    signature = inspect.signature(function)
    assert function.__doc__
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())
    assert signature.return_annotation is not inspect.Signature.empty


@pytest.mark.parametrize("name", FORMER)
def test_former_names_work_with_a_warning(name):
    with pytest.warns(DeprecationWarning, match=f"kernels.{name} is now cpdpo_jax.kernels."):
        assert getattr(kernels, name) is FORMER[name]


def test_an_unknown_name_is_an_error_that_lists_the_names():
    with pytest.raises(AttributeError, match=r"no attribute 'polcy_value'; it has .*policy_value"):
        _ = kernels.polcy_value  # pyright: ignore[reportAttributeAccessIssue]
