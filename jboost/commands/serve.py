"""``jboost serve``: models over HTTP, which predict now and learn when the answer comes."""

import argparse
import os
import re
from pathlib import Path
from typing import Any

from jboost import adapters
from jboost.checkpoints import checkpoint
from jboost.commands import options, terminal
from jboost.commands.terminal import WRONG_USAGE, CommandError, explaining, option
from jboost.core import extras
from jboost.fleets.shards import MANIFEST
from jboost.serving import keyed, keys, members, service
from jboost.serving.accounts import Account
from jboost.serving.guard import Rules, hosts_for, is_loopback
from jboost.serving.log import Limits
from jboost.serving.service import Service

VARIABLE = "JBOOST_TOKEN"  # of the environment: the token that requests must carry
SHORTEST_TOKEN = 16  # characters
DAY = 86400.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

DESCRIPTION = """\
Serve models over HTTP on one machine. POST /predict answers with a prediction
and keeps the row under its id; POST /learn takes the answer when it comes, and
replies once that is durable. Nothing that was acknowledged is lost, whenever
the process ends: the same command again goes on from DIR, to the last bit.
"""
EPILOG = f"""\
MODEL.run is a file of jboost run --checkpoint, or a folder of one with --key;
it is read once, and not changed. Without one, a model learns from nothing: the
first request fixes the columns. A model is called as its file is, or as --model
says. The page at / shows how the models do, /docs describes the interface.

The server listens on this machine only. With another --host every request must
carry a token, from the environment variable {VARIABLE} or a file.

examples:
  jboost serve --target price --state houses/
  jboost serve trips.run --state trips/ --shadow new.run
  curl localhost:8000/predict -H 'Content-Type: application/json' \\
      -d '{{"id": "a", "features": {{"rooms": 3, "area": 72.5}}}}'
  curl localhost:8000/learn -H 'Content-Type: application/json' \\
      -d '{{"id": "a", "answer": 310000}}'
"""


def add(commands: terminal.Subcommands) -> None:
    """Add the subcommand to the parser."""
    text = "serve models over HTTP: predict now, learn when the answer comes"
    parser = terminal.subcommand(commands, run, "serve", text, DESCRIPTION, EPILOG)
    parser.add_argument("runs", metavar="MODEL.run", nargs="*", help="a kept run; repeatable")
    text = "where everything is kept; it is made if it is absent"
    option(parser, "--state", "DIR", text, Path, required=True)
    option(parser, "--target", "COL", "what a model that learns from nothing predicts")
    text = "the field of a request that names its stream: a model for each key"
    option(parser, "--key", "COL", text)
    options.add_model(parser)
    text = "also say between which bounds a part P of the answers lies, such as 0.9"
    option(parser, "--intervals", "P", text, terminal.fraction)
    text = "a run that learns beside a model, to be compared and promoted; repeatable"
    option(parser, "--shadow", "[NAME=]MODEL.run", text, **terminal.REPEATABLE)
    net = parser.add_argument_group("the network")
    option(net, "--host", "A", "the address to listen on (default: 127.0.0.1)", default="127.0.0.1")
    text = "the port (default: 8000); 0 is any that is free"
    option(net, "--port", "N", text, terminal.whole_number(0, 65535), default=8000)
    text = f"a file that holds the token, instead of {VARIABLE}"
    option(net, "--token-file", "FILE", text, Path)
    bounds = parser.add_argument_group("limits")
    whole = terminal.whole_number
    text = "requests a second from one address (default: 10000)"
    option(bounds, "--rate", "N", text, whole(1), default=10_000)
    text = "megabytes of a request (default: 8)"
    option(bounds, "--largest-body", "MB", text, whole(1, 1024), default=8)
    text = "columns of the first request, at most (default: 256)"
    option(bounds, "--most-features", "N", text, whole(1, 16_384), default=service.MOST_FEATURES)
    text = "keys of a model, at most (default: 100000)"
    option(bounds, "--most-keys", "N", text, whole(1), default=keys.MOST)
    text = "open questions of a model, at most (default: 100000); the oldest give way"
    option(bounds, "--most-questions", "N", text, whole(1), default=Limits().questions)
    text = "days that the server is up after which questions and ids are forgotten (default: 7)"
    option(bounds, "--expire", "DAYS", text, whole(1), default=7)
    text = "answers between two checkpoints (default: 10000)"
    option(bounds, "--every", "N", text, whole(1), default=service.EVERY_ROWS)


def run(args: argparse.Namespace) -> int:
    """Serve until the process is asked to end."""
    for package in ("starlette", "uvicorn", "httptools"):
        extras.need(package, "serve")
    # They need the packages of the extra.
    from jboost.serving import server
    from jboost.serving.web import Web

    rules = Rules(_token(args), hosts_for(args.host), args.rate, 2.0 * args.rate)
    limits = Limits(args.most_questions, age=args.expire * DAY)
    chosen = service.Options(limits, args.most_features, args.every, args.most_keys)
    adapters.compute_in_calling_thread()
    with explaining(f"{args.host}:{args.port} cannot be listened on"):
        listening = server.bind(args.host, args.port)
    with listening, options.keeping_programs():
        with explaining(f"{args.state} cannot be used"), options.refusing(terminal.FAILED):
            opened = Service(args.state, chosen, terminal.say)
        with opened:
            _add(args, opened)
            port = listening.getsockname()[1]
            host = f"[{args.host}]" if ":" in args.host else args.host
            names = ", ".join(opened.streams)
            text = f"serving {names} on http://{host}:{port}, kept in {args.state}"
            served = Web(opened, rules, args.largest_body * 2**20)
            if not server.run(served, listening, lambda: terminal.say(text)):
                raise CommandError("the server could not start")
    terminal.say(f"stopped; go on with the same command, or jboost serve --state {args.state}")
    return terminal.DONE


def _token(args: argparse.Namespace) -> str | None:
    """Return the token that requests must carry; off this machine there must be one."""
    token = os.environ.get(VARIABLE)
    if args.token_file is not None:
        with explaining(f"{args.token_file} cannot be read"):
            token = args.token_file.read_text(encoding="utf-8")
    token = token.strip() if token is not None else None
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii()):
        text = f"a token must have at least {SHORTEST_TOKEN} ASCII characters"
        raise CommandError(f"{text}; `openssl rand -hex 32` makes one", WRONG_USAGE)
    if token is None and not is_loopback(args.host):
        text = f"on {args.host} others can reach the server, so requests must carry a token"
        raise CommandError(f"{text}: set {VARIABLE}, or pass --token-file", WRONG_USAGE)
    return token


def _add(args: argparse.Namespace, opened: Service) -> None:
    """Add the models that the command names and the folder does not hold yet."""
    if args.key is not None and (args.runs or args.shadow):
        raise CommandError("--key is for models that learn from nothing", WRONG_USAGE)
    with explaining("a model cannot be kept"), options.refusing(terminal.FAILED):
        for text in args.runs:
            path = Path(text)
            name = _name(path)
            if _is_new(opened, name, name, path):
                origin, sums = _origin(path) if path.exists() else {}, None
                if path.is_dir():
                    member, account, asked, sums = keyed.from_keyed_run(path)
                    origin["anew"] = asked
                else:
                    member, account, _ = members.from_run(_readable(path))
                member = member._replace(position=0)
                assert member.columns is not None
                opened.add(name, member.columns.target, member, account, origin, sums)
    if args.target is not None or args.model is not None:
        _add_anew(args, opened)
    with explaining("a shadow cannot be kept"), options.refusing(terminal.FAILED):
        for text in args.shadow:
            of, equals, file = text.rpartition("=")
            if not equals and len(opened.streams) != 1:
                raise CommandError(f"which model is {text} the shadow of? NAME={text}", WRONG_USAGE)
            of, path = of or next(iter(opened.streams)), Path(file)
            if of not in opened.streams:
                raise CommandError(f"--shadow {text}: there is no model {of!r}", WRONG_USAGE)
            label = _name(path)
            if _is_new(opened, of, label, path):
                opened.add_shadow(of, label, _readable(path), _origin(path))
    if not opened.streams:
        text = f"{args.state} holds no model yet: name a MODEL.run, or pass --target COL"
        raise CommandError(text, WRONG_USAGE)


def _add_anew(args: argparse.Namespace, opened: Service) -> None:
    """Add the model that learns from nothing."""
    if args.key is not None and (args.intervals is not None or args.key == args.target):
        text = "--key goes with no --intervals, and names another column than --target"
        raise CommandError(text, WRONG_USAGE)
    name = options.known_model(args.model)
    settings = {setting: str(value) for setting, value in args.set}
    asked: dict[str, Any] = {"name": name, "settings": settings, "seed": args.seed}
    asked |= {"intervals": args.intervals, "key": args.key}
    origin = {"anew": asked}
    before = opened.origin(name, name)
    if before is not None:
        stream = opened.streams[name]
        if before != origin or args.target not in (None, stream.target):
            text = f"{args.state} holds {name} with another target or other settings"
            raise CommandError(f"{text}; name another --state", WRONG_USAGE)
        return
    if args.target is None:
        raise CommandError("--target is missing: what is to be predicted?", WRONG_USAGE)
    with options.refusing():
        member = members.anew(**asked)
    opened.add(name, args.target, member, Account(name, member.coverage), origin)


def _name(path: Path) -> str:
    if not NAME.fullmatch(path.stem):
        text = f"{path}: a model is called as its file is, with letters, digits, dots and dashes"
        raise CommandError(f"{text}; rename the file", WRONG_USAGE)
    return path.stem


def _readable(path: Path) -> Path:
    with explaining(f"{path} cannot be read"):
        checkpoint.inspect(path)
    return path


def _origin(path: Path) -> dict[str, Any]:
    """Return what tells a kept run from others; that of a model for each key is a folder."""
    if path.is_dir() and not (path / MANIFEST).exists():
        raise ValueError(f"{path} is a folder without a run of jboost run --key --checkpoint")
    return {"run": members.digest(path / MANIFEST if path.is_dir() else path)}


def _is_new(opened: Service, stream: str, label: str, path: Path) -> bool:
    """Return whether the folder lacks a member; one that came from another file is refused."""
    before = opened.origin(stream, label)
    if before is None:
        return True
    if path.exists() and before.get("run") != _origin(path)["run"]:
        text = f"the folder goes on from another {path.name}"
        raise CommandError(f"{text}: pass it by --shadow under another name", WRONG_USAGE)
    if stream in opened.streams and label not in opened.streams[stream].now.members:
        terminal.say(f"{label} was dropped, and stays so; under another name it begins again")
    return False
