"""Launchers' settings, read."""
