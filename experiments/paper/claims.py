"""Every claim of the paper that can be true or false, with a verdict from the runs."""

from __future__ import annotations

# Each of these modules adds its claims to the ledger when it is imported.
from experiments.paper import (  # noqa: F401
    claims_streams,
    claims_table1,
    claims_text,
    claims_theory,
)
from experiments.paper.ledger import CLAIMS, SCRIPTS, Answer, Claim, Records


def answers(records: Records) -> list[tuple[Claim, Answer]]:
    """Every claim with its verdict: "not measured" where a record lacks the figures."""
    out = []
    for each in CLAIMS:
        try:
            out.append((each, each.check(records)))
        except (KeyError, ValueError, IndexError, TypeError):
            missing = SCRIPTS - records.keys()
            if not missing and not any(record["quick"] for record in records.values()):
                raise
            reason = f"no record of {', '.join(sorted(missing))}" if missing else "a quick run"
            out.append((each, ("not measured", reason)))
    return out


def table(records: Records) -> str:
    """The claims as a numbered table, and a count of the verdicts above it."""
    done = answers(records)
    lines = ["| | where | claim | verdict | what was measured |", "|---:|---|---|---|---|"]
    for i, (each, (word, text)) in enumerate(done, start=1):
        bars = text.replace("|", "\\|")  # as in |e|
        lines.append(f"| {i} | {each.where} | {each.words} | **{word}** | {bars} |")
    words = [answer[0] for _, answer in done]
    count = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(sorted(words)))
    return f"{len(done)} claims: {count}.\n\n" + "\n".join(lines)
