"""XLA's options for fast loops on a CPU, set before jax starts its backend.

XLA compiles a small loop to one function of machine code, and a larger one to about a hundred functions that threads
pass to each other. The loop over episodes exceeds the default threshold. LLVM unrolls loops over 16 lanes completely,
and then finds no loop to vectorise, unless the count is limited. XLA reads its options once, from XLA_FLAGS, so they
are set when the package is imported, unless CPDPO_XLA_OPTIONS=0. An unknown flag or option of LLVM (with a dash) ends
the process, so these are only set for versions known to have them; unknown options of XLA inside
`xla_backend_extra_options` are ignored.
"""

from __future__ import annotations

import os
import sys
from importlib import util
from pathlib import Path

VARIABLE = "CPDPO_XLA_OPTIONS"
LOOP_BYTES = "xla_cpu_small_while_loop_byte_threshold"
EXTRA = f"--xla_backend_extra_options={LOOP_BYTES}={2**25}"  # with 1 GB, a sort outside the package took twice as long
UNROLL = ",-unroll-full-max-count=15"  # CPD-OPPO, 8 seeds at 5 x 5 x 3: 0.4 of the time; 64 seeds: 0.92
VECTOR_BITS = 512  # the default is 256; ignored by CPUs without wider vectors
WIDTH = f"--xla_cpu_prefer_vector_width={VECTOR_BITS}"
KNOWN = ((0, 10), (0, 11), (0, 12))  # versions (major, minor) of jaxlib
PLUGINS = ("jax_plugins", "libtpu")  # of accelerators, whose LLVM would read the option too
TOO_LATE = "not set: jax started its backend before cpdpo_jax was imported; import cpdpo_jax first"

_state = {"note": "not set: the package was imported without it"}


def set_options() -> None:
    """Add the options to XLA_FLAGS, unless disabled by the user or too late to have an effect."""
    flags = os.environ.get("XLA_FLAGS", "")
    if os.environ.get(VARIABLE, "1").strip().lower() in ("0", "false", "off", "no"):
        _state["note"] = f"not set: {VARIABLE} = {os.environ[VARIABLE]!r}"
    elif flags.strip() and not flags.lstrip().startswith("-"):  # XLA would take added options for a part of the name
        _state["note"] = "not set: XLA_FLAGS names a file of flags"
    elif _backend_started() and "xla_backend_extra_options" not in flags:
        _state["note"] = TOO_LATE
    else:
        if not _backend_started():
            os.environ["XLA_FLAGS"] = flags = _with_options(flags)
        _state["note"] = "set" if EXTRA in flags else "not set: XLA_FLAGS has xla_backend_extra_options of its own"


def _with_options(flags: str) -> str:
    known = jaxlib_version() in KNOWN
    extra = EXTRA + UNROLL * (known and not any(map(util.find_spec, PLUGINS)))
    added = [extra] * ("xla_backend_extra_options" not in flags) + [WIDTH] * (known and WIDTH[:29] not in flags)
    return " ".join([*filter(None, [flags]), *added])


def were_too_late() -> bool:
    """Whether jax read its flags before the package was imported."""
    return _state["note"] == TOO_LATE


def describe() -> str:
    """Whether the options are set, and if not, why."""
    return _state["note"]


def _backend_started() -> bool:
    """Whether jax has started a backend and so read XLA_FLAGS; False if this version of jax does not show it."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))


def jaxlib_version() -> tuple[int, ...]:
    """(major, minor) from the name of the metadata folder, without importing jaxlib; () if there is none."""
    spec = util.find_spec("jaxlib")
    if spec is None or not spec.submodule_search_locations:
        return ()
    folders = Path(spec.submodule_search_locations[0]).parent.glob("jaxlib-*.dist-info")
    return next((tuple(map(int, folder.name.split("-")[1].split(".")[:2])) for folder in folders), ())
