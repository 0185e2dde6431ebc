"""`cpdpo bench`: the naive programs are CPD-PO, the anchor is compiled and read, the arithmetic of times and counts."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cpdpo_jax import cli
from cpdpo_jax.cli.bench import (
    anchor,
    device,
    flame,
    gpu,
    naive,
    naive_numpy,
    naive_vmap,
    parts,
    program_text,
    simulator,
    tables,
)
from cpdpo_jax.learners import cpdpo
from cpdpo_jax.simulation import compiled_loop
from tests.support import lanes_for, random_cmdp

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
        pytest.skip("no C++ compiler here")


@pytest.fixture
def real(x64):
    """CPD-PO on recorded draws, with rates and widths at which 50 episodes show something."""
    cmdp = random_cmdp(*SHAPE, seed=5)
    options: dict[str, Any] = {"episodes": 10**6, "preset": "theory", "rho": 0.5, "dtype": float}
    options |= {"learning_rate": 0.05, "exploration": 0.02, "transition_confidence": 0.01}
    lanes = lanes_for(cpdpo.LEARNER, cmdp, **options, reward_confidence=0.001, cost_confidence=0.001)
    draws = np.random.default_rng(3).random((EPISODES, 3, 5))
    run = jax.jit(
        lambda lanes, draws: compiled_loop.replay(cpdpo.LEARNER, "bernoulli", lanes, draws, lambda s: s.primal)
    )
    _, episodes, primal = run(lanes, jnp.asarray(draws)[..., None])
    c = naive_numpy.constants(SHAPE, 0.5)
    c = c._replace(learning_rate=0.05, exploration=0.02, log_transition=0.01 * c.log_transition)
    c = c._replace(log_reward=0.001 * c.log_reward, log_cost=0.001 * c.log_cost)
    expected = jax.tree.map(lambda leaf: np.asarray(leaf)[..., 0], (episodes, primal.epochs))
    return naive.model_of(cmdp, float), c, draws, expected


def check(expected, policies, states, actions, multipliers, epochs):
    episodes, expected_epochs = expected
    assert 0 < (episodes.info.multipliers > 0).mean() < 1  # else comparing them says nothing
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
    c, hyper = naive_numpy.constants(SHAPE, 0.5), lanes.hyper
    stated = [hyper.learning_rate, hyper.exploration, hyper.dual_cap, hyper.loss_scale]
    ours = [c.learning_rate, c.exploration, c.cap, c.scale]
    np.testing.assert_allclose(ours, np.concatenate(stated), rtol=1e-6)


def test_a_short_run_has_the_constants_of_a_long_one():
    """The logarithms of T = 10^6 through the multipliers of a run of 100 episodes."""
    told = simulator._theory(random_cmdp(*SHAPE, seed=5), 100)
    pairs = (3 * 2 + 2) * 2 / 0.05
    assert told["transition_confidence"] * math.log(100 * pairs) == pytest.approx(math.log(1e6 * pairs))
    assert told["cost_confidence"] * math.log(100 * pairs * 2) == pytest.approx(math.log(1e6 * pairs * 2))


def test_times_are_differences_of_the_best():
    """A run costs 0.02 s and 1 ms per episode; the second call of each kind is disturbed."""
    calls: list[int] = []

    def run(n: int) -> float:
        calls.append(n)
        return 0.02 + 0.001 * n + 0.5 * (calls.count(n) == 2)

    over = simulator.span(lambda n: 0.001 * n, 1.0)
    assert over.first < over.last
    assert 0.5 <= 0.001 * (over.last - over.first) <= 1.5
    assert simulator.per_episode({"ours": run}, simulator.Span(100, 600), 2)["ours"] == pytest.approx(0.001)
    assert simulator.per_episode({"noise": lambda n: 0.6}, simulator.Span(100, 600), 2)["noise"] == pytest.approx(0.001)


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
    """One fusion, three turns of one fusion, and the cheaper side, a copy; its host waits for the choice."""
    count, turns = program_text.one_turn(HLO)
    assert turns is None
    assert (count.kernels, count.fusions, count.copies, count.conditionals, count.open_loops) == (4, 4, 1, 1, 0)
    assert count.copied_bytes == 16
    # each fusion of the inner loop reads and writes 16 bytes, the first reads the tuple of 20; the copy 32
    assert count.moved_bytes == 3 * 32 + (20 + 16) + 32


def test_a_gpus_program_names_its_choice_otherwise_and_nests_its_loop():
    """Two names in place of a list, and the episodes inside of a loop over stretches."""
    sides = "true_computation=%dear, false_computation=%cheap, control-predecessors={%f.1}"
    text = HLO.replace("branch_computations={%dear, %cheap}", sides)
    assert program_text.one_turn(text) == program_text.one_turn(HLO)
    inner, turns = program_text.one_turn(HLO, depth=2)
    assert (inner.kernels, turns) == (1, 3)
    open_loop = program_text.one_turn(HLO.replace('{"n":"3"}', "{}"))[0]
    assert (open_loop.kernels, open_loop.open_loops) == (2, 1)
    with pytest.raises(ValueError, match="no loop over episodes"):
        program_text.one_turn(HLO, depth=3)


def test_bytes_of_types():
    assert (
        program_text.array_bytes("(f32[5,4096]{1,0}, pred[3], u32[], s64[2], bf16[4])") == 4 * 5 * 4096 + 3 + 4 + 16 + 8
    )


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


def test_command_buffers_and_what_lies_outside_of_them():
    assert gpu.command_buffers(THUNKS, depth=2) == 2
    assert gpu.command_buffers(THUNKS.replace("        007", "            007"), depth=2) == 1


def test_a_target_is_described_and_wants_its_compiler(monkeypatch, capsys):
    assert gpu.names() == ["a100", "h100"]
    assert cli.main(["bench", "--part", "device", "--target", "b200"]) == 2
    assert "target = 'b200' is not known; choose from a100, h100." in capsys.readouterr().err
    monkeypatch.setattr(gpu, "PLUGINS", ("no_such_plugin",))
    assert cli.main(["bench", "--part", "device", "--target", "h100"]) == 2
    assert 'gpu/bin/pip install "cpdpo_jax[cuda12]"' in capsys.readouterr().err


def test_the_device_and_the_flame_of_a_small_block():
    size = simulator.Size(2, 2, 2, 1)
    told = device.device(size, 32)
    assert 5 < told["kernels_per_episode"] < 500
    assert told["kernels_per_episode"] >= told["of_which_fusions"] > 0
    counts = 4 * (2 * 2 * 2 + 2 * 2 * 2)  # visits and transitions alone, int32
    assert counts < told["state_bytes_per_seed"] < 100 * counts
    burnt = [flame.flame(learner, size, 32, 0.001) for learner in ("cpdpo", "cpd_oppo")]
    for one in burnt:
        assert one["whole_microseconds"] > 0
        assert len(one["pieces"]) > 3
        assert all(row["microseconds"] > 0 for row in one["pieces"])
    assert tables.flame({"flame": burnt}).count("whole episode") == 2
    assert "kernels per episode" in tables.device({"device": told})


def test_the_anchor_is_compiled_for_the_size(compiler, tmp_path):
    (tmp_path / "fake.cpp").write_text(FAKE_ANCHOR)
    program = anchor.build(tmp_path / "fake.cpp", simulator.Size(5, 4, 3, 2), str(tmp_path))
    assert anchor.run(program, seeds=9, threads=1, episodes=1000) == pytest.approx(14e-6 * 16 * 1000)
    (tmp_path / "broken.cpp").write_text("int main() { return x; }")
    with pytest.raises(ValueError, match=r"does not compile for the size \(5,4,3,2\).*error"):
        anchor.build(tmp_path / "broken.cpp", simulator.Size(5, 4, 3, 2), str(tmp_path))
    (tmp_path / "mute.cpp").write_text('#include <cstdio>\nint main() { puts("hm"); }')
    program = anchor.build(tmp_path / "mute.cpp", simulator.Size(2, 2, 2, 1), str(tmp_path))
    with pytest.raises(ValueError, match="the anchor said 'hm'"):
        anchor.run(program, seeds=8, threads=1, episodes=1)


def test_no_compiler_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    (tmp_path / "fake.cpp").write_text(FAKE_ANCHOR)
    assert cli.main(["bench", "--anchor", str(tmp_path / "fake.cpp")]) == 2
    assert "needs a C++ compiler" in capsys.readouterr().err


def test_bench_prints_json_and_tables_and_writes_nothing(compiler, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("fake.cpp").write_text(FAKE_ANCHOR)
    words = ["bench", "--quick", "--sizes", "2,2,2,1", "--seeds", "3", "--seconds", "0.02", "--part", "speed", "naive"]
    assert cli.main([*words, "--anchor", "cpdpo=fake.cpp", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert set(told) == {"machine", "speed", "naive"}
    row, other = told["speed"]
    assert (row["learner"], other["learner"], "ratio" in other) == ("cpdpo", "cpd_oppo", False)
    assert (row["size"], row["seeds"], row["cores"]) == ([2, 2, 2, 1], 3, 1)
    assert row["anchor_microseconds"] == pytest.approx(7 * 8 / 3)  # its group of 8 for our 3 seeds
    assert row["ratio"] == pytest.approx(row["microseconds"] / row["anchor_microseconds"])
    assert row["cached_compile_seconds"] >= 0
    assert [one["program"] for one in told["naive"]] == ["vmap", "NumPy"]
    assert "ratio" in tables.speed(told)
    assert "NumPy" in tables.naive(told)
    assert [path.name for path in tmp_path.iterdir()] == ["fake.cpp"]


def test_scaling_finds_where_it_saturates(monkeypatch):
    """The clock is replaced, not the search: one core is full at 64 seeds, two at 100, of which 90 % is 90."""
    full = {1: 64, 2: 100}

    def measured(job, used, seconds):
        rate = 1000.0 * min(job.seeds, full[used])
        return {
            "cores": used,
            "seeds": job.seeds,
            "size": list(job.size),
            "episodes_per_second": rate,
            "microseconds": 1,
        }

    monkeypatch.setattr(parts, "_throughput", measured)
    monkeypatch.setattr(parts, "cores", lambda: 2)
    found = parts.scaling((16, 57, 58, 89, 90, 128), seconds=1.0, say=lambda text: None)
    assert found["saturates_at_seeds"] == {"1": 58, "2": 90}  # 57 / 64 = 0.89, 58 / 64 = 0.906
    assert len(found["rows"]) == 12
    assert "1 cores: 58 seeds; 2 cores: 90 seeds." in tables.scaling({"scaling": found})


def test_compile_time_from_nothing_is_told_once():
    """A second number of seeds in a block of the same width finds what was compiled for the first."""
    rows = parts.speed(
        ["uniform"], [simulator.Size(2, 2, 2, 1)], [3, 5], {}, seconds=0.01, cold=True, say=lambda text: None
    )
    assert rows[0]["compile_seconds"] > 0
    assert rows[1]["compile_seconds"] is None
