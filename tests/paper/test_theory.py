"""The theory against arithmetic done another way, its own assumptions, and counter-examples."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from experiments.paper.bounds import adversary, chain
from jboost.paper import theory


def algorithm1(xs, ds, m, step, guarantee, target):
    """Algorithm 1 on SGD learners with weighted updates: y (T, m) and λ (T, m + 1)."""
    w, y, lam = np.zeros((m, xs.shape[1])), [], []
    for x, d in zip(xs, ds, strict=True):
        y.append(w @ x)
        e = d - y[-1]
        lam.append(chain(e[None], math.sqrt(guarantee), target)[0])
        w = w + step * (lam[-1][:m] * e)[:, None] * x
    return np.array(y), np.array(lam)


# Lemma 1


@given(target=st.floats(1e-3, 1.0), kappa=st.floats(1e-3, 0.999))
def test_modified_target_and_its_inverse(target, kappa):
    sd2 = theory.desired_mse(target, kappa)
    assert kappa < sd2 <= 1
    assert theory.modified_target(sd2, kappa) == pytest.approx(target, rel=1e-9)


def test_modified_target_by_hand():
    assert theory.modified_target(0.2, 0.1) == pytest.approx(1 / 9)


def test_lemma1_learners_is_the_first_to_fall_short():
    lam = np.array([[1.0, 0.4, 0.5, 0.2], [1.0, 0.2, 0.5, 0.2]])  # means 1, .3, .5, .2
    assert [theory.lemma1_learners(lam, k) for k in (0.1, 0.25, 0.3, 0.31, 0.6)] == [
        None, 3, 3, 1, 1,
    ]  # fmt: skip


@given(
    seed=st.integers(0, 2**32 - 1), target=st.floats(0.01, 0.9), base=st.floats(0.01, 0.99),
    spread=st.floats(0.05, 1.0),
)  # fmt: skip
def test_lemma1_holds_for_any_errors_up_to_1(seed, target, base, spread):
    rng = np.random.default_rng(seed)
    e = np.clip(rng.normal(size=(40, 1)) + rng.normal(size=(40, 12)) / 2, -1, 1) * spread
    lam, d = chain(e, base, target), rng.uniform(-1, 1, 40)
    kappa = min(0.99, lam.mean(axis=0).min() * 1.0001)
    run = theory.lemma1(lam, d[:, None] - e, d, kappa, target)
    if run.learners is None:
        assert (lam.mean(axis=0) >= kappa).all()
        return
    assert run.reason == "" and run.share <= run.weight < kappa
    assert run.mse <= run.proven_mse + 1e-12 and run.mse <= run.desired_mse + 1e-12


@pytest.mark.parametrize("name", ["stationary", "switching", "sine"])
def test_lemma1_holds_for_algorithm1_on_streams(name):
    rng, t = np.random.default_rng(5), np.arange(2000)
    xs = np.column_stack([rng.uniform(-1, 1, (2000, 2)), np.ones(2000)])
    ds = {
        "stationary": xs @ [0.2, -0.1, 0.05] + 0.05 * rng.normal(size=2000),
        "switching": xs @ [0.2, -0.1, 0.05] * np.where(t // 250 % 2, 1, -1),
        "sine": 0.4 * np.sin(t / 9) * xs[:, 0],
    }[name]
    y, lam = algorithm1(xs, ds, m=60, step=0.1, guarantee=0.02, target=0.1)
    run = theory.lemma1(lam, y, ds, kappa=0.1, target_mse=0.1)
    assert run.learners is not None and 5 < run.learners < 60 and run.reason == ""
    assert run.share <= run.weight < 0.1 and run.mse <= run.desired_mse == pytest.approx(0.19)


def test_lemma1_needs_errors_up_to_1():
    """d = 1 and y = −1 on 9 samples of 100: M exists, and the MSE is 0.36, not 0.2."""
    e = np.zeros((100, 80))
    e[:9] = 2.0
    kappa, target = 0.1, theory.modified_target(0.2, 0.1)
    run = theory.lemma1(chain(e, 0.5, target), 1 - e, np.ones(100), kappa, target)
    assert (run.learners, run.largest_error) == (59, 2.0) and "at most 1" in run.reason
    assert run.mse == pytest.approx(0.36) and run.desired_mse == pytest.approx(0.2)
    assert run.mse <= run.proven_mse


def test_lemma1_equality_of_the_proof_is_an_inequality():
    """Errors that cancel: λ^(3) = 1 at every t, though e² > σ_m² at none."""
    e = np.tile([0.9, -0.9], (10, 1))
    lam, mean = chain(e, 0.5, 0.1), e.mean(axis=1)
    assert (lam[:, 2] == 1).all() and not (mean**2 > 0.1).any()


# Lemma 2 and Theorem 1


def test_learners_bound_by_hand():
    assert theory.learners_bound(0.04, 0.1, 0.05) == pytest.approx(
        1 / (0.1 * 0.2 * math.log(5) * (1 - 0.16 + 0.0016 * 0.05))
    )
    assert theory.theorem1_learners(0.04, 0.1, 0.145) == 37  # ⌊36.98⌋ + 1
    rho = math.sqrt(0.2) * (1 + 0.16 * 4)  # σ = 0.2, σ_m² = 0.5
    assert theory.learners_bound(0.04, 0.1, 0.5, corrected=True) == pytest.approx(10 / (1 - rho))


def test_lemma2_proof_lacks_a_factor_and_is_false_with_it():
    def sides(e, s, target):
        lam = chain(e, s, target)[:, :-1]
        left, total, constant = (lam * (1 - e**2)).sum(), lam.sum(), 1 / (s * math.log(1 / s))
        lost = s**4 * target * total
        return left, constant - lost, len(e) * constant - lost

    left, printed, with_T = sides(np.zeros((100, 1)), 0.5, 0.1)
    assert printed < 3 < left == 100 <= with_T
    left, _, with_T = sides(np.full((100, 10), math.sqrt(0.5)), math.sqrt(0.125), 0.1)
    assert left == pytest.approx(500) and with_T < 280  # guarantee met: e² = 0.5 = 4σ²


@pytest.mark.parametrize(
    ("e2", "guarantee"), [(0.5, 0.125), (1.0, 0.25)], ids=["constant error", "zero estimate of ±1"]
)
def test_lemma2_admits_learners_that_never_get_there(e2, guarantee):
    """Weighted MSE/4 ≤ σ² ≤ 1/4 as asked, but e² > σ_m²: every λ is 1 and the mean never gains."""
    e = np.full((4, 5000), math.sqrt(e2))
    run = theory.lemma1(chain(e, math.sqrt(guarantee), 0.1), 1 - e, np.ones(4), 0.1, 0.1)
    assert run.learners is None and run.reason == "no M: least mean weight 1, not below 0.1"
    assert theory.learners_bound(guarantee, 0.1, 0.1) < 5000
    assert math.isnan(theory.learners_bound(guarantee, 0.1, 0.1, corrected=True))


def test_lemma2_printed_bound_is_passed():
    """e² = 4σ² = 0.4 throughout, σ_m² = 0.41: λ^(k) = σ^{0.01(k−1)} falls below 0.12 at k = 186."""
    lam = chain(np.full((2, 250), math.sqrt(0.4)), math.sqrt(0.1), 0.41)
    assert theory.lemma1_learners(lam, 0.12) == 185
    assert theory.learners_bound(0.1, 0.12, 0.41) == pytest.approx(37.9, abs=0.1)


@given(seed=st.integers(0, 2**32 - 1), target=st.floats(0.01, 1.0), base=st.floats(0.02, 0.98))
def test_potential_of_the_corrected_lemma2(seed, target, base):
    """Σ_t Σ_k λ(1 − b^{σ_m² − e²}) ≤ T for any errors at all: the proof of M ≤ 1/(κ(1 − ρ)).

    Let G(l) be 1 − b^l for l ≥ 0, l ln(1/b) below. λ(1 − b^{σ_m² − e²}) is at most
    G(l^(k+1)) − G(l^(k)), and G ≤ 1, so its sum over t and k ≤ M is at most T. With
    b^{−e²} ≤ 1 + e²(1/b − 1) and the guarantee it is at least κTM(1 − ρ). There is no bound (ρ ≥ 1)
    for σ_m² ≤ ln(1 + 4σ²(1/b − 1))/ln(1/b), itself ≥ 4σ².
    """
    rng = np.random.default_rng(seed)
    e = 2 * rng.uniform(0, 1, (30, 1)) ** rng.integers(0, 5) * rng.uniform(0, 1, (30, 25))
    lam = chain(e, base, target)[:, :-1]
    assert (lam * (1 - base ** (target - e**2))).sum() <= 30 * (1 + 1e-12)


@pytest.mark.parametrize("kappa", [0.3, 0.1, 0.02])
@pytest.mark.parametrize(("guarantee", "target"), [(0.01, 0.15), (0.01, 0.3), (0.05, 0.6)])
def test_corrected_lemma2_bounds_an_adversary(guarantee, target, kappa):
    bound = theory.learners_bound(guarantee, kappa, target, corrected=True)
    M = adversary(guarantee, math.sqrt(guarantee), target, kappa, int(bound) + 2)
    assert M is not None and 2 <= M <= bound


def test_corrected_lemma2_condition_and_the_dependence():
    """Below the least σ_m² the adversary escapes though 4σ² < σ_m²; so it does at c = 1."""
    s2, target = 0.01, 0.1  # least σ_m²: 0.1335 at c = 1/2
    assert math.isnan(theory.learners_bound(s2, 0.1, target, corrected=True))
    assert theory.learners_bound(s2, 0.1, target) < 46
    assert adversary(s2, 0.1, target, 0.1, 300) is None
    assert math.isnan(theory.learners_bound(s2, 0.1, 0.2, corrected=True, dependence=1.0))
    assert adversary(s2, 0.01, 0.2, 0.1, 300) is None
    assert theory.learners_bound(s2, 0.1, target, corrected=True, dependence=0.1) < 442


def test_theorem1_fails_with_errors_up_to_2():
    """Every learner keeps its guarantee σ² < 1/4 and M is within the bound; the MSE is not σ_d²."""
    s2, kappa, target, bad = 0.2499, 0.1, 0.05, 99
    e, l = np.zeros((1000, 250)), np.zeros(1000)
    for k in range(250):
        lam = math.sqrt(s2) ** np.maximum(l, 0)
        e[:bad, k] = min(2.0, math.sqrt(4 * s2 * lam.sum() / lam[:bad].sum()))
        l += target - e[:, k] ** 2
    lam = chain(e, math.sqrt(s2), target)
    weighted = (lam[:, :-1] * e**2).sum(axis=0) / (4 * lam[:, :-1].sum(axis=0))
    run = theory.lemma1(lam, 1 - e, np.ones(1000), kappa, target)
    assert weighted.max() <= s2 + 1e-12 and run.learners is not None
    assert run.learners <= theory.learners_bound(s2, kappa, target)
    assert run.desired_mse == pytest.approx(0.145) and run.mse == pytest.approx(0.1773, abs=1e-4)


# Theorem 2


def phi(delta, k, zeta2, target):
    return (delta ** (-2 * target) * (1 + 2 * zeta2 * np.log(delta))) ** ((1 - k) / 2)


def mean_weight(delta, k, zeta2, target):
    """E[min{1, δ^l}] for l = (k−1)σ_m² − ζ² χ²_{k−1}, in closed form."""
    n, alpha = k - 1, 1 + 2 * zeta2 * np.log(delta)
    edge = n * target / zeta2
    below = delta ** (n * target) * alpha ** (-n / 2) * stats.chi2.cdf(edge * alpha, n)
    return stats.chi2.sf(edge, n) + below


def grid():
    axes = np.arange(2, 21.0), np.linspace(0.02, 0.98, 25), np.geomspace(0.002, 1, 25)
    k, delta, zeta2, target = (g.ravel() for g in np.meshgrid(*axes, np.geomspace(0.002, 1, 25)))
    keep = 1 + 2 * zeta2 * np.log(delta) > 0.05
    return k[keep], delta[keep], zeta2[keep], target[keep]


def curvature(k, delta, zeta2, target):
    """δ²φ''/φ from ln φ: independent of A', A'' and of the conditions."""
    a, z, u = target, zeta2, np.log(delta)
    alpha = 1 + 2 * z * u
    g1 = (1 - k) / 2 * (-2 * a + 2 * z / alpha)  # d ln φ / du
    g2 = (1 - k) / 2 * -((2 * z / alpha) ** 2)
    return g2 + g1**2 - g1


def test_corrected_conditions_are_concavity():
    k, delta, zeta2, target = point = grid()
    bend = curvature(*point)
    h = 1e-3
    ups, downs = (phi(delta * (1 + s), k, zeta2, target) for s in (h, -h))
    middle = phi(delta, k, zeta2, target)
    by_difference = (ups - 2 * middle + downs) / (h * h * middle)
    clear = np.abs(bend) > 0.05 * (1 + k * k * zeta2)  # away from the edge of the difference
    assert clear.mean() > 0.2 and (np.sign(by_difference) == np.sign(bend))[clear].all()
    clear = np.abs(bend) > 1e-9
    met = np.logical_and.reduce(theory.weight_conditions(*point))
    assert (met == (bend < 0))[clear].all() and 0.1 < met.mean() < 0.9


def test_printed_conditions_admit_convex_points_and_refuse_concave_ones():
    concave = np.logical_and.reduce(theory.weight_conditions(*grid()))
    printed = np.logical_and.reduce(theory.weight_conditions(*grid(), corrected=False))
    assert (printed & ~concave).sum() > 0.5 * printed.sum() > 500
    assert (concave & ~printed).sum() > 0.9 * concave.sum()
    # The paper's stationary stream. SGD, MSE 0.0117, σ_m² 0.02: printed at no k, corrected at all.
    # NM, MSE about the noise's 0.01, σ_m² 0.004: neither, since σ_m² is below the noise.
    args = np.arange(2, 21), 0.0117 / 4, 0.0117, 0.02
    assert not np.logical_and.reduce(theory.weight_conditions(*args, corrected=False)).any()
    assert np.all(theory.weight_conditions(*args))
    assert np.isnan(theory.weight_bound(np.arange(2, 21), 0.01 / 4, 0.01, 0.004)).all()


def test_theorem2_as_printed_is_false_under_its_own_assumption():
    """δ is 0.1 or 0.3, the printed conditions hold from one to the other; E[λ] is too large."""
    k, zeta2, target = 5, 0.05, 0.8
    between = np.linspace(0.1, 0.3, 101)
    assert np.all(theory.weight_conditions(k, between, zeta2, target, corrected=False))
    exact = (mean_weight(0.1, k, zeta2, target) + mean_weight(0.3, k, zeta2, target)) / 2
    bound = theory.weight_bound(k, 0.2, zeta2, target, conditions="printed")
    assert exact == pytest.approx(0.01425, rel=1e-3) and bound == pytest.approx(0.00824, rel=1e-3)
    assert math.isnan(theory.weight_bound(k, 0.2, zeta2, target))


def test_theorem2_against_monte_carlo():
    """The chain itself on i.i.d. Gaussian errors: 20,000 trials, the 40th step."""
    m, zeta2, target, trials = 10, 0.01, 0.03, 20_000
    rng = np.random.default_rng(7)
    num, den, delta, power = np.zeros((trials, m)), np.zeros((trials, m)), np.ones((trials, m)), 0.0
    lam = delta
    for _ in range(40):
        e2 = zeta2 * rng.standard_normal((trials, m)) ** 2
        l = np.cumsum(np.pad(target - e2, ((0, 0), (1, 0)))[:, :-1], axis=1)
        power, used = delta**l, delta
        lam = np.minimum(1, power)
        num, den = num + lam * e2 / 4, den + lam
        delta = num / den
    gamma, k = used.mean(axis=0), np.arange(1, m + 1)
    assert gamma == pytest.approx(zeta2 / 4, rel=0.03)  # not ζ²
    bound = np.asarray(theory.weight_bound(k, gamma, zeta2, target))
    assert bound[0] == 1 and (np.diff(bound) < 0).all()
    for values in (lam, power):  # Jensen for E[δ^l], which is what φ bounds; λ lies below it
        error = values.std(axis=0) / math.sqrt(trials)
        assert (values.mean(axis=0) <= bound + 4 * error).all()
    assert (np.mean(power, axis=0) > 0.97 * bound).all()


def test_theorem2_needs_independent_learners():
    """One error shared by all learners, as copies nearly do: E[λ^(60)] stays above P(e² > σ_m²)."""
    zeta2, target, gamma, k = 0.0117, 0.02, 0.0117 / 4, 60
    shared = 2 * stats.norm.sf(math.sqrt(target / zeta2))
    assert theory.weight_bound(k, gamma, zeta2, target) < 0.09 < 0.19 < shared


def test_theorem2_bound_is_below_1_where_its_corrected_conditions_hold():
    bound = np.asarray(theory.weight_bound(*grid()))
    assert np.nanmax(bound) < 1


def test_theorem2_is_undefined_for_large_errors():
    """δ is a mean square over 4: at γ = ζ²/4 there is no bound above ζ² ≈ 0.15, at ζ² there is."""
    zeta2 = np.linspace(0.01, 1, 100)
    by_quarter = theory.weight_bound(2, zeta2 / 4, zeta2, 0.25, conditions="converged")
    assert zeta2[np.isnan(by_quarter)].min() == pytest.approx(0.16)
    assert np.isfinite(theory.weight_bound(2, zeta2, zeta2, 0.25, conditions="converged")).all()


def test_theorem2_needs_more_than_a_slightly_lower_mse():
    """ζ² = 0.1, γ = ζ²/4: up to σ_m² = 0.1815 the bound is above 1, and so says nothing."""
    bound = theory.weight_bound(
        9, 0.025, 0.1, np.array([0.11, 0.181, 0.182]), conditions="converged"
    )
    assert (np.asarray(bound) > 1).tolist() == [True, True, False]


def test_weight_bound_values_shapes_and_reasons():
    half = theory.weight_bound(3, 0.5, 0.1, 0.2)  # γ^{2σ_m²}/α at k = 3
    assert isinstance(half, float)
    assert half == pytest.approx(0.5**0.4 / (1 - 0.2 * math.log(2)))
    assert theory.weight_bound(3, 0.5, 0.05, 0.1, dependence=2.0) == pytest.approx(half)
    assert theory.weight_bound([1, 2, 3], 0.5, 0.1, 0.2).shape == (3,)
    assert theory.weight_bound([1, 2], 0.01, 0.5, 0.2).tolist()[0] == 1
    assert theory.weight_bound_reason(3, 0.5, 0.1, 0.2) == ""
    assert "not positive" in theory.weight_bound_reason(3, 0.01, 0.5, 0.2)
    assert "corrected first" in theory.weight_bound_reason(20, 0.5, 0.1, 0.5)
    assert "corrected second" in theory.weight_bound_reason(3, 0.5, 0.2, 0.1)
    assert "printed first" in theory.weight_bound_reason(3, 0.5, 0.1, 0.2, conditions="printed")


# Cost


def test_expected_cost_by_hand():
    lam = np.array([[1.0, 0.5, 0.1], [1.0, 0.3, 0.0]])
    cost = {
        (mode, corrected): theory.expected_cost(
            lam, 4, mode=mode, method="NM", max_reuse=2, corrected=corrected
        )
        for mode in ("WU", "RU", "DR")
        for corrected in (False, True)
    }
    printed = {mode: cost[mode, False] / 16 for mode in ("WU", "RU", "DR")}
    assert printed == pytest.approx({"WU": 3, "RU": 1.45, "DR": 2.9})
    counted = {mode: (cost[mode, True] - 12) / 16 for mode in ("WU", "RU", "DR")}
    assert counted == pytest.approx({"WU": 3, "RU": 1.45, "DR": 3.5})  # (2+1+1 + 2+1+0) / 2
    assert theory.expected_cost(lam, 4, mode="RU", method="SGD") == pytest.approx(4 * 1.45)


def test_data_reuse_costs_more_than_printed_on_duffing():
    """BSGD-DR to the letter, step 0.1/K, σ_m² = 0.25: 48.2 updates a step, not 37.6."""
    T, m, K, mu, target = 20_000, 20, 5, 0.1 / 5, 0.25
    series = [0.9279, 0.1727]
    for _ in range(T):
        series.append(2.75 * series[-1] - series[-1] ** 3 - 0.2 * series[-2])
    w, num, den, lams = np.zeros((m, 3)), np.zeros(m), np.zeros(m), np.empty((T, m))
    for t in range(T):
        x, d = np.array([series[t], series[t + 1], 1.0]), series[t + 2]
        y = w @ x
        e = d - y
        l = np.cumsum(np.r_[0.0, target - e[:-1] ** 2])
        with np.errstate(divide="ignore"):
            delta = np.where(den > 0, num / np.where(den > 0, den, 1.0), 0.0)
            lam = lams[t] = np.minimum(1, delta**l)
        n = np.ceil(K * lam)
        w = w + ((1 - (1 - mu * (x @ x)) ** n) / (x @ x) * e)[:, None] * x  # n SGD steps at once
        num, den = num + lam * (d - np.clip(y, -1, 1)) ** 2 / 4, den + lam
    cost = [
        theory.expected_cost(lams, 1, mode="DR", method="SGD", corrected=c) for c in (False, True)
    ]
    assert cost[0] == pytest.approx(37.6, abs=0.1) and cost[1] - m == pytest.approx(48.2, abs=0.1)


# Regret


def newton(xs, ds, ridge, forward=False):
    """Predictions of NM, or of the forward variant whose matrix has seen x: pᵀ(R + xxᵀ)⁻¹x."""
    P, w, out = np.eye(xs.shape[1]) / ridge, np.zeros(xs.shape[1]), np.empty(len(ds))
    for t, (x, d) in enumerate(zip(xs, ds, strict=True)):
        Px = P @ x
        out[t] = w @ x / (1 + (x @ Px if forward else 0.0))
        w = w + Px * ((d - w @ x) / (1 + x @ Px))
        P = P - np.outer(Px, Px) / (1 + x @ Px)
    return out


@pytest.mark.parametrize("rank", [1, 3])
def test_regret_against_least_squares_of_every_prefix(rank):
    rng = np.random.default_rng(3)
    xs = rng.normal(size=(25, rank)) @ rng.normal(size=(rank, 3)) * 40
    ds, guess = rng.normal(size=25), rng.normal(size=25)
    want = [
        np.sum((ds[:t] - guess[:t]) ** 2)
        - np.sum((ds[:t] - xs[:t] @ np.linalg.pinv(xs[:t], rcond=1e-10) @ ds[:t]) ** 2)
        for t in range(1, 26)
    ]
    assert theory.regret(guess, xs, ds) == pytest.approx(want)
    assert theory.regret(guess, xs, ds, times=[2, 9, 25]) == pytest.approx(
        [want[t - 1] for t in (2, 9, 25)]
    )


def test_regret_of_newton_grows_as_log():
    """On noise of variance s², R_T ≈ r s² ln T: each error's x'Px share of it, summed."""
    rng, T = np.random.default_rng(1), 20_000
    xs = np.column_stack([rng.normal(size=(T, 2)), np.ones(T)])
    times = np.unique(np.geomspace(100, T, 40).astype(int))
    slopes = []
    for noise in (rng.normal(size=T), rng.choice([-1.0, 1.0], size=T)):
        ds = xs @ [1.0, -2.0, 0.5] + 0.3 * noise
        slopes.append(
            theory.regret_slope(theory.regret(newton(xs, ds, 0.01), xs, ds, times), times)
        )
    assert slopes == pytest.approx([3 * 0.09] * 2, rel=0.4)


def test_regret_of_newton_is_not_log_on_every_sequence():
    """x and d within [−1, 1]: one sample after T small x costs NM more than T/(4v(1 + 2v)).

    Even against ridge regression, which a first row x = √v, d = 0 makes of least squares;
    the forward variant keeps its bound there, ln(1 + Σx²/v).
    """
    v = 0.01
    for T in (100, 1000, 10_000):
        xs = np.r_[math.sqrt(v), np.full(T, math.sqrt(v / T)), 1.0][:, None]
        ds = np.r_[0.0, np.ones(T), -1.0]
        both = [np.r_[0.0, newton(xs[1:], ds[1:], v, forward)] for forward in (False, True)]
        usual, forward = (theory.regret(p, xs, ds, [T + 2])[0] for p in both)
        assert usual > T / (4 * v * (1 + 2 * v)) and forward < math.log(2 + 1 / v)


# Arguments


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("kappa", lambda: theory.modified_target(0.2, 0.3)),
        ("desired_mse", lambda: theory.modified_target(1.2, 0.3)),
        ("target_mse", lambda: theory.desired_mse(float("nan"), 0.3)),
        ("kappa", lambda: theory.desired_mse(0.1, "half")),
        ("target_mse", lambda: theory.desired_mse([0.1, 0.2], 0.3)),
        ("guarantee", lambda: theory.learners_bound(0.3, 0.1, 0.1)),
        ("guarantee", lambda: theory.theorem1_learners(0.25, 0.1, 0.2)),
        ("dependence", lambda: theory.learners_bound(0.1, 0.1, 0.1, dependence=0.0)),
        ("lam", lambda: theory.lemma1_learners([[1.0, 1.5]], 0.1)),
        ("lam", lambda: theory.lemma1_learners([[0.5, 0.5]], 0.1)),
        ("lam", lambda: theory.lemma1([[1.0, 0.5, 0.1]], [[0.1]], [0.2], 0.1, 0.1)),
        ("y", lambda: theory.lemma1([[1.0, 0.5]], [[0.1], [0.1]], [0.2], 0.1, 0.1)),
        ("d", lambda: theory.lemma1([[1.0, 0.5]], [[0.1]], [math.nan], 0.1, 0.1)),
        ("k", lambda: theory.weight_bound(1.5, 0.1, 0.1, 0.1)),
        ("gamma", lambda: theory.weight_bound(2, 0.0, 0.1, 0.1)),
        ("zeta2", lambda: theory.weight_bound(2, 0.1, -0.1, 0.1)),
        ("conditions", lambda: theory.weight_bound(2, 0.1, 0.1, 0.1, conditions="none")),
        ("mode", lambda: theory.expected_cost([[1.0]], 2, mode="XX", method="NM")),
        ("method", lambda: theory.expected_cost([[1.0]], 2, mode="RU", method="LMS")),
        ("num_features", lambda: theory.expected_cost([[1.0]], 0, mode="RU", method="NM")),
        ("times", lambda: theory.regret([0.0], [[1.0]], [1.0], times=[2])),
        ("xs", lambda: theory.regret([0.0], [1.0], [1.0])),
        ("times", lambda: theory.regret_slope([1.0])),
    ],
)
def test_errors_name_the_argument(name, call):
    with pytest.raises((ValueError, TypeError), match=rf"^{name}\b.* must be .*; got "):
        call()
