"""Environments by name: `make`, `names`, `register`, and help read from each family's own signature and docstring."""

from __future__ import annotations

import functools
import importlib
import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from cpdpo_jax.common import plugins
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


_OWN: dict[str, Callable[..., CMDP]] = {}  # registered by a user

_Family = TypeVar("_Family", bound=Callable[..., Any])


def register(family: _Family, name: str | None = None) -> _Family:
    """Make a function that builds a CMDP known to `make` and the command line by its name; returns it.

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
    """Forget an environment of `register`, so that another can have its name."""
    if _OWN.pop(name, None) is not None:
        plugins.forget_names()


def registered(name: str) -> Callable[..., CMDP] | None:
    """The function that `register` was given under that name; None: the environment is not of `register`."""
    return _OWN.get(name)


def names() -> tuple[str, ...]:
    """Every name that `make` knows: the literature's in the order of its table, the random families, users' own."""
    return tuple(dict.fromkeys((*_FAMILIES, *_OWN, *_installed())))


def source(name: str) -> str | None:
    """The installed package (and its version) that an environment comes from; None: our own, or registered here."""
    return None if name in _FAMILIES or name in _OWN or name not in _installed() else _installed()[name].source


@functools.cache
def _installed() -> dict[str, plugins.Plugin]:
    """Functions that other packages bring along under the entry point `cpdpo_jax.environments`, by its name."""
    return {plugin.name: plugin for plugin in plugins.installed("cpdpo_jax.environments")}


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
        width = max(map(len, names()))
        return "\n".join(f"{one:{width}}  {_doc(one).partition(chr(10))[0]}" for one in names())
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
        f"no environment is called {name!r}{_near(name, list(names()))}; choose one of {', '.join(names())}, "
        "or give a path that ends in .npz."
    )


def _doc(name: str) -> str:
    """What an environment says of itself; python -OO drops docstrings."""
    return inspect.getdoc(_family(name)) or "(python -OO has dropped its description)"


def _near(name: str, known: list[str]) -> str:
    """The known names that look like this one or contain it, as part of a sentence."""
    question = did_you_mean(name, known, with_parts=4)
    return f" ({question})" if question else ""
