"""Finds out how a text of CSV is written: the signs between fields and before decimals."""

from __future__ import annotations

import re
from typing import NamedTuple

from jboost.files.lines import FIRST_BYTES, Text

DELIMITERS = {"\t": "a tab", ";": "a semicolon", "|": "a bar", ",": "a comma", " ": "a space"}
_QUOTED = re.compile(rb'"[^"]*"')
ESCAPES = {r"\t": "\t", "tab": "\t", "space": " "}  # delimiters that are hard to type, by name
_THOUSANDS = re.compile(rb"[-+]?[1-9]\d{0,2}[.,]\d{3}")
_UNIT = rb'[^\w\s.,;|"(+-]{0,4}'  # the sign of a currency or of percent, in any encoding


class TextFormat(NamedTuple):
    """How a text file is written; None is for the default."""

    delimiter: str | None = None  # between fields; by default as line 1 has it: , ; | or a tab
    decimal: str | None = None  # the sign before decimals; by default as the first lines have it
    encoding: str | None = None  # any that extends ASCII; by default UTF-8
    header: bool | None = None  # whether line 1 names the columns; else they are "1", "2", …


def signs(text: Text, text_format: TextFormat) -> tuple[str, str, tuple[str, ...]]:
    """Return the sign between fields, the sign before decimals, and a sentence on each found."""
    delimiter, decimal, notes = text_format.delimiter, text_format.decimal, ()
    if delimiter is None:
        named = text.name.endswith((".tsv", ".tab"))
        delimiter = "\t" if named else _likely_delimiter(text.start)
        if delimiter != "," and not named:
            stands = f"{DELIMITERS[delimiter]} stands between fields"
            option = f"--delimiter '{delimiter}'".replace("\t", r"\t")
            notes += (f"{stands}, as if {option} were passed",)
    delimiter = ESCAPES.get(delimiter, delimiter)
    if decimal is None:
        decimal = "," if _has_decimal_commas(text.start, delimiter) else "."
        if decimal == ",":
            notes += ("a comma stands before decimals, as if --decimal , were passed",)
    for name, sign in (("delimiter", delimiter), ("decimal", decimal)):
        if len(sign) != 1 or not sign.isascii():
            raise ValueError(f"{name} must be one character of ASCII; got {sign!r}")
    return delimiter, decimal, notes


def _likely_delimiter(start: bytes) -> str:
    """Return a comma, or another sign if line 1 has no comma, and line 2 has the sign as often.

    >>> _likely_delimiter(b"a;b\\n1,5;2\\n"), _likely_delimiter(b"a;b\\n1,5\\n")
    (';', ',')
    """
    first, _, rest = _QUOTED.sub(b"", start[:FIRST_BYTES]).partition(b"\n")
    second, end, _ = rest.partition(b"\n")
    for sign in () if b"," in first else (b"\t", b";", b"|"):
        if sign in first and (not end or second.count(sign) == first.count(sign)):
            return sign.decode()
    return ","


def _has_decimal_commas(start: bytes, delimiter: str) -> bool:
    """Whether numbers have commas where others have points, and not only between thousands.

    >>> [_has_decimal_commas(text, ";") for text in (b"1;2,5", b"1.5;2,5", b"1,500;2", b"a,b;1")]
    [True, False, False, False]
    >>> [_has_decimal_commas(text, ";") for text in (b"1.234;2,5", b"1.234;1.234,5", b"2,5 %;x")]
    [False, True, True]
    """
    if delimiter == "," or len(delimiter) != 1:
        return False
    sign = re.escape(delimiter.encode())
    number = rb"([-+]?\d*[.,]\d+|[-+]?\d{1,3}(?:\.\d{3})+,\d+)"
    field = rb'(?:^|%b) ?"?%b ?%b ?%b"?(?=%b|\r?$)' % (sign, _UNIT, number, _UNIT, sign)
    found = {*re.findall(field, start[:FIRST_BYTES], re.MULTILINE)}
    both = any(b"." in number and b"," in number for number in found)  # as in 1.234,5
    rest = {number for number in found if not (both and _THOUSANDS.fullmatch(number))}
    pointed = any(b"." in number and b"," not in number for number in rest)
    return not pointed and any(not _THOUSANDS.fullmatch(number) for number in rest)
