"""`concat`: separate runs joined are the run of all, and what does not belong together is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import cpdpo_jax as cp
from cpdpo_jax.results.statistics import METRICS
from tests.results.support import made_up


def run(learner: Any = "uniform", cmdp: Any = "hard", **more: Any) -> cp.Result:
    return cp.simulate(learner, cmdp, **{"episodes": 60, "seeds": 3, "progress": False} | more)


def same(first: cp.Result, second: cp.Result) -> None:
    for name in second.data.data_vars:
        xr.testing.assert_allclose(first.data[name], second.data[name], rtol=0, atol=0)


def test_learners_seeds_and_hparams_are_joined_to_the_run_of_all():
    whole = run(["uniform", "cpd_oppo"], seeds=4)
    parts = [run("uniform", seeds=4), run("cpd_oppo", seeds=[2, 3]), run("cpd_oppo", seeds=[0, 1])]
    joined = cp.concat(parts)
    same(joined, whole)
    assert joined.data.learner.values.tolist() == ["uniform", "cpd_oppo"]
    assert str(joined.compare("uniform", "cpd_oppo")) == str(whole.compare("uniform", "cpd_oppo"))
    grid = cp.concat([run("cpd_oppo", hparams={"policy_rate": [value]}) for value in ("x1", "x2")])
    same(grid, run("cpd_oppo", hparams={"policy_rate": ["x1", "x2"]}))
    same(cp.concat([whole, whole]), whole)  # an overlap of equal values
    assert cp.concat([run(seeds=[5, 6]), run(seeds=[1, 2])]).data.seed.values.tolist() == [1, 2, 5, 6]


def test_instances_keep_their_numbers_or_get_new_ones():
    ones = cp.envs.make("hard", instances=2)
    first, second = cp.unstack(ones)
    joined = cp.concat([run(cmdp=first), run(cmdp=second)])
    assert joined.data.instance.values.tolist() == [0, 1]
    assert joined.data.instance_name.values.tolist() == [first.name, second.name]
    np.testing.assert_array_equal(joined.data.optimum, run(cmdp=ones).data.optimum)
    assert np.isfinite(joined.data.strong_regret).all()


def test_runs_of_different_length_show_each_of_the_hparams_at_its_own_end(tmp_path):
    short, long = run(["uniform", "cpd_oppo"], episodes=20), run(["uniform", "cpd_oppo"], episodes=60)
    joined = cp.concat([short, long])
    assert joined.data.hparams.values.tolist() == ["tuned, T = 20", "tuned, T = 60"]
    frame = joined.summary_frame().set_index(["learner", "metric", "episodes"])
    for part, episodes in ((short, 20), (long, 60)):
        own = part.summary_frame().set_index(["learner", "metric"])
        for learner in ("uniform", "cpd_oppo"):
            for name in METRICS:
                assert frame.loc[(learner, name, episodes), "mean"] == own.loc[(learner, name), "mean"]
    assert "20 and 60 episodes" in joined.summary()
    assert joined.to_rliable()["uniform, tuned, T = 20"] == pytest.approx(short.to_rliable()["uniform"])
    (axis,) = joined.plot(metrics="strong_regret").axes
    lengths = {np.asarray(line.get_xdata(), float).max() for line in axis.lines if np.size(line.get_xdata()) > 2}
    assert lengths == {20, 60}
    joined.plot_tradeoff()
    joined.save(tmp_path / "a.nc")
    assert cp.Result.load(tmp_path / "a.nc").data.identical(joined.data)
    more = cp.concat([joined, run(["uniform", "cpd_oppo"], episodes=40)])
    assert more.data["T"].values.tolist() == [20, 60, 40]


def test_runs_of_different_rho_delta_and_safety_are_joined_to_the_run_of_several():
    whole = run(["uniform", "cpd_oppo"], rho=[0.1, "solve"])
    parts = [run(["uniform", "cpd_oppo"], rho=rho) for rho in (0.1, "solve")]
    joined = cp.concat(parts)
    same(joined, whole)
    assert joined.data.hparams.values.tolist() == whole.data.hparams.values.tolist()
    np.testing.assert_array_equal(joined.data.rho, [0.1, np.nan])
    assert parts[0].data.attrs["rho"] == "0.1"
    more = cp.concat([whole, run("cpd_oppo", rho="estimate:20"), run("cpd_oppo", rho=0.2, delta=0.05)])
    assert more.data.hparams.values.tolist()[2:] == ["tuned, rho=estimate:20", "tuned, rho=0.2"]
    assert np.isfinite(more.data.strong_regret.sel(learner="cpd_oppo")).all()
    two = cp.concat([run(delta=0.1, episodes=20), run(delta=0.2)])
    assert two.data.hparams.values.tolist() == ["tuned, delta=0.1, T = 20", "tuned, delta=0.2, T = 60"]
    assert (two.data.delta.values.tolist(), two.data["T"].values.tolist()) == ([0.1, 0.2], [20, 60])
    assert "delta" not in two.data.attrs
    safe = cp.concat([run("dope", safety=[0.3]), run("dope", safety=0.9)])
    same(safe, run("dope", safety=[0.3, 0.9]))
    older = run()
    del older.data.attrs["safety"]
    assert cp.concat([older, run(seeds=[5])]).data.sizes["hparams"] == 1
    with pytest.raises(ValueError, match="a result has no attribute safety"):
        cp.concat([older, run(safety=0.3), run(safety=0.4)])


def test_attributes_that_all_have_in_common_are_kept():
    """The seconds are added; the number of episodes and whether one was interrupted are the largest."""
    first, second = run(seeds=[0]), run(seeds=[1])
    first.data.attrs |= {"note": "a", "own": 1, "same": [1, 2], "seconds": 2.0, "interrupted": 1, "versions": "x"}
    second.data.attrs |= {"note": "b", "same": [1, 2], "seconds": 3.0, "versions": "y"}
    joined = cp.concat([first, second]).data.attrs
    assert joined["same"] == [1, 2]
    assert not {"note", "own"} & set(joined)
    assert (joined["seconds"], joined["interrupted"], joined["episodes"]) == (5.0, 1, 60)
    assert joined["versions"] == '["x", "y"]'


@pytest.mark.parametrize(
    "name", ["key", "horizon", "dtype", "noise", "layers", "states", "actions", "unit_names", "shown_units"]
)
def test_results_share_what_comparisons_depend_on(name):
    first, second = made_up(["a"]), made_up(["b"])
    first.data.attrs[name], second.data.attrs[name] = "x", "y"
    with pytest.raises(ValueError, match=rf"results\[1\] has {name} = y, but results\[0\] has x;"):
        cp.concat([first, second])


def test_what_does_not_belong_together_is_refused():
    first = run()
    refused: list[tuple[dict[str, Any], str]] = [
        ({"key": 1}, r"results\[1\] has key = 1, but results\[0\] has 0; join results that share it"),
        ({"horizon": "doubling"}, r"results\[1\] has horizon = doubling, but"),
        ({"dtype": "float64"}, r"results\[1\] has dtype = float64"),
    ]
    for changed, message in refused:
        with pytest.raises(ValueError, match=message):
            cp.concat([first, run(**changed)])
    second = cp.Result(first.data.assign(strong_regret=first.data.strong_regret + 1))
    with pytest.raises(ValueError, match="both have learner 'uniform', hparams 'tuned', instance 0 and seed 0,"):
        cp.concat([first, second])
    with pytest.raises(ValueError, match=r"results\[1\] has 2 constraints, but results\[0\] has 1"):
        cp.concat([made_up(["a"]), made_up(["b"], constraints=2)])
    with pytest.raises(ValueError, match="results is empty"):
        cp.concat([])
    with pytest.raises(ValueError, match=r"results\[0\] is a int"):
        cp.concat([3])  # pyright: ignore[reportArgumentType]
