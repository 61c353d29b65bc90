"""How rows are counted and told apart in a text, against a look at every line."""

import numpy as np
import pytest

from jboost.files import lines as text_lines
from jboost.files.lines import Lines


@pytest.mark.parametrize("piece", [1, 3, 2**16])
def test_signs_are_found_wherever_a_text_is_cut_into_pieces(piece, monkeypatch):
    monkeypatch.setattr(text_lines, "CACHED_BYTES", piece)
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 12, 40) * 40:
        text = bytes(rng.choice([*b'aaa,"\n\n\r'], size).tolist()) + b"\n"
        each = text.split(b"\n")
        assert Lines(1, text).count_rows() == sum(line not in (b"", b"\r") for line in each)
        whole = all(line.count(b'"') % 2 == 0 for line in each)
        assert Lines(1, text, b",").every_line_is_whole() == whole
