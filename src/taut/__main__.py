"""The command line: ``taut``, and ``python -m taut``."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is loaded ends in one line too."""
    try:
        from taut.commands.app import main as run
    except KeyboardInterrupt:
        print("taut: interrupted before there was a plan", file=sys.stderr)
        sys.exit(4)
    run()


if __name__ == "__main__":
    main()
