"""`cpdpo list`: descriptions and options of learners and environments."""

from __future__ import annotations

import inspect
import re
import shutil
import sys
import textwrap
from typing import Any

import numpy as np

LAYERS, STATES, ACTIONS, EPISODES, RHO = 5, 5, 3, 100_000, 0.5  # the problem for which presets are shown


def about(learner: Any) -> str:
    """A learner's description: its entry in ABOUT of the module of its hyperparameters, or that module's docstring."""
    module = sys.modules.get(learner.hyperparameters.__module__ or "")
    if entry := getattr(module, "ABOUT", {}).get(learner.name):
        return entry
    return (getattr(module, "__doc__", None) or "a user-defined learner").strip()


def meanings(hyperparameters: type) -> dict[str, str]:
    """The meaning of each hyperparameter: the comment on its line."""
    try:
        source = inspect.getsource(hyperparameters)
    except (OSError, TypeError):  # defined interactively
        return {}
    return dict(re.findall(r"^\s+(\w+)\s*:\s*[^#\n]+?#\s*(.+?)\s*$", source, re.MULTILINE))


def hyperparameters(learner: Any) -> list[dict[str, Any]]:
    """Name, meaning and both presets' values of every hyperparameter, for one constraint and the sizes above."""
    from cpdpo_jax.learners.base import PRESETS, Problem, SafePolicy

    ones = np.ones(1)
    problem = Problem(
        action_mask=np.ones((LAYERS, STATES, ACTIONS, 1), bool),
        threshold=ones[None],
        n_states=ones * ((LAYERS - 1) * STATES + 2),
        n_actions=ones * ACTIONS,
        episodes=ones * EPISODES,
        delta=ones * 0.05,
        slater_margin=ones * RHO,
    )
    if learner.extra_knowledge:
        policy = np.full(problem.action_mask.shape, 1 / ACTIONS)
        problem = problem._replace(safe=SafePolicy(policy, problem.threshold - 0.5 * RHO))
    values = {preset: learner.hyperparameters(problem, preset) for preset in PRESETS}
    comments = meanings(type(values["tuned"]))
    return [
        {"name": name, "means": comments.get(name, "")}
        | {preset: float(np.ravel(getattr(values[preset], name))[0]) for preset in PRESETS}
        for name in values["tuned"]._fields
    ]


def lines(entries: dict[str, str]) -> str:
    """One line per name, wrapped at the width of the terminal."""
    start = max(map(len, entries)) + 4
    width = max(shutil.get_terminal_size((120, 24)).columns, start + 30)
    return "\n".join(
        textwrap.fill(text, width, initial_indent=f"  {name:{start - 2}}", subsequent_indent=" " * start)
        for name, text in entries.items()
    )


def table(learner: Any) -> str:
    """The hyperparameters of a learner as lines."""
    rows = hyperparameters(learner)
    if not rows:
        return "It has no hyperparameters."
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'':{width}}  {'tuned':>10}  {'theory':>10}"]
    for row in rows:
        lines.append(f"{row['name']:{width}}  {row['tuned']:>10.4g}  {row['theory']:>10.4g}  {row['means']}".rstrip())
    notes = [
        f"Values at {LAYERS} layers, {STATES} states, {ACTIONS} actions, 1 constraint, T = {EPISODES:,}, rho = {RHO}.",
        "Set one with --hparams NAME=VALUE, or NAME=x2 for twice the preset's value (file: hparams.NAME = 'x2').",
    ]
    return "\n".join(["Hyperparameters:", *("  " + line for line in lines), *notes])
