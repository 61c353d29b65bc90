"""Packages that only some of the library needs: imported where used, named clearly when missing."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingExtra(ImportError):  # noqa: N818  (it says what is missing, not that something broke)
    """A package that an optional part needs is not installed; the message says how to get it."""


def need(module: str, extra: str) -> ModuleType:
    """The module, or an error that names the extra which brings it.

    >>> need("json", "io").loads("[1]")
    [1]
    >>> need("no_such_package.part", "plot")
    Traceback (most recent call last):
    jboost.core.extras.MissingExtra: no_such_package is missing; pip install "jboost[plot]" ...
    """
    package = module.partition(".")[0]
    try:
        importlib.import_module(package)  # first: its submodules may be loaded without it
    except ModuleNotFoundError as error:
        if error.name != package:  # it is there, but something it needs is not: let it say so
            raise
        advice = f'{package} is missing; pip install "jboost[{extra}]" brings it'
        raise MissingExtra(advice, name=package) from None
    return importlib.import_module(module)
