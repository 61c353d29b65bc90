"""The errors in the printed theory, each with a computation and a correction."""

from __future__ import annotations

from typing import Any


def listing(theory: dict[str, Any]) -> str:
    """A numbered list of the errors, from the results of ``theory.py``."""
    one, two, t2 = theory["lemma1_defects"], theory["lemma2"], theory["theorem2"]
    big = one["errors of 2 on 9 of 100 samples"]
    pair = one["two learners with errors 0.9 and −0.9"]
    factor, grid, shared = two["factor_T"], t2["conditions_on_a_grid"], t2["shared_errors"]
    false, quarter = t2["printed_is_false"], t2["least_zeta2_without_bound_at_gamma_zeta2_over_4"]
    dr, ru, bad = theory["costs"]["BSGD-DR"], theory["costs"]["BSGD-RU"], theory["counterexample"]
    stuck = theory["deadlock"]
    regrets = ", ".join(f"{v:,.0f}" for v in bad["NM"])
    lengths = ", ".join(f"{v:,}" for v in bad["T"])
    items = [
        f"Lemma 1's proof replaces squared errors above σ_m² by 1; they can be 4. With errors of 2 "
        f"on 9 of 100 samples M = {big['M']} exists and the MSE is {big['mse']:.2f}, not "
        f"{big['desired_mse']:.2f}. For any |e| the proof gives (1 − p)σ_m² + p·max e², p = "
        f"Σλ^(M+1)/T, here {big['proven_mse']:.3f}.",
        f"Its “=” between the shares of e² > σ_m² and of λ^(M+1) = 1 is “≤”: two learners with "
        f"errors ±0.9 have {pair['share_e2_above_target']:.0f} and "
        f"{pair['share_lam_equal_1']:.0f}.",
        f"Lemma 2's proof lacks a factor T: {factor['case']} gives {factor['left']:.0f} ≤ "
        f"{factor['right_as_printed']:.2f}; with it the right side is "
        f"{factor['right_with_T']:.0f}.",
        "Lemma 2 and Theorem 1 are false even so ([table](README.md#theory)): learners that keep "
        "their guarantee with e² above σ_m² have every λ = 1 and no M. The corrected bound is "
        "1/(κ(1 − ρ)), ρ = b^{σ_m²}(1 + 4σ²(1/b − 1)), b = σ^{2c}, and needs ρ < 1.",
        "That c leaves the proofs valid is false: ρ depends on c, and the adversary of that table "
        "escapes at c = 1 where it does not at c = 1/2.",
        f"Theorem 2 prints A²A'' for A·A''. On a grid of {grid['points']:,} points the printed "
        f"conditions hold at {grid['printed_hold']:,}, of which φ is not concave at "
        f"{grid['of_these_not_concave']:,}; they refuse {grid['of_these_refused_by_printed']:,} of "
        f"the {grid['concave']:,} concave ones.",
        f"So Theorem 2 as printed is false under its own assumption: ζ² = {false['zeta2']:g}, σ_m² "
        f"= {false['target_mse']:g} and a chain started at δ = 1 have, at learner {false['k']} and "
        f"step {false['steps']}, E[λ] = {false['mean_lam']:.2g} ± {false['standard_error']:.1g}, "
        f"above the bound {false['bound']:.2g}; "
        f"{100 * false['share_of_delta_that_meets_the_printed_conditions']:.0f} % of the δ that "
        f"the chain makes meet the printed conditions.",
        f"δ tends to ζ²/4, not ζ²: no bound from ζ² = {quarter:.3f} on, so none on Duffing.",
        f"Theorem 2 needs errors independent over learners; copies share them. One shared error: "
        f"E[λ^(60)] = {shared['mean_lam']:.3f}, bound {shared['bound']:.3f}.",
        f"DR's cost is ceil(Kλ): {dr['corrected_updates']:.1f} updates a step on Duffing, printed "
        f"{dr['printed_updates']:.1f}. All costs leave out the m·r of the estimates: BSGD-RU "
        f"{ru['printed_cost']:.1f} operations printed, {ru['corrected_cost']:.1f} with them.",
        f"NM's O(ln T) needs bounded errors: x = √(v/T), d = 1 for T steps, then x = 1, d = −1 "
        f"gives R = {regrets} at T = {lengths}, against ridge regression; the forward variant "
        f"stays below {bad['forward_bound']:.2f}.",
        f"δ₀ = 0 deadlocks Algorithm 2, against its own 0 < λ: where the learners before one meet "
        f"σ_m² its λ is 0 to a positive power, so it learns nothing and its δ stays 0. On a plane "
        f"with |d| ≤ {stuck['largest_d']:.1f} and σ_m² = 0.05 the mean λ of three learners is "
        f"{', '.join(f'{v:g}' for v in stuck['literal']['mean_lam'])} for ever, and the MSE of "
        f"their mean {stuck['literal']['mse']:.2g}, against {stuck['SGD']:.2g} of SGD alone. With "
        f"the floor of the safe models, δ ≥ 1e-6, it is {stuck['safe']['mse']:.2g}.",
    ]
    return "\n".join(f"{i}. {item}" for i, item in enumerate(items, start=1))
