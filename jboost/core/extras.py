"""Imports packages that only parts of the library need, with a clear error if one is missing."""

import importlib
import sys
from types import ModuleType

_imported: dict[str, ModuleType] = {}  # in full, by name


class MissingExtra(ImportError):  # noqa: N818  (nothing is broken: a package is not installed)
    """A package of an extra is not installed; the message says how to install it."""


def need(module: str, extra: str) -> ModuleType:
    """Import a module, or raise an error that names the extra which brings its package.

    >>> need("json", "io").loads("[1]")
    [1]
    >>> need("no_such.part", "plot")
    Traceback (most recent call last):
    jboost.core.extras.MissingExtra: no_such is missing; pip install "jboost[plot]" brings it
    """
    package = module.partition(".")[0]
    known = _imported.get(module)
    if known is not None and sys.modules.get(module) is known and sys.modules.get(package):
        return known  # importlib takes four times as long to find it
    try:
        importlib.import_module(package)  # first: its submodules may be loaded without it
    except ModuleNotFoundError as error:
        if error.name != package:  # the package is there, but something that it needs is not
            raise
        advice = f'{package} is missing; pip install "jboost[{extra}]" brings it'
        raise MissingExtra(advice, name=package) from None
    _imported[module] = importlib.import_module(module)
    return _imported[module]
