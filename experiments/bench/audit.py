"""The packages that jboost brings along: their licences and known vulnerabilities.

The tree comes from the installed metadata: the dependencies of jboost, with ``--extras`` also those
of its extras, and the dependencies of all these. "tested from" is the version in .ci/oldest.txt,
the oldest on which CI runs the core tests. Known vulnerabilities are asked of pip-audit, which asks
a service on the network. Where pip-audit is not installed or does not reach the service, a line
says so and the exit status is 3: no vulnerability was found, because none was looked up.

Exit status: 0 nothing known, 1 a known vulnerability, 2 a licence to look at or a lower bound that
is not tested, 3 vulnerabilities could not be looked up.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# Licences that ask nothing of what merely uses a package. Any other is for a person to look at.
ACCEPTED = re.compile(
    r"MIT|BSD|Apache|PSF|Python Software Foundation|ISC|HPND|Zlib|Unlicense|CC0|MPL", re.IGNORECASE
)
MISSING = "not installed"
WORDS = 40  # letters of a licence that are shown
FOUND, LOOK, UNKNOWN = 1, 2, 3


class Package(NamedTuple):
    """One package of the tree."""

    name: str
    version: str
    licence: str
    asked: str
    tested: str

    @property
    def accepted(self) -> bool:
        """Whether every part of the licence, or one of its alternatives, is accepted."""
        parts = re.split(r" AND |,", self.licence)
        return all(ACCEPTED.search(part) for part in parts)


def normal(name: str) -> str:
    """A package's name in the form in which indexes compare names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str, extras: set[str]) -> Iterator[tuple[str, str, set[str]]]:
    """(name, versions, extras) of everything an installed package requires here."""
    from packaging.requirements import Requirement

    for line in metadata.requires(name) or ():
        needed = Requirement(line)
        if needed.marker is None or any(
            needed.marker.evaluate({"extra": extra}) for extra in (extras or {""})
        ):
            yield normal(needed.name), str(needed.specifier), {*needed.extras}


def licence_of(about: Any) -> str:
    """The licence: its expression, else its classifiers, else the first line of its text."""
    kinds = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or ()
             if line.startswith("License ::")]  # fmt: skip
    text = about.get("License-Expression") or ", ".join(kinds) or about.get("License") or "unknown"
    return text.strip().partition("\n")[0]


def tree(tested: Mapping[str, str], extras: set[str]) -> Iterator[Package]:
    """Every package that jboost leads to; a missing package has no version."""
    todo, seen = [("jboost", "", extras)], set()
    while todo:
        name, asked, wanted = todo.pop(0)
        if (name, *sorted(wanted)) in seen:
            continue
        first = not any(name == other for other, *_ in seen)
        seen.add((name, *sorted(wanted)))
        try:
            about = metadata.metadata(name)
        except metadata.PackageNotFoundError:
            yield Package(name, MISSING, "unknown", asked, tested.get(name, ""))
            continue
        if first and name != "jboost":
            own = metadata.version(name)
            yield Package(name, own, licence_of(about), asked, tested.get(name, ""))
        todo += requirements(name, wanted)


def pins(path: Path) -> dict[str, str]:
    """The versions that a constraints file names."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {normal(name): version for name, equals, version in (
        line.partition("==") for line in lines) if equals}  # fmt: skip


def untested(packages: Sequence[Package]) -> list[str]:
    """The lower bounds of jboost's own dependencies that differ from the tested versions."""
    own = {name: asked for name, asked, _ in requirements("jboost", {""})}
    wrong = []
    for package in packages:
        bound = re.search(r">=([\w.]+)", own.get(package.name, ""))
        if package.name in own and (bound is None or not _same(bound[1], package.tested)):
            wrong.append(f"{package.name}{own[package.name]}, tested from {package.tested or '?'}")
    return wrong


def _same(bound: str, version: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(bound) == Version(version)
    except InvalidVersion:
        return False


def vulnerabilities(packages: Sequence[Package]) -> list[str] | None:
    """The known vulnerabilities of these versions; None where they could not be looked up."""
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder, "requirements.txt")
        there = [package for package in packages if package.version != MISSING]
        lines = (f"{name}=={version.partition('+')[0]}" for name, version, *_ in there)
        listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner",
                   "off", "--no-deps", "--disable-pip", "-r", str(listed)]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            answers = json.loads(done.stdout)["dependencies"]
        except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
            return None
    skipped = [one for one in answers if "vulns" not in one]
    if skipped or len(answers) < len(there):
        return None
    return [f"{one['name']} {one['version']}: {found['id']}, fixed in "
            f"{', '.join(found['fix_versions']) or 'no release'}"
            for one in answers for found in one["vulns"]]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--extras", action="store_true", help="those of jboost[all] too")
    parser.add_argument("--offline", action="store_true", help="look nothing up: exit status 3")
    args = parser.parse_args(argv)
    packages = sorted(tree(pins(ROOT / ".ci" / "oldest.txt"), {"all"} if args.extras else set()))
    for name, version, licence, asked, tested in [
        ("package", "version", "licence", "asked for", "tested from"), *packages
    ]:  # fmt: skip
        print(f"{name:<24}{version:<16}{licence[:WORDS]:<{WORDS + 2}}{asked:<18}{tested}".rstrip())
    odd = [f"{p.name}: {p.licence[:WORDS]}" for p in packages if not p.accepted]
    loose = untested(packages)
    for title, lines in (("licences to look at", odd), ("bounds not tested", loose)):
        print(f"\n{title}: " + ("; ".join(lines) or "none"))
    known = None if args.offline else vulnerabilities(packages)
    if known is None:
        print(
            "known vulnerabilities: NOT LOOKED UP (pip-audit missing, or its service not reached)"
        )
        return UNKNOWN
    print("known vulnerabilities: " + ("; ".join(known) or "none"))
    return FOUND if known else LOOK if odd or loose else 0


if __name__ == "__main__":
    sys.exit(main())
