"""The subcommands of ``jboost``, a file for each.

Each file has ``add(commands)``, which adds the subcommand to the parser, and ``run(args)``, which
returns the exit status. ``terminal``, ``options`` and ``outcome`` hold what they share. May import
from all rooms before.
"""
