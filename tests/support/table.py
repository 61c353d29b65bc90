"""The contract table: every learner, mode, combiner, transform and wrapper of the library.

A new class needs an entry here, and tests/test_contract.py then tests it. ``EVERY`` and ``SOME``
are parameters of tests, of which some are marked slow: ``-m "slow or not slow"`` runs all of them.
"""

import optax
import pytest

import jboost as jb
from jboost.automatic.mixture import Expert, mixture

LEARNERS = {
    "SGD": jb.SGD(step_size=0.1),
    "NLMS": jb.NLMS(step_size=0.5),
    "Newton": jb.Newton(forgetting=0.99, ridge=0.1),
    "Newton, no cap": jb.Newton(forgetting=0.99, ridge=0.1, max_variance=None),
    "Newton, by weight": jb.Newton(forgetting=0.99, ridge=0.1, forget_by_weight=True),
    "Newton, covariance": jb.Newton(forgetting=0.99, ridge=0.1, storage="covariance"),
    "ForwardNewton": jb.ForwardNewton(forgetting=0.99, ridge=0.1),
}
FILTERS = {
    "SignSignLMS": jb.SignSignLMS(0.05),
    "VariableStepLMS": jb.VariableStepLMS(0.05, 0.01),
    "VariableStepLMS, ang": jb.VariableStepLMS(0.05, 0.01, "ang"),
    "VariableStepLMS, benveniste": jb.VariableStepLMS(0.05, 0.01, "benveniste"),
    "AffineProjection": jb.AffineProjection(3, 0.5),
    "boosted AffineProjection": jb.boost(
        jb.AffineProjection(2, 0.5), 3, target_mse=0.2, mode=jb.DataReuse(2)
    ),
    "Volterra": jb.pipeline(jb.Scale(), jb.Volterra(2, 1), jb.NLMS(0.5)),
}
LOSSES = {
    "absolute": jb.losses.absolute(),
    "pinball": jb.losses.pinball(0.8),
    "huber": jb.losses.huber(0.5),
    "log-cosh": jb.losses.log_cosh(0.5),
    "poisson": jb.losses.poisson(),
}

MODES = {
    "Weighted": jb.Weighted(),
    "DataReuse": jb.DataReuse(max_reuse=3),
    "RandomUpdate": jb.RandomUpdate(),
    "PoissonReuse": jb.PoissonReuse(),
}

COMBINERS = {
    "Uniform": jb.Uniform(),
    "NSGD": jb.NSGD(step_size=0.1, epsilon=0.01),
    "Newton": jb.Newton(forgetting=0.999, ridge=1.0),
    "EWA": jb.EWA(rate=0.1),
    "EWA, adaptive": jb.EWA(),
    "BOA": jb.BOA(),
    "MLPoly": jb.MLPoly(),
}


def boosted(learner: str, mode: str, combiner: str):
    return jb.boost(
        LEARNERS[learner], 5, target_mse=0.2, mode=MODES[mode], combiner=COMBINERS[combiner]
    )


# Every learner in every mode, the combiners in turn; SGD with every combiner in every mode.
BOOSTED = {
    f"{learner} × {mode} × {combiner}": boosted(learner, mode, combiner)
    for i, learner in enumerate(LEARNERS)
    for j, mode in enumerate(MODES)
    for k, combiner in enumerate(COMBINERS)
    if learner == "SGD" or (i + j) % len(COMBINERS) == k
}

EXPERTS = [jb.SGD(0.1), jb.SGD(0.05), jb.Newton(0.99)]
TREES = jb.BoostedTrees(trees=3, depth=2, rows=16, bins=6, columns=2, work=16, least=1.0)
NESTED = {
    "BoostedTrees": TREES,
    "boosted BoostedTrees": jb.boost(TREES, 2, target_mse=0.2, mode=jb.RandomUpdate()),
    "PiecewiseLinear": jb.PiecewiseLinear(2, jb.Newton(0.99, 0.1), cuts=2, grace=2),
    "Refined": jb.boost(EXPERTS, target_mse=0.2, dependence=0.0, combiner=jb.Refined()),
    "ScaleAlike": jb.boost(EXPERTS, target_mse=0.2, combiner=jb.ScaleAlike(jb.BOA())),
    "list of different learners": jb.boost(EXPERTS, target_mse=0.2, mode=jb.RandomUpdate()),
    "booster of boosters": jb.boost(
        jb.boost(jb.SGD(0.1), 2, target_mse=0.2, mode=jb.RandomUpdate()),
        3,
        target_mse=0.2,
        mode=jb.DataReuse(2),
    ),
    "booster of mixtures": jb.boost(
        jb.boost([jb.SGD(0.1), jb.Newton(0.99)], target_mse=0.2, dependence=0.0),
        2,
        target_mse=0.2,
    ),
    "Algorithm 1": jb.boost(jb.SGD(0.1), 3, target_mse=0.2, guarantee=0.1, chain="scan"),
    "span boosting": jb.baselines.SpanBoosting(jb.SGD(0.1), 3),
    "hull boosting": jb.baselines.HullBoosting(jb.Newton(0.99, 0.1), 3),
    "bagging": jb.baselines.bagging(jb.Newton(0.99, 0.1), 3),
    "self-tuning": jb.SelfTuning(jb.SGD(0.1)),
    "booster of self-tuning": jb.boost(
        jb.SelfTuning(jb.SGD(0.1)), 3, target_mse=0.2, mode=jb.DataReuse(2)
    ),
    "mixture": mixture(
        jb.Scale(),
        [jb.Scale(), jb.Scale("held")],
        jb.Past(2, 1, 8),
        [Expert(jb.SGD(0.1)), Expert(jb.SGD(0.05), past=True), Expert(jb.Newton(0.99), taught=1)],
        jb.BOA(),
        jb.SGD(0.1),
        jb.BOA(),
    ),
    "literal": jb.bnm_wu(3, target_mse=0.2, forgetting=0.99, ridge=0.1, literal=True),
    "boosted trees": jb.bpl_ru(2, target_mse=0.2, depth=1, forgetting=0.99),
}

UNDER_LOSSES = {
    **{f"SGD, {name}": jb.SGD(0.1, loss=loss) for name, loss in LOSSES.items()},
    **{f"NLMS, {name}": jb.NLMS(0.5, loss=loss) for name, loss in LOSSES.items()},
    "boosted SGD, pinball": jb.boost(
        jb.SGD(0.1, loss=LOSSES["pinball"]), 3, target_mse=0.2, loss=LOSSES["pinball"]
    ),
    "boosted NLMS, poisson": jb.boost(
        jb.NLMS(0.5, loss=LOSSES["poisson"]),
        3,
        target_mse=0.2,
        mode=jb.DataReuse(2),
        loss=LOSSES["poisson"],
    ),
}

SCALED = jb.ScaleTarget(jb.SGD(0.1))
NETWORK, STEPS = jb.networks.Perceptron(2), optax.sgd(0.05)  # made once, as they are structure
HELD = jb.Scale("held")
PIPED = {
    "GaussNewton": jb.pipeline(jb.Scale(), jb.GaussNewton(NETWORK)),
    **{
        f"GaussNewton, {name}": jb.pipeline(jb.Scale(), jb.GaussNewton(NETWORK, loss=loss))
        for name, loss in LOSSES.items()
    },
    "Gradient, pinball": jb.pipeline(
        jb.Scale(), jb.Gradient(NETWORK, optimizer=STEPS, loss=LOSSES["pinball"])
    ),
    "Gradient, poisson": jb.pipeline(
        jb.Scale(), jb.Gradient(NETWORK, optimizer=STEPS, loss=LOSSES["poisson"])
    ),
    "Gradient": jb.pipeline(jb.Scale(), jb.Gradient(NETWORK, optimizer=STEPS)),
    "Replay": jb.pipeline(jb.Scale(), jb.Replay(NETWORK, rows=8, batch=3)),
    "Past": jb.pipeline(jb.Past(2, 1, 8), jb.Scale(), jb.Impute(), jb.NLMS(0.5)),
    "GrowingMemory": jb.GrowingMemory(jb.Newton(0.9, 0.1)),
    "Select": jb.pipeline(jb.Scale(), jb.Select(2), jb.SGD(0.1)),
    "Scale('held')": jb.ScaleTarget(jb.pipeline(HELD, jb.Bias(), jb.Newton(0.99, 0.1)), HELD),
    "Scale, Bias, ScaleTarget": jb.pipeline(jb.Scale(), jb.Bias(), SCALED),
    "Scale('range')": jb.pipeline(jb.Scale("range", forgetting=0.99), SCALED),
    "Calendar": jb.pipeline(jb.Calendar(unit="hours", cycles=("day", "elapsed")), jb.NLMS(0.5)),
    "Impute": jb.pipeline(jb.Impute(indicators=True), jb.SGD(0.1)),
    "Lags": jb.pipeline(jb.Lags(inputs=1, targets=2), jb.NLMS(0.5)),
    "Polynomial": jb.pipeline(jb.Polynomial(), jb.Newton(0.99, 0.1)),
    "boosted RandomFourier": jb.boost(
        lambda k: jb.pipeline(jb.RandomFourier(4, length_scale=k + 1.0), jb.SGD(0.1)),
        3,
        target_mse=0.2,
        mode=jb.RandomUpdate(),
    ),
}

SCORES = {"late": jb.metrics.MSE(window=5), "all": jb.metrics.R2()}
WRAPPED = {
    "Delayed": jb.Delayed(jb.Newton(0.99, 0.1), 3),
    "Delayed booster": jb.Delayed(jb.bsgd_ru(3, target_mse=0.2, step_size=0.1), 2),
    "Pending": jb.Pending(jb.SGD(0.1), 2),
    "Huber": jb.Huber(jb.Newton(0.99, 0.1), threshold=2.0),
    "boosted Huber": jb.boost(
        jb.Huber(jb.SGD(0.1), acts_on="target"), 3, target_mse=0.2, mode=jb.RandomUpdate()
    ),
    "Scored": jb.Scored(jb.SGD(0.1), SCORES),
    "Budget": jb.Budget(jb.SGD(0.1), rate=0.5),
    "Budget, leverage": jb.Budget(jb.Newton(0.99, 0.1), rate=0.5, uncertainty="leverage"),
    "WeightColumn": jb.WeightColumn(jb.SGD(0.1)),
    "Intervals": jb.Intervals(jb.Newton(0.99, 0.1)),
    "Flags": jb.Flags(jb.Newton(0.99, 0.1), rate=0.1),
    "Flags, ADWIN": jb.Intervals(jb.Flags(jb.SGD(0.1), detector=jb.detectors.ADWIN(clock=4))),
    "Intervals, quantiles": jb.intervals.from_quantiles(
        lambda tau: jb.NLMS(0.5, loss=jb.losses.pinball(tau))
    ),
    "OnChange": jb.OnChange(jb.Newton(0.99, 0.1), "inflate", threshold=1.0, warm_up=2),
    "OnChange, ADWIN": jb.OnChange(
        jb.Newton(0.99, 0.1), "inflate", warm_up=2, detector=jb.detectors.ADWIN(clock=2)
    ),
    "OnChange, restart": jb.OnChange(
        jb.pipeline(jb.Scale(), jb.RandomFourier(4), jb.ScaleTarget(jb.SGD(0.1))),
        "restart",
        threshold=1.0,
        warm_up=2,
    ),
    "boosted OnChange": jb.boost(
        jb.OnChange(jb.Newton(0.99, 0.1), "inflate", threshold=1.0, warm_up=2),
        3,
        target_mse=0.2,
        mode=jb.RandomUpdate(),
    ),
}

FORECASTS = {
    "Forecast": jb.Forecast(horizon=2, longest=8),
    "Forecast, given learner": jb.Forecast(jb.SGD(0.1), 2, longest=8, method="mix"),
}

MODELS = LEARNERS | BOOSTED | NESTED | UNDER_LOSSES | FILTERS | PIPED | WRAPPED | FORECASTS
# Each learner, each mode and each combiner at least once, where the whole table would take minutes.
FEW = (
    LEARNERS
    | NESTED
    | UNDER_LOSSES
    | FILTERS
    | PIPED
    | WRAPPED
    | FORECASTS
    | {
        name: BOOSTED[name]
        for name in [
            "SGD × Weighted × Newton",
            "SGD × DataReuse × NSGD",
            "SGD × RandomUpdate × Uniform",
            "SGD × PoissonReuse × EWA",
            "SGD × Weighted × BOA",
            "SGD × RandomUpdate × MLPoly",
            *(name for name in BOOSTED if name.startswith("Newton ×")),
        ]
    }
)

# What runs by default: every learner, mode and combiner, and an example of each other kind.
QUICK = {
    *LEARNERS,
    *(name for name in FEW if name in BOOSTED),
    *(
        "BoostedTrees",
        "PiecewiseLinear",
        "Refined",
        "list of different learners",
        "booster of boosters",
    ),
    *("Algorithm 1", "span boosting", "self-tuning", "literal"),
    *("Scale, Bias, ScaleTarget", "Impute", "Lags", "boosted RandomFourier", "GaussNewton"),
    *("Delayed booster", "Huber", "Intervals", "OnChange", "Forecast"),
    *("SGD, pinball", "NLMS, poisson", "boosted SGD, pinball", "Intervals, quantiles"),
    *("SignSignLMS", "VariableStepLMS", "AffineProjection", "Flags"),
}


def cases(models, quick):
    return [
        pytest.param(model, id=name, marks=[] if name in quick else [pytest.mark.slow])
        for name, model in models.items()
    ]


EVERY, SOME = cases(MODELS, FEW), cases(FEW, QUICK)
