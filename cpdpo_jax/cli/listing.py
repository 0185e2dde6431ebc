"""`cpdpo list`: learners and environments, what they are and what can be set."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import textwrap
from typing import Any

import numpy as np

LAYERS, STATES, ACTIONS, EPISODES, RHO = 5, 5, 3, 100_000, 0.5  # the presets' values depend on the problem: on this one


def about(learner: Any) -> str:
    """What its module says of a learner: its own entry, or the docstring; a user's own may have neither."""
    module = sys.modules.get(learner.update.__module__ or "")
    if own := getattr(module, "ABOUT", {}).get(learner.name):
        return own
    return (getattr(module, "__doc__", None) or "a learner of your own").strip()


def meanings(hyperparameters: type) -> dict[str, str]:
    """What each field of a learner's hyperparameters means: the comment beside it."""
    try:
        source = inspect.getsource(hyperparameters)
    except (OSError, TypeError):  # made in a shell
        return {}
    return dict(re.findall(r"^\s+(\w+)\s*:\s*[^#\n]+?#\s*(.+?)\s*$", source, re.MULTILINE))


def hyperparameters(learner: Any) -> list[dict[str, Any]]:
    """Name, meaning and both presets' values of every hyperparameter, at one constraint and the sizes above."""
    from cpdpo_jax.learners.base import PRESETS, Problem, SafePolicy

    one = np.ones(1)
    problem = Problem(
        action_mask=np.ones((LAYERS, STATES, ACTIONS, 1), bool),
        threshold=one[None],
        n_states=one * ((LAYERS - 1) * STATES + 2),
        n_actions=one * ACTIONS,
        episodes=one * EPISODES,
        delta=one * 0.05,
        slater_margin=one * RHO,
        safe=SafePolicy(np.full((LAYERS, STATES, ACTIONS, 1), 1 / ACTIONS), one[None] * (1 - RHO)),
    )
    if learner.extra_knowledge:
        policy = np.full(problem.action_mask.shape, 1 / ACTIONS)
        problem = problem._replace(safe=SafePolicy(policy, problem.threshold - 0.5 * RHO))
    values = {preset: learner.hyperparameters(problem, preset) for preset in PRESETS}
    words = meanings(type(values["tuned"]))
    return [
        {"name": name, "means": words.get(name, "")}
        | {preset: float(np.ravel(getattr(values[preset], name))[0]) for preset in PRESETS}
        for name in values["tuned"]._fields
    ]


def lines(entries: dict[str, str]) -> str:
    """A line for each name, as wide as the terminal; what does not fit goes on below."""
    start = max(map(len, entries)) + 4
    width = max(shutil.get_terminal_size((120, 24)).columns, start + 30)
    return "\n".join(
        textwrap.fill(text, width, initial_indent=f"  {name:{start - 2}}", subsequent_indent=" " * start)
        for name, text in entries.items()
    )


def table(learner: Any) -> str:
    """The hyperparameters of a learner as lines."""
    found = hyperparameters(learner)
    if not found:
        return "It has no hyperparameters."
    width = max(len(one["name"]) for one in found)
    lines = [f"{'':{width}}  {'tuned':>10}  {'theory':>10}"]
    for one in found:
        lines.append(f"{one['name']:{width}}  {one['tuned']:>10.4g}  {one['theory']:>10.4g}  {one['means']}".rstrip())
    where = [
        f"Values at {LAYERS} layers, {STATES} states, {ACTIONS} actions, 1 constraint, T = {EPISODES:,}, rho = {RHO}.",
        'Change one with --set NAME=VALUE, or NAME=x2 for twice the preset\'s (in a file: settings = { NAME = "x2" }).',
    ]
    return "\n".join(["Hyperparameters:", *("  " + line for line in lines), *where])
