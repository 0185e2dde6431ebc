"""Learners that ignore rho, delta or safety: their equal curves are shown once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from cpdpo_jax.common.axes import AXES
from cpdpo_jax.results.statistics import METRICS

if TYPE_CHECKING:
    import xarray as xr


def without_copies(data: xr.Dataset) -> xr.Dataset:
    """The data set in which a learner with equal curves for all values of rho has them once, at "tuned, any rho".

    The same holds for delta and safety. The coordinate of "any rho" is NaN.
    """
    for name in AXES:
        if name in data.coords:
            data = _merged(data, name)
    return data


def _merged(data: xr.Dataset, name: str) -> xr.Dataset:
    """`without_copies` for one of the options."""
    labels = [str(label) for label in data.hparams.values]
    merged = [re.sub(rf"(^|, ){name}=[^,]+", rf"\g<1>any {name}", label) for label in labels]
    curves = [data[metric].transpose("learner", "hparams", ...).values for metric in METRICS]
    run = np.asarray(np.isfinite(curves[0]).any(axis=tuple(range(2, curves[0].ndim))))  # [learner, hparams]
    groups = {label: [k for k, other in enumerate(merged) if other == label] for label in dict.fromkeys(merged)}
    new = [label for label in groups if label not in labels]
    kept = np.concatenate([np.zeros((len(run), len(new)), bool), run], axis=1)  # the new entries come first
    for label in new:
        for learner in range(len(run)):
            copies = [k for k in groups[label] if run[learner, k]]
            first = groups[label][0]  # the new entry has its values
            if len(copies) > 1 and first in copies and all(
                np.array_equal(curve[learner, first], curve[learner, k], equal_nan=True)
                for curve in curves for k in copies
            ):  # fmt: skip
                kept[learner, [len(new) + k for k in copies]] = False
                kept[learner, new.index(label)] = True
    if not kept[:, : len(new)].any():
        return data
    values = np.append(np.full(len(new), np.nan), data[name].values.astype(float))
    out = data.isel(hparams=[*(groups[label][0] for label in new), *range(len(labels))])
    out = out.assign_coords({"hparams": [*new, *labels], name: ("hparams", values)})
    shown = data[["learner"]].assign(kept=(("learner", "hparams"), kept)).assign_coords(hparams=out.hparams)["kept"]
    masked: dict[Any, Any] = {
        key: out[key].where(shown).transpose(*out[key].dims)
        for key in out.data_vars if {"learner", "hparams"} <= set(out[key].dims)
    }  # fmt: skip
    return out.assign(masked).isel(hparams=np.flatnonzero(kept.any(axis=0)))


def option_values(data: xr.Dataset, hparams: str) -> dict[str, float]:
    """rho, delta and safety of an entry of hparams as numbers; NaN for a text such as "solve", and for "any rho"."""
    values = {}
    for name in AXES:
        value = data[name].sel(hparams=hparams).item() if name in data.coords else data.attrs.get(name, "")
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = np.nan
    return values
