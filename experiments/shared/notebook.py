"""Executes notebooks: the code of their cells, in order, in one namespace.

    python -m experiments.shared.notebook experiments/guides/file.ipynb

writes the outputs into the file, pictures as SVG, which is text. The tests execute the cells
without writing.
"""

import ast
import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import matplotlib

# The parts of a picture have the same names in every run, and its text is text.
SVG: dict[Any, Any] = {"svg.hashsalt": "jboost", "svg.fonttype": "none"}
SVG["font.sans-serif"] = ["DejaVu Sans"]


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells; the first exception ends it."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _run("".join(cell["source"]), names, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return what a cell prints, and what its last expression is."""
    tree, value, printed = ast.parse(source), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        shown = {"data": _data(value), "metadata": {}, "execution_count": count}
        outputs.append({"output_type": "execute_result", **shown})
    return outputs


def _data(value: Any) -> dict[str, Any]:
    plain = re.sub(r" at 0x[0-9a-f]+", "", repr(value)[:2000])  # where it lies says nothing
    data: dict[str, Any] = {"text/plain": plain.splitlines(keepends=True)}
    if hasattr(value, "_repr_svg_"):
        with matplotlib.rc_context(SVG):
            drawn = value._repr_svg_()
        # Tenths of a point, in one line, are a third of the size.
        data["image/svg+xml"] = [re.sub(r"\s*\n\s*", " ", re.sub(r"(\d\.\d)\d+", r"\1", drawn))]
    elif hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    return data


def main() -> None:
    """Write the outputs into the notebooks that the command line names."""
    for name in sys.argv[1:]:
        notebook = execute(json.loads(Path(name).read_text(encoding="utf-8")))
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        Path(name).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
