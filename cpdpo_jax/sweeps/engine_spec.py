"""Which engine runs a sweep: the threads of this process, or dask workers.

on = ""                         threads, one per core or accelerator of this machine
on = "local:4"                  four worker processes on this machine
on = "tcp://HOST:8786"          a running dask scheduler; "tls://..." with certificates
on = "slurm:16"                 sixteen jobs, described by the table [slurm]
on = a `distributed.Client`     from Python
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cpdpo_jax.common.text import shown

KINDS = ("local", "slurm")


class DaskClient(Protocol):
    """What a run needs of a `distributed.Client`."""

    def submit(self, *args: Any, **options: Any) -> Any:
        """Run a function on a worker."""


@dataclass(frozen=True)
class EngineSpec:
    """The engine that a user requests for a run."""

    on: Any = ""  # a text as above, or a `distributed.Client`
    shared: bool = True  # workers see the run directory; False: they send results back
    tls: dict[str, str] = field(default_factory=dict)  # paths of ca, cert and key

    def __post_init__(self) -> None:
        if self.on and not isinstance(self.on, str) and not hasattr(self.on, "submit"):
            raise ValueError(f"on is a {type(self.on).__name__}; give a text such as 'local:4', or a dask Client.")
        if (
            isinstance(self.on, str)
            and self.on
            and not re.fullmatch(r"(local|slurm)(:[1-9]\d*)?|t(cp|ls)://.+", self.on)
        ):
            raise ValueError(
                f"on = {shown(self.on)} is not valid; give local:4, slurm:16, tcp://HOST:PORT or tls://HOST:PORT."
            )
        if self.tls and set(self.tls) != {"ca", "cert", "key"}:
            raise ValueError(f"TLS has only {', '.join(sorted(self.tls))}; give --tls-ca, --tls-cert and --tls-key.")
        if self.on and importlib.util.find_spec("distributed") is None:
            raise ValueError(f"on = {shown(self.on)} needs dask; install it with: pip install 'cpdpo_jax[dask]'")
        for path in self.tls.values():
            if not Path(path).is_file():
                raise ValueError(f"TLS: there is no file {shown(path)}; give the path of a PEM file.")

    @property
    def kind(self) -> str:
        """threads, local, slurm, address or client."""
        if not self.on:
            return "threads"
        if not isinstance(self.on, str):
            return "client"
        return self.on.partition(":")[0] if self.on.startswith(KINDS) else "address"

    @property
    def count(self) -> int | None:
        """The number of workers or jobs; None if `on` has none."""
        number = self.on.partition(":")[2] if self.kind in KINDS else ""
        return int(number) if number else None
