"""Environments by name: `make`, `names`, and help read from each family's own signature and docstring."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cpdpo_jax.common.words import did_you_mean

if TYPE_CHECKING:
    from cpdpo_jax.common.types import CMDP

# name -> module of cpdpo_jax.envs that has a function of this name; loaded on first use
_FAMILIES = {
    "media_streaming": "streaming",
    "inventory": "inventory",
    "factored": "small",
    "simple": "small",
    "difficult": "small",
    "cliff": "grids",
    "mars_rover": "grids",
    "box": "box",
    "random_uniform_pac": "published",
    "random_episode_wise": "published",
    "streaming_episode_wise": "streaming",
    "grid_three_constraints": "grids",
    "random": "random",
    "garnet": "random",
    "small_rho": "random",
    "hard": "hard",
}


def names() -> tuple[str, ...]:
    """Every name that `make` knows: the literature's in the order of its table, then the random families."""
    return tuple(_FAMILIES)


def make(name: str | os.PathLike[str], /, **parameters: Any) -> CMDP:
    """Build an environment by name, with its parameters changed as given; or load a saved one.

    Args:
        name: one of `names()`, or a path that ends in `.npz` (see `save_cmdp`).
        **parameters: see `help(name)`.

    Returns:
        A `CMDP`; a batch where `instances` was given to a random family, or where the file holds one.
    """
    text = os.fspath(name)
    if text.endswith(".npz"):
        if parameters:
            raise ValueError(f"{text} is a file and takes no parameters; {', '.join(parameters)} was given.")
        from cpdpo_jax.envs.files import load_cmdp

        return load_cmdp(text)
    family = _family(text)
    allowed = inspect.signature(family).parameters
    for given in parameters:
        if given not in allowed:
            raise ValueError(
                f"{text} has no parameter {given!r}{_near(given, list(allowed))}; it takes {', '.join(allowed)}."
            )
    return family(**parameters)


def defaults(name: str) -> dict[str, Any]:
    """The parameters of an environment and their defaults."""
    return {key: one.default for key, one in inspect.signature(_family(name)).parameters.items()}


def help(name: str | None = None) -> str:
    """What an environment is: its docstring and its parameters with their defaults; without a name, one line each."""
    if name is None:
        width = max(map(len, _FAMILIES))
        return "\n".join(f"{one:{width}}  {_doc(one).splitlines()[0]}" for one in _FAMILIES)
    lines = [f"    {key} = {value!r}" for key, value in defaults(name).items()]
    return "\n".join([f"{name}: {_doc(name)}", "", "Parameters and defaults:", *lines])


def _family(name: str) -> Callable[..., CMDP]:
    """The function that builds the named environment."""
    if name not in _FAMILIES:
        raise ValueError(
            f"no environment is called {name!r}{_near(name, list(_FAMILIES))}; choose one of {', '.join(_FAMILIES)}, "
            "or give a path that ends in .npz."
        )
    return getattr(importlib.import_module(f"cpdpo_jax.envs.{_FAMILIES[name]}"), name)


def _doc(name: str) -> str:
    return inspect.getdoc(_family(name)) or ""


def _near(name: str, known: list[str]) -> str:
    """The known names that look like this one or contain it, as part of a sentence."""
    question = did_you_mean(name, known, with_parts=4)
    return f" ({question})" if question else ""
