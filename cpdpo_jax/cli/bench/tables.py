"""What `cpdpo bench` prints for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cpdpo_jax.cli.bench.flame import RENEWAL
from cpdpo_jax.results.tables import format_table

BAR = 40  # characters of the whole episode
Answer = dict[str, Any]


def machine(facts: dict[str, Any]) -> str:
    """Where it was measured, and how busy that was."""
    load = facts["load_at_start"]
    busy = f", load {load:.1f} before it began" if load is not None else ""
    pinned = "" if facts["pinned"] else "; processes cannot be pinned here, so one core may be more"
    return f"{facts['processor']}, {facts['cores']} cores{busy}; jax {facts['jax']}{pinned}"


def speed(answer: Answer) -> str:
    """Learners beside their anchors."""
    rows = [
        ["learner", "sizes", "seeds", "cores", "ours us", "anchor us", "ratio", "compile s", "from cache s", "episodes"]
    ]
    for row in answer["speed"]:
        rows.append([
            row["learner"], _size(row), str(row["seeds"]), str(row["cores"]), f"{row['microseconds']:.3g}",
            _number(row.get("anchor_microseconds")), _number(row.get("ratio"), ".2f"),
            _number(row["compile_seconds"], ".1f"), f"{row['cached_compile_seconds']:.1f}",
            "-".join(f"{n:,}" for n in row["episodes"]),
        ])  # fmt: skip
    title = "theory's constants for T = 10^6, microseconds per episode and seed, warm, exact metrics included"
    return (
        f"{title}\n(layers,states,actions,constraints); compile s is from nothing, - where it was compiled before\n"
        f"{format_table(rows)}"
    )


def naive(answer: Answer) -> str:
    """The naive programs, and how many times slower they are than the simulator of the same run."""
    speed = [row for row in answer.get("speed", []) if row["learner"] == "cpdpo"]
    ours = {(_size(row), row["seeds"]): row["microseconds"] for row in speed}
    rows = [["sizes", "program", "seeds", "us", "times ours", "compile s"]]
    for row in answer["naive"]:
        mine = ours.get((_size(row), 64))
        times = row["microseconds"] / mine if mine else None
        rows.append([_size(row), row["program"], str(row["seeds"]), f"{row['microseconds']:.3g}",
                     _number(times, ".0f"), _number(row.get("compile_seconds"), ".1f")])  # fmt: skip
    return "naive programs, microseconds per episode and seed; times ours: ours with 64 seeds\n" + format_table(rows)


def baselines(answer: Answer) -> str:
    """All learners."""
    rows = [["learner", "sizes", "seeds", "cores", "episodes/s", "us"]]
    for row in answer["baselines"]:
        rows.append([row["learner"], _size(row), str(row["seeds"]), str(row["cores"]),
                     f"{row['episodes_per_second']:,.0f}", f"{row['microseconds']:.3g}"])  # fmt: skip
    return "learners: episodes per second, summed over seeds; microseconds per episode and seed\n" + format_table(rows)


def flame(answer: Answer) -> str:
    """A bar for every piece of an episode, learner by learner."""
    return "\n\n".join(_flame(told) for told in answer["flame"])


def _flame(told: dict[str, Any]) -> str:
    whole = told["whole_microseconds"]
    rows = [["piece", "us", "of the whole", ""]]
    for row in [*told["pieces"], {"piece": "whole episode", "microseconds": whole}]:
        share = row["microseconds"] / whole
        rows.append([row["piece"], f"{row['microseconds']:.3f}", f"{share:.0%}", "#" * round(BAR * min(share, 2))])
    total = sum(row["microseconds"] for row in told["pieces"] if row["piece"] != RENEWAL)
    without = " without the new set" if told["learner"] == "cpdpo" else ""
    return (
        f"where an episode's time goes, {told['learner']} at {_size(told)}, {told['lanes']} seeds on one core, "
        "microseconds per seed\n"
        f"{format_table(rows)}\n"
        f"Each piece was measured alone: their sum, {total:.2f}{without}, need not be {whole:.2f}."
    )


def device(answer: Answer) -> str:
    """What a GPU would be asked to do."""
    told = answer["device"]
    if isinstance(told, list):
        return target(told)
    scratch = told["scratch_bytes_per_seed"]
    return (
        f"device, {_size(told)}, {told['lanes']} seeds\n"
        f"  kernels per episode: {told['kernels_per_episode']}, of which fusions {told['of_which_fusions']};\n"
        "    counted in what XLA compiles for a CPU, a stand-in: for a GPU it fuses otherwise\n"
        f"  bytes per seed: state {told['state_bytes_per_seed']:,}, constants {told['constant_bytes_per_seed']:,}"
        + (f", scratch {scratch:,}" if scratch is not None else "")
    )


def target(told: list[dict[str, Any]]) -> str:
    """What XLA's GPU compiler makes of the loop."""
    rows = [["learner", "sizes", "seeds", "kernels", "copies", "host waits", "launches", "compile s", "scratch B",
             "state B", "moved B", "est. us", "est. us a seed"]]  # fmt: skip
    for row in told:
        rows.append([row["learner"], _size(row), f"{row['lanes']:,}", f"{row['kernels_per_episode']:.0f}",
                     f"{row['copies_per_episode']:.0f}", f"{row['host_waits_per_episode']:.3g}",
                     str(row["command_buffers_per_episode"]), f"{row['compile_seconds']:.1f}",
                     f"{row['scratch_bytes_per_seed']:,.0f}", f"{row['state_bytes_per_seed']:,.0f}",
                     f"{row['moved_bytes_per_seed']:,.0f}", f"{row['estimated_microseconds_per_episode']:.3g}",
                     f"{row['estimated_microseconds_per_seed']:.3g}"])  # fmt: skip
    return (
        f"device: compiled by XLA for {told[0]['target']}, which is not here; per episode, bytes per seed\n"
        f"{format_table(rows)}\n"
        "launches: command buffers, and what lies outside of them; moved: at most, if operands are read whole.\n"
        "An ESTIMATE, nothing was run: 2 us for each kernel and copy, 10 us for each wait, bytes moved by bandwidth."
    )


def scaling(answer: Answer) -> str:
    """Throughput against seeds and cores."""
    told = answer["scaling"]
    used = sorted({row["cores"] for row in told["rows"]})
    rate = {(row["seeds"], row["cores"]): row for row in told["rows"]}
    head = [f"{text}, {n} core{'s' * (n > 1)}" for n in used for text in ("episodes/s", "us")]
    rows = [["seeds", *head]]
    for n in sorted({row["seeds"] for row in told["rows"]}):
        cells = [rate[n, c] for c in used]
        rows.append([str(n), *(text for row in cells for text in (f"{row['episodes_per_second']:,.0f}",
                                                                  f"{row['microseconds']:.3g}"))])  # fmt: skip
    where = "; ".join(f"{n} cores: {seeds} seeds" for n, seeds in told["saturates_at_seeds"].items())
    title = f"throughput of CPD-PO against seeds, {_size(told['rows'][0])}, summed over seeds"
    return (
        f"{title}\n{format_table(rows)}\nfewest seeds with 90 % of the most: {where}.\n"
        "A block has at least 32 lanes, the rest is padding, and a core needs a block of its own to work."
    )


def memory(answer: Answer) -> str:
    """Peak memory against T."""
    rows = [["T", "seeds", "peak MiB"]]
    rows += [[f"{row['episodes']:,}", str(row["seeds"]), f"{row['mebibytes']:.0f}"] for row in answer["memory"]]
    return "peak memory of a fresh process, (5,5,3,2)\n" + format_table(rows)


def _size(row: dict[str, Any]) -> str:
    return f"({','.join(map(str, row['size']))})"


def _number(value: float | None, form: str = ".3g") -> str:
    return "-" if value is None else format(value, form)


TABLES: dict[str, Callable[[Answer], str]] = {
    "speed": speed,
    "naive": naive,
    "baselines": baselines,
    "flame": flame,
    "device": device,
    "scaling": scaling,
    "memory": memory,
}
