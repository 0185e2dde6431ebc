"""The tables that `python -m experiments.speed` prints."""

from __future__ import annotations

from typing import Any, NamedTuple

from cpdpo_jax.results.tables import format_table


class Table(NamedTuple):
    """A title, a key and a format by column, and a note; `format_cell` formats lists and missing values."""

    title: str
    columns: dict[str, tuple[str, str]]
    note: str = ""


MICROSECONDS = "microseconds per episode and seed"
TABLES = {
    "speed": Table(
        f"theory's constants for T = 10^6, {MICROSECONDS}, warm, exact metrics included",
        {
            "learner": ("learner", ""), "size": ("size", ""), "seeds": ("seeds", ""), "cores": ("cores", ""),
            "ours us": ("microseconds", ".3g"), "anchor us": ("anchor_microseconds", ".3g"), "ratio": ("ratio", ".2f"),
            "compile s": ("compile_seconds", ".1f"), "from cache s": ("cached_compile_seconds", ".1f"),
            "episodes": ("episodes", ""),
        },
        "size: layers, states, actions, constraints",
    ),
    "naive": Table(
        f"naive programs, {MICROSECONDS}",
        {
            "size": ("size", ""), "program": ("program", ""), "seeds": ("seeds", ""), "us": ("microseconds", ".3g"),
            "compile s": ("compile_seconds", ".1f"),
        },
    ),
    "throughput": Table(
        f"episodes per second, summed over seeds, and {MICROSECONDS}",
        {
            "learner": ("learner", ""), "size": ("size", ""), "seeds": ("seeds", ""), "cores": ("cores", ""),
            "episodes/s": ("episodes_per_second", ",.0f"), "us": ("microseconds", ".3g"),
        },
    ),
    "flame": Table(
        f"where an episode's time goes, 64 seeds on one core, {MICROSECONDS}",
        {
            "learner": ("learner", ""), "size": ("size", ""), "part": ("part", ""), "us": ("microseconds", ".3f"),
            "of the whole": ("share", ".0%"),
        },
        "Each part was measured alone, so the parts need not add up to the whole.",
    ),
    "peak": Table(
        "percent of one core's peaks, 64 seeds on one core; operations and bytes of an episode and seed by formula",
        {
            "learner": ("learner", ""), "size": ("size", ""), "operations": ("operations", ",.0f"),
            "bytes": ("bytes", ",.0f"), "us": ("microseconds", ".3g"), "operations/s": ("operations_per_second", ".2e"),
            "peak": ("peak_operations", ".2e"), "of it": ("share_of_operations", ".0%"),
            "bytes/s": ("bytes_per_second", ".2e"), "of a copy": ("peak_bytes", ".2e"),
            "of it ": ("share_of_bytes", ".0%"),
        },
        "peak: fused multiply-adds in registers; of a copy: within as much memory as an episode of 64 seeds moves.",
    ),
    "gpu": Table(
        "compiled by XLA for a GPU that is not present; per episode, bytes per seed",
        {
            "target": ("target", ""), "learner": ("learner", ""), "size": ("size", ""), "seeds": ("lanes", ",d"),
            "kernels": ("kernels_per_episode", ".0f"), "copies": ("copies_per_episode", ".0f"),
            "host waits": ("host_waits_per_episode", ".3g"), "launches": ("command_buffers_per_episode", ""),
            "compile s": ("compile_seconds", ".1f"), "scratch B": ("scratch_bytes_per_seed", ",.0f"),
            "state B": ("state_bytes_per_seed", ",.0f"), "moved B": ("moved_bytes_per_seed", ",.0f"),
            "est. us": ("estimated_microseconds_per_episode", ".3g"),
            "est. us a seed": ("estimated_microseconds_per_seed", ".3g"),
        },
        "launches: command buffers and work outside of them; moved: at most, if operands are read whole.\n"
        "An ESTIMATE, nothing was run: 2 us per kernel and copy, 10 us per wait, and bytes moved by bandwidth.",
    ),
}  # fmt: skip
TABLES |= {"learners": TABLES["throughput"], "scaling": TABLES["throughput"]}


def show(part: str, rows: list[dict[str, Any]]) -> str:
    """The table of a part."""
    table = TABLES[part]
    cells = [[format_cell(row.get(key), form) for key, form in table.columns.values()] for row in rows]
    return "\n".join(filter(None, [table.title, format_table([list(table.columns), *cells]), table.note]))


def format_cell(value: Any, form: str) -> str:
    """A cell; '-' if the row lacks the value."""
    if value is None:
        return "-"
    return f"({','.join(map(str, value))})" if isinstance(value, list) else format(value, form)
