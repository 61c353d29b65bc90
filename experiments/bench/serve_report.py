"""The table of the page about the server, from the JSON of its two scripts."""

from __future__ import annotations

from experiments.shared.markdown import Record, run_line, table


def serving(load: Record, faults: Record) -> str:
    """What must hold for the server, and what was measured."""
    found, bad = load["results"], faults["results"]
    rates, ratios, soaked = found["pairs_per_second"], found["batch_ratio"], found["soak"]
    kills, crowd, nonsense = bad["kills"], bad["crowd"], bad["nonsense"]
    full = bad["full disk"]
    batch, clients = load["settings"]["batch"], load["settings"]["clients"]
    median = crowd["median_ms"]
    rows = [
        [
            f"pairs of question and answer, {clients} clients, beside a server that only commits",
            "≥ 0.5 ×", f"{found['ratio']:.2f} ×: {rates['jboost serve']:,.0f} and "
            f"{rates['echo']:,.0f} a second",
        ],
        [f"rows a second in batches of {batch:,}, beside single calls", "≥ 20 ×",
         f"predict {ratios['predict']:.0f} ×, learn {ratios['learn']:.0f} ×"],
        [f"the 99th percentile of {soaked['predictions']:,} predictions, beside their median",
         "≤ 10 ×", f"{soaked['p99_over_p50']:.1f} ×: {soaked['p50_ms']:.1f} ms and "
         f"{soaked['p99_ms']:.1f} ms"],
        [f"acknowledged answers lost or learned twice, in {kills['kills']} kills under load", "0",
         f"{kills['lost']} and {kills['twice']}, of {kills['acknowledged']:,}"],
        ["the state after that, beside `jb.run` on the rows of the log", "bit for bit",
         "bit for bit" if kills["bit_for_bit"] else "differs"],
        ["acknowledged answers while files could not grow, and those in the log; the state",
         "equal; bit for bit", f"{full['learned']} and {full['in_log']}, with {full['refused']} "
         f"refused; {'bit for bit' if full['bit_for_bit'] else 'differs'}"],
        [f"{crowd['silent']:,} silent connections and {crowd['slow']} that never read",
         "others are served", f"median {median['before']:.1f} ms before, {median['during']:.1f} "
         f"ms meanwhile; {crowd['memory_mb']:,.0f} MB"],
        [f"{nonsense['requests']:,} mangled requests: 5xx, accepted, memory", "0, 0, bounded",
         f"{nonsense['failed']}, {nonsense['accepted']}, {nonsense['memory_mb']['first']:,.0f} to "
         f"{nonsense['memory_mb']['last']:,.0f} MB"],
    ]  # fmt: skip
    line = run_line(load, "model", "clients", "pairs", "turns")
    return f"{line}\n\n{table(['', 'required', 'measured'], rows)}"
