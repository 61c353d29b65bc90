"""Numbers in any script: a column of numbers stays one, or is refused, and never becomes text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jboost.cli import main
from jboost.files import lines as text_lines
from jboost.files.columns import DataError
from jboost.files.numerals import number_of
from jboost.files.sources import read

pytest.importorskip("pyarrow")

ZEROS = "0٠۰०๐０𝟎"  # the digit 0 of seven scripts; the other nine follow each
MINUS = "-−－﹣‐‑–"
AROUND = ("", " ", "\xa0", "\u202f", "\u2009", "\u2007", "\u3000", "\u200b", "\u200f", "\ufeff")
GROUPS = ("", "\xa0", "\u202f", "\u2009", "\u2007", "٬")
ENCODED = ["a", "word#0", "word#1", "word#2", "word#3"]


def written(value: float, zero: str, minus: str, group: str, around: str, point: str) -> str:
    """A number as somebody may write it."""
    text = f"{abs(value):{',' if group else ''}.3f}".replace(",", group).replace(".", point)
    digits = {ord("0") + digit: chr(ord(zero) + digit) for digit in range(10)}
    return around + (minus if value < 0 else "") + text.translate(digits) + around


forms = st.fixed_dictionaries(
    {
        "zero": st.sampled_from(ZEROS),
        "minus": st.sampled_from(MINUS),
        "group": st.sampled_from(GROUPS),
        "around": st.sampled_from(AROUND),
        "point": st.sampled_from(".．٫"),
    }
)
values = st.integers(-(10**9), 10**9).map(lambda thousandths: thousandths / 1000)


@pytest.fixture(scope="module")
def path(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("numbers") / "data.csv"


def numbers_of(path: Path, text: str, **options: Any) -> tuple[Any, np.ndarray]:
    """The columns of a text, and its inputs and targets side by side."""
    path.write_text(text, encoding="utf-8")
    source = read(path, "y", buckets=4, **options)
    blocks = [np.column_stack(block) for block in source]
    return source.columns, np.concatenate(blocks)


@given(values, forms)
def test_a_number_is_read_however_it_is_written(value: float, form: dict[str, str]) -> None:
    assert number_of(written(value, **form)) == value
    assert number_of(written(value, **form | {"point": ","}), ",") == value
    assert number_of(written(value, **form | {"point": ","})) is None


@given(
    st.lists(st.tuples(values, forms, st.booleans()), min_size=30, max_size=60),
    st.sampled_from([200, 2**22]),
)
def test_a_column_of_numbers_stays_one(path: Path, rows: list[Any], block: int) -> None:
    """Whichever cells are written otherwise: in the first block of lines, or long after it."""
    plain = [f"{value},red,{value}" for value, _, _ in rows]
    texts = [written(value, **form) if odd else str(value) for value, form, odd in rows]
    odd = [f"{text},red,{text}" for text in texts]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_lines, "BLOCK_BYTES", block)
        _, expected = numbers_of(path, "\n".join(["a,word,y", *plain]))
        columns, numbers = numbers_of(path, "\n".join(["a,word,y", *odd]))
    assert columns.names == ENCODED
    np.testing.assert_array_equal(numbers, expected)


@pytest.mark.parametrize(
    ("cell", "value"),
    [("1\xa0234", 1234.0), ("1.5\xa0", 1.5), ("٣", 3.0), ("３．５", 3.5), ("−2", -2.0), ("+7", 7.0),
     ('"2,308.5"', 2308.5), ('"1,234,567"', 1234567.0), ("\xa0", np.nan), ("n/a\u202f", np.nan),
     ("1Ｅ3", 1000.0), (".5", 0.5)],
)  # fmt: skip
@pytest.mark.parametrize("row", [0, 150])
def test_one_odd_cell_among_numbers(
    path: Path, cell: str, value: float, row: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 500)
    lines = [f"{i}.5,red,{i}" for i in range(200)]
    lines[row] = f"{cell},red,{row}"
    columns, numbers = numbers_of(path, "\n".join(["a,word,y", *lines]))
    assert columns.names == ENCODED
    np.testing.assert_array_equal(numbers[row, 0], value)
    np.testing.assert_array_equal(
        np.delete(numbers[:, 0], row), np.delete(np.arange(200) + 0.5, row)
    )


@pytest.mark.parametrize("cell", ["1 234", "1_000", "1,234,56", "€ 1 200", "1 234,5"])
def test_what_may_be_a_number_is_refused_with_its_place(path: Path, cell: str) -> None:
    sentence = rf"line 2: {re.escape(repr(cell))} in the column 'a' looks like a number"
    for count in (1, 9):
        with pytest.raises(DataError, match=sentence):
            numbers_of(path, "\n".join(["a,y", *[f'"{cell}",1'] * count]))
    columns, _ = numbers_of(path, f'a,y\n"{cell}",1\n"{cell}",2', category=["a"])
    assert columns.inputs[0].kind == "category"


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [("$1,234.50", ".", 1234.5), ("-$1,234", ".", -1234), ("$-5", ".", -5), ("(7)", ".", -7),
     ("($1,234.50)", ".", -1234.5), ("12%", ".", 0.12), ("−12.5 %", ".", -0.125),
     ("5‰", ".", 0.005), ("1.299,00 €", ",", 1299), ("1.299", ",", 1299),
     ("€1.234.567", ",", 1234567),
     ("1'234.5", ".", 1234.5), ("1,234", ".", None), ("0,999", ".", None), ("$5 %", ".", None),
     ("((5))", ".", None), ("(a)", ".", None), ("$", ".", None), ("%", ".", None),
     ("()", ".", None), ("5$5", ".", None), ("1.5", ",", None)],
)  # fmt: skip
def test_signs_of_accounts(text: str, decimal: str, value: float | None) -> None:
    assert number_of(text, decimal) == (None if value is None else pytest.approx(value, rel=1e-12))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "cp1252"])
def test_a_workbook_of_a_shop(path: Path, encoding: str, monkeypatch: Any) -> None:
    """As German and American versions of a spreadsheet write it, in the first block and later."""
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 200)
    values = [(i + 1.5, (-1) ** i * (1234.5 + i), i / 100) for i in range(40)]
    expected = np.array([[a, share, money] for a, money, share in values], np.float32)
    german, american = ["Größe;Umsatz;Rabatt"], ["size,total,discount"]
    for a, money, share in values:
        text = f"{money:,.2f}".translate(str.maketrans(",.", ".,"))
        german.append(f"{a:.1f};{text} €;{100 * share:.0f} %".replace(".5;", ",5;"))
        text = f'"(${-money:,.2f})"' if money < 0 else f'"${money:,.2f}"'
        american.append(f"{a},{text},{100 * share:.0f}%")
    path.write_bytes("\r\n".join(german).encode(encoding))
    source = read(path, "Umsatz", encoding=None if encoding[:3] == "utf" else encoding)
    assert "in Rabatt, 5 % is read as 0.05" in source.columns.notes
    np.testing.assert_allclose(np.concatenate([np.column_stack(b) for b in source]), expected)
    path.write_bytes("\n".join(american).encode())
    blocks = [np.column_stack(b) for b in read(path, "total")]
    np.testing.assert_allclose(np.concatenate(blocks), expected)


def test_a_word_among_numbers_is_named(path: Path, monkeypatch: Any) -> None:
    """Also where numbers before and after it are of another script."""
    monkeypatch.setattr(text_lines, "BLOCK_BYTES", 100)
    lines = [f"{i}.5,{i}" for i in range(50)] + ["٣,1", "３,1", "5²,1", "٣,1"]
    with pytest.raises(DataError, match=r"line 54: '5²' in the column 'a' is not a number"):
        numbers_of(path, "\n".join(["a,y", *lines]))


@pytest.mark.parametrize("words", [["１番", "２番"], ["No. ٣", "x"], ["2020_01", "2020_02"],
                                   ["123 45", "543 21"], ["—", "x"]])  # fmt: skip
def test_text_with_digits_is_text(path: Path, words: list[str]) -> None:
    columns, _ = numbers_of(path, "\n".join(["a,y", *(f"{word},1" for word in words)]))
    assert columns.inputs[0].kind == "category"


def test_the_command_learns_from_such_a_file_as_from_a_plain_one(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 2)).round(3) * 1000
    lines = [f"{a},{b},{3 * a - b}" for a, b in rows.tolist()]
    Path("plain.csv").write_text("\n".join(["a,b,y", *lines]))
    lines[7] = "\xa0" + lines[7].replace("-", "−")
    lines[150] = lines[150].translate({ord("0") + digit: 0x660 + digit for digit in range(10)})
    Path("odd.csv").write_text("\n".join(["a,b,y", *lines]), encoding="utf-8")
    for name in ("plain", "odd"):
        words = ["--target", "y", "--model", "nlms", "--predictions", f"{name}.out"]
        assert main(["run", f"{name}.csv", *words]) == 0
    assert Path("plain.out").read_bytes() == Path("odd.out").read_bytes()
