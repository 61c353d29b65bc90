"""What the ``jboost`` command does, a file for each of its subcommands.

Each has ``add(commands)``, which adds it to the parser and names the function that runs it.
"""
