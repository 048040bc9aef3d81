"""The command line: ``taut``, and ``python -m taut``."""

import signal
import sys
from types import FrameType


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM while it is loaded end in one line too."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        from taut.commands.app import main as run
    except KeyboardInterrupt:
        print("taut: interrupted before there was a plan", file=sys.stderr)
        sys.exit(4)
    run()


if __name__ == "__main__":
    main()
