"""``python -m jboost`` is the command ``jboost``."""

import sys

from jboost.cli import main

sys.exit(main())
