"""The report of a run as one page of HTML that needs nothing else: no network, no script."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .25rem .9rem .25rem 0; text-align: left;
       vertical-align: top; border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } pre { white-space: pre-wrap; }
"""


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """A page of sections, each a heading and HTML.

    >>> page("a < b", [("One", text("1 & 2"))]).count("a &lt; b")
    2
    """
    body = "\n".join(f"<h2>{html.escape(name)}</h2>\n{inside}" for name, inside in sections)
    escaped = html.escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escaped}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escaped}</h1>\n{body}\n</body>\n</html>\n"
    )


def text(words: str) -> str:
    """A paragraph."""
    return f"<p>{html.escape(words)}</p>"


def preformatted(words: str) -> str:
    """Text as it would stand in a terminal."""
    return f"<pre>{html.escape(words)}</pre>"


def table(head: list[str], rows: Iterable[list[str]], *, numbers: bool = True) -> str:
    """A table whose first column is words and, with ``numbers``, the others numbers."""

    def cells(tag: str, row: list[str]) -> str:
        kinds = ["", *[' class="number"' if numbers else ""] * (len(row) - 1)]
        cells = (
            f"<{tag}{kind}>{html.escape(cell)}</{tag}>"
            for kind, cell in zip(kinds, row, strict=True)
        )
        return f"<tr>{''.join(cells)}</tr>"

    body = "\n".join(cells("td", row) for row in rows)
    first = f"<thead>{cells('th', head)}</thead>\n" if any(head) else ""
    return f"<table>\n{first}<tbody>\n{body}\n</tbody>\n</table>"


def pairs(items: Mapping[str, Any]) -> str:
    """Names and values, a row each."""
    return table(["", ""], [[name, str(value)] for name, value in items.items()], numbers=False)


def image(figure: Any, description: str) -> str:
    """A figure of matplotlib's, within the page itself."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<img alt="{html.escape(description)}" src="data:image/png;base64,{data}">'
