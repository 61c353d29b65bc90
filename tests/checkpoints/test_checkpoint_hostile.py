"""Damaged, foreign and harmful checkpoints are refused, cheaply and with the reason."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from support import memory

import jboost as jb
from jboost.checkpoints import archive
from jboost.checkpoints.checkpoint import CheckpointError, inspect, load, save
from jboost.cli import main

KEY = jax.random.key(7)
SMALL = jb.SGD(step_size=0.1)


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    save(tmp_path / "good", SMALL, SMALL.init(2), KEY, position=5)
    return (tmp_path / "good").read_bytes()


def assert_refused(path: Path, reason: str, reader: Any = load) -> None:
    """Refused for this reason, within a hundred megabytes and a time that is no hang.

    Alone it takes at most 0.3 s; in a process of many tests the collector of garbage may add a
    second.
    """
    start = time.process_time()
    with pytest.raises(CheckpointError, match=reason) as caught:
        reader(path)
    assert time.process_time() - start < 10
    assert str(caught.value).startswith(str(path))
    tracemalloc.start()
    with pytest.raises(CheckpointError):
        reader(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_truncated_at_every_length(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "cut"
    for length in range(len(good)):
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match=r"is truncated|is empty|is no jboost") as caught:
            load(path)
        assert str(path) in str(caught.value)


def test_every_byte_flipped(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "flipped"
    rng = random.Random(0)
    for position in range(len(good)):
        damaged = bytearray(good)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"is damaged|is no jboost|is truncated|newer"):
            load(path)


@pytest.mark.parametrize("extra", [b"\0", b"PK\5\6" + bytes(18)])
def test_bytes_before_or_after(good: bytes, extra: bytes, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(good + extra)
    assert_refused(tmp_path / "a", "bytes too many")
    (tmp_path / "a").write_bytes(extra + good)
    assert_refused(tmp_path / "a", "is no jboost checkpoint")


class Trap:
    """Unpickling it would leave a trace."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def foreign(path: Path, kind: str, trace: Path) -> None:
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Trap(trace)))
    elif kind == "npy of objects":
        with path.open("wb") as file:
            np.save(file, np.array([Trap(trace)]))
    elif kind == "npz of objects":
        with path.open("wb") as file:
            np.savez(file, state=np.array([Trap(trace)]))
    elif kind == "npz":
        with path.open("wb") as file:
            np.savez(file, x=np.arange(3))
    elif kind == "zip bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bomb:
            bomb.writestr("jboost.json", bytes(2**26))
    elif kind == "text":
        path.write_text("jboost.json\n")
    elif kind == "sparse":
        with path.open("wb") as file:
            file.truncate(2**36)


KINDS = ["pickle", "npy of objects", "npz of objects", "npz", "zip bomb", "text", "sparse"]


@pytest.mark.parametrize("kind", KINDS)
def test_foreign_files(kind: str, tmp_path: Path) -> None:
    foreign(tmp_path / "a", kind, tmp_path / "trace")
    for reader in (load, inspect):
        assert_refused(tmp_path / "a", "is no jboost checkpoint|is damaged|is truncated", reader)
    assert not (tmp_path / "trace").exists()


def test_what_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        load(tmp_path / "missing")
    assert_refused(tmp_path, "is a folder")
    os.mkfifo(tmp_path / "pipe")
    assert_refused(tmp_path / "pipe", "is not a regular file")


def forge(
    path: Path, good: bytes, change: Any = None, *, names: Any = None, store: Any = None
) -> None:
    """A file with another header, other names or another zip layout, and a right checksum."""
    with zipfile.ZipFile(io.BytesIO(good)) as source:
        members = {info.filename: source.read(info) for info in source.infolist()}
    header = json.loads(members["jboost.json"])
    header = (change(header) or header) if change else header
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    members["jboost.json"] = text
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as target:
        for name, data in members.items():
            info = zipfile.ZipInfo((names or {}).get(name, name))
            info.compress_type = store if store and name != "jboost.json" else zipfile.ZIP_STORED
            target.writestr(info, data)
        target.comment = b"sha256:" + b"0" * 64
    body = out.getvalue()[:-64]
    path.write_bytes(body + hashlib.sha256(body).hexdigest().encode())


def rewrite(path: Path, good: bytes, change: Any) -> None:
    """A file that is laid out as it should be, with another header."""
    path.with_suffix(".good").write_bytes(good)
    header, arrays = archive.read(path.with_suffix(".good"))
    del header["arrays"]
    arrays = change(header, arrays) or arrays
    with path.open("wb") as file:
        archive.write(file, header, arrays)


def claim(*entry: Any) -> Any:
    """Change what the header says of the first array."""
    return lambda header: header["arrays"].__setitem__(0, list(entry))


def with_header(**changes: Any) -> Any:
    return lambda header: header | changes


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_header(format=2, library="9.9"), r"format 2, by jboost 9\.9, newer.*Upgrade"),
        (with_header(format="1"), "is damaged"),
        (with_header(format=True), "is damaged"),
        (with_header(format=0), "is damaged"),
        (with_header(arrays=None), "list of arrays"),
        (with_header(arrays=[["a", "float32", []]] * 2), "list of arrays"),
        (with_header(arrays=[["a", "float32", []]] * 70_000), "list of arrays"),
        (claim("state.w", "float32", [2**60]), "is truncated"),
        (claim("state.w", "float32", [2**40, 2**40]), "list of arrays"),
        (claim("state.w", "float32", [0, 2**62]), "list of arrays"),
        (claim("state.w", "float32", [-2]), "list of arrays"),
        (claim("state.w", "float32", [2.0]), "list of arrays"),
        (claim("state.w", "float32", [True, 2]), "list of arrays"),
        (claim("state.w", "float32", [1] * 40 + [2]), "list of arrays"),
        (claim("state.w", "object", [2]), "list of arrays"),
        (claim("state.w", "<f4", [2]), "list of arrays"),
        (claim("state.w", ["float32"], [2]), "list of arrays"),
        (claim("ä", "float32", [2]), "list of arrays"),
        (claim(7, "float32", [2]), "list of arrays"),
        (claim("state.w", "float32"), "list of arrays"),
        (claim("state.w", "float32", [1]), "bytes too many"),
        (lambda header: b"[" * 100_000, "header cannot be read"),
        (lambda header: b"1" * 100_000, "header cannot be read"),
        (lambda header: b'{"format": NaN}', "header cannot be read"),
        (lambda header: b'{"format": 1', "header cannot be read"),
        (lambda header: b"\xff\xfe", "header cannot be read"),
        (lambda header: b" " * (archive.LARGEST_HEADER + 1), "header claims"),
        (lambda header: b"[" + b"[]," * 300_000 + b"[]]", "header cannot be read"),
    ],
)  # fmt: skip
def test_false_headers(change: Any, reason: str, good: bytes, tmp_path: Path) -> None:
    forge(tmp_path / "a", good, change)
    assert_refused(tmp_path / "a", reason)


def test_false_layouts(good: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    for names in ({"state.w.npy": "../../../../etc/w.npy"}, {"state.w.npy": "/tmp/x.npy"}):
        forge(path, good, names=names)
        assert_refused(path, "is no jboost|truncated|too many")
    forge(path, good, names={"state.w.npy": "../te.w.npy"})  # as long as the right one
    assert_refused(path, "do not trust it|too many|truncated")
    for method in (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        forge(path, good, store=method)
        assert_refused(path, "truncated|too many")
    # The right bytes, of the right length, with one name changed and the checksum put right.
    body = good[:-64].replace(b"state.w.npy", b"../../w.npy")
    path.write_bytes(body + hashlib.sha256(body).hexdigest().encode())
    assert_refused(path, "do not trust it")
    # A header that claims four gigabytes.
    path.write_bytes(good[:22] + struct.pack("<I", 2**32 - 1) + good[26:])
    assert_refused(path, "header")


def test_larger_than_any_can_be(good: bytes, tmp_path: Path) -> None:
    path, claimed = tmp_path / "a", 2**36

    forge(path, good, claim("state.w", "uint8", [claimed]))
    with path.open("r+b") as file:  # sparse: it takes no room on the disk
        missing = str(load_error(path)).split(" of ")[1].split()[0]
        file.truncate(int(missing))
    assert_refused(path, "larger than any can be")


def load_error(path: Path) -> Exception:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    return caught.value


def replaced(**changes: Any) -> Any:
    return lambda header, arrays: header.update(changes)


def sgd(**fields: Any) -> Any:
    return replaced(model={"class": "SGD", "fields": fields})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (replaced(model={"class": "os.system", "fields": {}}), "needs the model class os.system"),
        (replaced(model={"class": "a\x1b[2J\u202e", "fields": {}}), r"class a \[2J , which is not"),
        (replaced(model={"class": "Weighted", "fields": {}}), "not a learner"),
        (replaced(model={"class": "LeastSquares", "fields": {"forgetting": 1.0, "ridge": 1.0,
                  "max_variance": None, "forget_by_weight": False}}), "cannot be rebuilt"),
        (replaced(model=0.5), "not a learner"),
        (replaced(model={"class": "SGD", "fields": {}, "x": 1}), "nothing that save writes"),
        (replaced(model={"eval": "1"}), "nothing that save writes"),
        (sgd(step_size=0.1, guard=True, evil=1), r"setting model\.evil, which SGD does not know"),
        (sgd(guard=True), "cannot be rebuilt.*step_size"),
        (sgd(step_size="0.1", guard=True), r"model\.step_size is nothing that save writes"),
        (sgd(step_size={"float": "1e5"}, guard=True), "nothing that save writes"),
        (sgd(step_size={"array": "missing", "kind": "jax"}, guard=True), "nothing that save"),
        (sgd(step_size={"array": "state.w", "kind": "pickle"}, guard=True), "nothing that save"),
        (sgd(step_size={"opaque": "os.system"}, guard=True), "cannot hold all of its model"),
        (sgd(step_size=json.loads("[" * 150 + "0" + "]" * 150), guard=True), "too deeply"),
        (sgd(step_size={"array": "state.w", "kind": "jax"}, guard=True), "step_size must be"),
        (sgd(step_size=0.1, guard=1), "guard must be True or False; got 1"),
        (lambda header, arrays: arrays | {"model.other": np.zeros(1)}, "arrays are not those"),
        (replaced(num_features=2**60), "num_features must be .* <= 2147483647; got 11529215046"),
        (replaced(num_features=2**31 - 1), "would take 8,589,934,588 bytes"),
        (replaced(num_features=2**29), r"state\.w has float32\[2\] where float32\[536870912"),
        (replaced(num_features=0), "num_features"),
        (replaced(num_features="2"), "num_features"),
        (replaced(num_features=None), "num_features"),
        (replaced(dtype="object"), "cannot be rebuilt"),
        (replaced(batch=[2]), "where"),
        (replaced(batch=7), "cannot be rebuilt"),
        (replaced(keys={"key": "os.system"}), "cannot be rebuilt.*PRNG"),
        (replaced(keys={"key": "rbg"}), "cannot be rebuilt.*PRNG"),
        (replaced(keys={}), "its key is no jax.random.key"),
        (replaced(position=-1), "position"),
        (replaced(position="x"), "position"),
        (replaced(extra=3), "cannot be rebuilt"),
        (replaced(extra={"a": json.loads("[" * 150 + "]" * 150)}), "extra must be nested at most"),
        (lambda header, arrays: header.pop("keys") and None, "cannot be rebuilt"),
        (lambda header, arrays: arrays | {"other": np.zeros(1)}, "arrays are not those"),
        (lambda header, arrays: {"../../w": arrays["state.w"]}, "arrays are not those"),
        (lambda header, arrays: {"state.w": arrays["state.w"][:1]}, "where"),
        (lambda header, arrays: {"state.w": arrays["state.w"].astype("f2")}, "float16"),
    ],
)  # fmt: skip
def test_false_contents(change: Any, reason: str, good: bytes, tmp_path: Path) -> None:
    """Forged files whose checksum and layout are right."""
    rewrite(tmp_path / "a", good, change)
    assert_refused(tmp_path / "a", reason)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (replaced(position="x"), "a holds what save does not write"),
        (lambda header, arrays: header.pop("jax") and None, "a holds what save does not write"),
        (replaced(extra={"stream": {"scored": 1, "squared_error": "x", "skipped": 0}}), "a holds"),
        (replaced(model=json.loads("[" * 900 + "0" + "]" * 900)), "a holds"),
        (replaced(model={"class": "a\x1b[2J", "fields": {}}), "model       a [2J"),
        (replaced(extra={"caller": {"columns": {"target": "y", "inputs": [
            {"name": "a", "kind": "hashed", "buckets": 2**60, "values": []}]},
            "name": "\x1b[2J", "file": "f"}}), "rows seen   5"),
    ],
)  # fmt: skip
def test_the_command_shows_any_file_safely(
    change: Any, expected: str, good: bytes, tmp_path: Path, capsys: Any
) -> None:
    rewrite(tmp_path / "a", good, change)
    main(["inspect", str(tmp_path / "a")])
    shown = "".join(capsys.readouterr())
    assert expected in shown and "Traceback" not in shown and "\x1b" not in shown
    assert main(["inspect", str(tmp_path / "a"), "--json"]) in (0, 1)
    shown = "".join(capsys.readouterr())
    assert shown.startswith(("{", "jboost: error: ")) and "\x1b" not in shown


@pytest.mark.parametrize("depth", [900, 5_000, 100_000])
def test_headers_nested_deeply(depth: int, good: bytes, tmp_path: Path, capsys: Any) -> None:
    def deep(header: dict[str, Any]) -> bytes:
        text = json.dumps(header | {"extra": {"a": "deep"}})
        return text.replace('"deep"', "[" * depth + "]" * depth).encode()

    forge(tmp_path / "a", good, deep)
    assert_refused(tmp_path / "a", "header cannot be read|do not trust it|extra must be nested")
    for words in ([], ["--json"]):
        assert main(["inspect", str(tmp_path / "a"), *words]) == 1
        assert capsys.readouterr().err.startswith(f"jboost: error: {tmp_path}/a ")


MEASURED = """
import sys
from jboost.checkpoints.checkpoint import CheckpointError, inspect, load
from support.memory import peak
before, refused = None, 0
for path in sys.argv[1:]:
    for reader in (load, inspect):
        try:
            reader(path)
        except CheckpointError:
            refused += 1
    before = before or peak()  # the first file is a good one
print(refused, peak() - before)
"""


@pytest.mark.skipif(not memory.TOLD, reason="the system does not tell")
def test_memory_of_the_whole_process(good: bytes, tmp_path: Path) -> None:
    """Memory as the system counts it, which includes what tracemalloc does not see."""
    paths = [tmp_path / "good"]
    for kind in KINDS:
        paths.append(tmp_path / kind)
        foreign(paths[-1], kind, tmp_path / "trace")
    for number, change in enumerate(
        [
            claim("state.w", "float32", [2**60]),
            claim("state.w", "uint8", [2**31]),
            lambda header: b"[" + b"[]," * 1_390_000 + b"[]]",
            with_header(arrays=[[f"a{i}", "float32", []] for i in range(60_000)]),
        ]
    ):
        paths.append(tmp_path / f"forged {number}")
        forge(paths[-1], good, change)
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *map(str, paths)],
        capture_output=True, text=True, check=True, env=os.environ | memory.ENVIRONMENT,
    )  # fmt: skip
    refused, grown = done.stdout.split()
    assert int(refused) == 2 * (len(paths) - 1) and float(grown) < 200


def test_huge_boosters_are_not_built(tmp_path: Path) -> None:
    booster = jb.bsgd_wu(2, target_mse=0.1, step_size=0.1)
    save(tmp_path / "good", booster, booster.init(3))

    def change(header: dict[str, Any], arrays: Any) -> None:
        header["model"]["fields"]["sizes"] = [2**60]

    rewrite(tmp_path / "a", (tmp_path / "good").read_bytes(), change)
    assert_refused(tmp_path / "a", r"1152921504606846976")
