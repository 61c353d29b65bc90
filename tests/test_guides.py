"""The guides: their examples run, and so do the scripts that they refer to."""

import doctest
import json
from pathlib import Path

import pytest

from experiments.guides import fleet_example, queue_example, sweep_example
from experiments.shared.notebook import execute

FOLDER = Path(__file__).parent.parent / "experiments" / "guides"
GUIDES = (
    "auto.md",
    "sweeps.md",
    "fleets.md",
    "forecasts.md",
    "tuning.md",
    "prediction.md",
    "knowing.md",
    "filters.md",
    "real_stream.md",
    "serve.md",
    "from_other_libraries.md",
)
NEEDED = {
    "real_stream.md": ("pyarrow",),
    "serve.md": ("starlette", "uvicorn", "httpx"),
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


@pytest.mark.parametrize(
    ("name", "needed"), [("file", "pyarrow"), ("river_user", "river"), ("own_learner", "jax")]
)
def test_notebooks_run(name, needed):
    """Their cells run, and the file holds the outputs of such a run."""
    pytest.importorskip(needed)
    kept = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    made = execute(kept)
    for before, after in zip(kept["cells"], made["cells"], strict=True):
        if before["cell_type"] == "code":
            kinds = [
                [output["output_type"] for output in cell["outputs"]] for cell in (before, after)
            ]
            assert kinds[0] == kinds[1]
            for output in before["outputs"]:
                data = output.get("data", {})
                is_figure = data.get("text/plain", [""])[0].startswith("<Figure")
                assert is_figure == ("image/svg+xml" in data)  # it is shown as a picture


def test_the_sweep_script_draws_and_reports(tmp_path, capsys):
    arguments = ["--out", str(tmp_path), "--length", "200", "--points", "3"]
    sweep_example.main(arguments)
    shown = capsys.readouterr().out
    assert "72 runs" in shown and "nothing was chosen on: MSE 0." in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sweep-lines.png", "sweep-map.png"]


def test_the_fleet_script_reports(capsys):
    arguments = ["--streams", "50", "--blocks", "2", "--rows", "3000"]
    fleet_example.main(arguments)
    shown = capsys.readouterr().out
    assert "3,000 rows judged" in shown and "100% of them are the noisy ones" in shown


def test_the_consumer_of_a_queue_learns_every_message_once(capsys):
    """The queue repeats and reorders batches, and the consumer dies three times."""
    queue_example.main(["--rows", "3000", "--crashes", "3"])
    assert capsys.readouterr().out == "3,000 messages, 3 crashes: every bit as in one run\n"
