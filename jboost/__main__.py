"""``python -m jboost`` is the command ``jboost``."""

import sys

from jboost.cli import main

if __name__ == "__main__":
    sys.exit(main())
