"""``python -m taut`` is the command line."""

from taut.commands.app import main

main()
