"""The subcommands of ``jboost``, a file for each.

Each has ``add(commands)``, which adds the subcommand to the parser, and ``run(args)``, which
returns the exit status. ``terminal`` and ``options`` are shared. May import from all rooms before.
"""
