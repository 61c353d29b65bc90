"""Explanations: what each column of x adds to a prediction.

`columns` has `explain`, and `usual` finds the input that stands for "nothing known" in a state. May
import from `core` to `running`.
"""

from jboost.explanations.columns import Explained, explain

__all__ = ["Explained", "explain"]
