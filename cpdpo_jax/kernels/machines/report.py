"""The forms in use on this machine and the reasons, for `cpdpo info`."""

from __future__ import annotations

import jax

from cpdpo_jax.common import xla_options
from cpdpo_jax.kernels.machines import forms, materialise, target
from cpdpo_jax.kernels.machines.numba import calls


def lines() -> list[str]:
    """The target, XLA's options, numba, and the forms for this target."""
    platform = target.target_platform()
    accelerator = target.for_accelerator()
    if target.only_paper_forms():
        return [f"target {platform}: the paper's form of every kernel ({target.PAPER_VARIABLE} or paper_forms())"]
    kind = "accelerator" if accelerator else "cpu"
    text = [f"target {platform}; jax runs on {jax.default_backend()}"]
    if not accelerator:
        text.append(f"XLA's options (loops as one function, vectors of 512 bits): {xla_options.describe()}")
        text.append(f"numba: {calls.describe()}")
        how = "a barrier" if materialise.BARRIER_HOLDS else "a loop without iterations (this jaxlib removes barriers)"
        text.append(f"arrays are materialised by {how}")
    for name, rows in forms.TABLE.items():
        choices = [f"{form.where} ({form.reason})" for form in rows if form.target == kind]
        text += [f"{name}: {'; '.join(choices)}"] if choices else []
    return text
