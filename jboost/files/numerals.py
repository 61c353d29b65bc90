"""Reads numbers that are written as text, in the digits and signs of any script."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from jboost.files.columns import text_codes

if TYPE_CHECKING:
    import pyarrow as pa

# What stands for a missing value, by Arrow and in public data sets.
MISSING = ("", "#N/A", "#NA", "-NaN", "-nan", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan",
           "null", "none", "?", "-", "--", "n.a.", "NaT", "nat", "<NA>")  # fmt: skip
PROBE = 50  # texts, which are looked at before all others
# Signs of numbers beside those of ASCII. Spaces that keep digits together become no-break spaces,
# and so does the Arabic sign between thousands. Marks that nobody sees are left out.
_SIGNS = str.maketrans(
    dict.fromkeys("−－﹣‐‑‒–", "-")
    | dict.fromkeys("\u2007\u2009\u202f٬", "\xa0")
    | dict.fromkeys([0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F)])
    | dict.fromkeys([*range(0x2060, 0x2070), 0xFEFF])
    | {"＋": "+", "﹢": "+", "．": ".", "，": ",", "ｅ": "e", "Ｅ": "e"}
)
# Groups of three digits: between no-break spaces or apostrophes, or between commas where these can
# mean nothing else, since decimals or another comma follow.
_GROUPED = re.compile(r"[-+]?\d{1,3}(([\xa0'’]\d{3})+(\.\d*)?|(,\d{3})+\.\d+|(,\d{3}){2,})$")
_ONE_GROUP = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}$")  # or a number with three decimals
CURRENCIES, SHARES = "$€£¥", {"%": 100.0, "‰": 1000.0}
# A sign of a currency before or after a number, or of percent after it; or a number in brackets,
# which accounts write for a negative one.
_MONEY = re.compile(rf"([-+]?)[{CURRENCIES}]\s?(.+)|(.*\d\.?)\s?[{CURRENCIES}]")
_MARKED = re.compile(rf"[{CURRENCIES}%‰(]")
_SHARE, _NEGATIVE = re.compile(r"(.*\d\.?)\s?([%‰])"), re.compile(r"\(([^-+(].*)\)")
# What to do with complex numbers.
PARTS = "make the real and the imaginary parts columns of their own"
_COMPLEX = re.compile(
    r"\(?[-+]?{0}\s?[-+]\s?{0}[ij]\)?$".replace("{0}", r"(\d+\.?\d*|\.\d+)(e[-+]?\d+)?")
)
# Between thousands, and around a number. Else they are not read: they may be part of a code.
_SEPARATOR, _UNITS = re.compile(r"(?<=\d)[\s'’_.,](?=\d{3}(?!\d))"), f"{CURRENCIES}%‰ \xa0"


def plain(text: str) -> str:
    """A text with the signs of numbers as ASCII has them, without invisible marks and space."""
    return text.translate(_SIGNS).strip()


def number_of(text: str, decimal: str = ".") -> float | None:
    """The number that a text reads as, or None; ``decimal`` is the sign before decimals.

    Digits and signs of any script are read, and no-break spaces and apostrophes between groups of
    three digits. So are commas between them, but not in a text such as 1,234, which could also be a
    number with three decimals; and points where a comma stands before decimals. The sign of a
    currency is left out, 5 % is 0.05, and a number in brackets is negative.

    >>> number_of(" 1e3 "), number_of("−１２"), number_of("٣٫٥"), number_of("1\\xa0234")
    (1000.0, -12.0, 3.5, 1234.0)
    >>> number_of("1_000"), number_of("12 km"), number_of("1 234"), number_of("5²")
    (None, None, None, None)
    >>> number_of("1,5", ","), number_of("1.5", ","), number_of("1,5")
    (1.5, None, None)
    >>> number_of("2,308.6"), number_of("1.234,5", ","), number_of("1,234,567"), number_of("1,234")
    (2308.6, 1234.5, 1234567.0, None)
    >>> number_of("1.234", ","), number_of("$1,234"), number_of("(1,234.50 €)"), number_of("5 %")
    (1234.0, 1234.0, -1234.5, 0.05)
    """
    text, whole, money = plain(text), 1.0, None
    if _MARKED.search(text):
        if negative := _NEGATIVE.fullmatch(text):
            text, whole = negative[1].strip(), -1.0
        if share := _SHARE.fullmatch(text):
            text, whole = share[1], whole * SHARES[share[2]]
        elif money := _MONEY.fullmatch(text):
            text = (money[1] or "") + (money[2] or money[3])
    if decimal != ".":
        text = text.translate({ord("."): ",", ord(decimal): "."})
    text = text.replace("٫", ".")  # the Arabic decimal sign, which means nothing else
    # No money has three decimals, and a point is no sign before decimals where a comma is.
    if _GROUPED.match(text) or ((money or decimal != ".") and _ONE_GROUP.match(text)):
        text = re.sub("[\xa0'’,]", "", text)
    try:
        return None if "_" in text else float(text) / whole
    except ValueError:
        return None


def reads_as_number(text: str, decimal: str = ".") -> bool:
    """Whether a text reads as a number; ``decimal`` is the sign before decimals."""
    return number_of(text, decimal) is not None


def numbers_in(
    values: pa.ChunkedArray, decimal: str, missing: Collection[str]
) -> np.ndarray | None:
    """The numbers in a column of text, NaN where one is missing; None if other text is there."""
    if len(values) > PROBE and numbers_in(values[:PROBE], decimal, missing) is None:
        return None  # most columns of text are told by their first rows
    codes, texts = text_codes(values)
    numbers: list[float] = []
    for text in texts:
        number = None if text is None else number_of(text, decimal)
        if number is None and text is not None and plain(text) not in missing:
            return None
        numbers.append(np.nan if number is None else number)
    return np.array([*numbers, np.nan])[codes]  # the code −1, of a missing value, takes the last


def reads_as_complex(text: str) -> bool:
    """Whether a text is a complex number of two parts, as Python or mathematics write it.

    >>> [reads_as_complex(text) for text in ("(1+2j)", "-.5e3-1i", "2", "3-4", "hi")]
    [True, True, False, False, False]
    """
    return _COMPLEX.match(plain(text)) is not None


def looks_like_a_number(text: str) -> bool:
    """Whether a text is a number but for signs between thousands, of a currency or of percent."""
    bare = _SEPARATOR.sub("", plain(text)).strip(_UNITS)
    return reads_as_number(bare) or reads_as_number(bare, ",")
