"""The rooms of the house: each imports only from rooms before it, and nothing private of another.

The order is that of :data:`jboost.core`'s users: what a reader must know first comes first. Imports
inside functions and for types count as any other.
"""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "jboost"
ORDER = (
    *("limits", "core", "learners", "transforms", "combiners", "boosting", "baselines", "settings"),
    *("wrappers", "forecasts", "automatic", "catalogue", "engine", "checkpoints", "running"),
    *("explanations", "plots", "paper", "sweeps", "fleets", "tuning", "files", "reports"),
    *("adapters", "serving", "commands", "cli", "__main__"),
)
ROOT = "__init__"  # the public names: it may import from every room, and none from it


def imports(source: str, module: str) -> list[tuple[str, str]]:
    """Return what a module imports from jboost, as (module, name); no name for a whole module."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            found += [(node.module or "", alias.name) for alias in node.names]
    return [(name, what) for name, what in found if name.partition(".")[0] == "jboost"]


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ROOT


def complaints(source: str, module: str) -> list[str]:
    """Return every import of a module that goes against the order, or for a private name."""
    here, found = room_of(module), []
    if here == ROOT:
        return []
    for name, what in imports(source, module):
        target = f"{name}.{what}" if name == "jboost" and what in ORDER else name
        there = room_of(target)
        if there == ROOT:
            found.append(f"{module} imports the root package")
        elif ORDER.index(there) > ORDER.index(here):
            found.append(f"{module} imports {target}, of a room after its own")
        elif there != here and (what.startswith("_") or "._" in target):
            found.append(f"{module} imports the private {target}.{what}")
    return found


def modules() -> dict[str, str]:
    """Return the source of every module of the package, by its name."""
    sources = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        sources[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return sources


def test_every_room_is_in_the_order():
    assert {room_of(name) for name in modules() if name != "jboost"} == {*ORDER}


def test_each_room_imports_only_from_rooms_before_it():
    assert [line for name, source in modules().items() for line in complaints(source, name)] == []


@pytest.mark.parametrize(
    "line",
    [
        "from jboost.running.run import run",
        "import jboost.engine.kernel",
        "from jboost import wrappers",
        "import jboost as jb",
        "def later():\n    from jboost.sweeps import sweep",
        "if TYPE_CHECKING:\n    from jboost.commands import run",
        "from jboost.core.products import _summed",
    ],
)
def test_an_import_against_the_order_is_noticed(line):
    assert len(complaints(line, "jboost.learners.sgd")) == 1


def test_no_module_imports_itself_in_a_circle():
    """Within a room too: modules can be read one after the other."""
    sources = modules()
    needs = {
        name: {
            target
            for module, what in imports(source, name)
            for target in (f"{module}.{what}", module)
            if target in sources and target not in ("jboost", name)
        }
        for name, source in sources.items()
        if name != "jboost"
    }
    # A package's __init__ is loaded before its modules: what it imports of them is no circle.
    needs = {name: {n for n in of if not name.startswith(f"{n}.")} for name, of in needs.items()}
    while free := [name for name, of in needs.items() if not of]:
        for name in free:
            del needs[name]
        needs = {name: of - {*free} for name, of in needs.items()}
    assert needs == {}


def test_a_room_says_what_lives_there():
    for folder in PACKAGE.iterdir():
        if (folder / "__init__.py").exists():
            docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
            assert docstring and "import" in docstring, (
                f"{folder.name} does not say what it may use"
            )


def definitions(source: str) -> set[str]:
    """Return what a module defines, and the methods of its classes as ``Class.method``."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{f.name}" for f in node.body if isinstance(f, ast.FunctionDef)}
    return names


def test_the_map_of_the_house_names_what_is_there():
    page = (PACKAGE.parent / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    steps = page.partition("### The way of a row")[2].partition("### Words")[0]
    named = re.findall(r"`(\w+/\w+\.py)(?:: ([\w., ]+))?`", steps)
    assert len(named) > 15
    for file, names in named:
        defined = definitions((PACKAGE / file).read_text(encoding="utf-8"))
        assert {*filter(None, names.split(", "))} <= defined, f"{file}: {names}"
