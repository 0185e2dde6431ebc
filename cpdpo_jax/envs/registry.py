"""Environments by name: `make`, `names`, `register`, and help read from each family's own signature and docstring."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from cpdpo_jax.common import plugins
from cpdpo_jax.common.text import did_you_mean, shown

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
    "least_cost": "no_slater",
    "fixed_cost": "no_slater",
}


_OWN: dict[str, Callable[..., CMDP]] = {}  # registered by a user

_Family = TypeVar("_Family", bound="Callable[..., CMDP]")


def register(family: _Family, name: str | None = None) -> _Family:
    """Register a function that builds a CMDP under its name, for `make` and the command line. Returns the function.

        @cp.envs.register
        def corridor(length: int = 4) -> cp.CMDP:
            "A corridor of `length` cells."

    Its parameters are the environment's, each with a default; its docstring is what `help` shows.
    """
    name = family.__name__ if name is None else name
    if name in _FAMILIES or _OWN.get(name, family) is not family:
        raise ValueError(f"an environment named {name!r} is registered already; choose another name.")
    _OWN[name] = family
    return family


def unregister(name: str) -> None:
    """Remove a registered environment, so that its name is free again."""
    if _OWN.pop(name, None) is not None:
        plugins.clear_name_caches()


def registered(name: str) -> Callable[..., CMDP] | None:
    """The function registered under that name; None if there is none."""
    return _OWN.get(name)


def installed(name: str) -> Callable[..., CMDP] | None:
    """The function of an installed package that builds the environment; None if it is built in or registered here."""
    return None if source(name) is None else _installed()[name].content


def names() -> tuple[str, ...]:
    """All names that `make` knows: the literature, random families, then registered and installed environments."""
    return tuple(dict.fromkeys((*_FAMILIES, *_OWN, *_installed())))


def source(name: str) -> str | None:
    """The installed package and version of an environment; None if it is built in or registered here."""
    return None if name in _FAMILIES or name in _OWN or name not in _installed() else _installed()[name].source


@functools.cache
def _installed() -> dict[str, plugins.Plugin]:
    """Functions of other packages under the entry point `cpdpo_jax.environments`, by name."""
    return {plugin.name: plugin for plugin in plugins.load_plugins("cpdpo_jax.environments")}


def make(name: str | os.PathLike[str], /, **parameters: Any) -> CMDP:
    """Build an environment by name with the given parameters, or load a saved CMDP.

    Args:
        name: one of `names()`, or a path that ends in `.npz` (see `save_cmdp`).
        **parameters: see `help(name)`.

    Returns:
        A `CMDP`; a batch if a random family received `instances`, or if the file holds a batch.
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
    try:
        return family(**parameters)
    except MemoryError as error:
        raise ValueError(
            f"{text} does not fit into the memory of this machine ({error}); give smaller sizes."
        ) from None


def defaults(name: str) -> dict[str, Any]:
    """The parameters of an environment and their defaults."""
    return {key: parameter.default for key, parameter in inspect.signature(_family(name)).parameters.items()}


def help(name: str | None = None) -> str:
    """The docstring of an environment and its parameters with defaults; without a name, one line per environment."""
    if name is None:
        width = max(map(len, names()))
        return "\n".join(f"{known:{width}}  {_doc(known).partition(chr(10))[0]}" for known in names())
    lines = [f"    {key} = {value!r}" for key, value in defaults(name).items()]
    return "\n".join([f"{name}: {_doc(name)}", "", "Parameters and defaults:", *lines])


def _family(name: str) -> Callable[..., CMDP]:
    """The function that builds the named environment."""
    if name in _FAMILIES:
        return getattr(importlib.import_module(f"cpdpo_jax.envs.{_FAMILIES[name]}"), name)
    if name in _OWN:
        return _OWN[name]
    if name in _installed():
        return _installed()[name].content
    raise ValueError(
        f"no environment is called {shown(name)}{_near(name, list(names()))}; choose one of {', '.join(names())}, "
        "or give a path that ends in .npz."
    )


def _doc(name: str) -> str:
    """The docstring of an environment; python -OO drops docstrings."""
    return inspect.getdoc(_family(name)) or "(python -OO has dropped its description)"


def _near(name: str, known: list[str]) -> str:
    """The known names that look like this one or contain it, as part of a sentence."""
    question = did_you_mean(name, known, with_parts=4)
    return f" ({question})" if question else ""
