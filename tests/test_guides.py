"""The guides beside the experiments: their examples run, their links lead somewhere."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "experiments"
GUIDES = (
    "auto.md",
    "sweeps.md",
    "fleets.md",
    "tuning.md",
    "prediction.md",
    "real_stream.md",
    "from_other_libraries.md",
)
NEEDED = {
    "real_stream.md": ("pyarrow",),
    "from_other_libraries.md": ("padasip", "river", "sklearn"),
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.mark.parametrize("name", GUIDES)
def test_examples_run(name, monkeypatch, tmp_path):
    for library in NEEDED.get(name, ()):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    found = doctest.testfile(str(FOLDER / name), module_relative=False, optionflags=FLAGS)
    assert found.failed == 0 and found.attempted > 5


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)#]+)\)", (FOLDER / name).read_text(encoding="utf-8"))
    assert links and all((FOLDER / link).is_file() for link in links if "://" not in link)


def test_the_sweep_script_draws_and_reports(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    arguments = ["--out", str(tmp_path), "--length", "200", "--points", "3"]
    importlib.import_module("sweep_example").main(arguments)
    shown = capsys.readouterr().out
    assert "72 runs" in shown and "nothing was chosen on: MSE 0." in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep-lines.png", "sweep-map.png"]


def test_the_fleet_script_reports(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(FOLDER))
    arguments = ["--streams", "50", "--blocks", "2", "--rows", "3000"]
    importlib.import_module("fleet_example").main(arguments)
    shown = capsys.readouterr().out
    assert "3,000 rows judged" in shown and "100% of them are the noisy ones" in shown
