"""Builds a page of HTML that needs nothing else: no network, no script."""

import base64
import html
import io
from collections.abc import Iterable
from typing import Any

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
       border-bottom: 1px solid #ddd; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; } pre { white-space: pre-wrap; }
"""


def page(title: str, sections: Iterable[tuple[str, str]]) -> str:
    """Return a page of sections; each is a heading and its HTML.

    >>> page("a < b", [("One", text("1 & 2"))]).count("a &lt; b")
    2
    """
    body = "\n".join(f"<h2>{html.escape(name)}</h2>\n{content}" for name, content in sections)
    escaped = html.escape(title)
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escaped}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escaped}</h1>\n{body}\n</body>\n</html>\n"
    )


def text(words: str, tag: str = "p") -> str:
    """Return a paragraph; with the tag ``pre``, text as it would stand in a terminal."""
    return f"<{tag}>{html.escape(words)}</{tag}>"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    """Return a table: with a head, in which all columns but the first are numbers, or of texts."""

    def line(tag: str, row: list[str]) -> str:
        start = f'<{tag} class="number">' if head else f"<{tag}>"
        cells = f"</{tag}>{start}".join(html.escape(cell) for cell in row)
        return f"<tr><{tag}>{cells}</{tag}></tr>"

    body = "\n".join(line("td", row) for row in rows)
    header = f"<thead>{line('th', head)}</thead>\n" if head else ""
    return f"<table>\n{header}<tbody>\n{body}\n</tbody>\n</table>"


def image(figure: Any, description: str) -> str:
    """Return a figure of matplotlib, embedded in the page."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=120)
    data = base64.b64encode(drawn.getvalue()).decode()
    return f'<img alt="{html.escape(description)}" src="data:image/png;base64,{data}">'
