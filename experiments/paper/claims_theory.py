"""Claims of the analysis: lemmas, theorems, costs and regret."""

from __future__ import annotations

from experiments.paper.ledger import Answer, Records, claim


@claim("§4, Lemma 1", "if M exists, the mean of the first M reaches σ_d²")
def _(r: Records) -> Answer:
    rows = {k: v for k, v in r["theory"]["results"]["lemma1"].items() if v["applies"]}
    held = sum(row["holds"] for row in rows.values())
    bad = r["theory"]["results"]["lemma1_defects"]["errors of 2 on 9 of 100 samples"]
    text = f"holds on {held} of {len(rows)} streams where M exists and |e| ≤ 1; with errors of 2, "
    text += f"which d and y in [−1, 1] allow, MSE {bad['mse']:.2f} against {bad['desired_mse']:.2f}"
    answer = (
        "false" if held < len(rows) else "in part" if bad["mse"] > bad["desired_mse"] else "true"
    )
    return answer, text


@claim(
    "§4, Lemma 2 and Theorem 1",
    "learners of weighted MSE at most σ² ≤ 1/4 (Theorem: < 1/4) have an M",
)
def _(r: Records) -> Answer:
    block = r["theory"]["results"]["lemma2"]
    one, two = (block["rows"][f"constant e² = {v}"] for v in (0.5, 0.4))
    text = f"constant e² = 0.5, σ² = 0.125, σ_m² = 0.1: no M (printed bound {one['printed']:.1f}); "
    text += f"constant e² = 0.4, σ_m² = 0.41: M = {two['M']} (printed bound {two['printed']:.1f})"
    return ("false" if one["M"] is None or two["M"] > two["printed"] else "true"), text


@claim("§4", "c “does not change the validity of our proofs”")
def _(r: Records) -> Answer:
    rows = r["theory"]["results"]["lemma2"]["rows"]
    half, one = rows["adversary, c = 1/2"], rows["adversary, c = 1"]
    text = f"the same guarantee 0.01 and σ_m² 0.2: M = {half['M']} at c = 1/2, "
    text += f"{one['M'] or 'none'} at c = 1"
    return ("false" if one["M"] is None else "true"), text


@claim("§7, Theorem 2", "E[λ] is at most the bound where the two conditions hold")
def _(r: Records) -> Answer:
    block = r["theory"]["results"]["theorem2"]
    runs = [run for run in block["monte_carlo"] if run["learners_with_a_bound"] > 1]
    held, bad = sum(run["holds"] for run in runs), block["printed_is_false"]
    text = (
        f"corrected conditions: {held} of {len(runs)} Monte Carlo settings within sampling error; "
    )
    excess = (bad["mean_lam"] - bad["bound"]) / bad["standard_error"]
    text += f"printed: E[λ] = {bad['mean_lam']:.2g} above the bound {bad['bound']:.2g}, "
    text += f"by {excess:.0f} standard errors, on a chain whose every δ meets the conditions"
    return ("in part" if held == len(runs) and excess > 2 else "false"), text


@claim("§7", "γ approaches ζ² in convergence")
def _(r: Records) -> Answer:
    runs = r["theory"]["results"]["theorem2"]["monte_carlo"]
    text = ", ".join(f"{run['gamma_over_zeta2']:.3f}" for run in runs)
    least = r["theory"]["results"]["theorem2"]["least_zeta2_without_bound_at_gamma_zeta2_over_4"]
    near = all(0.9 < run["gamma_over_zeta2"] < 1.1 for run in runs)
    return (
        "true" if near else "false"
    ), f"γ/ζ² = {text}: a quarter; so there is no bound from ζ² = {least:.3f} on"


@claim("§7", "σ_m² slightly above the MSE makes the bound small")
def _(r: Records) -> Answer:
    need = r["theory"]["results"]["theorem2"]["least_useful_target_at_zeta2_0.1"]
    text = f"at ζ² = 0.1, γ = ζ²/4 the bound is below 1 from σ_m² = {need:.4f} on"
    answer = "true" if need < 0.11 else "false"
    return answer, f"{text}, {need / 0.1:.2f} times the MSE"


@claim("§7", "RU costs “slightly greater than … a single WL”")
def _(r: Records) -> Answer:
    row = r["theory"]["results"]["costs"]["BSGD-RU"]
    text = (
        f"BSGD-RU on Duffing: {row['made_updates']:.1f} updates a step against 1, and m estimates: "
    )
    answer = "true" if row["made_updates"] < 1.5 else "false"
    return answer, f"{text}{row['corrected_cost']:.0f} operations against 6"


@claim("§7", "DR makes Kλ updates")
def _(r: Records) -> Answer:
    row = r["theory"]["results"]["costs"]["BSGD-DR"]
    text = f"Duffing: {row['made_updates']:.1f} a step, Σ Kλ = {row['printed_updates']:.1f}"
    answer = "true" if row["made_updates"] < 1.01 * row["printed_updates"] else "false"
    return answer, f"{text}; its own rule is ceil(Kλ)"


@claim("§4", "thresholding assures δ ≤ 1")
def _(r: Records) -> Answer:
    a, b = (r[s]["results"]["outside"] for s in ("duffing", "stationary"))
    text = f"it needs |d| ≤ 1; outside that are {100 * a:.0f} % of Duffing's targets and "
    return "in part", f"{text}{100 * b:.0f} % of the stationary ones"


@claim("§4", "thresholding assures 0 < δ, so that 0 < λ")
def _(r: Records) -> Answer:
    stuck = r["theory"]["results"]["deadlock"]
    lam = ", ".join(f"{v:g}" for v in stuck["literal"]["mean_lam"])
    text = f"δ₀ = 0 is printed; on a plane with small targets the mean λ of three learners is {lam}"
    text += f" for ever, MSE {stuck['literal']['mse']:.2g} against SGD's {stuck['SGD']:.2g}"
    return ("false" if min(stuck["literal"]["mean_lam"]) == 0 else "true"), text


@claim("§3", "NM's regret is O(ln T), for any sequence")
def _(r: Records) -> Answer:
    rows, bad = r["theory"]["results"]["regret"], r["theory"]["results"]["counterexample"]
    text = ", ".join(f"{name} {row['slope']:.2f}" for name, row in rows.items())
    rise = ", ".join(f"{v:,.0f}" for v in bad["NM"])
    lengths = ", ".join(f"{v:,}" for v in bad["T"])
    return (
        "in part",
        f"slopes in ln T: {text}; but R = {rise} at T = {lengths} on the counterexample",
    )
