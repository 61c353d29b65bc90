"""Table 1 again under the literal reading, in float64: the printed recursion to the letter.

δ₀ = 0, the estimate is clipped inside δ, and P has no cap. Grids, combiners and choices are those
of ``table1.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from experiments.paper import table1
from experiments.shared.experiment import Experiment


def main(argv: Sequence[str] | None = None) -> None:
    table1.run(Experiment(__file__, __doc__, argv, double=True), literal=True)


if __name__ == "__main__":
    main()
