"""The README: it runs, its links lead somewhere, and it stays short.

Its examples run as doctests, collected by pytest itself; what is checked here is that none escapes.
"""

import doctest
import re
import tomllib
from pathlib import Path

import jboost as jb

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_it_is_short():
    assert len(README.splitlines()) < 150


def test_every_python_line_is_a_doctest():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    pytest_settings = settings["tool"]["pytest"]["ini_options"]
    assert "README.md" in pytest_settings["testpaths"]
    assert "--doctest-glob=README.md" in pytest_settings["addopts"]
    python = blocks("python")
    assert python
    assert all(block.startswith(">>> ") for block in python)
    statements = sum(len(doctest.DocTestParser().get_examples(block)) for block in python)
    assert statements == len(doctest.DocTestParser().get_examples(README))


def test_its_first_example_is_about_ten_lines():
    assert len(doctest.DocTestParser().get_examples(blocks("python")[0])) <= 12


def test_its_files_exist():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    files = [link for link in links if not link.startswith("https://")]
    assert "experiments/paper/results/demo.png" in files
    assert [file for file in files if not (ROOT / file).is_file()] == []
    assert (ROOT / "experiments/paper/results/demo.png").stat().st_size < 200_000


def test_the_names_in_its_map_exist():
    table = README.split("## What there is")[1].split("\n\n")[1]
    for row in table.splitlines()[2:]:
        words = row.split("|")[2]
        for name in re.findall(r"`(\w+(?:\.\w+)?)(?:\([^`]*)?`", words):
            place = jb
            for part in name.split("."):
                place = getattr(place, part)


def test_it_gives_the_two_commands_and_the_citation():
    (shell,) = blocks("sh")
    assert 'pip install ".[plot]" && jboost demo' in shell
    assert 'pip install ".[test]" && pytest' in shell
    (citation,) = blocks("bibtex")
    for word in ("Kari", "Khan", "Ciftci", "Kozat", "1601.00549", "2016"):
        assert word in citation
