"""Outlines a model for a person to read: a line for each of its pieces, with their settings."""

import dataclasses
import html
from typing import Any

import numpy as np

MOST_VALUES = 6  # of an array; of a longer one the shape is shown


def outline(model: object, *, indent: int = 0, label: str = "") -> str:
    """Return the outline of a model; settings that are None are left out.

    >>> import jboost as jb
    >>> print(outline(jb.pipeline(jb.Bias(), jb.Polynomial(), jb.Intervals(jb.NLMS(0.5)))))
    Pipeline
      transforms: Bias
      transforms: Polynomial, degree 2
      learner: Intervals, coverage 0.9, ...
        learner: NLMS, step_size 0.5, ...
    """
    start = "  " * indent + (f"{label}: " if label else "")
    if isinstance(model, (tuple, list)):
        return "\n".join(outline(each, indent=indent, label=label) for each in model)
    if not dataclasses.is_dataclass(model):
        return f"{start}{_shown(model)}"
    settings, pieces = [type(model).__name__], []
    for field in dataclasses.fields(model):
        value = getattr(model, field.name)
        nested = value if isinstance(value, (tuple, list)) else (value,)
        if any(dataclasses.is_dataclass(each) for each in nested):
            pieces.append(outline(value, indent=indent + 1, label=field.name))
        elif value is not None:
            settings.append(f"{field.name} {_shown(value)}")
    return "\n".join([start + ", ".join(settings), *pieces])


def as_html(text: str) -> str:
    """Return an outline as a notebook shows it: a long line goes on behind its beginning."""
    lines = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        style = f"padding-left: {indent + 2}ch; text-indent: -2ch"
        lines.append(f'<div style="{style}">{html.escape(line.strip())}</div>')
    return f'<div style="font-family: monospace; line-height: 1.4">{"".join(lines)}</div>'


def _shown(value: Any) -> str:
    """Return a setting in a few characters."""
    if isinstance(value, (tuple, list)):
        return " ".join(map(_shown, value)) or "none"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if hasattr(value, "shape") and np.size(value) > MOST_VALUES:
        return f"of shape {tuple(value.shape)}"
    if hasattr(value, "shape") and np.ndim(value):
        return " ".join(map(_shown, np.ravel(value).tolist()))
    if isinstance(value, (bool, str)) or value is None:
        return str(value)
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):
        return f"{value!r:.60}"
