"""Models put together at random, and streams with hostile values, for hypothesis.

A stream is drawn as a seed and a list of (row, column, value): short to read where a test fails.
"""

import numpy as np
import optax
from hypothesis import strategies as st

import jboost as jb

T, R = 16, 3  # a run is T samples of R columns; a stream is two runs
NETWORK, STEPS = jb.networks.Perceptron(2), optax.sgd(0.05)  # made once, as they are structure

# ------------------------------------------------------------------------------ any model

decays = st.sampled_from([0.9, 0.99, 1.0])
ridges = st.sampled_from([0.01, 1.0])
steps = st.sampled_from([0.01, 0.1, 0.5])

linear = st.one_of(
    st.builds(jb.SGD, steps),
    st.builds(jb.NLMS, steps),
    st.just(jb.NLMS(1.0, 0.0)),
    st.builds(
        jb.Newton,
        decays,
        ridges,
        forget_by_weight=st.booleans(),
        storage=st.sampled_from(["root", "covariance"]),
    ),
    st.builds(jb.ForwardNewton, decays, ridges),
)
others = st.one_of(
    st.builds(jb.PiecewiseLinear, st.just(1), linear, cuts=st.just(2), grace=st.just(2)),
    st.just(jb.pipeline(jb.Scale(), jb.GaussNewton(NETWORK))),
    st.just(jb.pipeline(jb.Scale(), jb.Gradient(NETWORK, optimizer=STEPS))),
    st.builds(jb.SelfTuning, st.builds(jb.SGD, steps)),
)
modes = st.sampled_from([jb.Weighted(), jb.DataReuse(2), jb.RandomUpdate(), jb.PoissonReuse()])
combiners = st.sampled_from(
    [
        *(None, jb.Uniform(), jb.NSGD(0.1, epsilon=0.01), jb.Newton(0.99, 1.0), jb.EWA(), jb.BOA()),
        *(jb.MLPoly(), jb.Refined(), jb.ScaleAlike(jb.BOA()), jb.SGD(0.1)),
    ]
)
transforms = st.sampled_from(
    [
        *(jb.Scale(), jb.Scale("range", forgetting=0.99), jb.Scale("held"), jb.Bias()),
        *(jb.Impute(), jb.Impute(indicators=True), jb.Polynomial(), jb.Lags(1, 1), jb.Select(2)),
        jb.RandomFourier(4),
    ]
)
WRAPPERS = [
    jb.ScaleTarget,
    jb.Huber,
    lambda learner: jb.Huber(learner, acts_on="target"),
    lambda learner: jb.Delayed(learner, 2),
    lambda learner: jb.Pending(learner, 2),
    lambda learner: jb.Budget(learner, rate=0.5),
    lambda learner: jb.Scored(learner, jb.metrics.MAE(window=5)),
    lambda learner: jb.OnChange(learner, "restart", threshold=1.0, warm_up=2),
    jb.Intervals,
    jb.WeightColumn,
    lambda learner: jb.baselines.SpanBoosting(learner, 2),
]


def boosted(inner):
    """Boosters of copies or of a list, in any mode, under any combiner, by either chain."""
    learners = st.one_of(st.tuples(inner, st.integers(1, 3)), st.tuples(st.lists(inner, min_size=2,
                         max_size=2), st.none()))  # fmt: skip
    return st.builds(
        lambda learner_and_m, target_mse, c, mode, combiner, chain: jb.boost(
            *learner_and_m,
            target_mse=target_mse,
            dependence=c,
            mode=mode,
            combiner=combiner,
            chain=chain,
        ),
        learners,
        st.sampled_from([0.0, 0.1, 10.0]),
        st.sampled_from([0.0, 1.0, 5.0]),
        modes,
        combiners,
        st.sampled_from(["prefix", "scan"]),
    )


def around(inner):
    """Boosters, pipelines and wrappers with a drawn learner inside."""
    piped = st.builds(
        lambda steps, learner: jb.pipeline(*steps, learner),
        st.lists(transforms, min_size=1, max_size=2),
        inner,
    )
    wrapped = st.builds(lambda wrap, learner: wrap(learner), st.sampled_from(WRAPPERS), inner)
    return st.one_of(boosted(inner), piped, wrapped)


def nested(leaf):
    return st.one_of(around(leaf), around(around(leaf)))


# ------------------------------------------------------------------------------ any stream

HOSTILE = (np.nan, np.inf, -np.inf, 1e30, -3e38, 1e15, 9e14, -9e14, 1e7, 1e-30, 1e-42, -0.0, 0.0)

WEIGHTS = (np.nan, np.inf, -1.0, 1e30, 9e14, 1e8, 1e3, 1e-30, 0.0)

faults = st.tuples(st.integers(0, 2 * T - 1), st.integers(0, R), st.sampled_from(HOSTILE))
streams = st.tuples(st.integers(0, 1000), st.lists(faults, max_size=12))
hostile_weights = st.lists(
    st.tuples(st.integers(0, 2 * T - 1), st.sampled_from(WEIGHTS)), min_size=1, max_size=12
)


def samples(stream, dtype):
    """Return ordinary samples (xs, ds) drawn by a seed, with hostile values put among them."""
    seed, hostile = stream
    xs = np.random.default_rng(seed).normal(size=(2 * T, R)).astype(np.float32)
    ds = (xs @ [1.0, -0.5, 0.25] + 0.3).astype(np.float32)
    for row, column, value in hostile:
        if column == R:
            ds[row] = value
        else:
            xs[row, column] = value
    return xs.astype(dtype), ds.astype(dtype)


def with_weights(xs, hostile):
    """Return the inputs with a last column of weights: 1 but for hostile ones."""
    weights = np.ones(len(xs), xs.dtype)
    for row, value in hostile:
        weights[row] = value
    return np.column_stack([xs, weights])


def unusable(values):
    return ~(np.abs(values) < 1e15)
