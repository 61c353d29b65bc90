"""The command with small blocks of text and a pause after each: slow enough to be killed midway.

python slow_command.py BYTES_OF_A_BLOCK run FILE …
"""

import sys
import time
from typing import Any

from jboost.cli import main
from jboost.files import lines, predictions

_write = predictions.Predictions.write


def _slowly(self: predictions.Predictions, *rest: Any, **more: Any) -> None:
    _write(self, *rest, **more)
    time.sleep(0.03)


if __name__ == "__main__":
    lines.BLOCK_BYTES = int(sys.argv[1])
    predictions.Predictions.write = _slowly  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
