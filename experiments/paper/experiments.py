"""Makes ``import experiments`` work in a script that is started by its path.

``python experiments/paper/duffing.py`` lets Python look for modules in this folder only. There it
finds this file under the name of the package, and ``__path__`` leads on to the package itself.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[1])]
