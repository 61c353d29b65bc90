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


def test_the_names_in_the_api_page_exist():
    rows = (ROOT / "experiments/guides/api.md").read_text(encoding="utf-8").splitlines()
    names = [
        name
        for row in rows
        if row.startswith("| ") and row.count("|") == 3
        for name in re.findall(r"`(\w+(?:\.\w+)?)(?:\([^`]*)?`", row.split("|")[2])
    ]
    assert len(names) > 50
    for name in names:
        thing = jb
        for attribute in name.split("."):
            thing = getattr(thing, attribute)


def test_it_gives_the_commands_and_the_citation():
    (shell,) = blocks("sh")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert 'pip install ".[io,plot]"' in shell and "jboost demo" in shell
    assert {"io", "plot"} <= {*extras["optional-dependencies"]}
    assert '`pip install ".[test]" && pytest`' in README
    (citation,) = blocks("bibtex")
    for word in ("Kari", "Khan", "Ciftci", "Kozat", "1601.00549", "2016"):
        assert word in citation


def test_a_learner_of_ones_own_is_twenty_lines():
    (block,) = [block for block in blocks("python") if "class SignLMS" in block]
    assert len(block.splitlines()) <= 20
