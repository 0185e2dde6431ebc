"""Marks of traced arrays need no attribute that only some releases of jax have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from cpdpo_jax.kernels.tracing import mark_varying


def test_a_mesh_without_manual_axes_marks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.sharding, "get_abstract_mesh", object)
    tree = {"a": jnp.ones(2)}
    assert mark_varying(tree) is tree


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        (SimpleNamespace(vma=frozenset({"x"})), ("y",)),
        (SimpleNamespace(manual_axis_type=SimpleNamespace(varying=frozenset({"y"}))), ("x",)),
        (SimpleNamespace(), ("x", "y")),
    ],
    ids=["vma", "manual_axis_type", "neither"],
)
def test_the_axes_that_an_array_lacks_are_marked(
    monkeypatch: pytest.MonkeyPatch, kind: Any, missing: tuple[str, ...]
) -> None:
    marked: list[Any] = []
    mesh = SimpleNamespace(manual_axes=("x", "y"))
    monkeypatch.setattr(jax.sharding, "get_abstract_mesh", lambda: mesh)
    monkeypatch.setattr(jax, "typeof", lambda leaf: kind)
    monkeypatch.setattr(jax.lax, "pcast", lambda leaf, axes, to: marked.append((sorted(axes), to)))
    mark_varying(jnp.ones(2))
    assert marked == [(list(missing), "varying")]
