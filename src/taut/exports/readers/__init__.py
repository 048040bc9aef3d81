"""Launchers' own settings read as values that ``taut.plan`` may fix."""
