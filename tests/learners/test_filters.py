"""Filters of signal processing against padasip's and printed formulas; no complex numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.table import FEW

import jboost as jb
from jboost.cli import main
from jboost.files import choice, sources

T, R = 120, 4


def stream(seed=0):
    """Return a tapped delay line of coloured noise through an unknown system, in float64."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=T + R)
    for t in range(1, T + R):
        u[t] += 0.7 * u[t - 1]
    x = np.stack([u[R - k : T + R - k] for k in range(R)], axis=1)
    return x, x @ [1.0, -0.5, 0.25, 0.1] + 0.05 * rng.normal(size=T)


@pytest.mark.parametrize("name", ["AP", "SSLMS", "VSLMS_Mathews", "VSLMS_Benveniste"])
def test_filters_have_the_numbers_of_padasip(name, x64):
    pa = pytest.importorskip("padasip")
    theirs, ours = {
        "AP": (
            pa.filters.FilterAP(R, order=3, mu=0.5, ifc=0.01, w="zeros"),
            jb.AffineProjection(3, 0.5, 0.01),
        ),
        "SSLMS": (pa.filters.FilterSSLMS(R, mu=0.02, w="zeros"), jb.SignSignLMS(0.02)),
        "VSLMS_Mathews": (
            pa.filters.FilterVSLMS_Mathews(R, mu=0.01, ro=1e-4, w="zeros"),
            jb.VariableStepLMS(0.01, 1e-4),
        ),
        "VSLMS_Benveniste": (None, jb.VariableStepLMS(0.01, 1e-6, "benveniste")),
    }[name]
    xs, ds = stream()
    state, trace = jb.run(ours, xs, ds)
    if theirs is None:  # padasip multiplies by the input before; the paper by the present one
        expected, w = benveniste(xs, ds, 0.01, 1e-6)
    else:
        expected, _, _ = theirs.run(ds, xs)
        w = theirs.w
    np.testing.assert_allclose(trace.prediction, expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(state.w, w, rtol=1e-6, atol=1e-8)


def benveniste(xs, ds, mu, rho):
    """Return the predictions and the coefficients by the printed recursion."""
    w, phi, predictions = np.zeros(R), np.zeros(R), []
    for x, d in zip(xs, ds, strict=True):
        predictions.append(w @ x)
        e = d - w @ x
        mu = mu + rho * e * (phi @ x)
        phi = (np.eye(R) - mu * np.outer(x, x)) @ phi + e * x
        w = w + mu * e * x
    return predictions, w


def test_affine_projection_of_order_one_is_nlms():
    xs, ds = (a.astype(np.float32) for a in stream())
    one, nlms = (jb.run(m, xs, ds)[1].prediction
                 for m in (jb.AffineProjection(1, 0.5, 0.1), jb.NLMS(0.5, 0.1)))  # fmt: skip
    np.testing.assert_allclose(one, nlms, atol=1e-5)


def test_a_volterra_filter_finds_a_system_that_is_not_linear():
    rng = np.random.default_rng(0)
    u = rng.normal(size=(800, 1)).astype(np.float32)
    before = np.concatenate([[[0.0]], u[:-1]])
    ds = (u + 0.5 * before + 0.3 * u * before - 0.2 * before**2)[:, 0].astype(np.float32)
    linear = jb.pipeline(jb.Lags(inputs=2), jb.Newton())
    volterra = jb.pipeline(jb.Volterra(2, 1), jb.Newton())
    errors = [np.mean((np.asarray(jb.run(m, u, ds)[1].prediction) - ds)[400:] ** 2)
              for m in (linear, volterra)]  # fmt: skip
    assert errors[1] < 1e-4 * errors[0]
    assert jb.Volterra(3, 1, degree=3).width(2) == 8 + (4 * 5 // 2 + 4 * 5 * 6 // 6)


COMPLEX = (1 + 2j, [1j, 0, 0], np.ones(3, complex), jnp.ones(3, jnp.complex64))


def test_complex_numbers_of_a_fleet_a_file_or_a_table_are_refused(tmp_path, capsys):
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    table = pandas.DataFrame({"a": np.ones(4) + 1j, "b": np.arange(4.0), "y": np.ones(4)})
    fleet = jb.Fleet(jb.SGD(0.1), 2)
    with pytest.raises(TypeError, match="inputs must be columns of numbers; 'a' is of complex128"):
        fleet.run_table(fleet.init(), table.assign(k="x"), names="k", target="y")
    with pytest.raises(TypeError, match=r"names must be text.*complex"):
        fleet.run(fleet.init(), np.ones(4) * 1j, np.ones((4, 2)), np.ones(4))
    rows = [{"a": 1j, "y": 1.0}] * 4
    for data in (table, rows):
        with pytest.raises(ValueError, match="complex numbers in 'a'; make the real"):
            sources.read(data, "y")
    with pytest.raises(ValueError, match="the column 'a' holds complex numbers"):
        choice.describe("a", pyarrow.chunked_array([["1+2j", "3 - 4i"]]), "the request")
    path = tmp_path / "c.csv"
    for text in ("(1+2j)", "-.5 + 3e4i"):
        path.write_text("a,y\n" + f"{text},1\n" * 9)
        assert main(["run", str(path), "--target", "y"]) == 3
        assert f"'{text}' in the column 'a' is a complex number" in capsys.readouterr().err
    path.write_text("a,y\n" + "1,3+1j\n" * 9)
    assert main(["run", str(path), "--target", "y"]) == 3
    assert "is a complex number" in capsys.readouterr().err


def test_complex_numbers_are_refused_by_the_adapters():
    pytest.importorskip("sklearn")
    river, sklearn = (pytest.importorskip(f"jboost.adapters.{n}") for n in ("river", "sklearn"))
    one = river.OnlineRegressor(jb.Flags(jb.SGD(0.1)))
    for x, y in (({"a": 1j}, 1.0), ({"a": "1+2j"}, 1.0), ({"a": 1.0}, np.complex64(1j))):
        with pytest.raises(TypeError, match="must be a number"):
            one.learn_one(x, y)
        with pytest.raises(TypeError, match="must be a number"):
            one.learn_one({"a": 1.0}, 1.0)
            one.flags_one(x, y)
    many = sklearn.OnlineRegressor(jb.Flags(jb.SGD(0.1))).fit(np.ones((4, 1)), np.ones(4))
    real, bad = (np.ones((4, 1)), np.ones(4)), (np.ones((4, 1)) * 1j, np.ones(4) * 1j)
    for use in (many.partial_fit, many.flags, lambda X, y: many.explain(X + y[:, None])):
        use(*real)
        for X, y in ((bad[0], real[1]), (real[0], bad[1])):
            with pytest.raises(ValueError, match="Complex data not supported"):
                use(X, y)


def test_complex_numbers_are_refused_everywhere():
    xs, ds = np.ones((4, 3), complex), np.ones(4, complex)
    real = np.ones((4, 3)), np.ones(4)
    scale, model = jb.Scale(), jb.pipeline(jb.Scale(), jb.SGD(0.1))
    learners = [FEW[name] for name in ("SGD", "Newton", "Lags", "Intervals", "mixture")]
    for learner in (*learners, model):
        state = learner.init(3, np.float32, key=jax.random.key(0))
        for x in COMPLEX:
            with pytest.raises(TypeError, match="x must hold real numbers"):
                learner.predict(state, x)
            with pytest.raises(TypeError, match="x must hold real numbers"):
                learner.update(state, x, 1.0, key=jax.random.key(0))
        for d in COMPLEX[:1] + COMPLEX[2:]:
            with pytest.raises(TypeError, match="d must hold real numbers"):
                learner.update(state, np.ones(3), d, key=jax.random.key(0))
    state = scale.init(3)
    for x in COMPLEX:
        with pytest.raises(TypeError, match="x must hold real numbers"):
            scale.apply(state, x)
        with pytest.raises(TypeError, match="x must hold real numbers"):
            scale.update(state, x)
    sgd = jb.SGD(0.1)
    uses = {
        "run": lambda xs, ds: jb.run(sgd, xs, ds),
        "mse": lambda xs, ds: jb.mse(sgd, xs, ds),
        "sweep": lambda xs, ds: jb.sweep(jb.SGD, {"step_size": [0.1]}, xs, ds),
        "stream": lambda xs, ds: jb.run_stream(sgd, (xs, ds)).finish(),
        "tune": lambda xs, ds: jb.hypergradient(sgd, xs, ds),
        "jit": lambda xs, ds: jax.jit(lambda x, d: sgd.update(sgd.init(3), x, d))(xs[0], ds[0]),
        "explain": lambda xs, ds: jb.explain(sgd, sgd.init(3), xs[0] + ds[0]),
        "fleet": lambda xs, ds: jb.Fleet(sgd, 3).run(jb.Fleet(sgd, 3).init(), ["a"] * 4, xs, ds),
    }
    for name, use in uses.items():
        use(*real)
        for bad in ((xs, real[1]), (real[0], ds)):
            with pytest.raises((TypeError, ValueError), match="real"):
                use(*bad)
                pytest.fail(name)
