"""The command line `cpdpo`, also `python -m cpdpo_jax.cli`: arguments, commands, bench."""

from cpdpo_jax.cli.entry import main

__all__ = ["main"]
