"""Sweeps: the same numbers as separate runs, few compilations, tables that can be read."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.kernels import KERNELS

import jboost as jb
from jboost import engine
from jboost.engine.plan import Plan
from jboost.sweeps import jobs
from jboost.sweeps.results import Table
from jboost.sweeps.sweep import SweepInterrupted, sweep

KEYS = jax.random.split(jax.random.key(5), 16)
NSGD = jb.NSGD(step_size=0.1)
make_ru = partial(jb.bsgd_ru, 4, target_mse=0.3, combiner=NSGD)
make_wu = partial(jb.bsgd_wu, 4, target_mse=0.3, combiner=NSGD)


def data(T=60):
    return (np.asarray(a) for a in jb.streams.duffing(T))


def predictions(trace, ds):
    return {"prediction": trace.prediction}


@pytest.fixture
def compiled():
    """How many programs of a sweep were compiled since the last look."""
    seen = set()

    def new():
        fresh = set(jobs._compiled) - seen
        seen.update(fresh)
        return len(fresh)

    new()
    return new


def test_a_thousand_runs_are_those_runs(compiled):
    """64 settings × 16 keys of random updates against 1,024 calls of run."""
    xs, ds = data()
    steps = np.geomspace(0.01, 0.3, 64)  # float64, as users have them
    table = sweep(make_ru, {"step_size": steps}, xs, ds, KEYS, metric=predictions)
    assert compiled() == 1
    assert table["mse"].shape == (1024,) and table.done.all()
    rows = zip(table["step_size"], table["key"], table["prediction"], table["mse"], strict=True)
    for step, key, prediction, mse in rows:
        model = make_ru(step_size=float(step))
        alone = jb.run(model, xs, ds, KEYS[key])[1].prediction
        # A draw that fell on the other side of λ would show as a difference of 1e-3 or more.
        np.testing.assert_allclose(prediction, alone, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mse, np.mean((alone - ds) ** 2), rtol=1e-5)
    again = sweep(make_ru, {"step_size": steps * 1.1}, xs, ds, KEYS, metric=predictions)
    assert compiled() == 0
    assert not np.allclose(again["mse"], table["mse"])


def choose(kind, m, size):
    kinds = {
        "WU": jb.Weighted(),
        "DR": jb.DataReuse(2),
        "RU": jb.RandomUpdate(),
    }
    return jb.boost(jb.SGD(size), m, target_mse=0.3, mode=kinds[kind], combiner=jb.Uniform())


def test_structures_compile_once_each(compiled):
    xs, ds = data()
    grid = {"kind": ["WU", "RU"], "m": [1, 6], "size": [0.05, 0.1]}
    table = sweep(choose, grid, xs, ds, KEYS[0])
    assert compiled() == 4  # one for each mode and m
    for point, mse in zip(table.points, table["mse"], strict=True):
        np.testing.assert_allclose(mse, jb.mse(choose(**point), xs, ds, KEYS[0]), rtol=1e-5)
    assert table["kind"].tolist() == ["WU"] * 4 + ["RU"] * 4
    assert table["m"].tolist() == [1, 1, 6, 6] * 2


def test_a_sweep_over_m_and_over_vectors_of_settings():
    """The state of the default combiner has another shape for every m."""
    xs, ds = data()
    lengths = [2, 5, 2]
    table = sweep(partial(jb.bnm_wu, target_mse=0.2, forgetting=0.9, ridge=0.1),
                  [{"m": m} for m in lengths], xs, ds)  # fmt: skip
    for m, mse in zip(lengths, table["mse"], strict=True):
        model = jb.bnm_wu(m, target_mse=0.2, forgetting=0.9, ridge=0.1)
        np.testing.assert_allclose(mse, jb.mse(model, xs, ds), rtol=1e-5)
    vectors = np.array([[0.1, 0.2, 0.05, 0.1], [0.3, 0.1, 0.1, 0.01]])
    table = sweep(make_wu, {"step_size": vectors}, xs, ds)
    for vector, mse in zip(vectors, table["mse"], strict=True):
        np.testing.assert_allclose(mse, jb.mse(make_wu(step_size=vector), xs, ds), rtol=1e-5)


def test_streams_keys_and_batches():
    """Rows go by point, key, stream; a batch of any size gives the same."""
    xs, ds = data()
    xs, ds = np.stack([xs, -2 * xs, xs]), np.stack([ds, ds + 0.5, ds])
    ds[2, 40:] = np.nan  # a shorter stream
    grid = {"step_size": [0.05, 0.1]}
    table = sweep(make_ru, grid, xs, ds, KEYS[:2])
    assert list(table) == ["step_size", "key", "stream", "mse", "skipped"]
    assert table["stream"].tolist() == [0, 1, 2] * 4
    assert table["key"].tolist() == [0, 0, 0, 1, 1, 1] * 2
    assert table["skipped"].tolist() == [0, 0, 20] * 4
    row = 0
    for step in grid["step_size"]:
        for key in KEYS[:2]:
            for x, d in zip(xs, ds, strict=True):
                mse = jb.mse(make_ru(step_size=step), x, d, key)
                np.testing.assert_allclose(table["mse"][row], mse, rtol=1e-5)
                row += 1
    assert table.by_point().shape == (2, 2, 3)
    for batch, workers in [(5, 1), (100, 3)]:
        again = sweep(make_ru, grid, xs, ds, KEYS[:2], batch=batch, workers=workers)
        np.testing.assert_array_equal(again["mse"], table["mse"])


def test_a_model_that_does_not_draw_runs_once_for_all_keys(monkeypatch):
    computed = []
    compute = jobs.Job.compute
    monkeypatch.setattr(
        jobs.Job, "compute", lambda job, batch: computed.append(batch) or compute(job, batch)
    )
    xs, ds = data()
    table = sweep(make_wu, {"step_size": [0.1, 0.2]}, xs, ds, KEYS[:3], batch=1)
    assert len(computed) == 2
    assert table["mse"].shape == (6,)
    assert len(set(table["mse"].tolist())) == 2 and table["mse"][0] == table["mse"][2]


def mean_lam(state, info):
    return info.lam.mean()


def lam(state, info):
    return info.lam


def late(trace, ds):
    return jnp.square(trace.prediction - ds)[30:].mean()


def observed(trace, ds):
    return trace.observed


def test_metrics_and_what_was_observed():
    xs, ds = data()
    table = sweep(make_wu, {"step_size": [0.1]}, xs, ds, metric=late)
    _, trace = jb.run(make_wu(step_size=0.1), xs, ds, observe=mean_lam)
    error = np.square(np.asarray(trace.prediction) - ds)
    np.testing.assert_allclose(table["metric"], [error[30:].mean()], rtol=1e-5)
    table = sweep(make_wu, {"step_size": [0.1]}, xs, ds, metric=observed, observe=mean_lam)
    np.testing.assert_allclose(table["metric"][0], trace.observed, rtol=1e-5)
    for name in ("mse", "step_size"):
        with pytest.raises(ValueError, match=f"names of other columns; it has {name}"):
            sweep(make_wu, {"step_size": [0.1]}, xs, ds, metric=lambda trace, ds, n=name: {n: 0.0})
    with pytest.raises(ValueError, match=r"metric must return one shape.*\(60, 1\).*\(60, 2\)"):
        sweep(partial(jb.bsgd_wu, target_mse=0.3, step_size=0.1), {"m": [1, 2]}, xs, ds,
              metric=observed, observe=lam)  # fmt: skip


def test_the_plain_form_and_float64_agree(x64):
    xs, ds = (array.astype(float) for array in data())
    grid = {"step_size": np.array([0.1, 0.2])}
    fast = sweep(make_ru, grid, xs, ds, KEYS[0])
    assert fast["mse"].dtype == np.float64
    engine.use("plain")
    try:
        slow = sweep(make_ru, grid, xs, ds, KEYS[0])
    finally:
        engine.use("auto")
    np.testing.assert_allclose(fast["mse"], slow["mse"], rtol=1e-9)
    np.testing.assert_allclose(
        fast["mse"][1], jb.mse(make_ru(step_size=0.2), xs, ds, KEYS[0]), rtol=1e-12
    )


def test_settings_of_the_calling_thread_reach_the_workers():
    """A float64 that is on in this thread only, by a context manager."""
    xs, ds = data()
    with jax.enable_x64(True):
        table = sweep(make_wu, {"step_size": [0.1]}, xs.astype(float), ds.astype(float))
    assert table["mse"].dtype == np.float64


def test_an_interruption_keeps_what_is_done(monkeypatch):
    compute, calls = jobs.Job.compute, []

    def stops(job, batch):
        calls.append(batch)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return compute(job, batch)

    monkeypatch.setattr(jobs.Job, "compute", stops)
    xs, ds = data()
    steps = np.linspace(0.01, 0.2, 20)
    with pytest.raises(SweepInterrupted, match="stopped after") as stopped:
        sweep(make_wu, {"step_size": steps}, xs, ds, batch=2, workers=1)
    table = stopped.value.table
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert 4 <= table.done.sum() < 20
    assert np.isfinite(table["mse"][table.done]).all()
    assert np.isnan(table["mse"][~table.done]).all()
    assert table.best()["step_size"] in steps[table.done]
    assert "of them done" in repr(table)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({}, "grid is empty"),
        ([], "grid is empty"),
        ({"step_size": []}, r"grid\['step_size'\] is empty"),
        ({"step_size": 0.1}, r"grid\['step_size'\] must be a list or array of values; got 0.1"),
        ({"step_size": "0.1"}, r"must be a list or array of values; got '0.1'"),
        ({"step_size": np.array(0.1)}, "must be a list or array"),
        ({"step_size": [0.1, np.nan]}, r"grid\['step_size'\]\[1\] must be finite; got nan"),
        ([{"step_size": np.inf}], r"grid\[0\]\['step_size'\] must be finite"),
        ({"step_siz": [0.1]}, "missing 1 required.*argument: 'step_size'"),
        ({"mse": [0.1]}, "'mse', which is a column of the table"),
        ({"step_size": [[0.1] * 19 + [np.nan]]}, r"grid\['step_size'\]\[0\] must be finite"),
        ([{"step_size": 0.1}, {"m": 2}], "same names; point 0 has step_size, point 1 has m"),
        ({"step_size": [0.1], "m": [0]}, "m must be a whole number >= 1; got 0"),
        ({"step_size": np.ones((2, 3))}, r"one per learner, here 20; got shape \(3,\)"),
        (0.1, "grid must be a dict"),
        ({1: [0.1]}, "names must be strings"),
        ([0.1], "got 0.1 as point 0"),
    ],
)
def test_bad_grids_say_what_to_do(grid, message):
    with pytest.raises((ValueError, TypeError), match=message):
        sweep(partial(jb.bsgd_wu, target_mse=0.3), grid, *data())


def test_other_bad_arguments_say_what_to_do():
    xs, ds = data()
    grid = {"step_size": [0.1]}

    def strict(step_size):
        return jb.SGD(step_size)

    with pytest.raises(TypeError, match="unexpected keyword argument 'm'") as error:
        sweep(strict, {"step_size": [0.1], "m": [1]}, xs, ds)
    assert "the grid's names are arguments of make" in error.value.__notes__[0]
    with pytest.raises(ValueError, match="step_size must be") as error:
        sweep(strict, {"step_size": [0.1, -1.0]}, xs, ds)
    assert "{'step_size': -1.0}" in error.value.__notes__[0]
    with pytest.raises(TypeError, match="make must return a learner"):
        sweep(lambda step_size: step_size, grid, xs, ds)
    with pytest.raises(TypeError, match="make must be a function"):
        sweep(jb.SGD(0.1), grid, xs, ds)
    with pytest.raises(ValueError, match="key is missing"):
        sweep(make_ru, grid, xs, ds)
    with pytest.raises(TypeError, match=r"keys must be a jax\.random\.key"):
        sweep(make_ru, grid, xs, ds, 3)
    with pytest.raises(ValueError, match=r"keys must be one key, or \(K,\)"):
        sweep(make_ru, grid, xs, ds, KEYS.reshape(4, 4))
    with pytest.raises(ValueError, match=r"targets ds of shape \(S, T\).*\(2, 60, 3\)"):
        sweep(strict, grid, np.stack([xs, xs]), ds)
    with pytest.raises(ValueError, match=r"xs must have shape \(T, r\)"):
        sweep(strict, grid, xs[:, 0], ds)
    with pytest.raises(ValueError, match="batch must be"):
        sweep(strict, grid, xs, ds, batch=0)
    with pytest.raises(TypeError, match="outside of jit"):
        jax.jit(lambda xs: sweep(strict, grid, xs, ds)["mse"])(xs)


ABORTS = """
import numpy as np, jboost as jb
from jboost.fleets.fleet import Fleet
from jboost.sweeps.sweep import sweep

def make(m, step):
    return jb.boost(jb.SGD(step), m, target_mse=0.1, combiner=jb.Uniform())

for T in (1, 9):
    xs, ds = np.ones((T, 2), np.float32), np.ones(T, np.float32)
    for m in (1, 2):
        sweep(make, {"m": [m], "step": [0.1]}, xs, ds)
    fleet = Fleet(make(1, 0.1), 2)
    fleet.run(fleet.init(), np.zeros(T, int), xs, ds)
print("alive", fleet._program.spec.loop)
"""


@pytest.mark.skipif(not KERNELS, reason="no kernel with this jax")
def test_unused_operands_do_not_abort_the_process():
    """A batch of one run, of one learner, a state that nothing reads: XLA would abort on them."""
    done = subprocess.run([sys.executable, "-c", ABORTS], capture_output=True, text=True)
    assert done.stdout.strip() == "alive kernel", done.stderr[-2000:]


def small_table():
    points = [{"m": m, "mode": mode} for m in (1, 2) for mode in ("a", "b")]
    mse = np.array([4.0, 4.0, 2.0, 3.0, 1.0, np.nan, 1.0, 3.0])
    return Table(points, (2, 1), {"mse": mse}, seconds=1.5)


def test_a_table_by_hand():
    table = small_table()
    assert list(table) == ["m", "mode", "key", "mse"]
    np.testing.assert_array_equal(table.mean(), [4.0, 2.5, np.nan, 2.0])
    np.testing.assert_allclose(table.deviation()[:2], [0.0, np.sqrt(0.5)])
    assert table.best() == {"m": 2, "mode": "b"}
    assert table.best(largest=True) == {"m": 1, "mode": "a"}
    lines = repr(table).splitlines()
    assert lines[0].split() == ["m", "mode", "key", "mse"]
    assert lines[1].split() == ["1", "a", "0", "4"]
    assert lines[-1] == "8 runs, 1.5 s" and len(lines) == 10
    with pytest.raises(KeyError, match="no column 'nse'; there are m, mode, key, mse"):
        table["nse"]
    with pytest.raises(ValueError, match="no point has a finite"):
        Table([{"m": 1}], (1, 1), {"mse": np.array([np.inf])}).best()


def test_a_long_table_prints_its_ends():
    table = Table([{"m": m} for m in range(100)], (1, 1), {"mse": np.arange(100.0)})
    lines = repr(table).splitlines()
    assert len(lines) == 15 and lines[7].split() == ["…", "…"]
    assert lines[1].split() == ["0", "0"] and lines[13].split() == ["99", "99"]


def test_frames_where_they_are_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ModuleNotFoundError, match="polars"):
        small_table().to_polars()
    pandas = pytest.importorskip("pandas")
    frame = small_table().to_pandas()
    assert isinstance(frame, pandas.DataFrame) and frame.shape == (8, 4)


def test_plots_show_means_and_the_best():
    table = small_table()
    ax = table.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("m", "mode")
    np.testing.assert_array_equal(
        ax.images[0].get_array().filled(np.nan), [[4.0, np.nan], [2.5, 2.0]]
    )
    (dot,) = ax.lines
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (1, 1)
    ax = table.plot(x="m", by="mode")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["mode = a", "mode = b"]
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [2.5, 2.0])
    ax = table.plot("mode")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [4.0, 2.0])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    with pytest.raises(ValueError, match="'c' is not a setting of this sweep; they are m, mode"):
        table.plot(x="c")
    close = [{"b": b} for b in (0.99990, 0.99995)]
    assert len(Table(close, (1, 1), {"mse": np.ones(2)}).plot().lines[0].get_xdata()) == 2
    wide = Table([{"s": s} for s in (0.01, 1.0)], (1, 1), {"mse": np.array([1.0, 2.0])})
    assert wide.plot().get_xscale() == "log"


def test_progress_is_said(capsys):
    xs, ds = data()
    sweep(make_wu, {"step_size": [0.1, 0.2]}, xs, ds, progress=True)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert first == "sweep: compiling…" and last.startswith("sweep: 100%, 2 of 2 runs, ")
    sweep(make_wu, {"step_size": [0.1, 0.2]}, xs, ds)
    assert capsys.readouterr().err == ""


def test_it_compiles_for_accelerators():
    """Without one at hand: the batch is a vmap there, and lowers."""
    xs, ds = data()

    class Gpu:
        platform = "cuda"

    plan = Plan("plain", "")
    models = jax.tree.map(lambda leaf: np.full(3, leaf, np.float32), make_ru(step_size=0.1))
    batch = jobs.Batch(models, np.zeros((3, 2), np.uint32), np.zeros(3, np.int32))
    spec = jobs.BatchSpec(plan, (Gpu(),), "threefry2x32", None, None)
    run_batch = jax.jit(partial(jobs._run_batch, spec))
    exported = jax.export.export(run_batch, platforms=["cuda"])(batch, xs[None], ds[None])
    assert exported.out_avals[0].shape == (3,)
