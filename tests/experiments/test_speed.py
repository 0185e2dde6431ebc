"""`experiments.speed`: the naive programs are CPD-PO, the anchor is compiled and read, times and counts are right."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cpdpo_jax as cp
from cpdpo_jax.learners import cpdpo
from cpdpo_jax.simulation.compiled_loop import play_episode
from experiments.speed import __main__ as command
from experiments.speed import (
    anchor,
    gpu,
    internals,
    naive,
    naive_numpy,
    naive_vmap,
    parts,
    peak,
    program_text,
    tables,
    timing,
)
from tests.support import lanes_for, random_cmdp, replay

SHAPE = (3, 3, 2, 2)
EPISODES = 50
FAKE_ANCHOR = """#include <cstdio>
#include <cstdlib>
int main(int, char** v) {
  int seeds = (atoi(v[1]) + 7) / 8 * 8, episodes = atoi(v[2]);
  printf("{\\"seeds\\": %d, \\"episodes\\": %d, \\"us_per_episode_seed\\": %d}", seeds, episodes, L + S + A + M);
}
"""


@pytest.fixture
def compiler():
    try:
        return anchor.compiler()
    except ValueError:
        pytest.skip("no C++ compiler is installed")


@pytest.fixture
def real(x64):
    """CPD-PO on recorded draws, with rates and widths that make 50 episodes informative."""
    cmdp = random_cmdp(*SHAPE, seed=5)
    options: dict[str, Any] = {"episodes": 10**6, "preset": "theory", "rho": 0.5, "dtype": float}
    options |= {"learning_rate": 0.05, "exploration": 0.02, "transition_confidence": 0.01}
    lanes = lanes_for(cpdpo.LEARNER, cmdp, **options, reward_confidence=0.001, cost_confidence=0.001)
    draws = np.random.default_rng(3).random((EPISODES, 3, 5))
    run = jax.jit(lambda lanes, draws: replay(cpdpo.LEARNER, "bernoulli", lanes, draws, lambda s: s.primal))
    _, episodes, primal = run(lanes, jnp.asarray(draws)[..., None])
    c = naive_numpy.constants(SHAPE, 0.5, 10**6)
    c = c._replace(learning_rate=0.05, exploration=0.02, log_transition=0.01 * c.log_transition)
    c = c._replace(log_reward=0.001 * c.log_reward, log_cost=0.001 * c.log_cost)
    expected = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], (episodes, primal.epochs))
    return naive.model_of(cmdp, float), c, draws, expected


def check(expected, policies, states, actions, multipliers, epochs):
    episodes, expected_epochs = expected
    assert 0 < (episodes.info.multipliers > 0).mean() < 1  # otherwise the comparison is vacuous
    np.testing.assert_array_equal(states, episodes.trajectory.state)
    np.testing.assert_array_equal(actions, episodes.trajectory.action)
    np.testing.assert_array_equal(multipliers, episodes.info.multipliers)
    assert epochs == expected_epochs[-1]
    policies = np.array(policies)
    np.testing.assert_allclose(policies[:, 0, 0], episodes.policy[:, 0, 0], rtol=0, atol=1e-10)
    np.testing.assert_allclose(policies[:, 1:], episodes.policy[:, 1:], rtol=0, atol=1e-10)


def test_the_naive_loop_is_cpdpo(real):
    model, c, draws, expected = real
    learner = naive_numpy.Naive(model, c)
    policies, pairs, multipliers, gaps = zip(*(learner.episode(u) for u in draws), strict=True)
    states, actions = np.moveaxis(np.array(pairs), 2, 0)
    check(expected, policies, states, actions, np.array(multipliers), learner.epochs)
    gaps = np.array(gaps) - [model.optimum, 0, 0]  # the replay has OPT = 0
    np.testing.assert_allclose(gaps, expected[0].gaps, rtol=0, atol=1e-10)


def test_the_naive_vmap_is_cpdpo(real):
    model, c, draws, expected = real
    model = jax.tree.map(jnp.asarray, model)
    step = partial(naive_vmap.episode, model, c)
    state, played = jax.lax.scan(step, naive_vmap.start(model), jnp.asarray(draws))
    policies, states, actions, multipliers = map(np.asarray, played)
    check(expected, policies, states, actions, multipliers, int(state.epochs))
    regret = np.maximum(model.optimum + expected[0].gaps[:, 0], 0).sum()
    assert float(state.strong[0]) == pytest.approx(regret, rel=1e-9)


def test_the_naive_constants_are_those_of_the_theory():
    lanes = lanes_for(cpdpo.LEARNER, random_cmdp(*SHAPE, seed=5), episodes=10**6, preset="theory", rho=0.5, dtype=float)
    c, hyper = naive_numpy.constants(SHAPE, 0.5, 10**6), lanes.hyper
    expected = [hyper.learning_rate, hyper.exploration, hyper.dual_cap, hyper.loss_scale]
    np.testing.assert_allclose([c.learning_rate, c.exploration, c.cap, c.scale], np.concatenate(expected), rtol=1e-6)


def test_a_short_run_has_the_constants_of_a_long_one():
    """The logarithms of T = 10^6 through the confidence multipliers of a run of 100 episodes."""
    hparams, pairs = timing.theory(timing.Size(*SHAPE), 100), (3 * 2 + 2) * 2 / 0.05
    assert hparams["transition_confidence"] * np.log(100 * pairs) == pytest.approx(np.log(1e6 * pairs))
    assert hparams["cost_confidence"] * np.log(100 * pairs * 2) == pytest.approx(np.log(1e6 * pairs * 2))


def test_times_are_differences_of_the_best():
    """A run costs 0.02 s and 1 ms per episode; the second call of each kind is disturbed."""
    calls: list[int] = []

    def run(n: int) -> float:
        calls.append(n)
        return 0.02 + 0.001 * n + 0.5 * (calls.count(n) == 2)

    over = timing.span(lambda n: 0.001 * n, 1.0)
    assert over.first < over.last
    assert 0.5 <= 0.001 * (over.last - over.first) <= 1.5
    assert timing.per_episode({"ours": run}, timing.Span(100, 600))["ours"] == pytest.approx(0.001)
    assert timing.per_episode({"noise": lambda n: 0.6}, timing.Span(100, 600))["noise"] == pytest.approx(0.001)


HLO = """HloModule jit_advance

%cheap (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %c = f32[4]{0} copy(%p)
}

%dear (p.1: f32[4]) -> f32[4] {
  %p.1 = f32[4]{0} parameter(0)
  %d1 = f32[4]{0} fusion(%p.1), kind=kLoop, calls=%x
  ROOT %d2 = f32[4]{0} fusion(%d1), kind=kLoop, calls=%x
}

%inner (t: (s32[], f32[4])) -> (s32[], f32[4]) {
  %t = (s32[], f32[4]{0}) parameter(0)
  %g = f32[4]{0} get-tuple-element(%t), index=1
  %f = f32[4]{0} fusion(%g), kind=kLoop, calls=%x
  ROOT %r = (s32[], /*index=1*/f32[4]{0}) tuple(%g, %f)
}

%body (t.1: (s32[], f32[4])) -> (s32[], f32[4]) {
  %t.1 = (s32[], f32[4]{0}) parameter(0)
  %f.1 = f32[4]{0} fusion(%t.1), kind=kLoop, calls=%x
  %w = (s32[], /*index=1*/f32[4]{0}) while(%t.1), body=%inner, backend_config={"known_trip_count":{"n":"3"}}
  %k = f32[4]{0} conditional(%f.1, %f.1, %f.1), branch_computations={%dear, %cheap}
  ROOT %r.1 = (s32[], f32[4]{0}) tuple(%w, %k)
}

ENTRY %main (a: f32[4]) -> (s32[], f32[4]) {
  %a = f32[4]{0} parameter(0)
  ROOT %loop = (s32[], /*index=1*/f32[4]{0}) while(%a), condition=%x, body=%body
}
"""


def test_kernels_are_counted_in_the_loop():
    """A fusion, three iterations of another, and the cheaper branch, a copy; the host waits for the conditional."""
    count, iterations = program_text.one_iteration(HLO)
    assert iterations is None
    assert (count.kernels, count.copies, count.conditionals, count.open_loops) == (4, 1, 1, 0)
    # each fusion of the inner loop reads and writes 16 bytes, the first reads the tuple of 20; the copy 32
    assert count.moved_bytes == 3 * 32 + (20 + 16) + 32
    inner, iterations = program_text.one_iteration(HLO, depth=2)
    assert (inner.kernels, iterations) == (1, 3)
    open_loop = program_text.one_iteration(HLO.replace('{"n":"3"}', "{}"))[0]
    assert (open_loop.kernels, open_loop.open_loops) == (2, 1)
    with pytest.raises(ValueError, match="no loop over episodes"):
        program_text.one_iteration(HLO, depth=3)


def test_a_gpus_program_names_the_branches_one_by_one():
    branches = "true_computation=%dear, false_computation=%cheap, control-predecessors={%f.1}"
    text = HLO.replace("branch_computations={%dear, %cheap}", branches)
    assert program_text.one_iteration(text) == program_text.one_iteration(HLO)
    types = "(f32[5,4096]{1,0}, pred[3], u32[], s64[2], bf16[4])"
    assert program_text.array_bytes(types) == 4 * 5 * 4096 + 3 + 4 + 16 + 8


THUNKS = """001: kWhile [source | sink]
condition:
    002: kCustomKernel [source | sink] compare
  body:
    003: kWhile [source | sink]
condition:
        004: kCustomKernel [source | sink] compare
      body:
        000: kCommandBuffer [source | next=062 (1)]
            005: kCustomKernel [source | sink] add
            006: kCopy [source | sink] kCopy
        007: kConditional [prev=000 (1) | sink]
"""


def test_command_buffers_and_the_work_outside_of_them():
    assert gpu.command_buffers(THUNKS, depth=2) == 2
    assert gpu.command_buffers(THUNKS.replace("        007", "            007"), depth=2) == 1


def test_a_gpu_report_needs_the_cuda_plugin(monkeypatch, capsys):
    assert gpu.names() == ["a100", "h100"]
    monkeypatch.setattr(gpu, "PLUGINS", ("no_such_plugin",))
    assert command.main(["--part", "gpu", "--target", "a100"]) == 2
    assert 'gpu/bin/pip install ".[cuda12]"' in capsys.readouterr().err


def test_the_anchor_is_compiled_for_the_size(compiler, tmp_path):
    (tmp_path / "fake.cpp").write_text(FAKE_ANCHOR)
    program = anchor.build(tmp_path / "fake.cpp", timing.Size(5, 4, 3, 2), str(tmp_path))
    assert anchor.run(program, seeds=9, threads=1, episodes=1000) == pytest.approx(14e-6 * 16 * 1000)
    (tmp_path / "broken.cpp").write_text("int main() { return x; }")
    with pytest.raises(ValueError, match=r"does not compile for the size \(5, 4, 3, 2\).*error"):
        anchor.build(tmp_path / "broken.cpp", timing.Size(5, 4, 3, 2), str(tmp_path))
    (tmp_path / "mute.cpp").write_text('#include <cstdio>\nint main() { puts("hm"); }')
    program = anchor.build(tmp_path / "mute.cpp", timing.Size(2, 2, 2, 1), str(tmp_path))
    with pytest.raises(ValueError, match="the anchor printed 'hm'"):
        anchor.run(program, seeds=8, threads=1, episodes=1)


def test_no_compiler_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (tmp_path / "fake.cpp").write_text(FAKE_ANCHOR)
    assert command.main(["--anchor", f"cpdpo={tmp_path / 'fake.cpp'}"]) == 2
    assert "needs a C++ compiler" in capsys.readouterr().err


MISTAKES = {
    "--sizes 5,5,3": "'5,5,3' is not LAYERS,STATES,ACTIONS,CONSTRAINTS",
    "--sizes 2,1,1,1": "sizes = 2,1,1,1 has no random CMDP",
    "--seeds 0": "'0' is not a whole number of at least 1",
    "--part flam": "invalid choice: 'flam'",
    "--seconds -1": "'-1' is not between 0 and 1000 seconds",
    "--anchor cpdpo=nowhere.cpp": "'cpdpo=nowhere.cpp' is not LEARNER=FILE.cpp with an existing file",
    "--target b200": "invalid choice: 'b200'",
    "--part peak --learners podb": "learners = 'podb' has no part 'peak'",
    "--part flame --learners podb": "learners = 'podb' has no part 'flame'",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_sentence(words, capsys):
    try:
        code = command.main(words.split())
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert MISTAKES[words] in capsys.readouterr().err


@pytest.mark.exhaustive
def test_speed_and_naive_of_a_tiny_case_write_nothing(compiler, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("fake.cpp").write_text(FAKE_ANCHOR)
    words = "--sizes 2,2,2,1 --seeds 3 --seconds 0.02 --part speed naive --anchor cpdpo=fake.cpp --json"
    assert command.main(words.split()) == 0
    results = json.loads(capsys.readouterr().out)
    assert set(results) == {"machine", "speed", "naive"}
    row, other = results["speed"]
    assert (row["learner"], other["learner"], "ratio" in other) == ("cpdpo", "cpd_oppo", False)
    assert (row["size"], row["seeds"], row["cores"]) == ([2, 2, 2, 1], 3, 1)
    assert row["anchor_microseconds"] == pytest.approx(7 * 8 / 3)  # its group of 8 for our 3 seeds
    assert row["ratio"] == pytest.approx(row["microseconds"] / row["anchor_microseconds"])
    assert row["compile_seconds"] > row["cached_compile_seconds"] >= 0
    assert [row["program"] for row in results["naive"]] == ["vmap", "NumPy"]
    assert [path.name for path in tmp_path.iterdir()] == ["fake.cpp"]


@pytest.mark.parametrize(
    ("part", "words", "rows"),
    [
        ("learners", ["--learners", "uniform"], ["uniform"]),
        *(
            pytest.param(*part, marks=pytest.mark.exhaustive)
            for part in (
                ("peak", ["--learners", "cpd_oppo"], ["cpd_oppo"]),
                ("scaling", ["--seeds", "3"], ["cpdpo"] * len({1, parts.cores()})),
                ("flame", [], ["cpdpo"] * 10 + ["cpd_oppo"] * 7),
            )
        ),
    ],
)
def test_the_other_parts_of_a_tiny_case(part, words, rows, capsys):
    tiny = ["--sizes", "2,2,2,1", "--seconds", "0.004", "--part", part, *words, "--json"]
    assert command.main(tiny) == 0
    results = json.loads(capsys.readouterr().out)
    assert f"cpdpo_jax {cp.__version__}" in results["machine"]
    assert [row["learner"] for row in results[part]] == rows
    assert all(row["microseconds"] > 0 for row in results[part])


def test_a_table_has_a_cell_for_every_column():
    """Missing values are '-', lists are in brackets."""
    row = {"learner": "cpdpo", "size": [5, 5, 3, 2], "seeds": 64, "microseconds": 0.2345, "episodes": [2000, 9000]}
    title, head, _, line, note = tables.show("speed", [row]).splitlines()
    assert (title, note) == (tables.TABLES["speed"].title, tables.TABLES["speed"].note)
    assert "anchor us" in head
    assert line.split() == ["cpdpo", "(5,5,3,2)", "64", "-", "0.234", "-", "-", "-", "-", "(2000,9000)"]
    assert set(tables.TABLES) >= set(parts.PARTS)


@pytest.mark.parametrize("learner", peak.LEARNERS)
@pytest.mark.parametrize("size", [(5, 5, 3, 2), (6, 7, 2, 3)])
def test_the_operations_of_an_episode_are_most_of_what_xla_counts(learner, size):
    """XLA also counts comparisons, choices and conversions."""
    block = internals.start(timing.Size(*size), 32, learner)
    draws = jnp.zeros((size[0], 3 + size[3], 32))
    episode = jax.jit(partial(play_episode, block.learner, block.noise))
    counted = episode.lower(block.lanes, block.state.learner, draws, jnp.int32(0)).cost_analysis()
    assert counted is not None
    assert 0.6 < peak.work(learner, timing.Size(*size)).operations / (counted["flops"] / 32) < 1


@pytest.mark.parametrize("learner", peak.LEARNERS)
def test_the_bytes_of_an_episode_are_those_of_the_state(learner):
    """The learner's state is read once, and its small arrays are written."""
    size = timing.Size(6, 7, 2, 3)
    state = internals.start(size, 32, learner).state.learner
    stored = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / 32
    assert 0.9 < peak.work(learner, size).bytes / stored < 1.5


def test_sorting_costs_fewer_operations_than_breakpoints():
    """The same switch as the table of forms: wider layers sort."""
    narrow, wide = timing.Size(6, 10, 2, 1), timing.Size(6, 11, 2, 1)
    assert (peak.sorts(narrow), peak.sorts(wide)) == (False, True)
    assert peak.occupancy_operations(wide) < peak.occupancy_operations(narrow)
