"""Pictures: what is on them, and that a missing matplotlib is named."""

import sys

import numpy as np
import pytest

from jboost import plots
from jboost.core import extras

Image = pytest.importorskip("PIL.Image")


def test_curves_carry_names_values_and_distinct_styles():
    t = np.arange(1, 5001)
    curves = {f"model {k}": (k + 1) * (1 + 1 / t) for k in range(len(plots.STYLES))}
    ax = plots.ase_curves(curves, title="above", legend="names")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(curves)
    assert ax.get_title() == "above"
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    for line, curve in zip(ax.lines, curves.values(), strict=True):
        x, y = line.get_xdata(), line.get_ydata()
        assert (x[0], x[-1]) == (1, 5000)
        np.testing.assert_array_equal(y, curve[x - 1])
    low, high = ax.get_ylim()
    assert low < 1
    assert high > len(curves)
    # In black and white only the pattern is left, or a width that differs plainly.
    patterns = {(str(style["linestyle"]), round(style["linewidth"])) for style in plots.STYLES}
    assert len(patterns) == len({style["color"] for style in plots.STYLES}) == len(plots.STYLES)


def test_a_notebook_shows_a_figure_as_a_picture():
    figure = plots.ase_curves({"mine": np.ones(9)}).figure
    assert "</svg>" in figure._repr_svg_()


def test_an_early_burst_does_not_flatten_the_rest():
    curve = np.full(1000, 0.1)
    curve[:100] = 1e6
    assert plots.ase_curves({"burst": curve}).get_ylim()[1] < 1


@pytest.mark.parametrize("curve", [[0.0, 0.0], [np.nan, np.nan], [1.0], [1.0, np.inf]])
def test_odd_curves_draw(curve, tmp_path):
    plots.save(plots.ase_curves({"odd": curve}).figure, tmp_path / "odd.png")
    with Image.open(tmp_path / "odd.png") as image:
        assert image.mode == "P"


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="at least one curve"):
        plots.ase_curves({})
    with pytest.raises(ValueError, match=r"curves\['a'\].*\(2, 2\)"):
        plots.ase_curves({"a": np.ones((2, 2))})
    with pytest.raises(ValueError, match="settled"):
        plots.ase_curves({"a": [1.0]}, settled=1.0)


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_every_format_is_written(suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    plots.save(plots.ase_curves({"a": [1.0, 0.5]}).figure, path)
    assert path.stat().st_size > 1000


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(extras.MissingExtra, match=r'matplotlib.*pip install "jboost\[plot\]"'):
        plots.grid(1, 1)


def test_a_package_that_is_broken_says_so_itself(monkeypatch, tmp_path):
    (tmp_path / "half_installed.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        extras.need("half_installed", "plot")
