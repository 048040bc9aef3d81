"""``python -m taut`` is the command line."""

from taut.cli import main

main()
